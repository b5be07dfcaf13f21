//! The first command of a cluster: its id, its settings, its first node, region 0.

use base::cluster::{Descriptor, Epoch, META_REGION, Member, Role};

use super::ids::{NODES, REPLICAS};
use super::{Found, Node, NodeState, Outcome, Refused, Region, State};

impl State {
    pub(super) fn found(&mut self, found: &Found, stamp_ms: u64) -> Result<Outcome, Refused> {
        if self.cluster != 0 {
            // The founder was killed between its first entry and knowing of it: let it try again.
            let again = self.cluster == found.cluster
                && self
                    .nodes
                    .get(&1)
                    .is_some_and(|node| node.token == found.join.token);
            return match again {
                true => Ok(Outcome::Unchanged),
                false => Err(Refused::AlreadyFounded(self.cluster)),
            };
        }
        if found.cluster == 0 {
            return Err(Refused::BadSettings("the cluster id must not be 0"));
        }
        found.settings.check()?;
        found.join.check()?;

        self.cluster = found.cluster;
        self.settings = found.settings;
        self.format = found.join.profile.format;
        let node = self.take(NODES, 1)?;
        let replica = self.take(REPLICAS, 1)?;
        self.nodes.insert(
            node,
            Node {
                id: node,
                profile: found.join.profile.clone(),
                state: NodeState::Up.into(),
                token: found.join.token,
                start_count: found.join.start_count,
                joined_ms: stamp_ms,
                replaced_by: 0,
            },
        );
        self.regions.insert(
            META_REGION,
            Region {
                descriptor: Descriptor {
                    region: META_REGION,
                    epoch: Epoch::FIRST,
                    segments: Vec::new(),
                    members: vec![Member::new(replica, node, Role::Voter)],
                },
                plans: Vec::new(),
                preferred: replica,
            },
        );
        self.routes_changed();
        Ok(Outcome::Registered {
            node,
            replaced: None,
        })
    }
}
