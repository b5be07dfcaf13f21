//! A region's part among its peers: who they are, who waits until it may answer, what its replica has to
//! say to them.
//!
//! ```text
//!   transport ─► on_message ─► step ─┐                       ┌─► messages ─► transport
//!   timer ───────────────────► tick ─┼─► drive ─► ready ─────┼─► reads, roles ─► those who wait
//!   sessions ─► propose, read ───────┘                       └─► committed ─► apply
//! ```
//!
//! While a region is lent its messages are kept; it is back within moments.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::cluster::{NodeId, ReplicaId};
use base::milestone;
use bytes::Bytes;
use keyspace::rows::State;
use replica::{Confirmed, Ready, Replica, SnapshotHead, decode_message, snapshot_head};

use crate::effects::{Effects, Served};
use crate::{Context, Outcome, OwnedRegions, Place, Region, ReplicaRecord, Unserved};

/// Messages kept for a region that is lent; more are dropped, and sent again by their senders.
const MOST_PARKED: usize = 4096;
/// How long one successor is tried.
const HAND_OVER_MS: u64 = 2_000;
/// Replicas that are no members, as far as is known, and whose nodes are remembered.
pub(crate) const MOST_HEARD: usize = 64;
/// How long clients of a region without a leader wait before they are told.
pub const TIMEOUT_MS: u64 = 3_000;

/// Of a region that has peers, even if this replica is the only member just now.
pub struct Peers {
    pub record: ReplicaRecord,
    /// Where replicas are that the record does not name yet, as their messages told.
    heard: BTreeMap<ReplicaId, NodeId>,
    /// Tasks of this core that wait until the region may be read, by their tickets.
    waits: Vec<(Wait, usize)>,
    /// Rounds that are confirmed, at indices that are not applied yet.
    confirmed: Vec<Confirmed>,
    /// Since when this replica knows no leader.
    pub leaderless_since_ms: Option<u64>,
    /// Since when it leads no more, while proposals of its own are undecided.
    pub lost_since_ms: Option<u64>,
    /// A snapshot is being installed: there is no keyspace to speak of.
    pub is_installing: bool,
    /// Manifest and folder of a snapshot that is here and not being installed yet.
    pub files: Option<(Bytes, PathBuf)>,
}

impl Peers {
    pub fn new(record: ReplicaRecord) -> Peers {
        Peers {
            record,
            heard: BTreeMap::new(),
            waits: Vec::new(),
            confirmed: Vec::new(),
            leaderless_since_ms: None,
            lost_since_ms: None,
            is_installing: false,
            files: None,
        }
    }

    pub fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        match self.record.descriptor.member(replica) {
            Some(member) => Some(member.node),
            None => self.heard.get(&replica).copied(),
        }
    }

    /// A leader without room for its log lets another voter lead; each in its turn, for one may be as badly off.
    fn hand_over(&self, replica: &mut Replica, heard: &[NodeId], clock_ms: u64) {
        if !replica.is_leader() || replica.is_transferring() {
            return;
        }
        let voters = replica.members().voters.iter().copied();
        let others = voters.filter(|&voter| {
            let node = self.node_of(voter);
            voter != replica.id() && node.is_some_and(|it| heard.binary_search(&it).is_ok())
        });
        let others: Vec<ReplicaId> = others.collect();
        let turn = (clock_ms / HAND_OVER_MS) as usize;
        if let Some(&to) = turn.checked_rem(others.len()).and_then(|at| others.get(at)) {
            let _ = replica.transfer_leader(to); // or at the next tick
        }
    }

    /// Members whose nodes are not among those that can be heard, ascending.
    fn absent(&self, heard: &[NodeId]) -> Vec<ReplicaId> {
        let members = self.record.descriptor.members.iter();
        let mut absent: Vec<ReplicaId> = members
            .filter(|member| heard.binary_search(&member.node).is_err())
            .map(|member| member.replica)
            .collect();
        absent.sort_unstable();
        absent
    }

    pub(crate) fn wait(&mut self, wait: Wait, ticket: usize) {
        self.waits.push((wait, ticket));
    }

    fn is_awaited(&self, wait: Wait) -> bool {
        self.waits.iter().any(|&(of, _)| of == wait)
    }
}

/// What a task waits for before it reads a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// That this round confirms the leader.
    Round(u64),
    /// That a quorum has the entry whose effect memory has already ([`crate::Member::ahead`]).
    Commit,
    /// That another replica leads, or any does.
    Leader,
}

impl OwnedRegions {
    /// Messages of a peer's node for regions of this core.
    pub fn on_messages(
        &mut self,
        from: NodeId,
        messages: Vec<(Place, Bytes)>,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        let mut touched: Vec<Place> = Vec::new();
        for (place, bytes) in messages {
            if !touched.contains(&place) {
                touched.push(place);
            }
            self.step(place, from, bytes, cx);
        }
        for place in touched {
            self.drive(place, cx, out);
        }
    }

    fn step(&mut self, place: Place, from: NodeId, bytes: Bytes, cx: &Context<'_>) {
        milestone("the region took a message of a peer");
        if cx.host.has_failed() {
            return; // this node is dead to its peers
        }
        let Some(slot) = self.slots.slot_mut(place) else {
            return;
        };
        let Some(region) = slot.region.as_deref_mut() else {
            if slot.parked.len() < MOST_PARKED {
                slot.parked.push((from, bytes));
            }
            return;
        };
        let Some(member) = region.member.as_deref_mut() else {
            return;
        };
        if member.failed {
            return;
        }
        let stepped = decode_message(&bytes).and_then(|message| {
            if let Some(peers) = member.peers.as_deref_mut() {
                if let Some(head) = snapshot_head(&message)
                    && head.index > member.replica.committed_index()
                    && !cx.host.claim_snapshot(peers, &head)
                {
                    // It comes again when the files are here. One that is installed, or not needed any
                    // more, has no files: then the leader must hear that.
                    return Ok(());
                }
                if peers.record.descriptor.member(message.from).is_none()
                    && (peers.heard.len() < MOST_HEARD || peers.heard.contains_key(&message.from))
                {
                    peers.heard.insert(message.from, from);
                }
            }
            member.replica.step(message, cx.clock_ms)
        });
        if let Err(why) = stepped {
            let region = member.replica.region();
            cx.host.on_unfit_message(from, region, &why);
        }
    }

    /// A region is here again: what its peers said meanwhile is heard, and those who wait to read it look
    /// again.
    pub fn unpark(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        self.look_again(place, cx, out);
        if !cx.is_cluster {
            return;
        }
        let Some(slot) = self.slots.slot_mut(place) else {
            return;
        };
        let parked = std::mem::take(&mut slot.parked);
        if let Some(entries) = slot.parked_entries.take() {
            self.on_entries(place, entries, cx, out);
        }
        if !parked.is_empty() {
            for (from, bytes) in parked {
                self.step(place, from, bytes, cx);
            }
            self.drive(place, cx, out);
        }
        self.serve_waiting_reads(place, cx, out);
    }

    /// Time passes for all regions that are here. `heard`: the nodes that can be heard, ascending.
    pub fn tick(&mut self, heard: &[NodeId], cx: &Context<'_>, out: &mut Effects) {
        if cx.host.has_failed() {
            return self.fail_all(cx, out);
        }
        self.hand_over_damaged(cx);
        let is_full = cx.host.awaits_room();
        let is_stalled = self.leave_if_stalled(heard, cx);
        let mut busy = Vec::new();
        for region in self.present() {
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let replica = &mut member.replica;
            if is_full && let Some(peers) = member.peers.as_deref() {
                peers.hand_over(replica, heard, cx.clock_ms);
            }
            if member.failed || replica.is_quiet() && !replica.lacks_members() {
                continue;
            }
            if replica.is_leader()
                && let Some(peers) = member.peers.as_deref()
            {
                replica.set_absent(peers.absent(heard));
            }
            if replica.is_quiet() {
                continue;
            }
            if !is_stalled || replica.is_leader() {
                replica.tick(cx.clock_ms); // a follower whose disk takes nothing does not ask for votes
            }
            busy.push(region.id);
        }
        for place in busy {
            self.drive(place, cx, out);
            self.give_up_waiting(place, cx, out);
            self.propose(place, cx, out);
        }
        self.give_up_reads(cx, out);
        self.grant_next(cx, out);
    }

    /// Clients of a region whose leader is not found, or whose leader this was, are told when they have
    /// waited long enough.
    fn give_up_waiting(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        let Some(region) = self.slots.region_mut(place) else {
            return;
        };
        let Some(member) = region.member.as_deref_mut() else {
            return;
        };
        let Some(peers) = member.peers.as_deref_mut() else {
            return;
        };
        let is_over =
            |since: Option<u64>| since.is_some_and(|since| since + TIMEOUT_MS < cx.clock_ms);
        let is_leaderless = is_over(peers.leaderless_since_ms);
        if is_over(peers.lost_since_ms) {
            peers.lost_since_ms = None;
            for proposal in std::mem::take(&mut member.proposals) {
                region.refuse_proposal(proposal, &Outcome::InDoubt, cx, out);
            }
        }
        if is_leaderless && let Some(queue) = self.queue_mut(place) {
            let batches = std::mem::take(queue).into_iter();
            let outcome = Outcome::Unserved(Unserved::Down);
            out.finished
                .extend(batches.map(|batch| (batch, outcome.clone())));
        }
    }

    /// All replicas of this core are silent from now on.
    fn fail_all(&mut self, cx: &Context<'_>, out: &mut Effects) {
        for place in self.places() {
            let member = self.member_mut(place);
            if member.is_some_and(|member| !member.failed) {
                self.fail_region(place, cx, out);
            }
            self.redirect_queue(place, out);
        }
        self.refuse_reads(None, out);
        self.grant_next(cx, out);
    }

    /// Entries may have been applied that somebody waits for in order to read. Called after entries were
    /// applied, and when the region comes back: it may have been lent in between.
    pub(crate) fn serve_waiting_reads(
        &mut self,
        place: Place,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        let Some(region) = self.slots.region_mut(place) else {
            return;
        };
        let member = region.member.as_deref();
        let may_serve = member.is_some_and(|member| {
            member.peers.as_deref().is_some_and(|peers| {
                !peers.confirmed.is_empty()
                    || member.uncommitted.is_none() && peers.is_awaited(Wait::Commit)
            })
        });
        if may_serve {
            region.after_ready(RoleChange::default(), cx, out);
        }
    }
}

/// What a `Ready` changed that others have to be told.
#[derive(Default)]
struct RoleChange {
    /// Who leads, or whether this replica does.
    roles: bool,
    lost: bool,
}

impl Region {
    /// The head of a snapshot of this region as the store has it now; `None` if the store is busy: then it is
    /// asked for again. While memory is ahead of the log, the store has what the log had before: a quorum may
    /// need this very snapshot to commit the rest.
    pub fn snapshot_head(&mut self) -> Option<SnapshotHead> {
        self.settle().ok()?;
        let member = self.member.as_deref()?;
        let state = match member.uncommitted {
            None => self.space.state(),
            Some(_) => State::parse(&member.state_row(self.space.home())?)?,
        };
        Some(SnapshotHead {
            index: state.applied_index,
            term: state.applied_term,
            members: member.replica.members().clone(),
            data: Bytes::new(),
        })
    }

    /// The part of a `Ready` that is about peers.
    pub(crate) fn hear_peers(&mut self, ready: &mut Ready, cx: &Context<'_>, out: &mut Effects) {
        let Some(member) = self.member.as_deref_mut() else {
            return;
        };
        let Some(peers) = member.peers.as_deref_mut() else {
            return;
        };
        for message in ready.messages.drain(..) {
            // To a replica that nobody knows any more: nobody to send to.
            if let Some(node) = peers.node_of(message.to) {
                out.messages.push((node, peers.record.region(), message));
            }
        }
        peers.confirmed.append(&mut ready.reads);
        for number in ready.reads_failed.drain(..) {
            peers.waits.retain(|&(of, ticket)| {
                let fails = of == Wait::Round(number);
                if fails {
                    out.reads.push((ticket, false));
                }
                !fails
            });
        }
        if ready.leader_changed {
            let leaderless = member.replica.leader().is_none();
            peers.leaderless_since_ms = leaderless.then_some(cx.clock_ms);
        }
        if ready.became_leader.is_some() {
            peers.lost_since_ms = None;
        }
        if ready.lost_leadership {
            peers.lost_since_ms = Some(cx.clock_ms);
        }
        let lost = ready.lost_leadership;
        let roles = ready.leader_changed || ready.became_leader.is_some() || lost;
        if roles {
            cx.host.on_ready(self.id, &member.replica, peers, ready);
            out.looks_again.push(self.id);
        }
        for replica in ready.snapshots_wanted.drain(..) {
            out.snapshots_wanted.push((self.id, replica));
        }
        let install = ready.install.take();
        self.after_ready(RoleChange { roles, lost }, cx, out);
        if let Some(head) = install {
            self.begin_install(cx, out);
            out.installs.push((self.id, head));
        }
    }

    /// Tells those who wait what a `Ready`, or applied entries, mean for them.
    fn after_ready(&mut self, changed: RoleChange, cx: &Context<'_>, out: &mut Effects) {
        if changed.lost {
            if self
                .member
                .as_ref()
                .is_some_and(|it| it.uncommitted.is_some())
            {
                self.undo(cx, out);
            }
            for waiter in self.take_interest() {
                if waiter.claim.serve() {
                    out.served.push((waiter, Served::LeaderChanged));
                }
            }
        }
        let Some(member) = self.member.as_deref_mut() else {
            return;
        };
        let Some(peers) = member.peers.as_deref_mut() else {
            return;
        };
        let applied = member.replica.applied_index();
        let Peers {
            waits, confirmed, ..
        } = peers;
        confirmed.retain(|round| {
            if round.index > applied || member.uncommitted.is_some() {
                return true;
            }
            waits.retain(|&(of, ticket)| {
                let served = of == Wait::Round(round.number);
                if served {
                    out.reads.push((ticket, true));
                }
                !served
            });
            false
        });
        // Those who wait for no round look again.
        waits.retain(|&(of, ticket)| {
            let looks_again = match of {
                Wait::Round(_) => false,
                Wait::Commit => changed.roles || member.uncommitted.is_none(),
                Wait::Leader => changed.roles,
            };
            if looks_again {
                out.reads.push((ticket, false));
            }
            !looks_again
        });
    }
}
