//! The part of meta's leader: it answers heartbeats and joins, and the scheduler makes its turns.

use base::clock;
use base::cluster::NodeId;
use meta::leader::{Leader, admin_answer, join_answer, join_elsewhere, leader_address, not_leader};
use meta::state::{Change, Command, Outcome};
use meta::wire::AdminRequest;
use prost::Message;

use super::{MetaMember, Waiting};
use crate::{MetaAnswer, MetaCall, MetaContext, MetaEffects, MetaEntry};

/// Between two turns of the scheduler.
const TICK_MS: u64 = 200;

const NO_LEADER: &str = "the meta service has no leader just now; try again";
const LEADER_CHANGED: &str = "the meta service changed its leader meanwhile; look, and try again";

impl<T> MetaMember<T> {
    /// Begins, if this member leads and knows all that was decided before.
    pub(super) fn begin_to_lead(&mut self, cx: &MetaContext<'_>, out: &mut MetaEffects<T>) {
        if self.leader.is_some() || !self.replica.is_serving() {
            return;
        }
        if let Some(found) = self.founder.take()
            && self.state.cluster() == 0
        {
            self.propose(Change::Found(found).into(), Waiting::Nobody, cx, out);
        }
        let (node, term) = (self.node, self.replica.term());
        let leader = Leader::new(node, term, &self.state, cx.clock_ms, cx.limits);
        self.leader = Some(leader);
        self.tick_at_ms = 0;
    }

    /// Another member leads, or none: whoever waits has to ask again.
    pub(super) fn stop_leading(&mut self, out: &mut MetaEffects<T>) {
        self.leader = None;
        for (_, (_, waiting)) in std::mem::take(&mut self.waiting) {
            self.give_up(waiting, out);
        }
    }

    /// The scheduler looks at everything, when it is time or something happened.
    pub(super) fn schedule(&mut self, cx: &MetaContext<'_>, out: &mut MetaEffects<T>) {
        let clock_ms = cx.clock_ms;
        let Some(leader) = &mut self.leader else {
            return;
        };
        if !self.replica.may_serve(clock_ms) {
            return; // perhaps another member leads already
        }
        if clock_ms < self.tick_at_ms && !leader.is_urged() {
            return;
        }
        self.tick_at_ms = clock_ms + TICK_MS;
        let proposals = leader.tick(&self.state, clock_ms);
        out.news.extend(leader.nodes_with_news());
        for command in proposals {
            self.propose(command, Waiting::Nobody, cx, out);
        }
    }

    /// Somebody calls; `ticket` names the caller.
    pub fn on_call(
        &mut self,
        call: MetaCall,
        ticket: T,
        cx: &MetaContext<'_>,
        out: &mut MetaEffects<T>,
    ) {
        let clock_ms = cx.clock_ms;
        let leads = self.leader.is_some() && self.replica.may_serve(clock_ms);
        match call {
            MetaCall::Heartbeat(heartbeat) => {
                let answer = match &mut self.leader {
                    Some(leader) if leads => leader.on_heartbeat(&self.state, heartbeat, clock_ms),
                    _ => not_leader(&self.state, self.leader_node()),
                };
                let answer = MetaAnswer::Heartbeat(answer.into());
                out.answers.push((ticket, answer));
                self.schedule(cx, out);
            }
            MetaCall::Join(join) => match &self.leader {
                Some(leader) if leads => match leader.register(&self.state, join, clock_ms) {
                    Ok(command) => self.propose(command, Waiting::Join(ticket), cx, out),
                    Err(refused) => self.answer(Waiting::Join(ticket), &refused.into(), out),
                },
                _ => self.give_up(Waiting::Join(ticket), out),
            },
            MetaCall::Admin(request) => self.on_admin(&request, ticket, leads, cx, out),
        }
    }

    fn on_admin(
        &mut self,
        request: &AdminRequest,
        ticket: T,
        leads: bool,
        cx: &MetaContext<'_>,
        out: &mut MetaEffects<T>,
    ) {
        match &mut self.leader {
            Some(leader) if leads => {
                let (answer, command) = leader.admin(&self.state, request, cx.clock_ms);
                match command {
                    Some(command) => {
                        let waiting = Waiting::Admin(ticket, answer.into());
                        self.propose(command, waiting, cx, out);
                    }
                    None => out.answers.push((ticket, MetaAnswer::Admin(answer.into()))),
                }
                self.schedule(cx, out);
            }
            _ => {
                let address = leader_address(&self.state, self.leader_node());
                let answer = match address {
                    Some(address) => MetaAnswer::Elsewhere(address),
                    None => MetaAnswer::Refused(NO_LEADER),
                };
                out.answers.push((ticket, answer));
            }
        }
    }

    fn leader_node(&self) -> Option<NodeId> {
        let leader = self.replica.leader()?;
        Some(self.record.descriptor.member(leader)?.node)
    }

    fn propose(
        &mut self,
        command: Command,
        waiting: Waiting<T>,
        cx: &MetaContext<'_>,
        out: &mut MetaEffects<T>,
    ) {
        self.stamp_ms = clock::next_stamp(self.stamp_ms, cx.now_ms);
        let entry = MetaEntry {
            stamp_ms: self.stamp_ms,
            command,
        };
        match self.replica.propose(entry.encode_to_vec()) {
            Ok(()) => {
                let at = (self.replica.term(), waiting);
                self.waiting.insert(self.replica.last_index(), at);
            }
            Err(_) => self.give_up(waiting, out),
        }
    }

    /// The entry that somebody waits for is executed.
    pub(super) fn answer(
        &mut self,
        waiting: Waiting<T>,
        outcome: &Outcome,
        out: &mut MetaEffects<T>,
    ) {
        match waiting {
            Waiting::Join(ticket) => {
                let answer = join_answer(outcome, &self.state);
                out.answers.push((ticket, MetaAnswer::Join(answer.into())));
            }
            Waiting::Admin(ticket, answer) => {
                let answer = admin_answer(*answer, outcome, &self.state);
                out.answers.push((ticket, MetaAnswer::Admin(answer.into())));
            }
            Waiting::Nobody => {}
        }
        self.tick_at_ms = 0;
    }

    /// The entry that somebody waits for may never be executed.
    pub(super) fn give_up(&self, waiting: Waiting<T>, out: &mut MetaEffects<T>) {
        match waiting {
            Waiting::Join(ticket) => {
                let answer = join_elsewhere(&self.state, self.leader_node());
                out.answers.push((ticket, MetaAnswer::Join(answer.into())));
            }
            // It may have been done all the same.
            Waiting::Admin(ticket, _) => {
                out.answers
                    .push((ticket, MetaAnswer::Refused(LEADER_CHANGED)));
            }
            Waiting::Nobody => {}
        }
    }
}
