//! What the leader of meta has heard: the last heartbeat of each node, and when.
//!
//! Not replicated. A new leader begins with nothing and is told everything within a second; until
//! a node has had its full time to report to *this* leader, its silence means nothing
//! ([`liveness`](crate::liveness)).

use std::collections::BTreeMap;

use base::clock;
use base::cluster::{NodeId, RegionId};

use crate::state::State;
use crate::wire::{Heartbeat, Leadership, ReplicaRole};

#[derive(Debug, Default)]
pub struct View {
    nodes: BTreeMap<NodeId, NodeReport>,
    leaders: BTreeMap<RegionId, Leadership>,
}

/// One node, as heard.
#[derive(Debug)]
pub struct NodeReport {
    /// When it was last heard of as a node that can write, or, before that, when this leader learned of it.
    pub at_ms: u64,
    pub last: Option<Heartbeat>,
    /// Its wall clock by the clock of this leader, when it was last heard of.
    pub clock_offset_ms: Option<i64>,
}

impl View {
    /// Nodes that are new to this leader begin their time to report now.
    pub fn expect(&mut self, state: &State, now_ms: u64) {
        for node in state.nodes() {
            let heard = NodeReport {
                at_ms: now_ms,
                last: None,
                clock_offset_ms: None,
            };
            self.nodes.entry(node.id).or_insert(heard);
        }
    }

    /// False if a newer one was here before.
    pub fn on_heartbeat(&mut self, heartbeat: Heartbeat, now_ms: u64) -> bool {
        let order = |beat: &Heartbeat| (beat.start_count, beat.number);
        let heard = self.nodes.entry(heartbeat.node).or_insert(NodeReport {
            at_ms: now_ms,
            last: None,
            clock_offset_ms: None,
        });
        if heard
            .last
            .as_ref()
            .is_some_and(|last| order(last) >= order(&heartbeat))
        {
            return false;
        }
        let is_well = heartbeat.trouble.is_empty();
        for report in heartbeat.replicas.iter().filter(|_| is_well) {
            if report.role() == ReplicaRole::Leader {
                let leads = Leadership {
                    term: report.term,
                    replica: report.replica,
                };
                let known = self.leaders.entry(report.region).or_insert(leads);
                *known = leads.max(*known);
            }
        }
        if is_well {
            heard.at_ms = now_ms;
        }
        heard.clock_offset_ms = match heartbeat.wall_ms {
            0 => None,
            wall_ms => Some(clock::offset(wall_ms, now_ms)),
        };
        heard.last = Some(heartbeat);
        true
    }

    /// Whether a heartbeat shows anything that could make the scheduler act: a replica came or
    /// went, another leader, other members, a learner that caught up.
    pub fn is_news(&self, heartbeat: &Heartbeat) -> bool {
        let Some(last) = self
            .nodes
            .get(&heartbeat.node)
            .and_then(|heard| heard.last.as_ref())
        else {
            return true;
        };
        last.trouble != heartbeat.trouble
            || last.replicas.len() != heartbeat.replicas.len()
            || last
                .replicas
                .iter()
                .zip(&heartbeat.replicas)
                .any(|(old, new)| {
                    (
                        old.region,
                        old.replica,
                        old.role,
                        old.term,
                        old.epoch,
                        old.installing,
                    ) != (
                        new.region,
                        new.replica,
                        new.role,
                        new.term,
                        new.epoch,
                        new.installing,
                    ) || old
                        .members
                        .iter()
                        .map(|m| (m.replica, m.snapshot))
                        .ne(new.members.iter().map(|m| (m.replica, m.snapshot)))
                })
    }

    /// The time of the cluster by the clock of this leader: the median of the clocks that were heard lately. Of two in the
    /// middle the earlier one: what expires too early is lost.
    pub fn cluster_offset_ms(&self, now_ms: u64, lately_ms: u64) -> Option<i64> {
        let lately = |heard: &&NodeReport| now_ms.saturating_sub(heard.at_ms) <= lately_ms;
        let heard = self.nodes.values().filter(lately);
        let mut offsets: Vec<i64> = heard.filter_map(|heard| heard.clock_offset_ms).collect();
        offsets.sort_unstable();
        offsets.get(offsets.len().checked_sub(1)? / 2).copied()
    }

    pub fn heard(&self, node: NodeId) -> Option<&NodeReport> {
        self.nodes.get(&node)
    }

    /// Why a node cannot write, as it said last.
    pub fn trouble(&self, node: NodeId) -> Option<&str> {
        let last = self.heard(node)?.last.as_ref()?;
        (!last.trouble.is_empty()).then_some(last.trouble.as_str())
    }

    /// The last heartbeats of all nodes.
    pub fn heartbeats(&self) -> impl Iterator<Item = &Heartbeat> {
        self.nodes.values().filter_map(|heard| heard.last.as_ref())
    }

    /// The catalogue of tables that a node serves by, as it said last; 0 if it said nothing.
    pub fn tables_version(&self, node: NodeId) -> u64 {
        let last = self.heard(node).and_then(|heard| heard.last.as_ref());
        last.map_or(0, |last| last.tables_version)
    }

    /// The users that a node serves by, as it said last; 0 if it said nothing.
    pub fn users_version(&self, node: NodeId) -> u64 {
        let last = self.heard(node).and_then(|heard| heard.last.as_ref());
        last.map_or(0, |last| last.users_version)
    }

    /// The newest leader of a region ever heard of here; it may have been killed since.
    pub fn leader(&self, region: RegionId) -> Option<Leadership> {
        self.leaders.get(&region).copied()
    }
}
