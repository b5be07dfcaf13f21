//! Keys whose time has come, or that are given up, removed by entries of the log, so that every replica
//! removes them at the same place.
//!
//! The rows have an index by deadline; its head is looked at every 100 ms, and as long as much is due one
//! entry follows the other. Reads do not see due keys in the meantime.

use keyspace::DueKey;
use keyspace::rows::{Tier, Victim};
use replica::entry::{EntryWriter, ExpireWriter};

use crate::effects::Effects;
use crate::{Context, OwnedRegions, Place, Proposal};

/// Keys removed by one entry.
const KEYS: usize = 512;

impl OwnedRegions {
    /// Proposes the removal of keys that are due by the index of deadlines.
    pub fn expire(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        let Some(region) = self.region_mut(place) else {
            return;
        };
        let Some(member) = region.member.as_deref() else {
            return;
        };
        if !member.replica.is_leader() || member.is_expiring() {
            return; // another replica sees to it, or the former entry is on its way
        }
        if let Ok(due) = region.space.due(cx.now_ms, KEYS, Tier::All) {
            self.propose_due(place, &due, cx, out);
        }
    }

    /// Proposes the removal of these keys, as far as they still have these deadlines then. Not if the
    /// region is lent or wanted: they are found again.
    pub fn propose_due(
        &mut self,
        place: Place,
        due: &[DueKey],
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        if due.is_empty() || self.is_wanted(place) {
            return;
        }
        let Some(member) = self.member_mut(place) else {
            return;
        };
        let stamp_ms = member.next_stamp(cx.now_ms);
        let mut entry = ExpireWriter::new();
        for (db, key, deadline_ms) in due {
            entry.push(*db, *deadline_ms, key);
        }
        if member.replica.propose(entry.finish(stamp_ms, 0)).is_err() {
            return;
        }
        let index = member.replica.last_index();
        member.expiring = index;
        member.add_proposal(Proposal {
            expires_full: due.len() >= KEYS,
            ..Proposal::new(index, member.replica.term())
        });
        self.drive(place, cx, out);
    }

    /// Proposes the removal of keys that were chosen to make room: if they still have their deadlines,
    /// where the policy asks for one.
    pub fn propose_eviction(
        &mut self,
        place: Place,
        victims: &[Victim],
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        let Some(member) = self.member_mut(place) else {
            return;
        };
        let stamp_ms = member.next_stamp(cx.now_ms);
        let payload = match cx.tuning.policy.is_volatile() {
            true => removals(victims, stamp_ms),
            false => deletions(victims, stamp_ms),
        };
        if member.replica.propose(payload).is_err() {
            return; // chosen again
        }
        let index = member.replica.last_index();
        let bytes = victims.iter().map(|victim| victim.bytes).sum();
        member.eviction.last = (index, bytes);
        member.add_proposal(Proposal {
            evicts: true,
            ..Proposal::new(index, member.replica.term())
        });
        self.drive(place, cx, out);
    }
}

/// Keys that go if they still have their deadlines.
fn removals(victims: &[Victim], stamp_ms: u64) -> Vec<u8> {
    let mut entry = ExpireWriter::new();
    for victim in victims {
        if let Some(deadline_ms) = victim.deadline_ms {
            entry.push(victim.db, deadline_ms, &victim.key);
        }
    }
    entry.finish(stamp_ms, 0)
}

fn deletions(victims: &[Victim], stamp_ms: u64) -> Vec<u8> {
    let mut entry = EntryWriter::new();
    for victim in victims {
        entry.push(victim.db, [&b"DEL"[..], &victim.key].into_iter());
    }
    entry.finish(stamp_ms, 0)
}
