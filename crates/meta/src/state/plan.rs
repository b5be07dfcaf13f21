//! Replicas that are being made: an id is given, the node has it, it became a learner.

use base::cluster::META_REGION;

use super::ids::REPLICAS;
use super::{ForgetReplica, Outcome, Plan, PlanReplica, Refused, ReplicasCreated, Stage, State};

impl State {
    pub(super) fn plan_replica(
        &mut self,
        plan: &PlanReplica,
        stamp_ms: u64,
    ) -> Result<Outcome, Refused> {
        let node = self
            .nodes
            .get(&plan.node)
            .ok_or(Refused::UnknownNode(plan.node))?;
        if !node.is_up() {
            return Err(Refused::NodeGone {
                node: plan.node,
                replaced_by: node.replaced_by,
            });
        }
        let fits = match plan.region {
            META_REGION => node.profile.metas,
            _ => node.profile.stores,
        };
        if !fits {
            return Err(Refused::WrongKind(plan.node));
        }
        let region = self.region_mut(plan.region)?;
        if region.is_on(plan.node) {
            return Err(Refused::AlreadyThere {
                region: plan.region,
                node: plan.node,
            });
        }
        if plan.replaces != 0 && region.descriptor.member(plan.replaces).is_none() {
            return Err(Refused::UnknownReplica(plan.region, plan.replaces));
        }
        let replica = self.take(REPLICAS, 1)?;
        self.region_mut(plan.region)?.plans.push(Plan {
            replica,
            node: plan.node,
            stage: Stage::Planned.into(),
            replaces: plan.replaces,
            founder: false,
            since_ms: stamp_ms,
            purpose: plan.purpose,
        });
        Ok(Outcome::Planned { replica })
    }

    /// A founder is a member already and is not forgotten; nor is one that has joined: the region
    /// has to remove it first.
    pub(super) fn forget_replica(&mut self, forget: &ForgetReplica) -> Result<Outcome, Refused> {
        let region = self.region_mut(forget.region)?;
        let at = region
            .plans
            .iter()
            .position(|plan| plan.replica == forget.replica)
            .filter(|&at| {
                region.plans.get(at).is_some_and(|plan| !plan.founder)
                    && region.descriptor.member(forget.replica).is_none()
            })
            .ok_or(Refused::NotPlanned(forget.replica))?;
        region.plans.remove(at);
        Ok(Outcome::Changed)
    }

    pub(super) fn replicas_created(
        &mut self,
        created: &ReplicasCreated,
    ) -> Result<Outcome, Refused> {
        let mut changed = false;
        for created in &created.replicas {
            let Some(region) = self.regions.get_mut(&created.region) else {
                continue;
            };
            for plan in &mut region.plans {
                if plan.replica == created.replica && plan.stage() == Stage::Planned {
                    plan.stage = Stage::Created.into();
                    changed = true;
                }
            }
            region
                .plans
                .retain(|plan| !(plan.founder && plan.stage() == Stage::Created));
        }
        Ok(match changed {
            true => Outcome::Changed,
            false => Outcome::Unchanged,
        })
    }
}
