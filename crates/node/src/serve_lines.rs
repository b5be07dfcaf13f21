//! Keys that somebody watches or waits for have changed, on a durable node: watches are flagged, and blocked
//! clients whom the entry itself could not serve ([`crate::serve_after`]) are served over held regions: a
//! move to another region, more elements than the command had arguments, an EXEC.

use std::sync::Arc;

use keyspace::KeyChange;

use crate::effect_request::EffectRequest;
use crate::effects::Effects;
use crate::route::regions_of;
use crate::{Context, OwnedRegions, Place, PlacedKey, Region, RegionBox, Waiter, only_key};

/// The head of a line.
pub enum First {
    Claimed(Arc<Waiter>),
    Nobody,
    /// Another core is just trying to serve it.
    NotNow,
}

impl OwnedRegions {
    /// Flags the watches of all keys that have changed in regions that are here; the keys for which
    /// somebody waits, in the order they changed.
    pub fn flag_changes(&mut self) -> Vec<(Place, PlacedKey)> {
        let mut awaited = Vec::new();
        for region in self.present() {
            if !region.space.has_key_changes() {
                continue;
            }
            let place = region.id;
            for KeyChange { db, key } in region.space.take_key_changes() {
                let Some(interest) = region.interest_mut(db, &key) else {
                    continue;
                };
                interest.flag_watchers();
                if !interest.waiters.is_empty() {
                    awaited.push((place, (db, key)));
                }
            }
        }
        awaited
    }

    /// Handles the changes of all regions that are here.
    pub fn on_changes(&mut self, cx: &Context<'_>, out: &mut Effects) {
        for (place, (db, key)) in self.flag_changes() {
            let region = self.region_mut(place);
            if region.is_none_or(|region| region.space.may_have(db, &key)) {
                self.serve_line(place, (db, key), cx, out);
            }
        }
        self.run_groups(cx, out);
    }

    /// Serves the first in line for a key; the next follows when it is over.
    pub(crate) fn serve_line(
        &mut self,
        place: Place,
        key: PlacedKey,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        let line = (place, key);
        if let Some(has_changed) = self.groups.serving.get_mut(&line) {
            *has_changed = true;
            return;
        }
        let (place, key) = line;
        let Some(region) = self.slots.region_mut(place) else {
            // If it is lent, the line goes on when it comes back; if it has left this node, those in line
            // were told.
            if self.is_used(place) {
                self.groups.lines.push((place, key));
            }
            return;
        };
        let waiter = match region.claim_first(&key) {
            First::Claimed(waiter) => waiter,
            First::Nobody => return,
            First::NotNow => {
                self.groups.lines.push((place, key));
                out.serves_soon = true;
                return;
            }
        };
        let spec = cx.specs.spec(waiter.stat);
        let command = only_key(spec, &waiter.command.args(0), &key.1);
        let regions = regions_of(cx.map, spec, &command.args(0));
        self.groups.serving.insert((place, key.clone()), false);
        let request = EffectRequest::serve(regions, waiter, command, place, key);
        self.submit(request);
    }

    /// Lines that could not be served when it was their turn are tried again.
    pub fn serve_lines(&mut self, cx: &Context<'_>, out: &mut Effects) {
        for (place, key) in std::mem::take(&mut self.groups.lines) {
            self.serve_line(place, key, cx, out);
        }
        self.run_groups(cx, out);
    }

    /// Regions come back: their changes are handled, then those in line get their turn.
    pub fn take_back(&mut self, regions: Vec<RegionBox>, cx: &Context<'_>, out: &mut Effects) {
        let returned: Vec<Place> = regions.iter().map(|region| region.id).collect();
        let mut has_changes = false;
        for mut region in regions {
            if std::mem::take(&mut region.is_undone) {
                region.close_write_back(out); // here, where those are who wait for it
            }
            has_changes |= region.space.has_key_changes();
            self.put(region);
        }
        if has_changes {
            self.on_changes(cx, out);
        }
        if !self.groups.lines.is_empty() {
            self.serve_lines(cx, out);
        }
        for &place in &returned {
            self.unpark(place, cx, out);
        }
        // What waited for the region goes before the next in line, or it might wait as long as others
        // borrow.
        for &place in &returned {
            self.propose_first(place, cx, out);
        }
        self.propose_queued(cx, out);
        out.returned.extend(returned);
        self.grant_next(cx, out);
    }
}

impl Region {
    /// Takes the first live waiter out of a key's line, claimed.
    pub fn claim_first(&mut self, (db, key): &PlacedKey) -> First {
        let Some(interest) = self.interest_mut(*db, key) else {
            return First::Nobody;
        };
        while let Some(waiter) = interest.waiters.pop_front() {
            if waiter.claim.serve() {
                return First::Claimed(waiter);
            }
            if !waiter.claim.is_over() {
                interest.waiters.push_front(waiter);
                return First::NotNow;
            }
        }
        First::Nobody
    }
}
