//! A new leader of meta goes on where the old one was: plans say what was being made, for what.

use base::cluster::ReplicaId;

use super::Scheduler;
use super::operator::{Kind, Operator, Task};
use super::picture::Picture;
use crate::state::Plan;

impl Scheduler {
    pub(super) fn resume(&mut self, picture: &Picture) {
        for region in picture.state.regions() {
            let plans: Vec<&Plan> = region.plans.iter().filter(|plan| !plan.founder).collect();
            let Some(first) = plans.first() else {
                continue;
            };
            let kind = Kind::of(first.purpose());
            let remove: Vec<ReplicaId> = plans
                .iter()
                .map(|plan| plan.replaces)
                .filter(|&replica| region.descriptor.member(replica).is_some())
                .collect();
            let add = plans.iter().map(|plan| plan.node).collect();
            let id = region.descriptor.region;
            let operator = Operator::new(id, kind, Task::Reshape { add, remove }, picture);
            self.operators.insert(id, operator);
        }
    }
}
