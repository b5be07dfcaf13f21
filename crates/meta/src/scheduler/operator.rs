//! What an operator is: a kind, an aim, a time-out.

use base::cluster::{NodeId, RegionId, ReplicaId};

use super::picture::Picture;
use super::{balance_replicas, repair, reshape, transfer};
use crate::state::{Command, Purpose};
use crate::wire::{OperatorRow, Order};

#[derive(Debug, Clone)]
pub struct Operator {
    pub region: RegionId,
    pub kind: Kind,
    pub task: Task,
    pub by_hand: bool,
    pub since_ms: u64,
    /// Where it is, for the reader.
    pub step: String,
    /// What a node last said against one of its orders.
    pub fault: String,
}

/// Why there is an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Repair,
    AddReplica,
    RemoveExtra,
    MetaMembers,
    BalanceReplicas,
    BalanceLeaders,
    TransferLeader,
    RemoveReplica,
}

/// What it is to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Voters on all of `add`, none of `remove` left.
    Reshape {
        add: Vec<NodeId>,
        remove: Vec<ReplicaId>,
    },
    Transfer {
        to: ReplicaId,
    },
}

/// What a look at an operator finds.
#[derive(Debug)]
pub(super) enum Step {
    Next(Next),
    Done,
    Unwanted(String),
    Failed(String),
}

/// The next step, said again until it shows.
#[derive(Debug, Default)]
pub(super) struct Next {
    pub text: String,
    pub proposals: Vec<Command>,
    pub orders: Vec<(NodeId, Order)>,
}

impl Step {
    pub fn wait(text: impl Into<String>) -> Step {
        Step::Next(Next {
            text: text.into(),
            ..Next::default()
        })
    }

    pub fn order(text: impl Into<String>, order: (NodeId, Order)) -> Step {
        Step::Next(Next {
            text: text.into(),
            proposals: Vec::new(),
            orders: vec![order],
        })
    }
}

impl Operator {
    pub(super) fn new(region: RegionId, kind: Kind, task: Task, picture: &Picture) -> Operator {
        Operator {
            region,
            kind,
            task,
            by_hand: false,
            since_ms: picture.now_ms,
            step: String::new(),
            fault: String::new(),
        }
    }

    pub(super) fn step(&self, picture: &Picture) -> Step {
        let timeout_ms = match self.task {
            Task::Transfer { .. } => picture.limits.transfer_timeout_ms,
            Task::Reshape { .. } => picture.limits.operator_timeout_ms,
        };
        if picture.now_ms.saturating_sub(self.since_ms) >= timeout_ms {
            return Step::Failed(format!("time-out while: {}", self.step));
        }
        let Some(region) = picture.state.region(self.region) else {
            return Step::Failed("the region is gone".into());
        };
        if self.kind == Kind::Repair
            && let Some(why) = repair::unwanted(self, region, picture)
        {
            return Step::Unwanted(why);
        }
        if self.kind == Kind::BalanceReplicas
            && let Some(why) = balance_replicas::unwanted(self, region, picture)
        {
            return Step::Unwanted(why);
        }
        match &self.task {
            Task::Transfer { to } => transfer::step(*to, region, picture),
            Task::Reshape { add, remove } => {
                let purpose = self.kind.purpose();
                reshape::step(add, remove, purpose, self.by_hand, region, picture)
            }
        }
    }

    /// Nodes that get a replica.
    pub fn adds(&self) -> &[NodeId] {
        match &self.task {
            Task::Reshape { add, .. } => add,
            Task::Transfer { .. } => &[],
        }
    }

    pub fn removes(&self) -> &[ReplicaId] {
        match &self.task {
            Task::Reshape { remove, .. } => remove,
            Task::Transfer { .. } => &[],
        }
    }

    pub(super) fn row(&self) -> OperatorRow {
        let list = |ids: &[u64]| {
            let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
            ids.join(", ")
        };
        let aim = match &self.task {
            Task::Transfer { to } => format!("replica {to} leads"),
            Task::Reshape { add, remove } if add.is_empty() => {
                format!("without replica {}", list(remove))
            }
            Task::Reshape { add, remove } if remove.is_empty() => {
                format!("also on node {}", list(add))
            }
            Task::Reshape { add, remove } => {
                format!("on node {} instead of replica {}", list(add), list(remove))
            }
        };
        let mut step = self.step.clone();
        if !self.fault.is_empty() {
            step = format!("{step} (last answer: {})", self.fault);
        }
        OperatorRow {
            region: self.region,
            kind: self.kind.name().to_owned(),
            aim,
            step,
            // The moment it began; whoever shows it makes it an age.
            age_ms: self.since_ms,
            ended: false,
            by_hand: self.by_hand,
        }
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Repair => "repair",
            Kind::AddReplica => "add replica",
            Kind::RemoveExtra => "remove extra",
            Kind::MetaMembers => "meta members",
            Kind::BalanceReplicas => "balance replicas",
            Kind::BalanceLeaders => "balance leaders",
            Kind::TransferLeader => "transfer leader",
            Kind::RemoveReplica => "remove replica",
        }
    }

    /// As it is written into the plans of its replicas.
    fn purpose(self) -> Purpose {
        match self {
            Kind::Repair => Purpose::Repair,
            Kind::BalanceReplicas => Purpose::Balance,
            Kind::MetaMembers => Purpose::Meta,
            _ => Purpose::Add,
        }
    }

    /// What the next leader of meta makes of such a plan.
    pub(super) fn of(purpose: Purpose) -> Kind {
        match purpose {
            Purpose::Repair => Kind::Repair,
            Purpose::Balance => Kind::BalanceReplicas,
            Purpose::Meta => Kind::MetaMembers,
            Purpose::Add | Purpose::ByHand | Purpose::Founding => Kind::AddReplica,
        }
    }
}
