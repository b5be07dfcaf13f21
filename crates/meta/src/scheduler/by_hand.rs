//! What `neokv ctl` asks for: checked against the same rules as everything else, then an operator
//! like any other. Afterwards the region is left alone for `rest_ms`, so that a replica added by
//! hand can be followed by the removal of another before balance has its own idea.

use base::cluster::{META_REGION, NodeId, RegionId, ReplicaId, Role};

use super::operator::{Kind, Operator, Task};
use super::picture::Picture;
use super::{Scheduler, reshape};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByHand {
    TransferLeader,
    AddReplica,
    RemoveReplica,
}

impl Scheduler {
    /// Begins the operator, or says why not. The next turn takes its first step.
    pub fn by_hand(
        &mut self,
        what: ByHand,
        id: RegionId,
        node: NodeId,
        picture: &Picture,
    ) -> Result<String, String> {
        let region = picture
            .state
            .region(id)
            .ok_or_else(|| format!("there is no region {id}"))?;
        let known = picture
            .state
            .node(node)
            .ok_or_else(|| format!("there is no node {node}"))?;
        if let Some(operator) = self.operators.get(&id) {
            let kind = operator.kind.name();
            return Err(format!("region {id} is busy: {kind}; wait or cancel it"));
        }
        if picture.leader(id).is_none() {
            return Err(format!("region {id} has no leader now"));
        }
        let member = region.descriptor.member_on(node);
        let there = || member.ok_or_else(|| format!("region {id} has no replica on node {node}"));
        let (kind, task) = match what {
            ByHand::TransferLeader => {
                let member = there()?;
                if member.role() != Role::Voter || !picture.is_live(id, member) {
                    return Err(format!("the replica on node {node} cannot lead now"));
                }
                let to = member.replica;
                (Kind::TransferLeader, Task::Transfer { to })
            }
            ByHand::AddReplica => {
                if region.is_on(node) {
                    return Err(format!("region {id} has a replica on node {node} already"));
                }
                let fits = match id {
                    META_REGION => known.profile.metas,
                    _ => known.profile.stores,
                };
                if !fits || !picture.is_alive(node) || picture.disk_full(node) {
                    return Err(format!("node {node} cannot take a replica now"));
                }
                let add = vec![node];
                let remove = Vec::new();
                (Kind::AddReplica, Task::Reshape { add, remove })
            }
            ByHand::RemoveReplica => {
                let replica: ReplicaId = there()?.replica;
                reshape::is_safe(&region.descriptor, &[], &[replica], picture)?;
                let add = Vec::new();
                let remove = vec![replica];
                (Kind::RemoveReplica, Task::Reshape { add, remove })
            }
        };
        let mut operator = Operator::new(id, kind, task, picture);
        operator.by_hand = true;
        operator.step = "begins".into();
        let begun = format!("region {id}: {} begun", kind.name());
        self.operators.insert(id, operator);
        Ok(begun)
    }
}
