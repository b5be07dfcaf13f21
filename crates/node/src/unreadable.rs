//! Keys that cannot be read from disk: the commands that name them are refused, and where other replicas have
//! the region, this one is *quarantined*.
//!
//! | who | what happens |
//! |---|---|
//! | a read | is refused with the reason |
//! | an entry of the log, the only voter | the command is refused and changes nothing; the rest of the entry runs |
//! | an entry of the log, several voters | nothing is applied any more: others would apply it, so this replica may not skip it |
//!
//! A quarantined replica keeps its log and its vote, hands the leadership over, reports its damage to meta,
//! and is made anew from a healthy replica.

use base::{DbIndex, Refusal};
use command::CommandSpec;
use keyspace::Keyspace;
use resp::Args;

use crate::parsed::{Parsed, ParsedEntry};
use crate::{Context, OwnedRegions, Proposal, Region, Specs, ready};

/// What is said instead of running a command that names a key which cannot be read.
pub(crate) fn refusal(
    space: &Keyspace,
    spec: &CommandSpec,
    db: DbIndex,
    args: &Args<'_>,
) -> Option<Refusal> {
    if !space.has_unreadable() {
        return None;
    }
    let mut found = None;
    spec.each_key(db, args, &mut |db, key| {
        if found.is_none() {
            found = space.unreadable(db, key);
        }
    });
    found
}

/// The same for an entry and the reads that run with it.
pub(crate) fn refusal_of_entry(
    space: &Keyspace,
    specs: &Specs,
    payload: &[u8],
    entry: &ParsedEntry,
    proposal: Option<&Proposal>,
) -> Option<Refusal> {
    if !space.has_unreadable() {
        return None;
    }
    let mut found = None;
    if let Parsed::Commands(commands) = &entry.body {
        commands.each(specs, payload, |spec, db, args| {
            found = found.take().or_else(|| refusal(space, spec, db, &args));
        });
    }
    ready::each_read(specs, proposal, |_, _, spec, db, args| {
        found = found.take().or_else(|| refusal(space, spec, db, args));
    });
    found
}

impl Region {
    /// Whether other replicas have what this one cannot read.
    pub(crate) fn has_other_voters(&self) -> bool {
        let member = self.member.as_deref();
        member.is_some_and(|member| member.replica.members().voters.len() > 1)
    }

    /// A key of this region cannot be read: no other replica must rely on this one's state.
    pub(crate) fn quarantine(&mut self, refusal: &Refusal) {
        if !self.has_other_voters() {
            return;
        }
        if let Some(member) = self.member.as_deref_mut() {
            member.replica.refuse_leadership();
            member.damage.get_or_insert_with(|| refusal.text().into());
        }
    }
}

impl OwnedRegions {
    /// Leaders that are quarantined hand over; called at every tick.
    pub(crate) fn hand_over_damaged(&mut self, cx: &Context<'_>) {
        for region in self.present() {
            let place = region.id;
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let Some(damage) = &member.damage else {
                continue;
            };
            if !std::mem::replace(&mut member.is_damage_told, true)
                && let Some(peers) = member.peers.as_deref()
            {
                cx.host.on_damage(place, peers.record.region(), damage);
            }
            let replica = &mut member.replica;
            if replica.is_leader() && !replica.is_transferring() {
                let (voters, id) = (replica.members().voters.clone(), replica.id());
                let progress = replica.progress().into_iter();
                let successor = progress
                    .filter(|it| it.replica != id && voters.contains(&it.replica))
                    .max_by_key(|it| (it.is_active, it.matched));
                if let Some(successor) = successor {
                    // Refused: tried again at the next tick.
                    let _ = replica.transfer_leader(successor.replica);
                }
            }
        }
    }
}
