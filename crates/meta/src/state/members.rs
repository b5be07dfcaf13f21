//! Meta follows what the regions' own logs decided.

use base::cluster::{META_REGION, Role};

use super::{MembersChanged, Outcome, Refused, Stage, State};

impl State {
    pub(super) fn members_changed(&mut self, changed: &MembersChanged) -> Result<Outcome, Refused> {
        // All are looked at before any is taken: a command is done whole or not at all.
        for descriptor in &changed.descriptors {
            if !self.regions.contains_key(&descriptor.region) {
                return Err(Refused::UnknownRegion(descriptor.region));
            }
            for member in &descriptor.members {
                if !self.nodes.contains_key(&member.node) {
                    return Err(Refused::UnknownNode(member.node));
                }
                if member.replica >= self.next_id(super::ids::REPLICAS) {
                    return Err(Refused::UnknownReplica(descriptor.region, member.replica));
                }
            }
            if descriptor.region != META_REGION && descriptor.voters().next().is_none() {
                return Err(Refused::UnknownRegion(descriptor.region));
            }
        }
        let mut any = false;
        for descriptor in &changed.descriptors {
            let region = self.region_mut(descriptor.region)?;
            let current = region.descriptor.epoch;
            if descriptor.epoch.is_older_than(&current) || descriptor.epoch == current {
                continue;
            }
            region.descriptor = descriptor.clone();
            region
                .plans
                .retain_mut(|plan| match descriptor.role_of(plan.replica) {
                    // It votes: the plan is fulfilled. A founder's is when the node has it.
                    Some(Role::Voter) => plan.founder,
                    Some(_) => {
                        plan.stage = plan.stage().max(Stage::Joined).into();
                        true
                    }
                    // Not yet a member, or not any more.
                    None => !plan.founder && plan.stage() < Stage::Joined,
                });
            any = true;
        }
        if !any {
            return Ok(Outcome::Unchanged);
        }
        self.routes_changed();
        Ok(Outcome::Changed)
    }
}
