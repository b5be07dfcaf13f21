//! All that is known at one moment, with the questions operators ask.

use std::collections::BTreeMap;

use base::cluster::{Descriptor, Epoch, META_REGION, Member, NodeId, RegionId, ReplicaId};

use crate::limits::Limits;
use crate::liveness::Life;
use crate::state::{Node, State};
use crate::view::View;
use crate::wire::{Action, Order, ReplicaReport, ReplicaRole};

/// The replicated state, the heartbeats and the time, with indexes.
#[derive(Debug)]
pub struct Picture<'a> {
    pub state: &'a State,
    pub view: &'a View,
    pub now_ms: u64,
    pub limits: &'a Limits,
    pub lives: BTreeMap<NodeId, Life>,
    leaders: BTreeMap<RegionId, Leads<'a>>,
    reports: BTreeMap<(RegionId, ReplicaId), (NodeId, &'a ReplicaReport)>,
}

/// The leader of a region, as it said itself.
#[derive(Debug, Clone, Copy)]
pub struct Leads<'a> {
    pub node: NodeId,
    pub report: &'a ReplicaReport,
}

impl Leads<'_> {
    /// How many entries a member lacks; `None` if the leader says nothing of it, or is sending it
    /// a snapshot.
    pub fn lag(&self, replica: ReplicaId) -> Option<u64> {
        if replica == self.report.replica {
            return Some(0);
        }
        let of = |progress: &&crate::wire::MemberProgress| progress.replica == replica;
        let progress = self.report.members.iter().find(of)?;
        (!progress.snapshot).then_some(progress.lag)
    }
}

impl<'a> Picture<'a> {
    pub fn new(state: &'a State, view: &'a View, now_ms: u64, limits: &'a Limits) -> Picture<'a> {
        let lives: BTreeMap<NodeId, Life> = state
            .nodes()
            .map(|node| (node.id, Life::of(node, view, now_ms, limits)))
            .collect();
        let mut leaders: BTreeMap<RegionId, Leads<'a>> = BTreeMap::new();
        let mut reports = BTreeMap::new();
        for heartbeat in view.heartbeats() {
            let node = heartbeat.node;
            if lives.get(&node) != Some(&Life::Alive) {
                continue;
            }
            for report in &heartbeat.replicas {
                reports.insert((report.region, report.replica), (node, report));
                if report.role() == ReplicaRole::Leader
                    && leaders
                        .get(&report.region)
                        .is_none_or(|other| other.report.term < report.term)
                {
                    leaders.insert(report.region, Leads { node, report });
                }
            }
        }
        Picture {
            state,
            view,
            now_ms,
            limits,
            lives,
            leaders,
            reports,
        }
    }

    pub fn life(&self, node: NodeId) -> Life {
        self.lives.get(&node).copied().unwrap_or(Life::Dead)
    }

    pub fn is_alive(&self, node: NodeId) -> bool {
        self.life(node) == Life::Alive
    }

    /// No node is in between: what is seen is all there is.
    pub fn all_alive_or_dead(&self) -> bool {
        let settled = |life: &Life| matches!(life, Life::Alive | Life::Dead);
        self.lives.values().all(settled)
    }

    /// Voters a region should have.
    pub fn wanted(&self, region: RegionId) -> usize {
        let settings = self.state.settings();
        match region {
            META_REGION => settings.meta_replicas as usize,
            _ => settings.replicas as usize,
        }
    }

    pub fn leader(&self, region: RegionId) -> Option<Leads<'a>> {
        self.leaders.get(&region).copied()
    }

    /// What the replica's own node said of it, if that node is alive.
    pub fn report(&self, region: RegionId, replica: ReplicaId) -> Option<&'a ReplicaReport> {
        self.reports
            .get(&(region, replica))
            .map(|(_, report)| *report)
    }

    pub fn reports(&self) -> impl Iterator<Item = (NodeId, &'a ReplicaReport)> {
        self.reports.values().copied()
    }

    pub fn disk_full(&self, node: NodeId) -> bool {
        self.view
            .heard(node)
            .and_then(|heard| heard.last.as_ref())
            .is_some_and(|last| last.capacity.disk_full)
    }

    /// A member that can take part in a decision now.
    pub fn is_live(&self, region: RegionId, member: &Member) -> bool {
        self.is_alive(member.node)
            && self
                .report(region, member.replica)
                .is_some_and(|report| !report.installing)
    }

    /// A member that has all but the last entries, and, as it says itself, knows of `epoch`.
    pub fn is_level(&self, region: RegionId, replica: ReplicaId, epoch: Epoch) -> bool {
        let (Some(leader), Some(report)) = (self.leader(region), self.report(region, replica))
        else {
            return false;
        };
        let most = self.limits.caught_up_lag;
        !report.installing
            && !report.epoch.is_older_than(&epoch)
            && leader.lag(replica).is_some_and(|lag| lag <= most)
            && leader.report.applied <= report.applied.saturating_add(most)
    }

    /// All voters live, nothing under way: the region may be touched for balance.
    pub fn is_healthy(&self, descriptor: &Descriptor) -> bool {
        let region = descriptor.region;
        !descriptor.is_joint()
            && descriptor.learners().next().is_none()
            && self.leader(region).is_some()
            && descriptor.members.iter().all(|member| {
                self.is_live(region, member)
                    && self.is_level(region, member.replica, Epoch::default())
            })
    }

    pub fn members<'s>(
        &'s self,
        descriptor: &'s Descriptor,
    ) -> impl Iterator<Item = &'a Node> + 's {
        descriptor
            .members
            .iter()
            .filter_map(|member| self.state.node(member.node))
    }

    /// An order to the leader of a region about the descriptor as it is.
    pub fn tell_leader(
        &self,
        leader: &Leads,
        descriptor: &Descriptor,
        action: Action,
    ) -> (NodeId, Order) {
        let order = Order::new(
            descriptor.region,
            descriptor.epoch,
            leader.report.term,
            action,
        );
        (leader.node, order)
    }
}
