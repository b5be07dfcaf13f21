//! Whom a node asks for meta, and in which order; and what a node answers that is asked and is no member.

use std::sync::Arc;

use meta::route::Routes;
use meta::wire::{Address, HeartbeatAnswer, JoinAnswer, Standing};

use super::{Heartbeats, MetaTarget};
use crate::MetaCall;

/// One call, to one after the other until somebody answers it.
pub(super) struct Round {
    pub call: Arc<MetaCall>,
    targets: Vec<MetaTarget>,
    asked: usize,
}

impl Round {
    pub fn new(call: MetaCall, targets: Vec<MetaTarget>) -> Round {
        Round {
            call: Arc::new(call),
            targets,
            asked: 0,
        }
    }

    /// The next to be asked.
    pub fn next(&mut self) -> Option<MetaTarget> {
        let target = self.targets.get(self.asked).cloned();
        self.asked += usize::from(target.is_some());
        target
    }

    /// Who was asked last.
    pub fn current(&self) -> Option<MetaTarget> {
        self.targets.get(self.asked.checked_sub(1)?).cloned()
    }

    /// Who is said to lead is asked next, unless it was already: an old word may name a leader that is dead.
    pub fn put_first(&mut self, leader: &Address) {
        let target = MetaTarget::Address(leader.to_string());
        let found = self.targets.iter().position(|it| *it == target);
        if let Some(at) = found
            && at >= self.asked
        {
            self.targets.remove(at);
        }
        if found.is_none_or(|at| at >= self.asked) {
            self.targets.insert(self.asked, target);
        }
    }

    /// Others to be asked, behind those that are known.
    pub fn add<'a>(&mut self, more: impl Iterator<Item = &'a Address>) {
        for address in more {
            let target = MetaTarget::Address(address.to_string());
            if !self.targets.contains(&target) {
                self.targets.push(target);
            }
        }
    }
}

impl Heartbeats {
    /// Whom to ask, the likeliest first. The last is one of the other nodes: meta may have moved away
    /// from all that this node last heard of. One at a time, for those that are dead cost a while.
    pub(super) fn targets(&mut self) -> Vec<MetaTarget> {
        let mut targets: Vec<MetaTarget> = self.leader.iter().cloned().collect();
        targets.push(MetaTarget::ThisNode);
        let known = self.identity.meta.iter().chain(&self.join);
        for address in known {
            let target = MetaTarget::Address(address.clone());
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        let is_asked = |address: &str| targets.contains(&MetaTarget::Address(address.to_string()));
        let other = self.identity.somebody_else(self.turn, is_asked);
        targets.extend(other.map(|address| MetaTarget::Address(address.to_string())));
        self.turn = self.turn.wrapping_add(1);
        targets
    }
}

/// What a node that is no member of meta answers to a join: where meta is, as far as it has heard.
pub fn join_elsewhere(routes: &Routes) -> JoinAnswer {
    let meta = routes.meta_nodes();
    JoinAnswer {
        retry: true,
        meta: meta.map(|node| node.peer.clone()).collect(),
        ..JoinAnswer::default()
    }
}

/// The same to a heartbeat.
pub fn heartbeat_elsewhere(routes: &Routes) -> HeartbeatAnswer {
    HeartbeatAnswer {
        standing: Standing::NotLeader.into(),
        meta: routes.meta_nodes().cloned().collect(),
        ..HeartbeatAnswer::default()
    }
}
