//! All command specifications in one table, each with the number by which statistics know it.

use command::{Command, Table};

pub struct Specs {
    pub table: Table,
    /// By number in the table: the statistics number of the command; its subcommands follow.
    stat_base: Vec<u16>,
    /// By statistics number.
    rows: Vec<Command>,
}

impl Specs {
    pub fn new(specs: impl IntoIterator<Item = Command>) -> Self {
        let table = Table::new(specs);
        let mut rows = Vec::new();
        let mut stat_base = Vec::new();
        for row in table.rows() {
            stat_base.push(rows.len() as u16);
            rows.push(*row);
            rows.extend_from_slice(row.subcommands);
        }
        Specs {
            table,
            stat_base,
            rows,
        }
    }

    /// The place of a command, or of a subcommand, in the statistics.
    #[inline]
    pub fn stat_number(&self, number: usize, row: &Command) -> usize {
        let base = self.stat_base.get(number).copied().unwrap_or(0) as usize;
        let Some(top) = self.table.rows().get(number) else {
            return base;
        };
        if top.subcommands.is_empty() {
            return base;
        }
        let sub = top.subcommands.iter().position(|sub| sub.name == row.name);
        base + sub.map_or(0, |at| 1 + at)
    }

    pub fn stat_count(&self) -> usize {
        self.rows.len()
    }

    /// The command with a statistics number. A number that is none gives the first command.
    #[inline]
    pub fn row(&self, stat: usize) -> &Command {
        self.rows.get(stat).unwrap_or(&self.rows[0])
    }

    /// Every command with its statistics number, subcommands behind their container.
    pub fn each_row(&self) -> impl Iterator<Item = (usize, &Command)> {
        self.table
            .rows()
            .iter()
            .flat_map(|row| std::iter::once(row).chain(row.subcommands))
            .enumerate()
    }
}
