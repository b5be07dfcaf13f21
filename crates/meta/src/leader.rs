//! What the leader of meta does: hears heartbeats, answers them, makes turns of the scheduler.
//!
//! The one thing a meta member holds besides its `State`. Made when the member's replica of region
//! 0 begins to serve as leader (an entry of its own term is applied), dropped when it stops:
//!
//! ```text
//!  on_heartbeat(state, beat, now) ─► HeartbeatAnswer         with the orders of the last turn
//!  turn(state, now)               ─► commands to propose     every 200 ms, and when urged
//!  register(state, join, now)     ─► command to propose; then join_answer(outcome)
//!  admin(state, request, now)     ─► answer, perhaps a command to propose; then admin_answer(outcome)
//! ```
//!
//! Members that do not lead answer with [`not_leader`].

mod admin;
mod replace;

pub use admin::admin_answer;

use std::collections::{BTreeMap, BTreeSet};

use base::clock;
use base::cluster::{META_REGION, NodeId};

use crate::limits::Limits;
use crate::liveness;
use crate::publish::Publisher;
use crate::scheduler::{Picture, Scheduler};
use crate::state::{Change, Command, Outcome, Refused, Register, State};
use crate::view::View;
use crate::wire::{
    Address, Behind, Heartbeat, HeartbeatAnswer, Join, JoinAnswer, Order, RouteNode, Standing,
};

#[derive(Debug)]
pub struct Leader {
    node: NodeId,
    limits: Limits,
    view: View,
    scheduler: Scheduler,
    publisher: Publisher,
    orders: BTreeMap<NodeId, Vec<Order>>,
    /// Nodes that should be answered before they ask.
    news: BTreeSet<NodeId>,
    /// The version of the catalogue of tables that nodes were woken for.
    tables_told: u64,
    /// The same of users.
    users_told: u64,
    /// A heartbeat showed something that a turn should look at soon.
    urged: bool,
}

impl Leader {
    /// Node `node` begins to lead meta in `term`. `now_ms` is any clock that does not jump.
    pub fn new(node: NodeId, term: u64, state: &State, now_ms: u64, limits: Limits) -> Leader {
        let mut view = View::default();
        view.expect(state, now_ms);
        Leader {
            node,
            limits,
            view,
            scheduler: Scheduler::default(),
            publisher: Publisher::new(term),
            orders: BTreeMap::new(),
            news: BTreeSet::new(),
            tables_told: 0,
            users_told: 0,
            urged: true,
        }
    }

    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes a heartbeat in. The answer has the orders of the last turn: with `is_urged`, a turn
    /// before it makes it better.
    pub fn on_heartbeat(
        &mut self,
        state: &State,
        heartbeat: Heartbeat,
        now_ms: u64,
    ) -> HeartbeatAnswer {
        let known = state.node(heartbeat.node);
        let refuse = |standing: Standing, text: String| HeartbeatAnswer {
            standing: standing.into(),
            text,
            ..HeartbeatAnswer::default()
        };
        if heartbeat.cluster != state.cluster() {
            let text = format!("this is cluster {:016x}", state.cluster());
            return refuse(Standing::WrongCluster, text);
        }
        let Some(node) = known else {
            return refuse(Standing::Unknown, format!("no node {}", heartbeat.node));
        };
        if !node.is_up() {
            let text = match node.replaced_by {
                0 => format!(
                    "node {} was removed from the cluster. To take part again, start it with an empty data directory \
                     and --join",
                    node.id
                ),
                by => format!(
                    "node {} was replaced by node {by}. Start it again to take it back",
                    node.id
                ),
            };
            return refuse(Standing::Gone, text);
        }
        if heartbeat.start_count < node.start_count {
            let text = format!("node {} was started again elsewhere", node.id);
            return refuse(Standing::Superseded, text);
        }
        if heartbeat.start_count > node.start_count {
            let text = format!("start {} has not joined", heartbeat.start_count);
            return refuse(Standing::Unknown, text);
        }
        for report in &heartbeat.orders {
            self.scheduler.on_order_report(report);
        }
        let id = heartbeat.node;
        let route_version = heartbeat.route_version;
        self.urged |= self.view.is_news(&heartbeat);
        self.view.on_heartbeat(heartbeat, now_ms);
        let lately_ms = self.limits.down_after_ms;
        let offset_ms = self.view.cluster_offset_ms(now_ms, lately_ms);
        HeartbeatAnswer {
            wall_ms: offset_ms.map_or(0, |offset_ms| clock::at(offset_ms, now_ms)),
            ..self.answer(state, id, route_version)
        }
    }

    /// What a node should know now, given the version of the table it has. Also for pushing.
    pub fn answer(&mut self, state: &State, node: NodeId, route_version: u64) -> HeartbeatAnswer {
        self.news.remove(&node);
        HeartbeatAnswer {
            standing: Standing::Accepted.into(),
            text: String::new(),
            leader: None,
            orders: self.orders.get(&node).cloned().unwrap_or_default(),
            routes: self.publisher.since(route_version),
            meta: meta_nodes(state),
            format: state.format(),
            wall_ms: 0,
            tables: state.tables_since(self.view.tables_version(node)),
            users: state.users_since(self.view.users_version(node)),
        }
    }

    /// Something happened that makes a turn worthwhile before the next is due.
    pub fn is_urged(&self) -> bool {
        self.urged
    }

    /// Nodes that have new orders, routes or tables to hear of since their last answer.
    pub fn nodes_with_news(&self) -> impl Iterator<Item = NodeId> {
        self.news.iter().copied()
    }

    /// Looks at everything. Returns what to propose to region 0.
    pub fn tick(&mut self, state: &State, now_ms: u64) -> Vec<Command> {
        self.urged = false;
        self.view.expect(state, now_ms);
        let picture = Picture::new(state, &self.view, now_ms, &self.limits);
        let schedule = self.scheduler.schedule(&picture);
        if self.publisher.refresh(&picture) {
            let alive = state.nodes().filter(|node| picture.is_alive(node.id));
            self.news.extend(alive.map(|node| node.id));
        }
        if self.tables_told < state.tables_version() || self.users_told < state.users_version() {
            self.tables_told = state.tables_version();
            self.users_told = state.users_version();
            let alive = state.nodes().filter(|node| picture.is_alive(node.id));
            self.news.extend(alive.map(|node| node.id));
        }
        for (node, orders) in &schedule.orders {
            if self.orders.get(node) != Some(orders) {
                self.news.insert(*node);
            }
        }
        self.orders = schedule.orders;
        schedule.proposals
    }

    /// The command that a join asks for, or why there is none.
    pub fn register(&self, state: &State, join: Join, now_ms: u64) -> Result<Command, Refused> {
        self.may_join(state, &join, now_ms)?;
        let alive = liveness::maybe_alive(state, &self.view, now_ms, &self.limits);
        Ok(Change::Register(Register { join, alive }).into())
    }

    /// Nodes that may be alive and have not said that they have published this version of the
    /// catalogue of tables.
    pub fn behind(&self, state: &State, version: u64, now_ms: u64) -> Vec<Behind> {
        self.behind_by(state, version, now_ms, View::tables_version)
    }

    /// The same of users.
    pub fn behind_users(&self, state: &State, version: u64, now_ms: u64) -> Vec<Behind> {
        self.behind_by(state, version, now_ms, View::users_version)
    }

    fn behind_by(
        &self,
        state: &State,
        version: u64,
        now_ms: u64,
        published: fn(&View, NodeId) -> u64,
    ) -> Vec<Behind> {
        let alive = liveness::maybe_alive(state, &self.view, now_ms, &self.limits);
        alive
            .into_iter()
            .filter_map(|id| {
                let node = state.node(id)?;
                let published = published(&self.view, id);
                (published < version).then(|| Behind {
                    node: id,
                    redis: node.profile.redis.clone(),
                    version: published,
                })
            })
            .collect()
    }

    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub fn view(&self) -> &View {
        &self.view
    }

    pub fn route_version(&self) -> u64 {
        self.publisher.version()
    }
}

/// What became of a join, once its command is applied.
pub fn join_answer(outcome: &Outcome, state: &State) -> JoinAnswer {
    let mut answer = JoinAnswer {
        cluster: state.cluster(),
        meta: meta_nodes(state)
            .into_iter()
            .map(|node| node.peer)
            .collect(),
        ..JoinAnswer::default()
    };
    match outcome {
        Outcome::Registered { node, .. } => answer.node = *node,
        Outcome::Refused(refused) => {
            answer.refused = refused.to_string();
            answer.retry = refused.passes();
        }
        other => answer.refused = format!("unexpected outcome {other:?}"),
    }
    answer
}

/// The answer of a member that does not lead, with whom it believes to lead.
pub fn not_leader(state: &State, leader: Option<NodeId>) -> HeartbeatAnswer {
    let meta = meta_nodes(state);
    HeartbeatAnswer {
        standing: Standing::NotLeader.into(),
        leader: meta.iter().find(|node| Some(node.node) == leader).cloned(),
        meta,
        ..HeartbeatAnswer::default()
    }
}

/// The same for a join.
pub fn join_elsewhere(state: &State, leader: Option<NodeId>) -> JoinAnswer {
    let meta = meta_nodes(state);
    let leads = |node: &&RouteNode| Some(node.node) == leader;
    JoinAnswer {
        cluster: state.cluster(),
        retry: true,
        leader: meta.iter().find(leads).map(|node| node.peer.clone()),
        meta: meta.into_iter().map(|node| node.peer).collect(),
        ..JoinAnswer::default()
    }
}

/// The address `neokv ctl` should ask instead of a member that does not lead.
pub fn leader_address(state: &State, leader: Option<NodeId>) -> Option<Address> {
    state.node(leader?).map(|node| node.profile.peer.clone())
}

/// The nodes that hold region 0.
fn meta_nodes(state: &State) -> Vec<RouteNode> {
    let Some(region) = state.region(META_REGION) else {
        return Vec::new();
    };
    let nodes = region.descriptor.members.iter();
    nodes
        .filter_map(|member| state.node(member.node))
        .map(|node| RouteNode {
            node: node.id,
            redis: node.profile.redis.clone(),
            peer: node.profile.peer.clone(),
            http_port: node.profile.http_port,
            tls_port: node.profile.tls_port,
            alive: true,
        })
        .collect()
}
