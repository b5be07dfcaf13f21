//! Keys whose rows cannot be read: a damaged block, a disk that fails.
//!
//! ```text
//!   load fails ─► insert_loaded marks the key ─► the command that waited runs again ─► refused
//!                                                                                   ─► the mark is forgotten
//! ```
//!
//! The mark is what ends the circle of loading and running again. It is forgotten with the refusal, so that the
//! next command that names the key tries the disk again. A marked key is *not* resident: a view of it is void.

use base::{DbIndex, Refusal};

use super::cold::ColdRange;
use super::{ColdRows, LoadRequest, Loaded, layout};
use crate::Keyspace;

/// Bytes of a key that an error message shows.
const SHOWN_BYTES: usize = 128;

impl Keyspace {
    /// Whether a key is to be loaded before a command that names it runs.
    pub fn needs_load(&self, db: DbIndex, key: &[u8]) -> bool {
        !self.is_resident(db, key) && self.unreadable(db, key).is_none()
    }

    /// Whether any key is marked.
    #[inline]
    pub fn has_unreadable(&self) -> bool {
        let durable = self.durable.as_ref();
        durable.is_some_and(|durable| !durable.unreadable.is_empty())
    }

    /// What is said instead of running a command that names this key, if its rows could not be read.
    pub fn unreadable(&self, db: DbIndex, key: &[u8]) -> Option<Refusal> {
        let durable = self.durable.as_ref()?;
        if durable.unreadable.is_empty() {
            return None;
        }
        let index_id = self.dbs.get(db as usize)?.index_id;
        let why = durable.unreadable.get(&(index_id, key.into()))?;
        let shown = key.get(..SHOWN_BYTES).unwrap_or(key).escape_ascii();
        Some(Refusal::text_of(format!(
            "ERR key '{shown}' cannot be read from disk: {why}"
        )))
    }

    /// The command that met the marks was refused.
    pub fn forget_unreadable(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.unreadable.clear();
        }
    }
}

impl ColdRows {
    /// What [`Keyspace::insert_loaded`] takes if these rows could not be read: their key is marked.
    pub fn unreadable(&self, why: String) -> Option<(LoadRequest, Loaded)> {
        let row = match &self.range {
            ColdRange::Row(row) | ColdRange::NoIndex(row) => row,
            ColdRange::Between { from, .. } => from,
            ColdRange::Index(job) => job.0.base(),
        };
        let at = match layout::split_sub_key(row) {
            Some((metadata_key, ..)) => layout::parse_metadata_key(metadata_key)?,
            None => layout::parse_metadata_key(row)?,
        };
        let request = LoadRequest {
            home: at.home,
            index_id: at.index_id,
            ..LoadRequest::nowhere(at.key)
        };
        Some((request, Loaded::Unreadable(why)))
    }
}
