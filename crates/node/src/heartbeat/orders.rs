//! What follows from an answer of meta's leader: routes, addresses, tables and orders, one after the other.
//!
//! Orders may come twice and late. A replica is made unless the region is here already, or this replica or
//! a newer one was destroyed on this node; what an order to a leader is worth, its replica decides.

use std::collections::VecDeque;

use base::clock;
use base::cluster::{META_REGION, RegionId};
use meta::wire::{Action, Catalogue, Create, HeartbeatAnswer, Order, OrderReport};

use super::{
    Doing, HeartbeatContext, HeartbeatEffect, HeartbeatNotice, Heartbeats, MetaTarget, SOON_MS,
};
use crate::ReplicaRecord;
use crate::replica_record::gone;

/// Why a replica is still there that was to be destroyed.
pub const NOT_DESTROYED: &str = "the replica is busy, or a member after all";
const NOT_HERE: &str = "no replica of this region is here";

/// What is still to be done about an answer.
pub(super) struct CarryingOut {
    tasks: VecDeque<Task>,
    /// What was given to the host, and has no outcome yet.
    waits_for: Option<Waits>,
    /// The next heartbeat should follow soon: it shows meta what became of its orders.
    again: bool,
}

enum Task {
    Tables(Catalogue),
    Users(Catalogue),
    TablesKnown,
    /// Any but to create.
    Order(Order),
    /// All of them together: one sync is enough.
    Create(Vec<Order>),
}

enum Waits {
    Tables { version: u64 },
    Users { version: u64 },
    Order { id: u64, region: RegionId },
    Create,
}

impl Heartbeats {
    /// Meta's leader has accepted the heartbeat.
    pub(super) fn on_accepted(
        &mut self,
        leader: Option<MetaTarget>,
        answer: HeartbeatAnswer,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) {
        self.leader = leader;
        self.on_meta_answers(out);
        self.compare_clocks(answer.wall_ms, cx, out);
        if let Some(table) = &answer.routes {
            self.routes.update(table);
            out.push(HeartbeatEffect::PublishRoutes(self.routes.clone()));
            if self.learn_addresses(&answer) {
                // What is not kept now is learned again with the next change.
                let _ = self.identity.keep(cx.rows, cx.pause);
            }
        }
        let mut tasks = VecDeque::new();
        let newer = |tables: &Catalogue| tables.version > self.tables_version;
        tasks.extend(answer.tables.filter(newer).map(Task::Tables));
        let newer = |users: &Catalogue| users.version > self.users_version;
        tasks.extend(answer.users.filter(newer).map(Task::Users));
        tasks.push_back(Task::TablesKnown);
        let mut again = false;
        let mut creates = Vec::new();
        for order in answer.orders {
            match &order.action {
                Some(Action::Create(_)) => creates.push(order),
                action => {
                    again |= matches!(action, Some(Action::Destroy(_)));
                    tasks.push_back(Task::Order(order));
                }
            }
        }
        if !creates.is_empty() {
            again = true;
            tasks.push_back(Task::Create(creates));
        }
        let work = CarryingOut {
            tasks,
            waits_for: None,
            again,
        };
        self.carry_on(work, cx, out);
    }

    /// What the host was given last is done, or failed for this reason.
    pub fn on_done(
        &mut self,
        result: Result<(), String>,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) {
        let mut work = match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::CarryingOut(work) => work,
            other => {
                self.doing = other;
                return;
            }
        };
        match (work.waits_for.take(), result) {
            // Meta hears of it soon: somebody waits.
            (Some(Waits::Tables { .. } | Waits::Users { .. }), Ok(())) => work.again = true,
            (Some(Waits::Tables { version }), Err(why)) => self.tell_tables(version, why, out),
            (Some(Waits::Users { version }), Err(why)) => self.tell_users(version, why, out),
            (Some(Waits::Order { id, region }), Err(text)) => self.failures.push(OrderReport {
                order: id,
                region,
                text,
            }),
            (Some(Waits::Create), Err(text)) => {
                let notice = HeartbeatNotice::NotCreated(text);
                out.push(HeartbeatEffect::Notice(notice));
            }
            (_, Ok(())) | (None, _) => {}
        }
        self.carry_on(work, cx, out);
    }

    /// Gives the host what is next; if nothing is left, it is over.
    fn carry_on(
        &mut self,
        mut work: CarryingOut,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) {
        while let Some(task) = work.tasks.pop_front() {
            work.waits_for = self.begin(task, cx, out);
            if work.waits_for.is_some() {
                self.doing = Doing::CarryingOut(work);
                return;
            }
        }
        self.doing = Doing::Nothing;
        if work.again {
            self.next_ms = cx.clock_ms + SOON_MS;
        }
    }

    /// Returns what has to be waited for.
    fn begin(
        &mut self,
        task: Task,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) -> Option<Waits> {
        match task {
            Task::Tables(tables) => {
                let version = tables.version;
                out.push(HeartbeatEffect::TakeTables(tables));
                Some(Waits::Tables { version })
            }
            Task::Users(users) => {
                let version = users.version;
                out.push(HeartbeatEffect::TakeUsers(users));
                Some(Waits::Users { version })
            }
            Task::TablesKnown => {
                out.push(HeartbeatEffect::TablesKnown);
                None
            }
            Task::Order(order) => self.begin_order(order, cx, out),
            Task::Create(orders) => match wanted(orders, cx, out) {
                Ok(records) if records.is_empty() => None,
                Ok(records) => {
                    out.push(HeartbeatEffect::Create(records));
                    Some(Waits::Create)
                }
                Err(text) => {
                    let notice = HeartbeatNotice::NotCreated(text);
                    out.push(HeartbeatEffect::Notice(notice));
                    None
                }
            },
        }
    }

    fn begin_order(
        &mut self,
        order: Order,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) -> Option<Waits> {
        let (id, region) = (order.id, order.region);
        if region == META_REGION {
            out.push(HeartbeatEffect::ToMeta(Box::new(order)));
            return None;
        }
        let is_here = (cx.is_here)(region);
        let effect = match order.action {
            Some(Action::Destroy(_)) if !is_here => return None,
            Some(Action::Destroy(destroy)) => HeartbeatEffect::Destroy {
                order: Box::new(order),
                replica: destroy.replica,
            },
            _ if !is_here => {
                self.failures.push(OrderReport {
                    order: id,
                    region,
                    text: NOT_HERE.into(),
                });
                return None;
            }
            _ => HeartbeatEffect::Lead(Box::new(order)),
        };
        out.push(effect);
        Some(Waits::Order { id, region })
    }

    /// Once for each version; it comes with every answer.
    fn tell_tables(&mut self, version: u64, why: String, out: &mut Vec<HeartbeatEffect>) {
        if self.told.tables != version {
            self.told.tables = version;
            let notice = HeartbeatNotice::TablesRefused { version, why };
            out.push(HeartbeatEffect::Notice(notice));
        }
    }

    fn tell_users(&mut self, version: u64, why: String, out: &mut Vec<HeartbeatEffect>) {
        if self.told.users != version {
            self.told.users = version;
            let notice = HeartbeatNotice::UsersRefused { version, why };
            out.push(HeartbeatEffect::Notice(notice));
        }
    }

    /// Addresses of nodes, from the route table; true if there is something new to keep.
    fn learn_addresses(&mut self, answer: &HeartbeatAnswer) -> bool {
        let nodes = self.routes.nodes();
        let nodes: Vec<String> = nodes
            .map(|node| format!("{}@{}", node.node, node.peer))
            .collect();
        let meta: Vec<String> = answer.meta.iter().map(|it| it.peer.to_string()).collect();
        let changed = nodes != self.identity.nodes || meta != self.identity.meta;
        self.identity.nodes = nodes;
        self.identity.meta = meta;
        changed
    }

    /// Keys expire by the clock of whoever leads them: this node goes by the time of the cluster if its own clock differs
    /// much, and says so. The answer was made between the question and now.
    fn compare_clocks(
        &mut self,
        theirs_ms: u64,
        cx: &HeartbeatContext<'_>,
        out: &mut Vec<HeartbeatEffect>,
    ) {
        if theirs_ms == 0 {
            return;
        }
        let own_ms = clock::offset(cx.wall_ms, cx.clock_ms);
        let low_ms = clock::offset(theirs_ms, cx.clock_ms);
        let high_ms = clock::offset(theirs_ms, self.asked_ms.min(cx.clock_ms));
        out.push(HeartbeatEffect::ClusterTime { low_ms, high_ms });
        let (is_ahead, apart_ms) = match own_ms > high_ms {
            true => (true, own_ms.abs_diff(high_ms)),
            false => (false, low_ms.saturating_sub(own_ms).max(0) as u64),
        };
        let is_apart = apart_ms > clock::APART_MS as u64;
        if is_apart && !self.told.clocks {
            let notice = HeartbeatNotice::ClocksApart { apart_ms, is_ahead };
            out.push(HeartbeatEffect::Notice(notice));
        }
        self.told.clocks = is_apart;
    }
}

/// The replicas that are really to be made. Meta's own member is another's business.
fn wanted(
    orders: Vec<Order>,
    cx: &HeartbeatContext<'_>,
    out: &mut Vec<HeartbeatEffect>,
) -> Result<Vec<ReplicaRecord>, String> {
    let mut records = Vec::new();
    for order in orders {
        if order.region == META_REGION {
            out.push(HeartbeatEffect::ToMeta(Box::new(order)));
        } else if let Some(Action::Create(create)) = order.action
            && !is_over(order.region, &create, cx)?
        {
            records.push(ReplicaRecord::made(create));
        }
    }
    Ok(records)
}

/// Whether the replica is here already, or was and is never made again.
fn is_over(region: RegionId, create: &Create, cx: &HeartbeatContext<'_>) -> Result<bool, String> {
    Ok((cx.is_here)(region) || gone(cx.rows, region)? >= create.replica)
}
