//! A node's member of meta: the replica of region 0, meta's state machine, and its leader.
//!
//! ```text
//!   peers ─► on_message ────┐                       ┌─► writes   ─► log writer ─► on_persisted
//!   calls ─► on_call ───────┼─► MetaMember ─► drive ┼─► messages ─► transport
//!   orders ─► on_order ─────┤   Replica, State,     ├─► answers  ─► callers
//!   clock ─► on_tick ───────┘   leader: Leader      └─► news     ─► nodes
//! ```
//!
//! The state is small and lives in memory; the log is what survives. After some entries all of it is
//! kept as one row, with the index it stands at ([`MetaRecord`]), and the log is cut behind that. A member
//! that is far behind gets that row inside the snapshot message itself.
//!
//! Here is what the member hears and says; `state` is what entries and snapshots change, `leader` is the
//! part of the one that leads. A thread of the server calls it, and so does the simulator.
//!
//! Invariant: a member that failed or left sends no message, applies no entry and keeps no row.

mod leader;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use base::cluster::{META_REGION, NodeId, ReplicaId};
use bytes::Bytes;
use meta::leader::Leader;
use meta::state::{Found, State};
use meta::wire::{Action, AdminAnswer, Order, ReplicaReport};
use replica::{LogStore, Ready, Replica, ReplicaConfig, decode_message};

use crate::peers::MOST_HEARD;
use crate::{MetaContext, MetaEffects, MetaRecord, Pace, ReplicaRecord, lead, report_of_replica};

/// What a member of meta begins with.
pub struct OpenMeta<'a> {
    pub log: &'a dyn LogStore,
    pub node: NodeId,
    /// What the founder of a cluster proposes first.
    pub founder: Option<Found>,
    /// Region 0 is never quiet, whatever it says.
    pub pace: Pace,
    /// Entries after which the state is kept and the log cut.
    pub keep_after: u64,
    /// By the clock of leases.
    pub clock_ms: u64,
    pub seed: u64,
}

/// A node's member of meta. `T` is how the host names a caller.
pub struct MetaMember<T> {
    replica: Replica,
    record: ReplicaRecord,
    state: State,
    node: NodeId,
    /// Where replicas are that the record does not name yet, as their messages told.
    heard: BTreeMap<ReplicaId, NodeId>,
    ready: Ready,
    applied: u64,
    applied_term: u64,
    /// As of the last time the state was kept.
    kept: u64,
    keep_after: u64,
    stamp_ms: u64,
    founder: Option<Found>,
    /// On the leader: what heartbeats said, and what follows from it.
    leader: Option<Leader>,
    /// When the scheduler makes its next turn.
    tick_at_ms: u64,
    /// By index: term, and who waits for the entry.
    waiting: BTreeMap<u64, (u64, Waiting<T>)>,
    is_failed: bool,
    has_left: bool,
}

/// Who waits for an entry.
enum Waiting<T> {
    /// A node that joins.
    Join(T),
    /// An administrator; what to answer when it is done.
    Admin(T, Box<AdminAnswer>),
    Nobody,
}

impl OpenMeta<'_> {
    /// Opens the member. `adjust` may change how Raft begins (tests).
    pub fn open<T>(
        self,
        kept: MetaRecord,
        adjust: impl FnOnce(&mut ReplicaConfig),
    ) -> Result<MetaMember<T>, String> {
        let state = kept.state()?;
        let mut config = ReplicaConfig {
            region: META_REGION,
            replica: kept.record.replica,
            members: kept.record.members(kept.applied),
            applied: kept.applied,
            snapshot: kept.record.snapshot(),
            seed: self.seed,
            now_ms: self.clock_ms,
            tick_ms: self.pace.tick_ms,
            election_ticks: self.pace.election_ticks,
            heartbeat_ticks: self.pace.heartbeat_ticks,
            quiet_ticks: 0,
            keep_entries: self.pace.keep_entries,
            ..ReplicaConfig::default()
        };
        adjust(&mut config);
        let replica = Replica::new(config, self.log)
            .map_err(|error| format!("region 0 cannot be opened: {error}"))?;
        Ok(MetaMember {
            replica,
            record: kept.record,
            state,
            node: self.node,
            heard: BTreeMap::new(),
            ready: Ready::default(),
            applied: kept.applied,
            applied_term: kept.applied_term,
            kept: kept.applied,
            keep_after: self.keep_after,
            stamp_ms: 0,
            founder: self.founder,
            leader: None,
            tick_at_ms: 0,
            waiting: BTreeMap::new(),
            is_failed: false,
            has_left: false,
        })
    }
}

impl<T> MetaMember<T> {
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    pub fn record(&self) -> &ReplicaRecord {
        &self.record
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether this node is no member of meta any more: the host drops it.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// What meta is told of this member; nothing, if it failed.
    pub fn report(&self) -> Option<ReplicaReport> {
        if self.is_failed {
            return None;
        }
        let mut report = report_of_replica(&self.replica, &self.record);
        report.applied = self.applied;
        Some(report)
    }

    /// A message of another member, from its node. [`MetaMember::drive`] follows, as behind every event.
    pub fn on_message(&mut self, from: NodeId, bytes: &Bytes, cx: &MetaContext<'_>) {
        if self.is_failed {
            return;
        }
        let Ok(message) = decode_message(bytes) else {
            return;
        };
        if self.record.descriptor.member(message.from).is_none()
            && (self.heard.len() < MOST_HEARD || self.heard.contains_key(&message.from))
        {
            self.heard.insert(message.from, from);
        }
        if let Err(why) = self.replica.step(message, cx.clock_ms) {
            cx.observer.on_unfit_message(from, &why);
        }
    }

    /// The log has a write on disk.
    pub fn on_persisted(&mut self, number: u64) {
        self.replica.on_persisted(number);
    }

    /// The log or the store of the node failed: the member does nothing any more.
    pub fn stop(&mut self) {
        self.is_failed = true;
    }

    pub fn on_tick(&mut self, cx: &MetaContext<'_>, out: &mut MetaEffects<T>) {
        if self.is_failed {
            return;
        }
        match cx.is_log_stalled {
            true => self.replica.leave(|_| true, cx.clock_ms),
            false => self.replica.stay(),
        }
        if !cx.is_log_stalled || self.replica.is_leader() {
            self.replica.tick(cx.clock_ms);
        }
        self.schedule(cx, out);
    }

    /// An order about meta's own members, to its leader; or to this member, to leave.
    pub fn on_order(&mut self, order: &Order, cx: &MetaContext<'_>, out: &mut MetaEffects<T>) {
        let leads_in = self.replica.is_leader().then(|| self.replica.term());
        let epoch = self.record.descriptor.epoch;
        match order.check(epoch, leads_in) {
            Ok(Action::Destroy(destroy)) if destroy.replica == self.record.replica => {
                (self.is_failed, self.has_left) = (true, true);
                let removed = MetaRecord::remove(destroy.replica, cx.rows, cx.log, cx.pause);
                out.left_over = removed.err();
            }
            // What is refused comes again with the next heartbeat, if it is still wanted.
            Ok(action) => drop(lead(&mut self.replica, action)),
            Err(_) => {}
        }
    }

    /// Passes on what the replica has to say, and applies what is committed. Once that is carried out,
    /// [`MetaMember::keep_when_due`] follows.
    pub fn drive(&mut self, cx: &MetaContext<'_>, out: &mut MetaEffects<T>) {
        while !self.is_failed {
            if !self.replica.has_ready() {
                self.begin_to_lead(cx, out);
                if !self.replica.has_ready() {
                    return;
                } // else the founder has proposed its first entry
            }
            let mut ready = std::mem::take(&mut self.ready);
            self.replica.ready(&mut ready);
            let done = self.on_ready(&mut ready, cx, out);
            cx.observer.on_ready(&self.replica, &self.record, &ready);
            if ready.lost_leadership {
                self.stop_leading(out);
            }
            self.ready = ready;
            if let Err(reason) = done {
                self.fail(reason, out);
            }
        }
    }

    fn on_ready(
        &mut self,
        ready: &mut Ready,
        cx: &MetaContext<'_>,
        out: &mut MetaEffects<T>,
    ) -> Result<(), String> {
        out.writes.extend(ready.write.take());
        for message in ready.messages.drain(..) {
            if let Some(node) = self.node_of(message.to) {
                out.messages.push((node, message));
            }
        }
        if let Some(fetch) = ready.fetch.take() {
            let fetched = self.replica.fetch_now(&fetch, cx.log);
            fetched.map_err(|error| error.to_string())?;
        }
        if let Some(head) = ready.install.take() {
            self.install(&head, cx)?;
        }
        for committed in ready.committed.drain(..) {
            self.apply(committed, cx, out)?;
        }
        for to in ready.snapshots_wanted.drain(..) {
            let head = self.snapshot();
            self.replica.on_snapshot_made(to, &head);
        }
        Ok(())
    }

    fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        match self.record.descriptor.member(replica) {
            Some(member) => Some(member.node),
            None => self.heard.get(&replica).copied(),
        }
    }

    fn fail(&mut self, reason: String, out: &mut MetaEffects<T>) {
        self.is_failed = true;
        out.failure = Some(reason);
    }
}
