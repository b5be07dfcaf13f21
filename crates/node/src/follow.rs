//! How the leader of a region follows the catalogue: it proposes the schemas its log lacks, and the end of tables that were dropped.
//!
//! Until its log has them it takes no commands ([`crate::Region::is_catalogue_old`]).

use std::sync::Arc;

use table::entry::Entry;
use table::{Rows, Table};

use crate::Catalogue;

#[derive(Default)]
pub struct Follow {
    /// The catalogue of which everything was proposed.
    version: u64,
}

impl Follow {
    /// Proposes what the region does not know of the catalogue, once; whether it knows all of it.
    pub fn follow(
        &mut self,
        catalogue: &Catalogue,
        rows: &Rows,
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
            gone().for_each(|table| propose(Entry::Drop { table }));
        }
        behind().next().is_none() && gone().next().is_none()
    }

    /// Whether a region knows all tables of the catalogue.
    pub fn knows(catalogue: &Catalogue, rows: &Rows) -> bool {
        let is_known = |table: &Arc<Table>| {
            let known = rows.table(table.id);
            known.is_some_and(|known| known.epoch >= table.epoch)
        };
        let is_gone = |id: &u32| rows.table(*id).is_none();
        catalogue.tables.values().all(is_known) && catalogue.dropped.iter().all(is_gone)
    }
}
