//! What heartbeats show and the replicated state does not know yet: new members, new replicas.

use super::Schedule;
use super::picture::Picture;
use crate::state::{Change, Created, MembersChanged, ReplicasCreated, Stage};

pub(super) fn follow(picture: &Picture, schedule: &mut Schedule) {
    let mut descriptors = Vec::new();
    let mut replicas = Vec::new();
    for region in picture.state.regions() {
        let id = region.descriptor.region;
        if let Some(leader) = picture.leader(id)
            && let Some(descriptor) = &leader.report.descriptor
            && descriptor.region == id
            && region.descriptor.epoch.is_older_than(&descriptor.epoch)
        {
            descriptors.push(descriptor.clone());
        }
        for plan in &region.plans {
            if plan.stage() == Stage::Planned && picture.report(id, plan.replica).is_some() {
                replicas.push(Created {
                    region: id,
                    replica: plan.replica,
                });
            }
        }
    }
    if !descriptors.is_empty() {
        // One each: a refused one does not hold up the others.
        schedule
            .proposals
            .extend(descriptors.into_iter().map(|descriptor| {
                let descriptors = vec![descriptor];
                Change::MembersChanged(MembersChanged { descriptors }).into()
            }));
    }
    if !replicas.is_empty() {
        schedule
            .proposals
            .push(Change::ReplicasCreated(ReplicasCreated { replicas }).into());
    }
}
