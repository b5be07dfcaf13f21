//! A region's part among its peers: who they are, who waits until it may answer, what its replica
//! has to say to them.
//!
//! ```text
//!   transport ─► on_raft ─► step ─┐                       ┌─► messages ─► outbox ─► transport
//!   core's timer ─────────► tick ─┼─► drive ─► ready ─────┼─► reads, roles ─► those who wait
//!   sessions ─► propose, read ────┘                       └─► committed ─► apply
//! ```
//!
//! While a region is lent its messages are kept; it is back within moments.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use base::cluster::{NodeId, ReplicaId};
use bytes::Bytes;
use replica::{
    Confirmed, Message as RaftMessage, Ready, decode_message, encode_message, snapshot_head,
};

use super::clock_ms;
use super::leadership;
use super::seats::Seat;
use super::sure::Unserved;
use crate::cores::{Answer, Core, Region, RegionId};
use crate::durable::in_doubt;

/// Messages kept for a region that is lent; more are dropped, and sent again by their senders.
const MOST_PARKED: usize = 4096;
/// How long clients of a region without a leader wait before they are told.
pub const PATIENCE_MS: u64 = 3_000;

/// Of a region that has peers, even if this replica is the only member just now.
pub struct Peers {
    pub seat: Seat,
    /// Where replicas are that the seat does not know yet, as their messages told.
    heard: HashMap<ReplicaId, NodeId>,
    /// Tasks of this core that wait until the region may be read, by their tickets.
    waits: Vec<(Wait, usize)>,
    /// Rounds that are confirmed, at indices that are not applied yet.
    confirmed: Vec<Confirmed>,
    /// Since when this replica knows no leader.
    pub leaderless_since_ms: Option<u64>,
    /// Since when it leads no more, while flights of its own are undecided.
    pub lost_since_ms: Option<u64>,
    /// A snapshot is being installed: there is no keyspace to speak of.
    pub is_installing: bool,
    /// Manifest and folder of a snapshot that is here and not being installed yet.
    pub files: Option<(Bytes, PathBuf)>,
}

impl Peers {
    pub fn new(seat: Seat) -> Peers {
        Peers {
            seat,
            heard: HashMap::new(),
            waits: Vec::new(),
            confirmed: Vec::new(),
            leaderless_since_ms: None,
            lost_since_ms: None,
            is_installing: false,
            files: None,
        }
    }

    pub fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        match self.seat.descriptor.member(replica) {
            Some(member) => Some(member.node),
            None => self.heard.get(&replica).copied(),
        }
    }

    /// Members whose nodes are not among those that can be heard, ascending.
    fn absent(&self, heard: &[NodeId]) -> Vec<ReplicaId> {
        let members = self.seat.descriptor.members.iter();
        let mut absent: Vec<ReplicaId> = members
            .filter(|member| heard.binary_search(&member.node).is_err())
            .map(|member| member.replica)
            .collect();
        absent.sort_unstable();
        absent
    }

    pub fn wait(&mut self, wait: Wait, ticket: usize) {
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
    /// That a majority has the entry whose effect memory has already ([`crate::durable::Member::ahead`]).
    Kept,
    /// That another replica leads, or any does.
    Leader,
}

/// Messages for one node, gathered during a turn.
#[derive(Default)]
pub struct Outbox {
    by_node: HashMap<NodeId, Vec<transport::RaftMessage>>,
}

impl Outbox {
    pub fn push(&mut self, node: NodeId, region: u64, message: &RaftMessage) {
        let mut bytes = Vec::with_capacity(128);
        encode_message(message, &mut bytes);
        let queue = self.by_node.entry(node).or_default();
        queue.push(transport::RaftMessage {
            region,
            body: bytes.into(),
            overtakes: !replica::keeps_order(message),
        });
    }
}

impl Core {
    /// Messages of peers for regions of this core.
    pub(crate) fn on_raft(self: &Rc<Self>, from: NodeId, messages: Vec<(RegionId, Bytes)>) {
        self.begin_batch();
        let mut touched: Vec<RegionId> = Vec::new();
        for (id, bytes) in messages {
            if !touched.contains(&id) {
                touched.push(id);
            }
            self.step(id, from, bytes);
        }
        for id in touched {
            self.drive(id);
        }
    }

    fn step(&self, id: RegionId, from: NodeId, bytes: Bytes) {
        if self.has_failed() {
            return; // this node is dead to its peers
        }
        let mut home = self.home.borrow_mut();
        let Some(region) = home.region_mut(id) else {
            drop(home);
            let mut parked = self.parked.borrow_mut();
            let parked = parked.entry(id).or_default();
            if parked.len() < MOST_PARKED {
                parked.push((from, bytes));
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
                    && !self.claim_files(peers, &head)
                {
                    // It comes again when they are here. One that is installed, or not needed any
                    // more, has no files: then the leader must hear that.
                    return Ok(());
                }
                if peers.seat.descriptor.member(message.from).is_none() {
                    peers.heard.insert(message.from, from);
                }
            }
            member.replica.step(message, clock_ms())
        });
        if stepped.is_err() {
            self.stats().unfit_messages.add(1);
        }
    }

    /// A region is home again: what its peers said meanwhile is heard, and those who wait to read it look again.
    pub(crate) fn unpark(self: &Rc<Self>, id: RegionId) {
        if self.shared.cluster.is_none() {
            return;
        }
        let parked = self.parked.borrow_mut().remove(&id);
        if let Some(parked) = parked {
            for (from, bytes) in parked {
                self.step(id, from, bytes);
            }
            self.drive(id);
            self.end_turn();
        }
        self.serve_waiting_reads(id);
    }

    /// The task that lets time pass.
    pub(crate) async fn run_ticks(self: Rc<Self>) {
        let tick_ms = self.shared.cluster.as_ref().map_or(100, |it| it.tick_ms);
        let mut timer = tokio::time::interval(Duration::from_millis(tick_ms));
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_stopping() {
            timer.tick().await;
            self.begin_batch();
            self.tick_home();
        }
    }

    /// Time passes for all regions that are home.
    pub(crate) fn tick_home(self: &Rc<Self>) {
        if self.has_failed() {
            return self.fail_home();
        }
        let now_ms = clock_ms();
        let cluster = self.shared.cluster.as_ref();
        let heard = cluster.map_or_else(Vec::new, |it| it.heard_nodes());
        let mut busy = Vec::new();
        for region in self.home.borrow_mut().present() {
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let replica = &mut member.replica;
            if member.failed || replica.is_quiet() && !replica.lacks_members() {
                continue;
            }
            if replica.is_leader()
                && let Some(peers) = member.peers.as_deref()
            {
                replica.set_absent(peers.absent(&heard));
            }
            if replica.is_quiet() {
                continue;
            }
            replica.tick(now_ms);
            busy.push(region.id);
        }
        for id in busy {
            self.drive(id);
            self.give_up_waiting(id, now_ms);
            self.compose(id);
        }
        self.grant_next();
        self.end_turn();
    }

    /// Sends what was gathered.
    pub(crate) fn flush_outbox(&self) {
        let Some(cluster) = &self.shared.cluster else {
            return;
        };
        let mut outbox = self.outbox.borrow_mut();
        for (node, messages) in &mut outbox.by_node {
            if !messages.is_empty() {
                let messages = std::mem::take(messages);
                cluster.transport.send_batch(*node, messages);
            }
        }
    }

    fn has_room(&self, node: NodeId, message: &RaftMessage) -> bool {
        let cluster = self.shared.cluster.as_ref();
        let bytes = replica::payload_bytes(message);
        bytes == 0 || cluster.is_none_or(|it| it.transport.has_room(node, bytes))
    }

    /// The part of a `Ready` that is about peers. What has to be told to others is left to
    /// [`Core::after_ready`].
    pub(crate) fn on_peer_ready(&self, region: &mut Region, ready: &mut Ready) -> Turned {
        let mut turned = Turned::default();
        let Some(member) = region.member.as_deref_mut() else {
            return turned;
        };
        let Some(peers) = member.peers.as_deref_mut() else {
            return turned;
        };
        if !ready.messages.is_empty() {
            let mut outbox = self.outbox.borrow_mut();
            for message in ready.messages.drain(..) {
                // To a replica that nobody knows any more: nobody to send to.
                if let Some(node) = peers.node_of(message.to)
                    // A large one is on its way: Raft, which hears answers to heartbeats meanwhile and no
                    // acknowledgement, would send it again with every one of them.
                    && self.has_room(node, &message)
                {
                    outbox.push(node, peers.seat.region(), &message);
                }
            }
        }
        peers.confirmed.append(&mut ready.reads);
        for number in ready.reads_failed.drain(..) {
            peers.waits.retain(|&(of, ticket)| {
                let fails = of == Wait::Round(number);
                if fails {
                    turned.answers.push((ticket, false));
                }
                !fails
            });
        }
        let (of, node) = (peers.seat.region(), self.shared.cluster.as_ref());
        leadership::log_change(
            node.map_or(0, |it| it.node),
            of,
            &member.replica,
            ready,
            |id| peers.node_of(id),
        );
        if ready.leader_changed {
            let leaderless = member.replica.leader().is_none();
            peers.leaderless_since_ms = leaderless.then(clock_ms);
            if !leaderless && let Some(cluster) = &self.shared.cluster {
                cluster.set_lost(region.id, false);
            }
        }
        if ready.became_leader.is_some() {
            peers.lost_since_ms = None;
            // Everybody should hear of it soon.
            if let Some(cluster) = &self.shared.cluster {
                cluster.nudge();
            }
        }
        if ready.lost_leadership {
            peers.lost_since_ms = Some(clock_ms());
            turned.lost = true;
            if member.replica.leader().is_none()
                && let Some(cluster) = &self.shared.cluster
            {
                cluster.set_lost(region.id, true);
            }
        }
        turned.roles = ready.leader_changed || ready.became_leader.is_some() || turned.lost;
        turned.wanted.append(&mut ready.snapshots_wanted);
        turned.install = ready.install.take();
        turned
    }

    /// Entries may have been applied that somebody waits for in order to read. Called after entries were applied, and when the
    /// region comes home: it may have been lent in between.
    pub(crate) fn serve_waiting_reads(self: &Rc<Self>, id: RegionId) {
        let may_serve = {
            let mut home = self.home.borrow_mut();
            let member = home.region_mut(id).and_then(|r| r.member.as_deref());
            member.is_some_and(|member| {
                member.peers.as_deref().is_some_and(|peers| {
                    !peers.confirmed.is_empty()
                        || member.ahead.is_none() && peers.is_awaited(Wait::Kept)
                })
            })
        };
        if may_serve {
            self.after_ready(id, Turned::default());
        }
    }

    /// Tells those who wait what a `Ready`, or applied entries, mean for them.
    pub(crate) fn after_ready(self: &Rc<Self>, id: RegionId, mut turned: Turned) {
        {
            let mut home = self.home.borrow_mut();
            let Some(region) = home.region_mut(id) else {
                return;
            };
            if turned.lost {
                if region.member.as_ref().is_some_and(|it| it.ahead.is_some()) {
                    self.undo(region);
                }
                turned.waiters = region.take_interest();
            }
            if let Some(member) = region.member.as_deref_mut()
                && let Some(peers) = member.peers.as_deref_mut()
            {
                let applied = member.replica.applied_index();
                let Peers {
                    waits, confirmed, ..
                } = peers;
                confirmed.retain(|round| {
                    if round.index > applied || member.ahead.is_some() {
                        return true;
                    }
                    waits.retain(|&(of, ticket)| {
                        let served = of == Wait::Round(round.number);
                        if served {
                            turned.answers.push((ticket, true));
                        }
                        !served
                    });
                    false
                });
                // Those who wait for no round look again.
                waits.retain(|&(of, ticket)| {
                    let looks_again = match of {
                        Wait::Round(_) => false,
                        Wait::Kept => turned.roles || member.ahead.is_none(),
                        Wait::Leader => turned.roles,
                    };
                    if looks_again {
                        turned.answers.push((ticket, false));
                    }
                    !looks_again
                });
            }
        }
        for (ticket, sure) in turned.answers {
            let _ = self.tickets().deliver(ticket, Answer::Sure(sure));
        }
        for waiter in turned.waiters {
            self.unblock(&waiter);
        }
        for replica in turned.wanted {
            self.on_snapshot_wanted(id, replica);
        }
        if let Some(head) = turned.install {
            self.begin_install(id, head);
        }
    }

    /// Clients of a region whose leader is not found, or whose leader this was, are told when they
    /// have waited long enough.
    fn give_up_waiting(self: &Rc<Self>, id: RegionId, now_ms: u64) {
        let mut home = self.home.borrow_mut();
        let Some(member) = home.region_mut(id).and_then(|r| r.member.as_deref_mut()) else {
            return;
        };
        let Some(peers) = member.peers.as_deref_mut() else {
            return;
        };
        let is_over = |since: Option<u64>| since.is_some_and(|since| since + PATIENCE_MS < now_ms);
        let mut undecided = Vec::new();
        if is_over(peers.lost_since_ms) {
            peers.lost_since_ms = None;
            undecided.extend(member.flights.drain(..));
        }
        let mut refused = Vec::new();
        if is_over(peers.leaderless_since_ms)
            && let Some(turn) = home.turn_mut(id)
        {
            refused = std::mem::take(turn);
        }
        drop(home);
        for flight in undecided {
            self.refuse_flight(id, flight, &in_doubt());
        }
        for batch in refused {
            self.redirect_batch(batch, Unserved::Down);
        }
    }

    /// All replicas of this core are silent from now on.
    fn fail_home(self: &Rc<Self>) {
        let places: Vec<RegionId> = self.home.borrow().places().collect();
        for id in places {
            let is_new = {
                let mut home = self.home.borrow_mut();
                let member = home.region_mut(id).and_then(|r| r.member.as_deref());
                member.is_some_and(|member| !member.failed)
            };
            if is_new {
                self.fail_region(id);
            }
            self.redirect_turn(id);
        }
        self.grant_next();
    }

    /// Nothing can be kept here any more: others have to lead.
    pub(crate) fn has_failed(&self) -> bool {
        let durable = self.shared.durable.as_ref();
        durable.is_some_and(|durable| durable.is_failed())
    }

    /// A blocked session whose region is led elsewhere now.
    pub(super) fn unblock(&self, waiter: &crate::cores::Waiter) {
        if waiter.claim.serve() {
            self.unblock_claimed(waiter);
        }
    }

    /// As [`Core::unblock`], of one whom this core has claimed.
    pub(crate) fn unblock_claimed(&self, waiter: &crate::cores::Waiter) {
        waiter.claim.served();
        let mut reply = resp::Reply::new(waiter.protocol);
        reply.refusal(&base::Refusal::new(
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> \
             replica?)",
        ));
        self.answer_waiter(waiter, Some(reply.into_bytes()));
    }

    /// What waits for a region that is led elsewhere is sent there.
    pub(crate) fn redirect_turn(self: &Rc<Self>, id: RegionId) {
        let batches = {
            let mut home = self.home.borrow_mut();
            home.turn_mut(id).map(std::mem::take).unwrap_or_default()
        };
        for batch in batches {
            self.redirect_batch(batch, Unserved::Elsewhere);
        }
    }
}

/// What a `Ready` changed that others have to be told.
#[derive(Default)]
pub struct Turned {
    /// Who leads, or whether this replica does.
    roles: bool,
    lost: bool,
    /// Tickets of this core, and whether they may read.
    answers: Vec<(usize, bool)>,
    waiters: Vec<std::sync::Arc<crate::cores::Waiter>>,
    wanted: Vec<ReplicaId>,
    install: Option<replica::SnapshotHead>,
}
