//! The part of meta's leader: heartbeats and joins are answered, the scheduler makes its turns.

use std::time::Duration;

use base::cluster::NodeId;
use bytes::Bytes;
use meta::leader::{Leader, admin_answer, join_answer, join_elsewhere, leader_address, not_leader};
use meta::state::{Change, Command, Outcome};
use meta::wire::{AdminRequest, Heartbeat, Join};
use prost::Message;
use transport::{Reply, Target};

use super::super::{Cluster, METHOD_ADMIN, METHOD_HEARTBEAT, METHOD_JOIN, NEWS, clock_ms};
use super::{Asked, Chair, Motion};
use crate::shared::now_ms;

/// Between two turns of the scheduler.
const TURN_MS: u64 = 200;
const PASS_ON: Duration = Duration::from_secs(5);

impl Chair {
    /// This member leads and knows all that was decided before.
    pub(super) fn take_the_chair(&mut self) {
        if self.leader.is_some() || !self.replica.is_serving() {
            return;
        }
        if let Some(found) = self.founder.take()
            && self.state.cluster() == 0
        {
            self.propose(Change::Found(found).into(), Asked::Nobody);
        }
        let (node, term) = (self.cluster.node, self.replica.term());
        let limits = self.limits();
        self.leader = Some(Leader::new(node, term, &self.state, clock_ms(), limits));
        self.turn_at_ms = 0;
    }

    /// Another member leads, or none: whoever waits has to ask again.
    pub(super) fn stand_down(&mut self) {
        self.leader = None;
        for (_, (_, asked)) in std::mem::take(&mut self.asked) {
            self.give_up(asked);
        }
    }

    /// The scheduler looks at everything, when it is time or something happened.
    pub(super) fn schedule(&mut self) {
        let now_ms = clock_ms();
        let Some(leader) = &mut self.leader else {
            return;
        };
        if !self.replica.may_serve(now_ms) {
            return; // perhaps somebody else leads already
        }
        if now_ms < self.turn_at_ms && !leader.is_urged() {
            return;
        }
        self.turn_at_ms = now_ms + TURN_MS;
        let proposals = leader.turn(&self.state, now_ms);
        for node in leader.nodes_with_news() {
            match node == self.cluster.node {
                true => self.cluster.nudge(),
                false => self.cluster.send(node, vec![(NEWS, Bytes::new())]),
            }
        }
        for command in proposals {
            self.propose(command, Asked::Nobody);
        }
    }

    pub(super) fn on_call(&mut self, method: u16, body: Bytes, reply: Reply) {
        let now_ms = clock_ms();
        let leads = self.leader.is_some() && self.replica.may_serve(now_ms);
        match method {
            METHOD_HEARTBEAT => {
                let Ok(heartbeat) = Heartbeat::decode(body) else {
                    return reply.reject("a heartbeat that makes no sense");
                };
                let mut answer = match &mut self.leader {
                    Some(leader) if leads => leader.on_heartbeat(&self.state, heartbeat, now_ms),
                    _ => not_leader(&self.state, self.leader_node()),
                };
                answer.wall_ms = crate::shared::now_ms();
                reply.done(answer.encode_to_vec());
                self.schedule();
            }
            METHOD_JOIN => {
                let Ok(join) = Join::decode(body) else {
                    return reply.reject("a join that makes no sense");
                };
                match &self.leader {
                    Some(leader) if leads => {
                        let command = leader.register(&self.state, join, now_ms);
                        self.propose(command, Asked::Join(reply));
                    }
                    _ => {
                        let answer = join_elsewhere(&self.state, self.leader_node());
                        reply.done(answer.encode_to_vec());
                    }
                }
            }
            METHOD_ADMIN => self.on_admin(body, reply, leads),
            _ => reply.reject("unknown method"),
        }
    }

    fn on_admin(&mut self, body: Bytes, reply: Reply, leads: bool) {
        let Ok(request) = AdminRequest::decode(body.clone()) else {
            return reply.reject("a request that makes no sense");
        };
        match &mut self.leader {
            Some(leader) if leads => {
                let (answer, command) = leader.admin(&self.state, &request, clock_ms());
                match command {
                    Some(command) => self.propose(command, Asked::Admin(reply, answer.into())),
                    None => reply.done(answer.encode_to_vec()),
                }
                self.schedule();
            }
            _ => match leader_address(&self.state, self.leader_node()) {
                Some(address) => self.cluster.pass_on(address.to_string(), body, reply),
                None => reply.reject("the meta service has no leader just now; try again"),
            },
        }
    }

    fn leader_node(&self) -> Option<NodeId> {
        let leader = self.replica.leader()?;
        Some(self.seat.descriptor.member(leader)?.node)
    }

    pub(super) fn propose(&mut self, command: Command, asked: Asked) {
        self.stamp_ms = self.stamp_ms.max(now_ms());
        let motion = Motion {
            stamp_ms: self.stamp_ms,
            command,
        };
        match self.replica.propose(motion.encode_to_vec()) {
            Ok(()) => {
                let at = (self.replica.term(), asked);
                self.asked.insert(self.replica.last_index(), at);
            }
            Err(_) => self.give_up(asked),
        }
    }

    pub(super) fn on_outcome(&mut self, asked: Asked, outcome: Outcome) {
        match asked {
            Asked::Join(reply) => reply.done(join_answer(&outcome, &self.state).encode_to_vec()),
            Asked::Admin(reply, answer) => {
                let answer = admin_answer(*answer, &outcome, &self.state);
                reply.done(answer.encode_to_vec());
            }
            Asked::Nobody => {}
        }
        self.turn_at_ms = 0;
    }

    pub(super) fn give_up(&self, asked: Asked) {
        match asked {
            Asked::Join(reply) => {
                let answer = join_elsewhere(&self.state, self.leader_node());
                reply.done(answer.encode_to_vec());
            }
            // It may have been done all the same.
            Asked::Admin(reply, _) => {
                reply.reject("the meta service changed its leader meanwhile; look, and try again");
            }
            Asked::Nobody => {}
        }
    }
}

impl Cluster {
    /// A request for meta's leader that came to this node.
    pub(super) fn pass_on(&self, address: String, body: Bytes, reply: Reply) {
        let transport = self.transport.clone();
        // Rare, and it may take as long as the call: a thread of its own.
        let passed = std::thread::Builder::new()
            .name("pass-on".into())
            .spawn(move || {
                let target = Target::Address(address);
                match transport.call_blocking(target, METHOD_ADMIN, body, PASS_ON) {
                    Ok(answer) => reply.done(answer),
                    Err(error) => reply.reject(error.to_string()),
                }
            });
        drop(passed);
    }
}
