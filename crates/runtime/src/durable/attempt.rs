//! Blocking commands on one region: one that would find nothing is not proposed.
//!
//! ```text
//!   look at the keys, as a read does ─► none exists: in line at each, nothing is logged
//!                                    └► one exists:  next entry ─► applied ─► reply
//!                                                                └► taken meanwhile: in line at each
//! ```
//!
//! *Invariants*: nothing is applied to the region between the look and the place in line, because one
//! call on the region's core does both. Entries under way at that moment, and all later ones, change a
//! key that has a line, which serves it. The look needs what a read needs (a lease, or a confirmed
//! round): a client whose time is up without an element had nothing at the moment of the look. The look
//! changes nothing of the region, so a key whose time has come stays for an entry to remove: the command
//! itself runs on an empty keyspace of its own, where it finds what it would find here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use base::Refusal;
use keyspace::{Keyspace, View};
use node::{Serving, awaited_keys};

use crate::cores::{Absent, Batch, BatchBox, Call, Cold, Core, Ran, Region};

impl Core {
    /// A blocking command has come, with its waiter.
    pub(crate) fn on_blocking(self: &Rc<Self>, mut batch: BatchBox) {
        let mut why = match self.look(&mut batch, false) {
            Ok(ran) => return self.after_look(batch, ran),
            Err(why) => why,
        };
        let core = self.clone();
        tokio::task::spawn_local(async move {
            let ran = loop {
                let mut is_confirmed = false;
                match why {
                    Absent::Lent => break core.look_held(&mut batch).await,
                    Absent::Cold(cold) => core.bring(*cold).await,
                    Absent::Unconfirmed(region) => {
                        match core.pass_read_barrier(region, false).await {
                            Ok(()) => is_confirmed = true,
                            Err(why) => return core.redirect_batch(batch, why),
                        }
                    }
                }
                core.begin_batch();
                match core.look(&mut batch, is_confirmed) {
                    Ok(ran) => break ran,
                    Err(again) => why = again,
                }
            };
            core.after_look(batch, ran);
        });
    }

    /// In line or refused, it goes back to its session; else through the log.
    fn after_look(self: &Rc<Self>, mut batch: BatchBox, ran: Ran) {
        match ran {
            Ran::Done => self.enqueue(batch),
            Ran::Empty | Ran::Refused => {
                batch.ends.push(batch.replies.len());
                self.finish_batch(batch);
            }
        }
    }

    /// `Empty`: nothing there, its waiter is in line. `Done`: there may be something, nothing is written.
    fn look(self: &Rc<Self>, batch: &mut Batch, is_confirmed: bool) -> Result<Ran, Absent> {
        let Some(&(stat, db)) = batch.heads.first() else {
            return Ok(Ran::Done);
        };
        let row = self.shared.commands.row(stat as usize);
        let args = batch.commands.args(0);
        let keys = awaited_keys(row, &args);
        let mut home = self.regions.borrow_mut();
        let is_used = home.is_used(batch.region);
        let Some(region) = home.region_mut(batch.region) else {
            return if is_used {
                Err(Absent::Lent)
            } else {
                Ok(Ran::Done)
            };
        };
        let names_row = |key: &&[u8]| region.space.names_row(db, key);
        if region.serving(self.lease_ms()) == Serving::No
            || self.has_failed()
            || region.is_behind(self.shared.catalogue_version())
            || keys.iter().any(names_row)
        {
            return Ok(Ran::Done); // the log's way knows what to say
        }
        let is_cold = |key: &&&[u8]| !region.space.is_resident(db, key);
        let cold: Vec<_> = keys.iter().filter(is_cold).collect();
        if !cold.is_empty() {
            let keys = cold.into_iter().map(|&key| (db, key.into())).collect();
            return Err(Absent::Cold(Box::new(Cold {
                region: region.id,
                keys,
                ..Cold::default()
            })));
        }
        let settings = self.settings().clone();
        let (now_ms, seed) = (self.now_ms(), self.next_seed());
        let view = View::one(&mut region.space, db, now_ms, seed, &settings.tuning);
        if keys.iter().any(|key| view.kind(key).is_some()) {
            return Ok(Ran::Done);
        }
        self.is_confirmed.set(is_confirmed);
        if self.shared.cluster.is_some()
            && !region.may_read(self.is_confirmed.take(), self.boot_ms())
        {
            return Err(Absent::Unconfirmed(region.id));
        }
        let ran = self.find_nothing(batch);
        if ran == Ran::Empty {
            put_in_line(self, batch, region);
        }
        let met = match region.space.has_met_due() {
            true => self.expire_met(&mut region.space),
            false => Vec::new(),
        };
        drop(home);
        self.propose_due(batch.region, &met);
        Ok(ran)
    }

    /// As [`Core::look`], of a region that others hold: nothing of it is under way once it is held.
    async fn look_held(self: &Rc<Self>, batch: &mut Batch) -> Ran {
        let Some(&(stat, db)) = batch.heads.first() else {
            return Ran::Done;
        };
        let mut held = self.hold(&[batch.region]).await;
        self.begin_batch();
        if !held.has(&[batch.region]) {
            return Ran::Done;
        }
        let row = self.shared.commands.row(stat as usize);
        let args = batch.commands.args(0);
        held.load_keys_of(row, db, &args).await;
        let keys = awaited_keys(row, &args);
        let is_there =
            held.with_view_only(db, |view| keys.iter().any(|key| view.kind(key).is_some()));
        let names_row = |region: &Region| keys.iter().any(|key| region.space.names_row(db, key));
        if is_there || self.has_failed() || held.regions().iter().any(|it| names_row(it)) {
            return Ran::Done;
        }
        let ran = self.find_nothing(batch);
        if ran == Ran::Empty
            && let Some(region) = held.regions_mut().first_mut()
        {
            put_in_line(self, batch, region);
        }
        ran
    }

    /// Runs a command none of whose keys exists: it says what is wrong with its arguments, or `Empty`.
    fn find_nothing(&self, batch: &mut Batch) -> Ran {
        let Some(&(stat, db)) = batch.heads.first() else {
            return Ran::Done;
        };
        let call = Call {
            row: self.shared.commands.row(stat as usize),
            stat: stat as usize,
            db,
            client: &batch.client,
            is_held: true,
        };
        let args = batch.commands.args(0);
        let replies = &mut batch.replies;
        let settings = self.settings().clone();
        let (now_ms, seed) = (self.now_ms(), self.next_seed());
        let mut empty = Keyspace::new(seed);
        let view = View::one(&mut empty, db, now_ms, seed, &settings.tuning);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.invoke(&call, view, &args, replies)
        }));
        ran.unwrap_or_else(|_| {
            batch.replies.truncate(0);
            self.stats().unexpected_errors.add(1);
            batch.replies.refusal(&Refusal::new("ERR internal error"));
            Ran::Refused
        })
    }
}

/// Its command found nothing: its waiter is put in line at every key it waits on.
fn put_in_line(core: &Core, batch: &Batch, region: &mut Region) {
    let (Some(waiter), Some(&(stat, db))) = (&batch.waiter, batch.heads.first()) else {
        return;
    };
    let row = core.shared.commands.row(stat as usize);
    for key in awaited_keys(row, &batch.commands.args(0)) {
        region.add_waiter(db, key, waiter.clone());
    }
}

#[cfg(test)]
#[path = "attempt_tests.rs"]
mod tests;
