//! What is left of regions whose majority is lost for good, and how one replica of each becomes all of it.
//!
//! Works on the stores of a node that does not run (`neokv ctl unsafe-recover`); decides nothing about which nodes are lost:
//! the operator does. Region 0, the meta service, is treated as any other region, so it needs no meta.
//!
//! ```text
//!   survey    rows, log ─► per replica: is its majority lost? who else is left? how far is it? may it be done?
//!   recover   log: no changes of members, a later term (`replica::force`)
//!             rows: this replica is the only member, in a later epoch
//! ```
//!
//! Meta follows what the leader of a region reports in a later epoch, so replicas are made anew as for any region that has
//! too few. The lost replicas are members of nothing: what they say is of an older epoch and an older term.

use std::collections::BTreeSet;

use base::cluster::{ClusterId, Descriptor, META_REGION, Member, NodeId, RegionId, Role};
use keyspace::rows::{Changes, Family, State, layout};
use node::replica_record::{self, Identity, ReplicaRecord, descriptor_of, with_members};
use node::{MetaRecord, Newcomers, state_row};
use replica::{Position, Tail, force, members_after, tail};

use crate::durable::Stores;

/// More changes of members than the lost ones can have made.
const EPOCHS: u64 = 1_000_000;

/// What this node has of regions that have lost their majority.
pub struct Survey {
    pub cluster: ClusterId,
    pub node: NodeId,
    /// Replicas whose regions have a majority without the lost nodes.
    pub sound: usize,
    pub regions: Vec<Remains>,
    /// Regions without any replica outside the lost nodes, as far as this node's member of meta knows.
    pub gone: Vec<RegionId>,
}

/// A replica of a region that has lost its majority.
pub struct Remains {
    pub record: ReplicaRecord,
    pub applied: Position,
    pub tail: Tail,
    /// The nodes that are lost.
    pub lost: Vec<NodeId>,
    /// Other nodes that have a voter of the region.
    pub others: Vec<NodeId>,
}

/// What the operator has decided.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    pub lost: BTreeSet<NodeId>,
    /// Regions to be recovered here although others have a replica, too.
    pub take: BTreeSet<RegionId>,
    /// Regions that are recovered from another replica.
    pub skip: BTreeSet<RegionId>,
    /// Changes of members that are not known to be committed are dropped.
    pub drop_changes: bool,
}

impl Remains {
    pub fn region(&self) -> RegionId {
        self.record.region()
    }

    /// Why it is not done, and what to do.
    pub fn obstacle(&self, choice: &Choice) -> Option<String> {
        let region = self.region();
        let role = self.record.descriptor.role_of(self.record.replica);
        if role.is_none_or(|role| role == Role::Learner) {
            return Some("the replica here is no voter: it may be far behind".into());
        }
        if self.applied.index == 0 && self.tail.last.index == 0 {
            return Some("the replica here has received nothing yet".into());
        }
        if self.tail.open_changes > 0 && !choice.drop_changes {
            return Some(
                "a change of its members may or may not have happened. If none of the new members is left, say \
                 --drop-member-changes"
                    .into(),
            );
        }
        if !self.others.is_empty() && !choice.take.contains(&region) {
            let others: Vec<String> = self.others.iter().map(u64::to_string).collect();
            return Some(format!(
                "node {} has a replica, too. Compare the last entries: --take {region} where the term, then the index, is \
                 higher, --skip {region} elsewhere",
                others.join(", ")
            ));
        }
        None
    }
}

/// Looks at all replicas of this node. Changes nothing.
pub fn survey(stores: &Stores, choice: &Choice) -> Result<Survey, String> {
    let rows = &*stores.rows;
    let identity = Identity::read(rows)?.filter(|it| it.node != 0);
    let identity = identity.ok_or("the data directory is not that of a cluster node")?;
    if choice.lost.contains(&identity.node) {
        let node = identity.node;
        return Err(format!(
            "this is node {node}, which is said to be lost: ask on a node that is left"
        ));
    }
    let mut survey = Survey {
        cluster: identity.cluster,
        node: identity.node,
        sound: 0,
        regions: Vec::new(),
        gone: Vec::new(),
    };
    if let Some(kept) = MetaRecord::read(rows)? {
        let applied = Position {
            index: kept.applied,
            term: kept.applied_term,
        };
        let state = kept.state()?;
        let is_lost = |member: &Member| choice.lost.contains(&member.node);
        let gone = |it: &&meta::state::Region| it.descriptor.members.iter().all(is_lost);
        let gone = state.data_regions().filter(gone);
        survey.gone = gone.map(|it| it.descriptor.region).collect();
        survey.look_at(stores, kept.record, applied, choice)?;
    }
    for mut record in replica_record::records(rows)? {
        let state = state_of(stores, record.region())?;
        if let Some(descriptor) = descriptor_of(&state) {
            record.descriptor = descriptor;
        }
        let applied = Position {
            index: state.applied_index,
            term: state.applied_term,
        };
        survey.look_at(stores, record, applied, choice)?;
    }
    Ok(survey)
}

impl Survey {
    fn look_at(
        &mut self,
        stores: &Stores,
        mut record: ReplicaRecord,
        applied: Position,
        choice: &Choice,
    ) -> Result<(), String> {
        let applied = match applied.index < record.snapshot().index {
            true => record.snapshot(),
            false => applied,
        };
        let text = |error: replica::LogError| error.to_string();
        let tail = tail(&*stores.log, record.region(), applied).map_err(text)?;
        let members = record.members(applied.index);
        let after = members_after(record.replica, members, &tail.changes);
        let after = after.map_err(|error| error.to_string())?;
        for (change, members) in tail.changes.iter().zip(&after) {
            let newcomers = Newcomers::of(&change.context);
            let node_of = |id| newcomers.node_of(id);
            record.descriptor = with_members(&record.descriptor, members, node_of);
        }
        let descriptor = &record.descriptor;
        if descriptor.has_quorum(|member| !choice.lost.contains(&member.node)) {
            self.sound += 1;
            return Ok(());
        }
        let votes = |member: &&Member| member.role() != Role::Learner;
        let nodes = descriptor
            .members
            .iter()
            .filter(votes)
            .map(|member| member.node);
        let nodes = nodes.filter(|node| *node != self.node);
        let (lost, others) = nodes.partition(|node| choice.lost.contains(node));
        self.regions.push(Remains {
            record,
            applied,
            tail,
            lost,
            others,
        });
        Ok(())
    }
}

/// Makes this node's replica the only member of the region; on disk when it returns. May be done twice.
pub fn recover(stores: &Stores, remains: &Remains) -> Result<(), String> {
    let region = remains.region();
    let mut record = remains.record.clone();
    let own = |member: &&Member| member.replica == record.replica;
    let node = record.descriptor.members.iter().find(own).map(|it| it.node);
    let node = node.ok_or_else(|| format!("region {region}: the replica here is no member"))?;
    // The log first: with the rows alone, the next look would find nothing left to do.
    force(&*stores.log, region, remains.applied.index).map_err(|error| error.to_string())?;
    record.descriptor = sole(&record.descriptor, record.replica, node);
    let rows = &*stores.rows;
    if region == META_REGION {
        let kept = MetaRecord::read(rows)?.ok_or("the row of the meta service is gone")?;
        return MetaRecord { record, ..kept }.keep(rows, super::pause);
    }
    let mut state = state_of(stores, region)?;
    state.descriptor = record.descriptor.to_bytes().into();
    let mut value = Vec::new();
    state.push(&mut value);
    let mut changes = Changes::new();
    changes.put(Family::Info, &layout::state_key(region), &value);
    record.put(&mut changes);
    replica_record::write(rows, &changes, super::pause)?;
    replica_record::keep(rows)
}

fn sole(descriptor: &Descriptor, replica: u64, node: NodeId) -> Descriptor {
    let mut sole = descriptor.clone();
    sole.epoch.members = sole.epoch.members.saturating_add(EPOCHS);
    sole.members = vec![Member::new(replica, node, Role::Voter)];
    sole
}

fn state_of(stores: &Stores, region: RegionId) -> Result<State, String> {
    let row = state_row(&*stores.rows, region)?;
    let state = row.as_deref().and_then(State::parse);
    state.ok_or_else(|| format!("the state of region {region} is missing or damaged"))
}
