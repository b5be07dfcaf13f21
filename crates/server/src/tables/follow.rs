//! How the leader of a region follows the catalogue: it proposes the schemas its log lacks, and the end of tables that were dropped.
//!
//! Until its log has them it takes no commands ([`crate::cores::Region::is_behind`]). A table whose SQL table is to stay is let go last: when
//! everything that was on its way into the log is applied, and SQL has what was changed. So nothing that was acknowledged while others
//! drained is lost with the table.

use std::sync::Arc;

use table::entry::Entry;
use table::{Rows, Table};

use super::catalogue::Catalogue;

/// A region takes nothing while it waits for SQL. Longer than a new leader waits for the lease of the one before; whoever dropped the table
/// has seen SQL answer just before.
const KEPT_MS: u64 = 15_000;

#[derive(Default)]
pub struct Follow {
    /// The catalogue whose schemas were proposed.
    version: u64,
    /// Dropped tables that SQL may lack something of, and since when they are waited for.
    owing: Vec<u32>,
    since_ms: u64,
}

impl Follow {
    /// Proposes what the region does not know of the catalogue; whether it knows all of it. `is_quiet`: nothing is on its way into the log.
    pub fn follow(
        &mut self,
        catalogue: &Catalogue,
        rows: &Rows,
        is_quiet: bool,
        now_ms: u64,
        mut propose: impl FnMut(Entry),
    ) -> bool {
        let is_known = |table: &Arc<Table>| {
            let known = rows.table(table.id);
            known.is_some_and(|known| known.epoch >= table.epoch)
        };
        let behind = || catalogue.tables.values().filter(|it| !is_known(it));
        let gone = || {
            let dropped = catalogue.dropped.iter().copied();
            dropped.filter(|&id| rows.table(id).is_some())
        };
        if self.version != catalogue.version {
            self.version = catalogue.version;
            behind().for_each(|table| propose(Entry::Schema(Table::clone(table))));
            let (owing, rest) = gone().partition(|id| catalogue.kept.contains(id));
            (self.owing, self.since_ms) = (owing, now_ms);
            let rest: Vec<u32> = rest;
            rest.into_iter()
                .for_each(|table| propose(Entry::Drop { table }));
        }
        if !self.owing.is_empty() {
            let is_late = now_ms.saturating_sub(self.since_ms) > KEPT_MS;
            let owes = |table: u32| rows.dirty().any(|(_, id)| id.table == table);
            let done = |table: &mut u32| is_late || is_quiet && !owes(*table);
            for table in self.owing.extract_if(.., done) {
                propose(Entry::Drop { table });
            }
        }
        behind().next().is_none() && gone().next().is_none()
    }
}
