//! From what is to what should be: operators, one per region at most.
//!
//! An operator has an aim ("node 4 instead of replica 7") and no memory of its progress: each turn
//! looks at descriptors, plans and heartbeats, sees how far things are, and says the next step
//! again until it shows. Lost, doubled and late orders therefore do nothing bad, and the next
//! leader of meta goes on from the plans in the replicated state ([`Purpose`]).
//!
//! ```text
//!  turn:  picture of now ─► follow (proposals) ─► step operators ─► find new ones ─► tidy ─► orders
//!                                                     │                 │
//!                               reshape / transfer ◄──┘                 └─► one file per kind:
//!                                                          repair, add_replica, remove_extra,
//!                                                          meta_members, balance_replicas,
//!                                                          balance_leaders, by_hand
//! ```
//!
//! **Invariants.** A change of members is ordered only if a majority of the voters, before and
//! after, is alive. A replica votes only after its own node reported that it has applied its
//! joining. Nothing is destroyed that is a member or a plan.

mod add_replica;
mod balance_leaders;
mod balance_replicas;
mod by_hand;
mod candidates;
mod follow;
mod meta_members;
mod operator;
mod orders;
mod picture;
mod remove_extra;
mod repair;
mod reshape;
mod resume;
mod tidy;
mod transfer;

use std::collections::{BTreeMap, VecDeque};

use base::cluster::{NodeId, RegionId};

pub use by_hand::ByHand;
pub use operator::{Kind, Operator, Task};
pub use picture::Picture;

use crate::limits::Limits;
use crate::liveness::Life;
use crate::state::{Bootstrap, Change, Command};
use crate::wire::{OperatorRow, Order, OrderReport};
use operator::Step;

/// Ended operators that are remembered for the reader.
const ENDED_MAX: usize = 64;

/// The operators of one leader of meta.
#[derive(Debug, Default)]
pub struct Scheduler {
    operators: BTreeMap<RegionId, Operator>,
    ended: VecDeque<OperatorRow>,
    /// Regions that are left alone for a while, until when.
    rests: BTreeMap<RegionId, u64>,
    /// Regions whose leader was moved for balance: until when it stays.
    leader_rests: BTreeMap<RegionId, u64>,
    lives: BTreeMap<NodeId, Life>,
    /// When something worse than imbalance was last going on.
    unrest_ms: u64,
    resumed: bool,
}

/// What a turn asks for.
#[derive(Debug, Default)]
pub struct Schedule {
    /// To be proposed to region 0. They may be proposed again next turn if not applied by then;
    /// that does no harm.
    pub proposals: Vec<Command>,
    /// To be given to each node with its next answer, in place of those of the turn before.
    pub orders: BTreeMap<NodeId, Vec<Order>>,
}

impl Scheduler {
    /// One turn: every few hundred milliseconds, and when something changed.
    pub fn schedule(&mut self, picture: &Picture) -> Schedule {
        let mut schedule = Schedule::default();
        if picture.state.cluster() == 0 {
            return schedule;
        }
        self.note_unrest(picture);
        follow::follow(picture, &mut schedule);
        if !self.resumed {
            self.resumed = true;
            self.resume(picture);
        }
        let under_way: Vec<RegionId> = self.operators.keys().copied().collect();
        for region in under_way {
            self.step(region, picture, &mut schedule);
        }
        if picture.state.is_bootstrapped() {
            self.find(picture, &mut schedule);
        } else {
            self.found_regions(picture, &mut schedule);
            self.begin_all(meta_members::find, picture, &mut schedule);
        }
        tidy::tidy(self, picture, &mut schedule);
        orders::founders(picture, &mut schedule);
        orders::destroy(picture, &mut schedule);
        schedule
    }

    /// Looks for work, the most urgent first.
    fn find(&mut self, picture: &Picture, schedule: &mut Schedule) {
        self.begin_all(meta_members::find, picture, schedule);
        self.begin_all(repair::find, picture, schedule);
        self.begin_all(add_replica::find, picture, schedule);
        self.begin_all(remove_extra::find, picture, schedule);
        let calm = picture.now_ms.saturating_sub(self.unrest_ms) >= picture.limits.balance_after_ms;
        if calm && picture.all_alive_or_dead() {
            self.begin_all(balance_replicas::find, picture, schedule);
            self.begin_all(balance_leaders::find, picture, schedule);
        }
    }

    fn begin_all(
        &mut self,
        find: fn(&Scheduler, &Picture) -> Vec<Operator>,
        picture: &Picture,
        schedule: &mut Schedule,
    ) {
        for operator in find(self, picture) {
            if self.has_room(&operator, picture) {
                let region = operator.region;
                self.operators.insert(region, operator);
                self.step(region, picture, schedule);
            }
        }
    }

    /// The first regions, once there are nodes enough.
    fn found_regions(&self, picture: &Picture, schedule: &mut Schedule) {
        let nodes = candidates::for_data(picture);
        if nodes.len() >= picture.state.settings().replicas as usize {
            let nodes = nodes.iter().map(|node| node.id).collect();
            let bootstrap = Change::Bootstrap(Bootstrap { nodes });
            schedule.proposals.push(bootstrap.into());
        }
    }

    fn step(&mut self, region: RegionId, picture: &Picture, schedule: &mut Schedule) {
        let Some(operator) = self.operators.get_mut(&region) else {
            return;
        };
        let (ending, rest_ms) = match operator.step(picture) {
            Step::Next(next) => {
                operator.step = next.text;
                schedule.proposals.extend(next.proposals);
                for (node, order) in next.orders {
                    schedule.orders.entry(node).or_default().push(order);
                }
                return;
            }
            Step::Done if operator.by_hand => ("done".to_owned(), picture.limits.rest_ms),
            Step::Done => ("done".to_owned(), 0),
            Step::Unwanted(why) => (format!("not wanted any more: {why}"), 0),
            Step::Failed(why) => (format!("failed: {why}"), picture.limits.rest_ms),
        };
        self.end(region, &ending, picture.now_ms, rest_ms, picture.limits);
    }

    fn end(&mut self, region: RegionId, how: &str, now_ms: u64, rest_ms: u64, limits: &Limits) {
        let Some(operator) = self.operators.remove(&region) else {
            return;
        };
        if operator.kind == Kind::BalanceLeaders {
            // Whatever became of it: not again at once.
            let until = now_ms + limits.leader_rest_ms;
            self.leader_rests.insert(region, until);
        } else if rest_ms > 0 {
            self.rests.insert(region, now_ms + rest_ms);
        }
        let mut row = operator.row();
        row.step = how.to_owned();
        row.ended = true;
        self.ended.push_back(row);
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }

    /// Gives up the operator of a region. What it had begun is tidied up by the next turns.
    pub fn cancel(&mut self, region: RegionId, now_ms: u64, limits: &Limits) -> bool {
        let there = self.operators.contains_key(&region);
        self.end(region, "cancelled", now_ms, limits.rest_ms, limits);
        self.rests.insert(region, now_ms + limits.rest_ms);
        there
    }

    /// A node did not carry out an order.
    pub fn on_order_report(&mut self, report: &OrderReport) {
        if let Some(operator) = self.operators.get_mut(&report.region) {
            operator.fault = report.text.clone();
        }
    }

    pub fn operators(&self) -> impl Iterator<Item = &Operator> {
        self.operators.values()
    }

    /// Under way, then ended, the newest last.
    pub fn rows(&self) -> Vec<OperatorRow> {
        let under_way = self.operators.values().map(Operator::row);
        under_way.chain(self.ended.iter().cloned()).collect()
    }

    /// A region that an automatic operator may take on.
    fn is_free(&self, region: RegionId, picture: &Picture) -> bool {
        !self.operators.contains_key(&region)
            && self
                .rests
                .get(&region)
                .is_none_or(|&until| picture.now_ms >= until)
    }

    fn has_room(&self, operator: &Operator, picture: &Picture) -> bool {
        if self.operators.contains_key(&operator.region)
            || self.operators.len() >= picture.limits.operators
        {
            return false;
        }
        let leader = |region| picture.leader(region).map(|leader| leader.node);
        let adding = |node: NodeId| {
            let adds = |other: &&Operator| other.adds().contains(&node);
            self.operators.values().filter(adds).count()
        };
        let sending = |node: NodeId| {
            self.operators
                .values()
                .filter(|other| !other.adds().is_empty() && leader(other.region) == Some(node))
                .count()
        };
        let most = picture.limits.adds_per_node;
        let transfers = || {
            let transfers = |other: &&Operator| matches!(other.task, Task::Transfer { .. });
            self.operators.values().filter(transfers).count()
        };
        match &operator.task {
            Task::Transfer { .. } => operator.by_hand || transfers() < picture.limits.transfers,
            Task::Reshape { add, .. } => {
                add.iter().all(|&node| adding(node) < most)
                    && (add.is_empty()
                        || leader(operator.region).is_none_or(|node| sending(node) < most))
            }
        }
    }

    /// Balance waits while nodes come and go or anything more urgent is under way.
    fn note_unrest(&mut self, picture: &Picture) {
        let urgent = |operator: &Operator| {
            !matches!(operator.kind, Kind::BalanceReplicas | Kind::BalanceLeaders)
        };
        if !self.resumed
            || self.lives != picture.lives
            || self.operators.values().any(urgent)
            || !picture.state.is_bootstrapped()
        {
            self.unrest_ms = picture.now_ms;
            self.lives.clone_from(&picture.lives);
        }
        let now_ms = picture.now_ms;
        self.rests.retain(|_, until| now_ms < *until);
        self.leader_rests.retain(|_, until| now_ms < *until);
    }
}
