//! The list: one row per setting. It drives `CONFIG`, the flags of `neokv server`, the keys of its
//! configuration file, its environment variables and `docs/operations/configuration.md`.
//!
//! Only settings that mean something here; Redis' names and defaults where Redis has them. The rows
//! stand in one file per subject, each a constant `ROWS`; [`ALL`] is all of them in a row, put
//! together when this is compiled, and a setting's number is its place there.
//!
//! Invariant: no name, flag or alias stands in two rows (a test in the module above).

mod clients;
mod cluster;
mod collections;
mod memory;
mod process;
mod saving;
mod tables;
mod tls;
mod watching;

use super::kind::Kind;

/// When a setting may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// By `CONFIG SET` at any time.
    Always,
    /// As [`Change::Always`], if `enable-protected-configs` lets the client.
    Protected,
    /// At start; `CONFIG SET` accepts only the value it has.
    Start,
    /// At start; `CONFIG SET` is refused.
    Never,
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// As `CONFIG` knows it.
    pub name: &'static str,
    /// Other names `CONFIG` knows it by.
    pub aliases: &'static [&'static str],
    /// The flag and configuration key, if not the name; the name works too.
    pub flag: Option<&'static str>,
    pub kind: Kind,
    pub default: &'static str,
    pub change: Change,
    pub doc: &'static str,
    /// Whether the value must not be shown in logs.
    pub secret: bool,
}

const BASE: Setting = Setting {
    name: "",
    aliases: &[],
    flag: None,
    kind: Kind::Text,
    default: "",
    change: Change::Always,
    doc: "",
    secret: false,
};

/// The groups, in the order of the reference page.
const GROUPS: &[&[Setting]] = &[
    process::ROWS,
    cluster::ROWS,
    tables::ROWS,
    clients::ROWS,
    tls::ROWS,
    memory::ROWS,
    collections::ROWS,
    saving::ROWS,
    watching::ROWS,
];

/// Every setting, in the order of the reference page.
pub const ALL: &[Setting] = &IN_A_ROW;

const IN_A_ROW: [Setting; count(GROUPS)] = in_a_row(GROUPS);

const fn count(groups: &[&[Setting]]) -> usize {
    let (mut count, mut group) = (0, 0);
    while group < groups.len() {
        count += groups[group].len();
        group += 1;
    }
    count
}

const fn in_a_row<const COUNT: usize>(groups: &[&[Setting]]) -> [Setting; COUNT] {
    let mut all = [BASE; COUNT];
    let (mut at, mut group) = (0, 0);
    while group < groups.len() {
        let mut row = 0;
        while row < groups[group].len() {
            all[at] = groups[group][row];
            (at, row) = (at + 1, row + 1);
        }
        group += 1;
    }
    all
}

const COUNT: Kind = int(0, i64::MAX);
const SMALL: Kind = int(0, i32::MAX as i64);
const BYTES: Kind = Kind::Bytes {
    min: 0,
    max: u64::MAX,
};
/// Of sizes that Redis ends at the largest signed number.
const BYTES_LONG: Kind = Kind::Bytes {
    min: 0,
    max: i64::MAX as u64,
};

const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max }
}

const fn row(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Setting {
    Setting {
        name,
        kind,
        default,
        doc,
        ..BASE
    }
}

const fn aliased(aliases: &'static [&'static str], row: Setting) -> Setting {
    Setting { aliases, ..row }
}

const fn flagged(flag: &'static str, row: Setting) -> Setting {
    let flag = Some(flag);
    Setting { flag, ..row }
}

/// See [`Change::Start`].
const fn at_start(row: Setting) -> Setting {
    let change = Change::Start;
    Setting { change, ..row }
}

/// See [`Change::Never`].
const fn fixed(row: Setting) -> Setting {
    let change = Change::Never;
    Setting { change, ..row }
}

/// See [`Change::Protected`].
const fn protected(row: Setting) -> Setting {
    let change = Change::Protected;
    Setting { change, ..row }
}

const fn secret(row: Setting) -> Setting {
    let secret = true;
    Setting { secret, ..row }
}

/// Position in [`ALL`] of the setting of this name or alias, in any case.
pub fn find(name: &str) -> Option<usize> {
    ALL.iter().position(|setting| setting.is_called(name))
}

impl Setting {
    pub fn is_called(&self, name: &str) -> bool {
        self.names().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// The names `CONFIG` knows it by.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// The flag of `neokv server` and key of its configuration file.
    pub fn flag(&self) -> &'static str {
        self.flag.unwrap_or(self.name)
    }
}
