//! All command specifications in one table, each with the number by which statistics know it.

use crate::{CommandSpec, Table};

pub struct Specs {
    pub table: Table,
    /// By number in the table: the statistics number of the command; its subcommands follow.
    stat_base: Vec<u16>,
    /// By statistics number.
    specs: Vec<CommandSpec>,
}

impl Specs {
    pub fn new(specs: impl IntoIterator<Item = CommandSpec>) -> Self {
        let table = Table::new(specs);
        let mut specs = Vec::new();
        let mut stat_base = Vec::new();
        for spec in table.specs() {
            stat_base.push(specs.len() as u16);
            specs.push(*spec);
            specs.extend_from_slice(spec.subcommands);
        }
        Specs {
            table,
            stat_base,
            specs,
        }
    }

    /// The place of a command, or of a subcommand, in the statistics.
    #[inline]
    pub fn stat_number(&self, number: usize, spec: &CommandSpec) -> usize {
        let base = self.stat_base.get(number).copied().unwrap_or(0) as usize;
        let Some(top) = self.table.specs().get(number) else {
            return base;
        };
        if top.subcommands.is_empty() {
            return base;
        }
        let sub = top.subcommands.iter().position(|sub| sub.name == spec.name);
        base + sub.map_or(0, |at| 1 + at)
    }

    pub fn stat_count(&self) -> usize {
        self.specs.len()
    }

    /// The command with a statistics number. A number that is none gives the first command.
    #[inline]
    pub fn spec(&self, stat: usize) -> &CommandSpec {
        self.specs.get(stat).unwrap_or(&self.specs[0])
    }

    /// The statistics number of the command called `name` (a subcommand: `config|get`), in any case. Internal ones are not found.
    pub fn named(&self, name: &[u8]) -> Option<usize> {
        let head = name.split(|&byte| byte == b'|').next()?;
        let base = usize::from(*self.stat_base.get(self.table.find(head)?)?);
        let last = base + self.spec(base).subcommands.len();
        (base..=last).find(|&stat| {
            let spec = self.spec(stat);
            !spec.is_internal() && spec.name.as_bytes().eq_ignore_ascii_case(name)
        })
    }

    /// The statistics numbers of a command's subcommands.
    pub fn subcommands_of(&self, stat: usize) -> std::ops::Range<usize> {
        stat + 1..stat + 1 + self.spec(stat).subcommands.len()
    }

    /// Every command with its statistics number, subcommands behind their container.
    pub fn each_row(&self) -> impl Iterator<Item = (usize, &CommandSpec)> {
        self.table
            .specs()
            .iter()
            .flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
            .enumerate()
    }
}
