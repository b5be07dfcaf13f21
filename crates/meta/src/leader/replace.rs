//! Whether a node may be given up: by an empty one that comes in its place, or by hand.
//!
//! What a node that is silent holds may be the only copy of an acknowledged write, unless the others have a majority of
//! every region it is a member of: then they have all of it. Judged by the leader before it proposes anything, because only
//! it knows which replicas answer (decision 43).

use base::cluster::NodeId;

use super::Leader;
use crate::liveness;
use crate::scheduler::Picture;
use crate::state::{Refused, State};
use crate::wire::Join;

impl Leader {
    /// Whether a join may be proposed at all; the rest is decided when it is applied.
    pub(super) fn may_join(&self, state: &State, join: &Join, now_ms: u64) -> Result<(), Refused> {
        if join.node != 0 || state.registered(join).is_some() {
            return Ok(());
        }
        let Some(before) = state.at_address(join, 0) else {
            return match state.node(join.replace) {
                Some(node) if node.is_up() => Err(Refused::ReplacesElsewhere {
                    node: node.id,
                    address: node.profile.peer.clone(),
                }),
                // It was given up already, or the flag was left where it was.
                _ => Ok(()),
            };
        };
        let alive = liveness::maybe_alive(state, &self.view, now_ms, &self.limits);
        if alive.contains(&before) {
            return Ok(()); // refused for that
        }
        if state
            .node(before)
            .is_some_and(|node| node.token == join.token)
        {
            return Ok(()); // this directory, before it heard of its id: it holds nothing
        }
        if join.replace != before {
            return Err(Refused::NotAskedToReplace {
                address: join.profile.peer.clone(),
                node: before,
            });
        }
        self.may_give_up(state, before, now_ms)
    }

    /// Whether the others have everything that a node may have acknowledged.
    pub(super) fn may_give_up(
        &self,
        state: &State,
        node: NodeId,
        now_ms: u64,
    ) -> Result<(), Refused> {
        let picture = Picture::new(state, &self.view, now_ms, &self.limits);
        let needs = |region: &&crate::state::Region| {
            let descriptor = &region.descriptor;
            let answers = |member: &base::cluster::Member| {
                member.node != node && picture.is_live(descriptor.region, member)
            };
            descriptor.member_on(node).is_some() && !descriptor.has_quorum(answers)
        };
        let needing = state.regions().filter(needs);
        let regions: Vec<_> = needing.map(|it| it.descriptor.region).collect();
        match regions.is_empty() {
            true => Ok(()),
            false => Err(Refused::NeededForQuorum { node, regions }),
        }
    }
}
