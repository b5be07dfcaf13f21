//! Looking a command up by name, without case and without allocation.
//!
//! Every command a client sends passes here, so a name is compared as two machine words: its
//! first and its last eight bytes (they overlap in a short name), the letters in lower case. With
//! the length, that is the whole name up to sixteen bytes; the few names that are longer or hold
//! more than letters are compared once more as text.

use std::collections::BTreeMap;

use base::Refusal;
use resp::Args;

use crate::CommandSpec;

/// Longest command name; longer words are unknown without looking.
const NAME_MAX: usize = 32;

/// All commands a server knows: the specifications of this crate's families and those of the server.
pub struct Table {
    specs: Vec<CommandSpec>,
    /// Open addressing by [`Word::hash`]; a power of two, never full.
    index: Box<[Place]>,
}

/// One place of the index; `spec` is `EMPTY` where there is none.
#[derive(Clone, Copy)]
struct Place {
    word: Word,
    spec: u16,
    /// The words do not tell the whole name: compare the text too.
    check_text: bool,
}

const EMPTY: u16 = u16::MAX;

/// A name as it is compared: the length, the first and the last bytes with the bit set that
/// makes letters lower case.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    head: u64,
    tail: u64,
    len: u32,
}

impl Word {
    #[inline]
    fn of(name: &[u8]) -> Word {
        let (head, tail) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
            _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
                (Some(head), Some(tail)) => (
                    u32::from_le_bytes(*head).into(),
                    u32::from_le_bytes(*tail).into(),
                ),
                // At most three bytes: first, middle, last are all of them.
                _ => match (name.first(), name.get(name.len() / 2), name.last()) {
                    (Some(&first), Some(&middle), Some(&last)) => {
                        (u64::from(first) | u64::from(middle) << 8, last.into())
                    }
                    _ => (0, 0),
                },
            },
        };
        const LOWER: u64 = 0x2020_2020_2020_2020;
        Word {
            head: head | LOWER,
            tail: tail | LOWER,
            len: name.len() as u32,
        }
    }

    #[inline]
    fn hash(self) -> usize {
        let mixed = (self.head ^ self.tail.rotate_left(29) ^ u64::from(self.len))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize
    }
}

impl Table {
    /// The specifications of every family in this crate.
    pub fn pure() -> Table {
        Table::new(crate::family::ALL.iter().copied().flatten().copied())
    }

    pub fn new(specs: impl IntoIterator<Item = CommandSpec>) -> Table {
        // By name, so that listings are stable and a double name is a programming error.
        let specs: BTreeMap<&str, CommandSpec> =
            specs.into_iter().map(|spec| (spec.name, spec)).collect();
        let specs: Vec<CommandSpec> = specs.into_values().collect();
        let empty = Place {
            word: Word::of(b""),
            spec: EMPTY,
            check_text: false,
        };
        let mut index = vec![empty; (specs.len() * 4 + 1).next_power_of_two()].into_boxed_slice();
        let mask = index.len() - 1;
        for (i, spec) in specs.iter().enumerate() {
            let name = spec.name.as_bytes();
            let word = Word::of(name);
            let mut at = word.hash() & mask;
            while index[at].spec != EMPTY {
                at = (at + 1) & mask;
            }
            index[at] = Place {
                word,
                spec: i as u16,
                check_text: name.len() > 16 || !name.iter().all(u8::is_ascii_alphabetic),
            };
        }
        Table { specs, index }
    }

    /// The specifications clients know of, in the order of their names.
    pub fn listed(&self) -> impl Iterator<Item = &CommandSpec> {
        self.specs.iter().filter(|spec| !spec.is_internal())
    }

    /// The specifications in the order of their names, internal ones too; a specification's position is its number.
    pub fn specs(&self) -> &[CommandSpec] {
        &self.specs
    }

    /// Number of the specification called `name`, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        if name.len() > NAME_MAX {
            return None;
        }
        let word = Word::of(name);
        let mask = self.index.len() - 1;
        let mut at = word.hash() & mask;
        loop {
            let place = self.index.get(at)?;
            if place.spec == EMPTY {
                return None;
            }
            if place.word == word {
                let spec = usize::from(place.spec);
                if !place.check_text || self.specs[spec].name.as_bytes().eq_ignore_ascii_case(name)
                {
                    return Some(spec);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// The specification that the first of `args` names; its subcommands and its arity are not looked at.
    pub fn named(&self, args: &Args<'_>) -> Option<&CommandSpec> {
        self.specs.get(self.find(args.at(0))?)
    }

    /// The command a client names by `args`, its subcommand resolved and its arity checked. The number is
    /// that of the top-level specification.
    #[inline]
    pub fn resolve(&self, args: &Args<'_>) -> Result<(usize, &CommandSpec), Refusal> {
        match self.resolve_logged(args) {
            Ok((_, spec)) if spec.is_internal() => Err(unknown_command(args)),
            resolved => resolved,
        }
    }

    /// The same for a command of the log, which may be one that clients cannot give.
    #[inline]
    pub fn resolve_logged(&self, args: &Args<'_>) -> Result<(usize, &CommandSpec), Refusal> {
        let Some(number) = self.find(args.at(0)) else {
            return Err(unknown_command(args));
        };
        let mut spec = &self.specs[number];
        if !spec.subcommands.is_empty() && args.len() > 1 {
            let word = args.at(1);
            let found = spec.subcommands.iter().find(|sub| {
                sub.name
                    .split_once('|')
                    .is_some_and(|(_, name)| name.as_bytes().eq_ignore_ascii_case(word))
            });
            match found {
                Some(sub) => spec = sub,
                None => return Err(unknown_subcommand(spec.name, word)),
            }
        }
        if !spec.arity.allows(args.len()) {
            return Err(wrong_arity(spec.name));
        }
        Ok((number, spec))
    }
}

#[cold]
pub fn wrong_arity(name: &str) -> Refusal {
    Refusal::text_of(format!(
        "ERR wrong number of arguments for '{name}' command"
    ))
}

/// The arguments shown stop once they fill 128 bytes, the last one cut to what is left.
#[cold]
fn unknown_command(args: &Args<'_>) -> Refusal {
    let mut shown_args = Vec::new();
    for arg in args.iter_from(1) {
        if shown_args.len() >= 128 {
            break;
        }
        let room = 128 - shown_args.len();
        shown_args.push(b'\'');
        shown_args.extend_from_slice(c_text(arg, room));
        shown_args.extend_from_slice(b"' ");
    }
    Refusal::text_of(format!(
        "ERR unknown command '{}', with args beginning with: {}",
        shown(args.at(0)),
        String::from_utf8_lossy(&shown_args)
    ))
}

#[cold]
fn unknown_subcommand(command: &str, word: &[u8]) -> Refusal {
    Refusal::text_of(format!(
        "ERR unknown subcommand '{}'. Try {} HELP.",
        shown(word),
        command.to_ascii_uppercase()
    ))
}

/// At most 128 bytes of client text for an error line.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(c_text(text, 128)).into_owned()
}

/// What C's `%.{max}s` prints: up to the first zero byte, `max` bytes at most.
fn c_text(text: &[u8], max: usize) -> &[u8] {
    let text = &text[..text.len().min(max)];
    text.split(|&byte| byte == 0).next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flags;

    fn table() -> Table {
        let spec = |name| CommandSpec {
            name,
            flags: Flags::READONLY,
            ..CommandSpec::BASE
        };
        Table::new(
            [
                "a",
                "ab",
                "get",
                "set",
                "bitfield_ro",
                "bitfield",
                "zrevrangebyscore",
                "a_name_longer_than_the_words",
                "a_name_longer_thin_the_words",
            ]
            .map(spec),
        )
    }

    #[test]
    fn names_are_found_in_any_case() {
        let table = table();
        for spec in table.specs() {
            let found = table.find(spec.name.to_ascii_uppercase().as_bytes());
            assert_eq!(found.map(|i| table.specs()[i].name), Some(spec.name));
        }
    }

    #[test]
    fn near_names_are_not_found() {
        let table = table();
        for name in [
            "",
            "ge",
            "gett",
            "git",
            "b",
            "ba",
            "bitfield\x7fro",
            "zrevrangebyscorf",
            "a_name_longer_then_the_words",
        ] {
            assert_eq!(table.find(name.as_bytes()), None, "{name}");
        }
    }
}
