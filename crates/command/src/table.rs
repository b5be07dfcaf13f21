//! Looking a command up by name, without case and without allocation.

use std::collections::BTreeMap;

use base::Refusal;
use resp::Args;

use crate::Command;

/// Longest command name; longer words are unknown without looking.
const NAME_MAX: usize = 32;

/// All commands a server knows: the rows of this crate's families and those of the server.
pub struct Table {
    rows: Vec<Command>,
    /// Open addressing over the upper-cased name; `u16::MAX` is empty.
    index: Vec<u16>,
}

impl Table {
    /// The rows of every family in this crate.
    pub fn pure() -> Table {
        Table::new(crate::family::ALL.iter().copied().flatten().copied())
    }

    pub fn new(rows: impl IntoIterator<Item = Command>) -> Table {
        // By name, so that listings are stable and a double name is a programming error.
        let rows: BTreeMap<&str, Command> = rows.into_iter().map(|row| (row.name, row)).collect();
        let rows: Vec<Command> = rows.into_values().collect();
        let mut index = vec![u16::MAX; (rows.len() * 4).next_power_of_two()];
        for (i, row) in rows.iter().enumerate() {
            let mut at = hash(row.name.as_bytes()) & (index.len() - 1);
            while index[at] != u16::MAX {
                at = (at + 1) & (index.len() - 1);
            }
            index[at] = i as u16;
        }
        Table { rows, index }
    }

    /// The rows in the order of their names; a row's position is its number.
    pub fn rows(&self) -> &[Command] {
        &self.rows
    }

    /// Number of the row called `name`, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        if name.len() > NAME_MAX {
            return None;
        }
        let mask = self.index.len() - 1;
        let mut at = hash(name) & mask;
        loop {
            let row = *self.index.get(at)?;
            if row == u16::MAX {
                return None;
            }
            if self.rows[row as usize]
                .name
                .as_bytes()
                .eq_ignore_ascii_case(name)
            {
                return Some(row as usize);
            }
            at = (at + 1) & mask;
        }
    }

    /// The command `args` names, its subcommand resolved and its arity checked. The number is that
    /// of the top-level row.
    #[inline]
    pub fn resolve(&self, args: &Args<'_>) -> Result<(usize, &Command), Refusal> {
        let Some(number) = self.find(args.at(0)) else {
            return Err(unknown_command(args));
        };
        let mut row = &self.rows[number];
        if !row.subcommands.is_empty() && args.len() > 1 {
            let word = args.at(1);
            let found = row.subcommands.iter().find(|sub| {
                sub.name
                    .split_once('|')
                    .is_some_and(|(_, name)| name.as_bytes().eq_ignore_ascii_case(word))
            });
            match found {
                Some(sub) => row = sub,
                None => return Err(unknown_subcommand(row.name, word)),
            }
        }
        if !row.arity.allows(args.len()) {
            return Err(wrong_arity(row.name));
        }
        Ok((number, row))
    }
}

pub fn wrong_arity(name: &str) -> Refusal {
    Refusal::text_of(format!(
        "ERR wrong number of arguments for '{name}' command"
    ))
}

fn unknown_command(args: &Args<'_>) -> Refusal {
    let mut line = format!(
        "ERR unknown command '{}', with args beginning with: ",
        shown(args.at(0))
    );
    for arg in args.iter_from(1) {
        if line.len() >= 128 + 60 {
            break;
        }
        line.push_str(&format!("'{}' ", shown(arg)));
    }
    Refusal::text_of(line)
}

fn unknown_subcommand(command: &str, word: &[u8]) -> Refusal {
    Refusal::text_of(format!(
        "ERR unknown subcommand '{}'. Try {} HELP.",
        shown(word),
        command.to_ascii_uppercase()
    ))
}

/// At most 128 bytes of client text for an error line.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(128)]).into_owned()
}

/// FNV-1a over the letters in lower case; names are short.
#[inline]
fn hash(name: &[u8]) -> usize {
    let mut hash: u32 = 0x811c_9dc5;
    for &byte in name {
        hash = (hash ^ u32::from(byte | 0x20)).wrapping_mul(0x0100_0193);
    }
    (hash ^ (hash >> 15)) as usize
}
