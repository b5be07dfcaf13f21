//! The catalogue of tables. It is changed as a whole by whoever knows the newest, so two changes at
//! once cannot undo each other: one is told to look again.

use super::{Outcome, Refused, SetTables, State};
use crate::wire::Catalogue;

/// It goes into one entry of the log and to every node at once: thousands of tables, not millions.
const BYTES_MAX: usize = 8 << 20;

impl State {
    /// Tried again after a lost answer, the same change is made once.
    pub(super) fn set_tables(&mut self, set: &SetTables) -> Result<Outcome, Refused> {
        if set.bytes.len() > BYTES_MAX {
            return Err(Refused::CatalogueTooLarge {
                bytes: set.bytes.len(),
                most: BYTES_MAX,
            });
        }
        let (version, bytes) = match &self.tables {
            Some(tables) => (tables.version, tables.bytes.as_slice()),
            None => (0, [].as_slice()),
        };
        let Some(next) = set.expected_version.checked_add(1) else {
            return Err(Refused::OtherTables { version });
        };
        if version == next && bytes == set.bytes {
            return Ok(Outcome::TablesSet { version });
        }
        if version != set.expected_version {
            return Err(Refused::OtherTables { version });
        }
        self.tables = Some(Catalogue {
            version: next,
            bytes: set.bytes.clone(),
        });
        Ok(Outcome::TablesSet { version: next })
    }

    /// The newest catalogue of tables; none before the first.
    pub fn tables(&self) -> Option<&Catalogue> {
        self.tables.as_ref()
    }

    /// 0 before the first.
    pub fn tables_version(&self) -> u64 {
        self.tables.as_ref().map_or(0, |tables| tables.version)
    }

    /// The catalogue, for somebody who has `known` of it.
    pub fn tables_since(&self, known: u64) -> Option<Catalogue> {
        self.tables
            .as_ref()
            .filter(|tables| tables.version > known)
            .cloned()
    }
}
