//! Orders that belong to no operator: founders are created, replicas that are no members any more
//! are destroyed.

use super::Schedule;
use super::picture::Picture;
use super::reshape;
use crate::state::Stage;
use crate::wire::{Action, Destroy, Order};

/// The first replicas of a new region. A founder that its node has reported once is not created
/// again, whatever becomes of it: it may have voted.
pub(super) fn founders(picture: &Picture, schedule: &mut Schedule) {
    for region in picture.state.data_regions() {
        for plan in &region.plans {
            let shown = picture
                .report(region.descriptor.region, plan.replica)
                .is_some();
            if plan.founder && plan.stage() == Stage::Planned && !shown {
                let campaign = plan.replica == region.preferred;
                let (node, order) = reshape::create(&region.descriptor, plan, campaign);
                schedule.orders.entry(node).or_default().push(order);
            }
        }
    }
}

/// A replica that is neither member nor plan was removed, or given up before it was a member. The
/// order names meta's epoch: a replica that knows of a later one is a member after all and refuses.
pub(super) fn destroy(picture: &Picture, schedule: &mut Schedule) {
    for (node, report) in picture.reports() {
        let Some(region) = picture.state.region(report.region) else {
            continue;
        };
        let descriptor = &region.descriptor;
        if descriptor.member(report.replica).is_none()
            && region.plan(report.replica).is_none()
            && !descriptor.epoch.is_older_than(&report.epoch)
        {
            let destroy = Action::Destroy(Destroy {
                replica: report.replica,
            });
            let order = Order::new(report.region, descriptor.epoch, 0, destroy);
            schedule.orders.entry(node).or_default().push(order);
        }
    }
}
