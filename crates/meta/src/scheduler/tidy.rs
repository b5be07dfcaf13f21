//! Plans that no operator stands behind are given up: it failed, was cancelled, or is not wanted.
//! If the node made the replica already it is told to destroy it; if the replica is a learner by
//! now, `remove_extra` takes it out of the region first.

use super::picture::Picture;
use super::{Schedule, Scheduler};
use crate::state::{Change, ForgetReplica, Stage};

pub(super) fn tidy(scheduler: &Scheduler, picture: &Picture, schedule: &mut Schedule) {
    for region in picture.state.regions() {
        let id = region.descriptor.region;
        let operator = scheduler.operators.get(&id);
        for plan in &region.plans {
            let wanted = operator.is_some_and(|operator| operator.adds().contains(&plan.node));
            if !plan.founder && !wanted && plan.stage() != Stage::Joined {
                let forget = ForgetReplica {
                    region: id,
                    replica: plan.replica,
                };
                schedule
                    .proposals
                    .push(Change::ForgetReplica(forget).into());
            }
        }
    }
}
