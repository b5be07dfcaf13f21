//! Numbers that are given once: a sequence is a name and its next number.
//!
//! Nodes, regions and replicas take theirs from sequences like everybody else. Because the next
//! number is replicated before anybody is told, no change of leader gives one twice, and blocks
//! taken later are always above those taken earlier (row 74).

use super::{AllocateIds, Outcome, Refused, State};

pub(super) const NODES: &str = "node";
pub(super) const REGIONS: &str = "region";
pub(super) const REPLICAS: &str = "replica";

/// Nobody needs more at once, and nobody shall use a sequence up by mistake.
const BLOCK_MAX: u64 = 1 << 32;

impl State {
    pub(super) fn allocate_ids(&mut self, allocate: &AllocateIds) -> Result<Outcome, Refused> {
        if allocate.count > BLOCK_MAX {
            return Err(Refused::TooMany {
                asked: allocate.count,
                most: BLOCK_MAX,
            });
        }
        let first = self.take(&allocate.sequence, allocate.count)?;
        Ok(Outcome::Ids {
            first,
            count: allocate.count,
        })
    }

    /// The first of `count` numbers; they begin with 1.
    pub(super) fn take(&mut self, sequence: &str, count: u64) -> Result<u64, Refused> {
        let first = self.next_id(sequence);
        let next = first
            .checked_add(count)
            .ok_or_else(|| Refused::Exhausted(sequence.to_owned()))?;
        self.sequences.insert(sequence.to_owned(), next);
        Ok(first)
    }

    /// What the sequence would give next.
    pub fn next_id(&self, sequence: &str) -> u64 {
        self.sequences.get(sequence).copied().unwrap_or(1)
    }
}
