//! Blocking commands on one region: one that would find nothing is not proposed.
//!
//! ```text
//!   look at the keys, as a read does ─► none exists: in line at each, nothing is logged
//!                                    └► one exists:  next entry ─► applied ─► reply
//!                                                                └► taken meanwhile: in line at each
//! ```
//!
//! *Invariants*: nothing is applied to the region between the look and the place in line, because one
//! call does both. Entries under way at that moment, and all later ones, change a key that has a line,
//! which serves it. The look needs what a read needs (a lease, or a confirmed round): a client whose time
//! is up without an element had nothing at the moment of the look. The look changes nothing of the region,
//! so a key whose time has come stays for an entry to remove: the command itself runs on an empty keyspace
//! of its own, where it finds what it would find here.

use keyspace::{Keyspace, View};
use resp::{Protocol, Reply};

use crate::effects::Effects;
use crate::reads::invoke;
use crate::run::{Absent, Cold, Ran};
use crate::{Batch, Context, OwnedRegions, Serving, awaited_keys};

impl OwnedRegions {
    /// `Empty`: nothing there, its waiter is in line. `Done`: there may be something, nothing is written.
    pub(crate) fn look(
        &mut self,
        batch: &mut Batch,
        is_confirmed: bool,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Result<Ran, Absent> {
        let place = batch.region;
        let Some(&(stat, db)) = batch.heads.first() else {
            return Ok(Ran::Done);
        };
        let spec = cx.specs.spec(stat as usize);
        let Some(region) = self.slots.region_mut(place) else {
            return match self.is_used(place) {
                true => Err(Absent::Lent),
                false => Ok(Ran::Done),
            };
        };
        let args = batch.commands.args(0);
        let keys = awaited_keys(spec, &args);
        let names_row = |key: &&[u8]| region.space.names_row(db, key);
        if region.serving(cx.clock_ms) == Serving::No
            || cx.host.has_failed()
            || region.is_catalogue_old(cx.catalogue.version)
            || keys.iter().any(names_row)
            || keys
                .iter()
                .any(|key| region.space.unreadable(db, key).is_some())
        {
            return Ok(Ran::Done); // the log's way knows what to say
        }
        if keys.iter().any(|key| !region.space.is_resident(db, key)) {
            // All of them come together: one by one, the next could push out the last, for ever.
            let keys = keys.iter().map(|&key| (db, key.into())).collect();
            return Err(Absent::Cold(Box::new(Cold {
                region: place,
                keys,
                ..Cold::default()
            })));
        }
        let seed = cx.seed();
        let view = View::one(&mut region.space, db, cx.now_ms, seed, cx.tuning);
        if keys.iter().any(|key| view.kind(key).is_some()) {
            return Ok(Ran::Done);
        }
        if cx.is_cluster && !region.may_read(is_confirmed, cx.clock_ms) {
            return Err(Absent::Unconfirmed(place));
        }
        let mut replies = std::mem::replace(&mut batch.replies, Reply::new(Protocol::Resp2));
        let mut empty = Keyspace::new(seed);
        let view = View::one(&mut empty, db, cx.now_ms, seed, cx.tuning);
        let ran = invoke(batch, spec, view, &args, &mut replies, cx);
        cx.host
            .on_command(batch, stat as usize, &args, ran == Ran::Refused);
        if let (Ran::Empty, Some(waiter)) = (ran, &batch.waiter) {
            for key in keys {
                region.add_waiter(db, key, waiter.clone());
            }
        }
        batch.replies = replies;
        let met = match region.space.has_met_due() {
            true if cx.host.is_expiry_paused() => {
                region.space.forget_met();
                Vec::new()
            }
            true => region.space.take_met(),
            false => Vec::new(),
        };
        self.propose_due(place, &met, cx, out);
        Ok(ran)
    }
}
