//! What a node decides about heartbeats: when it joins and reports, whom it asks, and what follows from
//! meta's answers.
//!
//! ```text
//!   clock ─► on_due ─┬─ not joined yet: Ask{Join} ─► on_answer ─┐
//!                    └─► Report ─► on_report ◄──────────────────┘
//!                                     └─► Ask{Heartbeat} ─► on_answer ─► routes, tables, orders ─► on_done …
//!                                            ▲                │
//!                                            └── on_no_answer, or another leads: the next one
//! ```
//!
//! One thing at a time: until the outcome of the last effect is reported, no heartbeat is due. A thread of
//! the server calls it, and so does the simulator. While meta is not to be reached everything else of a node
//! goes on: routes are as last heard, and replicas know best themselves who leads.
//!
//! Here is when a heartbeat is due and what an answer means; `targets` is whom to ask, `orders` what follows
//! from an answer of meta's leader.
//!
//! Invariants: a report has all replicas of the node or is not sent; a node that meta does not want asks for
//! nothing any more.

mod effects;
mod orders;
mod targets;
#[cfg(test)]
mod tests;

use meta::route::Routes;
use meta::wire::{
    Capacity, Heartbeat, HeartbeatAnswer, Join, JoinAnswer, OrderReport, Profile, Standing,
};

pub use effects::{HeartbeatContext, HeartbeatEffect, HeartbeatNotice, MetaTarget, NodeReport};
pub use orders::NOT_DESTROYED;
pub use targets::{heartbeat_elsewhere, join_elsewhere};

use crate::{Identity, MetaAnswer, MetaCall};
use orders::CarryingOut;
use targets::Round;

const BEAT_MS: u64 = 1_000;
/// Orders and changes make the next heartbeat come sooner, but not at once: more may follow.
const SOON_MS: u64 = 20;
/// Meta is silent for so long before the user hears of it.
const SILENT_MS: u64 = 5 * BEAT_MS;
/// A disk with less room takes no more replicas, however large it is.
const FULL_BYTES: u64 = 1 << 30;

/// What the heartbeats of a node begin with.
pub struct OpenHeartbeats {
    /// With a node id.
    pub identity: Identity,
    /// Of this start: a join that is tried again is the same join.
    pub token: u64,
    pub profile: Profile,
    /// Peer addresses given with `--join`.
    pub join: Vec<String>,
    /// The first is due at once.
    pub clock_ms: u64,
}

/// A node's heartbeats to meta.
pub struct Heartbeats {
    identity: Identity,
    token: u64,
    profile: Profile,
    join: Vec<String>,
    routes: Routes,
    doing: Doing,
    /// When the next heartbeat is due.
    next_ms: u64,
    number: u64,
    /// When the last question left.
    asked_ms: u64,
    /// Where meta's leader was last.
    leader: Option<MetaTarget>,
    /// How often meta was looked for.
    turn: usize,
    /// Accepted by meta since this start.
    has_joined: bool,
    /// Orders that were not carried out, for the next heartbeat.
    failures: Vec<OrderReport>,
    /// As the last heartbeat said.
    tables_version: u64,
    users_version: u64,
    /// Since when meta does not answer.
    silent_since_ms: Option<u64>,
    told: Told,
}

enum Doing {
    Nothing,
    Reporting,
    Asking(Round),
    CarryingOut(CarryingOut),
    Stopped,
}

/// What the user has been told.
#[derive(Default)]
struct Told {
    silence: bool,
    clocks: bool,
    full: bool,
    /// The version of the tables that could not be taken over.
    tables: u64,
    /// The same of the users.
    users: u64,
}

impl OpenHeartbeats {
    pub fn open(self) -> Heartbeats {
        Heartbeats {
            identity: self.identity,
            token: self.token,
            profile: self.profile,
            join: self.join,
            routes: Routes::new(),
            doing: Doing::Nothing,
            next_ms: self.clock_ms,
            number: 0,
            asked_ms: 0,
            leader: None,
            turn: 0,
            has_joined: false,
            failures: Vec::new(),
            tables_version: 0,
            users_version: 0,
            silent_since_ms: None,
            told: Told::default(),
        }
    }
}

impl Heartbeats {
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// As last published.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// When [`Heartbeats::on_due`] is to be called; none while the outcome of an effect is awaited.
    pub fn due_ms(&self) -> Option<u64> {
        matches!(self.doing, Doing::Nothing).then_some(self.next_ms)
    }

    /// Something changed that meta should hear of, or meta has news.
    pub fn on_heartbeat_trigger(&mut self, clock_ms: u64) {
        self.next_ms = self.next_ms.min(clock_ms + SOON_MS);
    }

    pub fn on_due(&mut self, cx: &HeartbeatContext<'_>, out: &mut Vec<HeartbeatEffect>) {
        if !matches!(self.doing, Doing::Nothing) {
            return;
        }
        self.next_ms = cx.clock_ms + BEAT_MS;
        match self.has_joined {
            true => self.report(out),
            // A node that is known comes back: meta hears where it lives now.
            false => {
                let call = MetaCall::Join(Join {
                    cluster: self.identity.cluster,
                    node: self.identity.node,
                    token: self.token,
                    start_count: self.identity.start_count,
                    profile: self.profile.clone(),
                    replace: 0,
                });
                let round = Round::new(call, self.targets());
                self.ask_next(round, cx, out);
            }
        }
    }

    fn report(&mut self, out: &mut Vec<HeartbeatEffect>) {
        self.doing = Doing::Reporting;
        out.push(HeartbeatEffect::Report);
    }

    /// How the node stands. None while a part of it is too busy to say.
    pub fn on_report(
        &mut self,
        report: Option<NodeReport>,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) {
        if !matches!(self.doing, Doing::Reporting) {
            return;
        }
        let Some(mut report) = report else {
            self.rest_shortly(cx);
            return;
        };
        self.hear(&mut report, out);
        self.tables_version = report.tables_version;
        self.users_version = report.users_version;
        self.number += 1;
        let call = MetaCall::Heartbeat(Heartbeat {
            cluster: self.identity.cluster,
            node: self.identity.node,
            start_count: self.identity.start_count,
            number: self.number,
            route_version: self.routes.version(),
            replicas: report.replicas,
            capacity: self.judge(report.capacity, out),
            orders: std::mem::take(&mut self.failures),
            tables_version: report.tables_version,
            wall_ms: cx.wall_ms,
            trouble: report.trouble,
            users_version: report.users_version,
        });
        let round = Round::new(call, self.targets());
        self.ask_next(round, cx, out);
    }

    /// What this node's replicas know of their leaders and members, often before meta does. What meta has
    /// named itself is left out of the report.
    fn hear(&mut self, report: &mut NodeReport, out: &mut Vec<HeartbeatEffect>) {
        let routes = &mut self.routes;
        if report.replicas.iter().any(|it| routes.is_news(it)) {
            report.replicas.iter().for_each(|it| routes.hear(it));
            out.push(HeartbeatEffect::PublishRoutes(routes.clone()));
        }
        for it in &mut report.replicas {
            if routes.meta_knows(it.region, it.epoch) {
                it.descriptor = None;
            }
        }
    }

    /// Whether there is room for more replicas.
    fn judge(&mut self, mut capacity: Capacity, out: &mut Vec<HeartbeatEffect>) -> Capacity {
        let (bytes, free_bytes) = (capacity.disk_bytes, capacity.disk_free_bytes);
        capacity.disk_full = free_bytes < (bytes / 50).min(FULL_BYTES);
        if capacity.disk_full && !self.told.full {
            let notice = HeartbeatNotice::DiskFull { free_bytes, bytes };
            out.push(HeartbeatEffect::Notice(notice));
        }
        self.told.full = capacity.disk_full;
        capacity
    }

    /// Asks the next one; if there is none, later again.
    fn ask_next(
        &mut self,
        mut round: Round,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) {
        if let Some(target) = round.next() {
            let call = round.call.clone();
            self.doing = Doing::Asking(round);
            self.asked_ms = cx.clock_ms;
            out.push(HeartbeatEffect::Ask { target, call });
            return;
        }
        if matches!(*round.call, MetaCall::Heartbeat(_)) {
            self.leader = None;
        }
        self.doing = Doing::Nothing;
        let since_ms = *self.silent_since_ms.get_or_insert(cx.clock_ms);
        if cx.clock_ms.saturating_sub(since_ms) > SILENT_MS && !self.told.silence {
            self.told.silence = true;
            out.push(HeartbeatEffect::Notice(HeartbeatNotice::MetaSilent));
        }
    }

    fn on_meta_answers(&mut self, out: &mut Vec<HeartbeatEffect>) {
        self.silent_since_ms = None;
        if std::mem::take(&mut self.told.silence) {
            out.push(HeartbeatEffect::Notice(HeartbeatNotice::MetaAnswers));
        }
    }

    /// The one who was asked did not answer, or not what it was asked.
    pub fn on_no_answer(&mut self, cx: &HeartbeatContext<'_>, out: &mut Vec<HeartbeatEffect>) {
        if let Some(round) = self.take_round() {
            self.ask_next(round, cx, out);
        }
    }

    pub fn on_answer(
        &mut self,
        answer: MetaAnswer,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) {
        let Some(round) = self.take_round() else {
            return;
        };
        match (&*round.call, answer) {
            (MetaCall::Join(_), MetaAnswer::Join(answer)) => {
                self.on_join_answer(round, &answer, cx, out);
            }
            (MetaCall::Heartbeat(_), MetaAnswer::Heartbeat(answer)) => {
                self.on_heartbeat_answer(round, *answer, cx, out);
            }
            _ => self.ask_next(round, cx, out),
        }
    }

    fn take_round(&mut self) -> Option<Round> {
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Asking(round) => Some(round),
            other => {
                self.doing = other;
                None
            }
        }
    }

    fn on_join_answer(
        &mut self,
        mut round: Round,
        answer: &JoinAnswer,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) {
        if answer.node == self.identity.node {
            self.has_joined = true;
            self.report(out);
        } else if !answer.refused.is_empty() && !answer.retry {
            // Its replicas would only disturb those that took their place.
            let text = format!("meta does not take this node back: {}", answer.refused);
            self.stop(text, out);
        } else {
            // Meta may have moved away from all this node knew of.
            round.add(answer.leader.iter().chain(&answer.meta));
            self.ask_next(round, cx, out);
        }
    }

    fn on_heartbeat_answer(
        &mut self,
        mut round: Round,
        answer: HeartbeatAnswer,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) {
        match answer.standing() {
            Standing::Accepted => self.on_accepted(round.current(), answer, cx, out),
            Standing::NotLeader => {
                if let Some(leader) = &answer.leader {
                    round.put_first(&leader.peer);
                }
                round.add(answer.meta.iter().map(|node| &node.peer));
                self.ask_next(round, cx, out);
            }
            Standing::Unknown => {
                self.has_joined = false;
                self.rest_shortly(cx);
            }
            Standing::Superseded | Standing::Gone | Standing::WrongCluster => {
                self.stop(answer.text, out);
            }
        }
    }

    /// The next heartbeat, or join, comes soon.
    fn rest_shortly(&mut self, cx: &HeartbeatContext<'_>) {
        self.doing = Doing::Nothing;
        self.next_ms = cx.clock_ms + SOON_MS;
    }

    fn stop(&mut self, why: String, out: &mut Vec<HeartbeatEffect>) {
        self.doing = Doing::Stopped;
        out.push(HeartbeatEffect::Stop(why));
    }
}
