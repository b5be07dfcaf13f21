//! Members come and go, leaders hand over, and what was removed is cleaned up: what the meta service
//! would order, here by chance.

use base::cluster::Descriptor;
use node::Newcomers;
use node::ReplicaRecord;
use prost::Message;
use replica::{MemberChange, Replica};

use crate::effects::Effects;
use crate::event::Event;
use crate::machine::{Place, Status};
use crate::state::make;
use crate::world::World;

/// A replica that is no member is left alone for so long: it may just be on its way to become one.
const GRACE_US: u64 = 3_000_000;
const TIDY_US: u64 = 700_000;

impl World {
    /// Runs `what` on the leader of a region.
    fn at_leader<T>(&mut self, region: u64, what: impl FnOnce(&mut Replica) -> T) -> Option<T> {
        let node = self.leader_of(region)?;
        let now_us = self.now_us;
        let mut out = Effects::default();
        let mut result = None;
        let at = &mut self.nodes[node as usize - 1];
        if at.status != Status::Up {
            return None;
        }
        at.on_region(region, now_us, &mut out, |owned, cx, asked| {
            let member = owned.member_mut(region as usize);
            result = member.map(|member| what(&mut member.replica));
            owned.drive(region as usize, cx, asked);
        });
        self.carry_out(node, out);
        result
    }

    pub(crate) fn transfer(&mut self) {
        let region = self.nemesis.u64(1..=self.plan.regions);
        let nth = self.nemesis.usize(..8);
        self.at_leader(region, |replica| {
            let voters = &replica.members().voters;
            let to = voters[nth % voters.len()];
            let _ = replica.transfer_leader(to);
        });
    }

    pub(crate) fn change_members(&mut self) {
        let region = self.nemesis.u64(1..=self.plan.regions);
        let Some(members) = self.at_leader(region, |replica| replica.members().clone()) else {
            return;
        };
        let mut changes = Vec::new();
        let learner = self.nemesis.choice(&members.learners).copied();
        let voter = self.nemesis.choice(&members.voters).copied();
        match (self.nemesis.u32(..6), learner, voter) {
            (0..3, Some(learner), Some(voter)) if self.has_caught_up(region, learner) => {
                changes.push(MemberChange::Promote(learner));
                if members.voters.len() > 2 && self.nemesis.bool() {
                    changes.push(MemberChange::Remove(voter));
                }
            }
            (3, Some(learner), _) => changes.push(MemberChange::Remove(learner)),
            (4, _, Some(voter)) if members.voters.len() > 2 => {
                changes.push(MemberChange::Remove(voter));
            }
            _ => {
                if let Some(replica) = self.new_place(region) {
                    changes.push(MemberChange::AddLearner(replica));
                }
            }
        }
        if !changes.is_empty() {
            self.say(&[105, region], || format!("region {region}: {changes:?}"));
            let context = match changes[0] {
                MemberChange::AddLearner(replica) => {
                    let node = self.directory.get(&replica).copied().unwrap_or(0);
                    Newcomers::one(replica, node).encode_to_vec()
                }
                _ => Vec::new(),
            };
            self.at_leader(region, |replica| {
                replica.propose_members(&changes, context).is_ok()
            });
        }
    }

    fn has_caught_up(&self, region: u64, replica: u64) -> bool {
        let leader = self.leader_of(region);
        let applied = |node: u64| {
            let at = &self.nodes[node as usize - 1];
            let replica = at.replica(region)?;
            Some((replica.id(), replica.applied_index()))
        };
        let last = leader.and_then(applied).map_or(0, |(_, index)| index);
        let Some(&node) = self.directory.get(&replica) else {
            return false;
        };
        applied(node).is_some_and(|(id, index)| id == replica && index + 50 > last && index > 0)
    }

    /// A node that has no replica of a region gets a new one, which knows nothing.
    fn new_place(&mut self, region: u64) -> Option<u64> {
        let node = self.nemesis.u64(1..=self.plan.nodes);
        let now_us = self.now_us;
        let at = &mut self.nodes[node as usize - 1];
        if at.status != Status::Up || at.places.contains_key(&region) {
            return None;
        }
        self.replicas += 1;
        let replica = self.replicas;
        self.directory.insert(replica, node);
        let descriptor = Descriptor {
            region,
            ..Descriptor::default()
        };
        let record = ReplicaRecord {
            descriptor,
            replica,
            ..ReplicaRecord::default()
        };
        make(&mut at.disk, &record);
        let place = Place {
            record,
            made_us: now_us,
        };
        at.places.insert(region, place);
        let mut out = Effects::default();
        at.open(region, now_us, &mut out);
        self.carry_out(node, out);
        Some(replica)
    }

    /// Replicas that the leader, who knows all that is committed, does not count are destroyed.
    pub(crate) fn on_tidy(&mut self) {
        self.after(TIDY_US, Event::Tidy);
        let now_us = self.now_us;
        for region in 1..=self.plan.regions {
            let known = self.leader_of(region).and_then(|node| {
                let at = &self.nodes[node as usize - 1];
                let replica = at.replica(region)?;
                let is_sure = replica.may_serve(at.now_ms(now_us)) && at.status == Status::Up;
                is_sure.then(|| replica.members().all())
            });
            let Some(known) = known else {
                continue;
            };
            for at in &mut self.nodes {
                let Some(place) = at.places.get(&region) else {
                    continue;
                };
                let replica = place.record.replica;
                let is_new = now_us < place.made_us + GRACE_US;
                if at.status == Status::Up && !known.contains(&replica) && !is_new {
                    at.destroy(region);
                    let node = at.id;
                    self.trace.note(now_us, &[106, node, replica], || {
                        format!("node {node} cleans up replica {replica}")
                    });
                }
            }
        }
    }
}
