//! The thread "meta": hears words, drives the member, keeps time; and what a node does that is no
//! member of meta (now, or not yet).
//!
//! Invariant: there is at most one member on a node; one that has left is gone before the next word is
//! heard.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use base::cluster::META_REGION;
use bytes::Bytes;
use meta::state::Found;
use meta::wire::{Action, HeartbeatAnswer, JoinAnswer, RouteNode, Standing};
use prost::Message;
use replica::{Ready, Replica, ReplicaConfig};
use transport::Reply;

use super::super::seats::{self, ReplicaRecord};
use super::super::{Cluster, METHOD_ADMIN, METHOD_HEARTBEAT, METHOD_JOIN, clock_ms};
use super::{Chair, Minutes, Word};
use crate::Shared;
use crate::durable::{forget_log, has_log};
use crate::shared::random_seed;
use node::Pace;

/// What the thread begins with.
pub struct Start {
    pub shared: Arc<Shared>,
    pub cluster: Arc<Cluster>,
    pub inbox: Receiver<Word>,
    pub pace: Pace,
    /// What the founder of a cluster proposes first.
    pub founder: Option<Found>,
}

impl Start {
    /// Until the node stops.
    pub fn run(mut self) {
        let mut chair = match self.open() {
            Ok(chair) => chair,
            Err(reason) => {
                let node = self.cluster.node;
                tracing::error!(
                    node,
                    "the member of the meta service on this node cannot start: {reason}"
                );
                None
            }
        };
        let tick = Duration::from_millis(self.pace.tick_ms);
        let mut next = Instant::now() + tick;
        loop {
            if chair.as_ref().is_some_and(|chair| chair.has_left) {
                chair = None;
                self.cluster.set_chair_report(None);
            }
            let wait = next.saturating_duration_since(Instant::now());
            let mut heard = match self.inbox.recv_timeout(wait) {
                Ok(word) => Some(word),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // What waits is heard before anything is written: one write for all.
            while let Some(word) = heard {
                match (word, &mut chair) {
                    (Word::Stop, _) => return,
                    (word, Some(chair)) => chair.on_word(word),
                    (word, None) => chair = self.on_word_without_chair(word),
                }
                heard = self.inbox.try_recv().ok();
            }
            let is_time = Instant::now() >= next;
            if is_time {
                next = Instant::now() + tick;
            }
            if let Some(chair) = &mut chair {
                if is_time {
                    chair.on_tick();
                }
                chair.drive();
            }
        }
    }

    fn open(&mut self) -> Result<Option<Chair>, String> {
        let Some(durable) = &self.shared.durable else {
            return Ok(None);
        };
        match Minutes::read(&*durable.stores.rows)? {
            Some(minutes) => self.sit_down(minutes).map(Some),
            None => Ok(None),
        }
    }

    fn sit_down(&mut self, minutes: Minutes) -> Result<Chair, String> {
        let Some(durable) = &self.shared.durable else {
            return Err("no store".into());
        };
        let state = minutes.state()?;
        let config = ReplicaConfig {
            region: META_REGION,
            replica: minutes.seat.replica,
            members: minutes.seat.members(minutes.applied),
            applied: minutes.applied,
            snapshot: minutes.seat.snapshot(),
            seed: random_seed(),
            now_ms: clock_ms(),
            tick_ms: self.pace.tick_ms,
            election_ticks: self.pace.election_ticks,
            heartbeat_ticks: self.pace.heartbeat_ticks,
            quiet_ticks: 0,
            ..ReplicaConfig::default()
        };
        let replica = Replica::new(config, &*durable.stores.log)
            .map_err(|error| format!("region 0 cannot be opened: {error}"))?;
        Ok(Chair {
            shared: self.shared.clone(),
            cluster: self.cluster.clone(),
            heard: HashMap::new(),
            replica,
            ready: Ready::default(),
            state,
            applied: minutes.applied,
            applied_term: minutes.applied_term,
            kept: minutes.applied,
            stamp_ms: 0,
            founder: self.founder.take(),
            leader: None,
            turn_at_ms: 0,
            asked: BTreeMap::new(),
            is_failed: false,
            has_left: false,
            seat: minutes.seat,
        })
    }

    /// A node that is no member of meta answers that it is not, and may be made one.
    fn on_word_without_chair(&mut self, word: Word) -> Option<Chair> {
        match word {
            Word::Order(order) => {
                let Some(Action::Create(create)) = order.action else {
                    return None;
                };
                let durable = self.shared.durable.as_ref()?;
                let rows = &*durable.stores.rows;
                if seats::gone(rows, META_REGION).is_ok_and(|gone| gone >= create.replica) {
                    return None;
                }
                let minutes = Minutes::found(ReplicaRecord::made(create));
                // A former member's, if the node died before it was forgotten.
                let cleared = match has_log(&*durable.stores.log, META_REGION) {
                    Ok(true) => forget_log(&*durable.stores.log, META_REGION),
                    other => other.map(drop),
                };
                let kept = cleared.and_then(|()| minutes.keep(rows));
                let sat = kept.and_then(|()| self.sit_down(minutes));
                match sat {
                    Ok(chair) => {
                        self.cluster.set_chair_report(chair.report());
                        self.cluster.nudge();
                        return Some(chair);
                    }
                    Err(reason) => {
                        tracing::warn!(
                            node = self.cluster.node,
                            "cannot take part in meta: {reason}"
                        );
                    }
                }
            }
            Word::Call {
                method,
                body,
                reply,
            } => answer_elsewhere(&self.cluster, method, body, reply),
            _ => {}
        }
        None
    }
}

/// Where meta is, for somebody who asked here.
fn answer_elsewhere(cluster: &Cluster, method: u16, body: Bytes, reply: Reply) {
    let meta = cluster.meta_nodes();
    match method {
        METHOD_JOIN => {
            let answer = JoinAnswer {
                retry: true,
                meta: meta.into_iter().map(|node| node.peer).collect(),
                ..JoinAnswer::default()
            };
            reply.done(answer.encode_to_vec());
        }
        METHOD_HEARTBEAT => {
            let answer = HeartbeatAnswer {
                standing: Standing::NotLeader.into(),
                meta,
                ..HeartbeatAnswer::default()
            };
            reply.done(answer.encode_to_vec());
        }
        METHOD_ADMIN => match somebody_up(cluster, meta) {
            Some(node) => cluster.pass_on(node.peer.to_string(), body, reply),
            None => reply.reject("this node does not know where the meta service is"),
        },
        _ => reply.reject("unknown method"),
    }
}

/// Any other node, better one that can be heard.
fn somebody_up(cluster: &Cluster, nodes: Vec<RouteNode>) -> Option<RouteNode> {
    let others = nodes.into_iter().filter(|it| it.node != cluster.node);
    others.max_by_key(|it| cluster.transport.is_up(it.node))
}
