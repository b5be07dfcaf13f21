//! All replicas of a region apply the same entries and have the same rows at the same index.

use std::collections::BTreeMap;

use super::Broken;

/// An entry that a replica has applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    pub region: u64,
    pub replica: u64,
    pub index: u64,
    pub term: u64,
    /// Of its payload.
    pub entry: u64,
    /// Of all rows of the region, its state row among them; if they have been written.
    pub digest: Option<u64>,
}

/// What was first seen at each index, and by whom.
#[derive(Debug, Default)]
pub struct Agree {
    seen: BTreeMap<(u64, u64), Applied>,
    /// By replica: the last index it applied, in this life.
    last: BTreeMap<(u64, u64), u64>,
}

impl Agree {
    pub fn on_started(&mut self, region: u64, replica: u64, applied: u64) {
        self.last.insert((region, replica), applied);
    }

    pub fn on_applied(&mut self, now: Applied) -> Result<(), Broken> {
        let broken = |what| Err(Broken::new("agree", what));
        let Applied {
            region,
            replica,
            index,
            ..
        } = now;
        let last = self.last.insert((region, replica), index).unwrap_or(0);
        if index != last + 1 {
            return broken(format!(
                "region {region}: replica {replica} applied {index} behind {last}"
            ));
        }
        let seen = self.seen.entry((region, index)).or_insert(now);
        seen.digest = seen.digest.or(now.digest);
        let first = *seen;
        if (first.term, first.entry) != (now.term, now.entry) {
            return broken(format!(
                "region {region}: entry {index} is of term {} for replica {}, and another one of \
                 term {} for replica {replica}",
                first.term, first.replica, now.term
            ));
        }
        match now.digest {
            Some(digest) => self.compare(region, replica, index, digest),
            None => Ok(()),
        }
    }

    /// The rows of a replica, as of the last entry it applied.
    pub fn on_digest(
        &mut self,
        region: u64,
        replica: u64,
        index: u64,
        digest: u64,
    ) -> Result<(), Broken> {
        if let Some(seen) = self.seen.get_mut(&(region, index)) {
            seen.digest = seen.digest.or(Some(digest));
        }
        self.compare(region, replica, index, digest)
    }

    /// A replica took over the state of another, as of this index.
    pub fn on_installed(
        &mut self,
        region: u64,
        replica: u64,
        index: u64,
        digest: u64,
    ) -> Result<(), Broken> {
        self.last.insert((region, replica), index);
        self.compare(region, replica, index, digest)
    }

    fn compare(&self, region: u64, replica: u64, index: u64, digest: u64) -> Result<(), Broken> {
        let Some(first) = self.seen.get(&(region, index)) else {
            return Ok(());
        };
        match first.digest {
            Some(other) if other != digest => Err(Broken::new(
                "agree",
                format!(
                    "region {region}: at entry {index} replica {replica} has the state \
                     {digest:016x}; others have {other:016x} (replica {} was first there)",
                    first.replica
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The last index anybody applied.
    pub fn last_index(&self, region: u64) -> u64 {
        let mut of_region = self.seen.range((region, 0)..(region + 1, 0));
        of_region.next_back().map_or(0, |((_, index), _)| *index)
    }

    pub fn entries(&self) -> usize {
        self.seen.len()
    }
}
