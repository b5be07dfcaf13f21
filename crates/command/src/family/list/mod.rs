//! Lists: elements in the order they were put, under one key.
//!
//! - [`ends`] puts elements at an end and takes them from there;
//! - [`element`] reads, finds and changes elements anywhere in a list;
//! - [`movement`] takes from the end of one list, to the client or to another list;
//! - [`blocking`] the same, waiting for a list that has something.

use base::{Atom, Refusal};
use keyspace::{Edit, List};
use resp::{Args, Reply};

use crate::{CommandSpec, Flags, Group, Keys};

pub mod blocking;
pub mod element;
pub mod ends;
pub mod movement;

const LIST: CommandSpec = CommandSpec {
    group: Group::List,
    keys: Keys::one(1),
    ..CommandSpec::BASE
};
const READ: Flags = Flags::READONLY;
const GROW: Flags = Flags::DENYOOM;

/// One end of a list: its head is on the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

impl End {
    const WORDS: [&'static str; 2] = ["LEFT", "RIGHT"];

    fn parse(args: &Args<'_>, at: usize) -> Result<End, Refusal> {
        match Self::WORDS.map(|word| args.is(at, word)) {
            [true, _] => Ok(End::Left),
            [_, true] => Ok(End::Right),
            _ => Err(Refusal::Syntax),
        }
    }

    fn push(self, list: &mut Edit<'_, List>, element: &[u8]) {
        match self {
            End::Left => list.push_front(element),
            End::Right => list.push_back(element),
        }
    }

    fn peek(self, list: &List) -> Option<Atom<'_>> {
        match self {
            End::Left => list.front(),
            End::Right => list.back(),
        }
    }

    fn drop_one(self, list: &mut Edit<'_, List>) {
        match self {
            End::Left => list.drop_front(),
            End::Right => list.drop_back(),
        }
    }

    /// Takes one element from this end into the reply.
    fn pop_into(self, list: &mut Edit<'_, List>, reply: &mut Reply) {
        reply.atom_or_null(self.peek(list));
        self.drop_one(list);
    }

    /// Takes up to `count` elements from this end into the reply, as an array.
    fn pop_many_into(self, list: &mut Edit<'_, List>, count: usize, reply: &mut Reply) {
        let len = list.len();
        let n = count.min(len);
        reply.array(n);
        match self {
            End::Left => {
                list.iter_from(0).take(n).for_each(|e| reply.atom(e));
                list.remove_range(0, n);
            }
            End::Right => {
                let tail = list.iter_rev_from(len.saturating_sub(1));
                tail.take(n).for_each(|e| reply.atom(e));
                list.remove_range(len - n, n);
            }
        }
    }
}
