//! All 16384 slots into N regions, each on R nodes.

use base::cluster::{Descriptor, Epoch, Member, NodeId, RegionId, ReplicaId, Role, Segment};
use base::{SLOT_COUNT, Slot};

use super::ids::{REGIONS, REPLICAS};
use super::{Bootstrap, Outcome, Plan, Purpose, Refused, Region, Stage, State};
use crate::placement::Placement;

impl State {
    pub(super) fn bootstrap(
        &mut self,
        bootstrap: &Bootstrap,
        stamp_ms: u64,
    ) -> Result<Outcome, Refused> {
        if self.is_bootstrapped() {
            return Err(Refused::AlreadyBootstrapped);
        }
        let nodes: Vec<_> = bootstrap
            .nodes
            .iter()
            .filter_map(|id| self.nodes.get(id))
            .filter(|node| node.is_up() && node.profile.stores)
            .collect();
        let need = self.settings.replicas as usize;
        if nodes.len() < need {
            return Err(Refused::TooFewNodes {
                have: nodes.len(),
                need,
            });
        }
        let mut placement = Placement::new(nodes);
        let count = self.settings.regions;
        let chosen: Vec<(Vec<NodeId>, NodeId)> =
            (0..count).map(|_| placement.found_region(need)).collect();

        let first_region = self.take(REGIONS, u64::from(count))?;
        let first_replica = self.take(REPLICAS, u64::from(count) * need as u64)?;
        let mut replica = first_replica;
        for (at, (members, leader)) in chosen.into_iter().enumerate() {
            let region = first_region + at as RegionId;
            let slots = share(at as u32, count);
            let founded = founding(region, slots, &members, leader, replica, stamp_ms);
            self.regions.insert(region, founded);
            replica += members.len() as ReplicaId;
        }
        self.routes_changed();
        Ok(Outcome::Bootstrapped { regions: count })
    }
}

/// The slots of part `at` of `count`: parts differ by one slot at most.
fn share(at: u32, count: u32) -> std::ops::RangeInclusive<Slot> {
    let border = |at: u32| (u64::from(SLOT_COUNT) * u64::from(at) / u64::from(count)) as Slot;
    border(at)..=border(at + 1) - 1
}

fn founding(
    region: RegionId,
    slots: std::ops::RangeInclusive<Slot>,
    nodes: &[NodeId],
    leader: NodeId,
    first: ReplicaId,
    since_ms: u64,
) -> Region {
    let members: Vec<Member> = (first..)
        .zip(nodes)
        .map(|(replica, &node)| Member::new(replica, node, Role::Voter))
        .collect();
    let plans = members.iter().map(|member| Plan {
        replica: member.replica,
        node: member.node,
        stage: Stage::Planned.into(),
        replaces: 0,
        founder: true,
        since_ms,
        purpose: Purpose::Founding.into(),
    });
    let preferred = members.iter().find(|member| member.node == leader);
    Region {
        plans: plans.collect(),
        preferred: preferred.map_or(first, |member| member.replica),
        descriptor: Descriptor {
            region,
            epoch: Epoch::FIRST,
            segments: vec![Segment::new(region, slots)],
            members,
        },
    }
}
