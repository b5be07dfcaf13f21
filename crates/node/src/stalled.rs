//! The disk of the log hangs, or has failed: others lead, and nobody waits for ever.
//!
//! A disk that hangs gives no error, and may go on any moment. So nothing is given up that could still happen: the
//! leaders of this node hand over ([`replica::Replica::leave`]) until the disk is well again. Clients of a region that
//! nobody else can lead (a node alone) hear after a while that their writes are in doubt, and new ones are refused.

use std::collections::VecDeque;

use base::Refusal;
use base::cluster::NodeId;

use crate::effects::Effects;
use crate::{Context, Outcome, OwnedRegions, Place, Proposal, Region, TIMEOUT_MS};

/// What a client is told whose write is on its way to such a disk. Not a word that makes clients try again by
/// themselves.
const IN_DOUBT: Refusal = Refusal::new(
    "INDOUBT the disk of the log does not answer; this write may or may not have happened, read to find out",
);
/// What a client is told whose write was not begun.
const STALLED: Refusal = Refusal::new(
    "MISCONF the disk of the log does not answer, so nothing is written; try again when it does, and see the log of \
     the server",
);

impl OwnedRegions {
    /// At every tick of a cluster node, before regions are ticked. `heard`: the nodes that can be heard and can
    /// write, ascending.
    pub(crate) fn leave_if_stalled(&mut self, heard: &[NodeId], cx: &Context<'_>) -> bool {
        let is_stalled = cx.host.log_stalled_ms().is_some();
        for region in self.present() {
            region.leave_if(is_stalled, heard, cx.clock_ms);
        }
        is_stalled
    }

    /// Those who wait for a log that takes nothing are told, where no other node can lead. Called now and then on any
    /// durable node.
    pub fn give_up_stalled(&mut self, cx: &Context<'_>, out: &mut Effects) {
        let is_long = |stalled_ms| stalled_ms > TIMEOUT_MS;
        if !cx.host.log_stalled_ms().is_some_and(is_long) || cx.host.has_failed() {
            return;
        }
        let places: Vec<Place> = self.places().collect();
        for place in places {
            let Some(region) = self.region_mut(place) else {
                continue; // lent: when it is back
            };
            if region.has_successor() {
                continue;
            }
            for proposal in region.take_given_up() {
                region.refuse_proposal(proposal, &Outcome::Refused(IN_DOUBT), cx, out);
            }
            let queue = self.queue_mut(place).map(std::mem::take);
            let queued = queue.unwrap_or_default().into_iter();
            out.finished
                .extend(queued.map(|batch| (batch, Outcome::Refused(STALLED))));
        }
    }

    /// The log failed: whoever follows is told to lead, while this node can still say so.
    pub(crate) fn leave_failed(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        let Some(member) = self.member_mut(place) else {
            return;
        };
        if cx.is_cluster && !member.failed && member.replica.is_leader() {
            member.replica.leave(|_| true, cx.clock_ms);
            self.drive(place, cx, out);
        }
    }
}

impl Region {
    fn leave_if(&mut self, is_stalled: bool, heard: &[NodeId], clock_ms: u64) {
        let Some(member) = self.member.as_deref_mut() else {
            return;
        };
        let Some(peers) = member.peers.as_deref() else {
            return;
        };
        if !is_stalled {
            return member.replica.stay();
        }
        let can_lead = |replica| {
            let node = peers.node_of(replica);
            node.is_some_and(|node| heard.binary_search(&node).is_ok())
        };
        member.replica.leave(can_lead, clock_ms);
    }

    /// Proposals of which only clients are to be told. The others stay: what ran on held regions is in memory already,
    /// the write-back counts its entries, blocked clients go on waiting anyway.
    fn take_given_up(&mut self) -> VecDeque<Proposal> {
        let Some(member) = self.member.as_deref_mut() else {
            return VecDeque::new();
        };
        let stays = |it: &Proposal| {
            it.effects.is_some() || !it.tables.is_empty() || !it.serves.is_empty() || it.evicts
        };
        let all = std::mem::take(&mut member.proposals).into_iter();
        let (stay, given_up): (VecDeque<_>, VecDeque<_>) = all.partition(stays);
        member.proposals = stay;
        given_up
    }

    /// Whether another replica could lead it.
    fn has_successor(&self) -> bool {
        let member = self.member.as_deref();
        member.is_some_and(|it| it.peers.is_some() && it.replica.members().voters.len() > 1)
    }
}
