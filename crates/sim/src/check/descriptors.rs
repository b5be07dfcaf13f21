//! The descriptor of a region: one for each epoch, whoever has it, and meta never goes back to an older
//! one. A replica is made once, and no voter is destroyed.

use std::collections::{BTreeMap, BTreeSet};

use base::cluster::{Descriptor, Epoch, Role};

use super::Broken;

#[derive(Debug, Default)]
pub struct Descriptors {
    /// By region and epoch.
    seen: BTreeMap<(u64, Epoch), Descriptor>,
    /// By region: the newest anybody counts with, and since which index.
    newest: BTreeMap<u64, (Descriptor, u64)>,
    /// By member of meta and region: where it is.
    meta: BTreeMap<(u64, u64), Epoch>,
    made: BTreeSet<u64>,
}

fn broken(what: String) -> Result<(), Broken> {
    Err(Broken::new("descriptors", what))
}

impl Descriptors {
    /// A replica counts with these members since this index of its log.
    pub fn on_members(
        &mut self,
        replica: u64,
        index: u64,
        descriptor: &Descriptor,
    ) -> Result<(), Broken> {
        let at = (descriptor.region, descriptor.epoch);
        let first = self.seen.entry(at).or_insert_with(|| descriptor.clone());
        if first != descriptor {
            return broken(format!(
                "replica {replica} has {descriptor:?}, and others have {first:?}"
            ));
        }
        let newest = self.newest.entry(descriptor.region);
        let newest = newest.or_insert_with(|| (descriptor.clone(), index));
        if newest.0.epoch.is_older_than(&descriptor.epoch) {
            *newest = (descriptor.clone(), index);
        }
        Ok(())
    }

    /// A member of meta starts, with an older state than it had.
    pub fn on_started(&mut self, replica: u64) {
        self.meta.retain(|(of, _), _| *of != replica);
    }

    /// A member of meta has applied an entry, or taken over a state.
    pub fn on_meta(&mut self, replica: u64, descriptors: &[Descriptor]) -> Result<(), Broken> {
        for descriptor in descriptors {
            let (region, epoch) = (descriptor.region, descriptor.epoch);
            let before = self.meta.insert((replica, region), epoch);
            if let Some(before) = before
                && epoch.is_older_than(&before)
            {
                return broken(format!(
                    "meta's member {replica} goes back from {before:?} to {epoch:?} of region {region}"
                ));
            }
            if before != Some(epoch) {
                // Heard from a replica, which has told it before, or founded: in no log.
                self.on_members(replica, 0, descriptor)?;
            }
        }
        Ok(())
    }

    pub fn on_made(&mut self, replica: u64) -> Result<(), Broken> {
        match self.made.insert(replica) {
            true => Ok(()),
            false => broken(format!("replica {replica} is made twice")),
        }
    }

    pub fn on_destroyed(&self, region: u64, replica: u64) -> Result<(), Broken> {
        let newest = self.newest.get(&region);
        match newest.and_then(|(it, _)| it.role_of(replica)) {
            Some(role) if role.votes() => {
                broken(format!("replica {replica} votes and is destroyed"))
            }
            _ => Ok(()),
        }
    }

    /// The nodes of a region's replicas, if it is whole and nothing of it is changing; and the index
    /// of the change that made it so.
    pub fn settled(&self, region: u64, wanted: usize) -> Option<(&Descriptor, u64)> {
        let (descriptor, index) = self.newest.get(&region)?;
        let all_vote = |descriptor: &Descriptor| {
            let mut members = descriptor.members.iter();
            members.all(|member| member.role() == Role::Voter)
        };
        (descriptor.members.len() == wanted && all_vote(descriptor)).then_some((descriptor, *index))
    }
}
