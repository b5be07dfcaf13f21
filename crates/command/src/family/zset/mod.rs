//! Sorted sets: members with scores, in the order of score, then member.
//!
//! - [`member`] scores and ranks of named members;
//! - [`range`] stretches by rank, score or member, returned, stored or removed;
//! - [`algebra`] union, intersection and difference;
//! - [`pop`] from either end, and at random.

use base::Atom;
use resp::{Protocol, Reply};

use crate::{CommandSpec, Flags, Group, Keys};

pub mod algebra;
mod bound;
pub mod member;
pub mod pop;
pub mod range;

const ZSET: CommandSpec = CommandSpec {
    group: Group::SortedSet,
    keys: Keys::one(1),
    since: "1.2.0",
    ..CommandSpec::BASE
};
const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = READ.union(Flags::FAST);
const GROW: Flags = Flags::DENYOOM;

/// How entries are written: members only, or with their scores (in a row in RESP2, in pairs in
/// RESP3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Show {
    Members,
    Scores,
}

impl Show {
    fn head(self, n: usize, reply: &mut Reply) {
        match (self, reply.protocol()) {
            (Show::Scores, Protocol::Resp2) => reply.array(2 * n),
            _ => reply.array(n),
        }
    }

    fn entry(self, member: Atom<'_>, score: f64, reply: &mut Reply) {
        match self {
            Show::Members => reply.atom(member),
            Show::Scores => {
                if reply.protocol() == Protocol::Resp3 {
                    reply.array(2);
                }
                reply.atom(member);
                reply.double(score);
            }
        }
    }

    /// `n` entries, as an array.
    fn entries<'a>(
        self,
        n: usize,
        entries: impl Iterator<Item = (Atom<'a>, f64)>,
        reply: &mut Reply,
    ) {
        self.head(n, reply);
        entries
            .take(n)
            .for_each(|(member, score)| self.entry(member, score, reply));
    }
}
