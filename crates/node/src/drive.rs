//! The one place where a region's Raft replica is driven: what it has to write and to say goes out,
//! what is committed is applied.

use crate::effects::Effects;
use crate::{Context, OwnedRegions, Place, Region};

impl OwnedRegions {
    /// Passes on what a region's replica has to say, and applies what is committed.
    pub fn drive(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        loop {
            let Some(region) = self.slots.region_mut(place) else {
                return;
            };
            let Some(member) = region.member.as_deref_mut() else {
                return;
            };
            if !member.replica.has_ready() {
                break;
            }
            let mut ready = std::mem::take(&mut member.ready);
            member.replica.ready(&mut ready);
            member.committed.extend(ready.committed.drain(..));
            let is_ours = member.replica.is_leader();
            if let Some(write) = ready.write.take() {
                self.outgoing.push(place, write, is_ours, out);
            }
            if let Some(fetch) = ready.fetch.take() {
                out.fetches.push((place, fetch));
            }
            region.on_peer_ready(&mut ready, cx, out);
            if let Some(member) = region.member.as_deref_mut() {
                member.ready = ready;
            }
            self.outgoing.is_flush_asked = true;
        }
        self.apply(place, cx, out);
    }

    /// Entries of the log have been read.
    pub fn on_entries(
        &mut self,
        place: Place,
        entries: Result<Vec<replica::Entry>, String>,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        let Some(member) = self.member_mut(place) else {
            // The replica waits for them: it gets them when the region comes home.
            if let Some(slot) = self.slots.used_mut(place) {
                slot.parked_entries = Some(entries);
            }
            return;
        };
        let fetched = entries.and_then(|entries| {
            let fetched = member.replica.on_fetched(entries);
            fetched.map_err(|error| error.to_string())
        });
        if let Err(reason) = fetched {
            cx.host.fail(&reason);
            return self.fail_region(place, cx, out);
        }
        self.drive(place, cx, out);
    }

    /// The log writer has written these writes of regions, or has failed. Regions led elsewhere answer
    /// their leaders at once; the others go on with [`OwnedRegions::drive_logged`], behind what clients
    /// have sent meanwhile.
    pub fn on_logged(
        &mut self,
        numbers: &[(Place, u64)],
        ok: bool,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        for &(place, number) in numbers {
            if !ok {
                self.fail_region(place, cx, out);
                continue;
            }
            if let Some(member) = self.member_mut(place) {
                member.replica.on_persisted(number);
            }
            let is_led_elsewhere = cx.is_cluster
                && self
                    .region_mut(place)
                    .is_some_and(|region| region.is_led_elsewhere());
            if is_led_elsewhere {
                // Its leader waits to hear that it is here, and nobody sends us more.
                self.drive(place, cx, out);
            } else if !self.logged.contains(&place) {
                self.logged.push(place);
            }
        }
        out.wakes = true;
    }

    /// Whether [`OwnedRegions::drive_logged`] has something to do.
    pub fn has_logged(&self) -> bool {
        !self.logged.is_empty()
    }

    /// Goes on with the regions whose last write is in the log.
    pub fn drive_logged(&mut self, cx: &Context<'_>, out: &mut Effects) {
        for place in std::mem::take(&mut self.logged) {
            self.drive(place, cx, out);
        }
    }

    /// The store has on disk what a region's log had before `index`.
    pub fn on_cut(&mut self, place: Place, index: u64, keep_bytes: u64) {
        // A region that is lent is told the next time.
        if let Some(member) = self.member_mut(place) {
            member.replica.set_keep_bytes(keep_bytes);
            let unneeded = member.replica.truncate_to(index);
            member.note_unneeded(place, unneeded);
        }
    }
}

impl Region {
    /// The part of a `Ready` that is about peers.
    fn on_peer_ready(&mut self, ready: &mut replica::Ready, cx: &Context<'_>, out: &mut Effects) {
        if self.member.as_ref().is_some_and(|it| it.peers.is_some()) {
            self.hear_peers(ready, cx, out);
        }
    }
}
