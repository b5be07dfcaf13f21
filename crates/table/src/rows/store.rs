//! What is stored of [`Rows`], and how they are rebuilt from it.
//!
//! ```text
//!   'a' table            schema of a table              'd' table         a table that was dropped
//!   'l'                  lease, its stamp               'q' client number an answer that a retry gets again
//!   'r' table key        a row
//! ```
//!
//! What is to be stored of entries is in `unsaved.rs`. The owner writes it in one batch with the applied index, under keys of its own
//! that begin with whatever it likes (region, slot) and end with [`Place::encode`]; a snapshot of the region carries them.

use crate::entry::RowId;
use crate::schema::Table;
use crate::wire::{Corrupt, Reader, Writer};

use super::answers::Answer;
use super::{Row, Rows, Tab};

const FORMAT: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Schema(u32),
    Dropped(u32),
    /// The lease and the stamp it was given at.
    Lease,
    Answer {
        client: u128,
        number: u64,
    },
    Row(RowId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put(Place, Vec<u8>),
    Remove(Place),
    /// All rows of a table: a deletion of the range that begins with [`Place::rows_of`].
    RemoveRows(u32),
}

impl Place {
    pub fn encode(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(32);
        match self {
            Place::Schema(table) => {
                key.push(b'a');
                key.extend_from_slice(&table.to_be_bytes());
            }
            Place::Dropped(table) => {
                key.push(b'd');
                key.extend_from_slice(&table.to_be_bytes());
            }
            Place::Lease => key.push(b'l'),
            Place::Answer { client, number } => {
                key.push(b'q');
                key.extend_from_slice(&client.to_be_bytes());
                key.extend_from_slice(&number.to_be_bytes());
            }
            Place::Row(id) => Place::push_row(&mut key, id),
        }
        key
    }

    /// The place of a row.
    pub fn push_row(to: &mut Vec<u8>, id: &RowId) {
        to.push(b'r');
        to.extend_from_slice(&id.table.to_be_bytes());
        to.extend_from_slice(id.key.as_bytes());
    }

    /// What the places of all rows of a table begin with, and nothing else.
    pub fn rows_of(table: u32) -> Vec<u8> {
        let mut key = vec![b'r'];
        key.extend_from_slice(&table.to_be_bytes());
        key
    }

    pub fn decode(key: &[u8]) -> Result<Place, Corrupt> {
        const BAD: Corrupt = Corrupt("a place where nothing is stored");
        let (kind, rest) = key.split_first().ok_or(BAD)?;
        let table = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.try_into().ok()?));
        match kind {
            b'a' => table(rest).map(Place::Schema).ok_or(BAD),
            b'd' => table(rest).map(Place::Dropped).ok_or(BAD),
            b'l' if rest.is_empty() => Ok(Place::Lease),
            b'q' => {
                let (client, number) = rest.split_at_checked(16).ok_or(BAD)?;
                Ok(Place::Answer {
                    client: u128::from_be_bytes(client.try_into().map_err(|_| BAD)?),
                    number: u64::from_be_bytes(number.try_into().map_err(|_| BAD)?),
                })
            }
            b'r' => {
                let (id, key) = rest.split_at_checked(4).ok_or(BAD)?;
                let key = crate::name::check_key(key).map_err(|_| BAD)?;
                Ok(Place::Row(RowId::new(table(id).ok_or(BAD)?, key)))
            }
            _ => Err(BAD),
        }
    }
}

impl Rows {
    /// From what is stored, in the order of the places, at this applied index.
    pub fn restore<'a>(
        stored: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        applied: u64,
    ) -> Result<Rows, Corrupt> {
        let mut rows = Rows {
            applied,
            ..Rows::default()
        };
        for (key, bytes) in stored {
            rows.restore_one(Place::decode(key)?, Some(bytes))?;
        }
        Ok(rows)
    }

    /// Something is stored from now on, or not any more: memory follows what another node has written.
    pub fn restore_one(&mut self, place: Place, bytes: Option<&[u8]>) -> Result<(), Corrupt> {
        match (place, bytes) {
            (Place::Schema(id), Some(bytes)) => {
                let schema = Table::decode(bytes)?;
                if schema.id != id {
                    return Err(Corrupt("a table in the place of another"));
                }
                match self.tables.get_mut(&id) {
                    Some(tab) => tab.schema = schema.into(),
                    None => {
                        self.tables.insert(id, Tab::new(schema));
                    }
                }
            }
            (Place::Schema(id), None) => {
                self.remove_table(id);
            }
            (Place::Dropped(id), Some(_)) => {
                self.remove_table(id);
            }
            (Place::Lease, Some(bytes)) => {
                let mut from = Reader::new(bytes, FORMAT)?;
                self.lease = from.lease()?;
                self.now = from.uint()?;
                from.end()?;
            }
            (Place::Answer { client, number }, Some(bytes)) => {
                self.answers
                    .restore(client, number, Answer::decode(bytes)?)?;
            }
            (Place::Row(id), Some(bytes)) => {
                if !self.tables.contains_key(&id.table) {
                    return Err(Corrupt("a row of no table"));
                }
                self.place(&id, Some(Row::decode(bytes)?));
            }
            (Place::Row(id), None) => {
                self.place(&id, None);
            }
            (Place::Answer { client, number }, None) => self.answers.forget(client, number),
            // Neither is ever taken back.
            (Place::Dropped(_) | Place::Lease, None) => {}
        }
        Ok(())
    }

    /// Everything, as the changes that make it: for a snapshot that is not made from the stored bytes, and for tests.
    pub fn dump(&self) -> Vec<(Place, Vec<u8>)> {
        let mut all = Vec::new();
        for (id, tab) in &self.tables {
            all.push((Place::Schema(*id), tab.schema.encode()));
        }
        for id in &self.dropped {
            all.push((Place::Dropped(*id), vec![FORMAT]));
        }
        if self.lease.until > 0 {
            all.push((Place::Lease, self.encode_lease()));
        }
        all.extend(self.answers.dump());
        for (table, tab) in &self.tables {
            for (key, row) in tab.rows.iter() {
                let id = RowId {
                    table: *table,
                    key: key.clone(),
                };
                all.push((Place::Row(id), row.encode()));
            }
        }
        all
    }

    pub(super) fn encode_lease(&self) -> Vec<u8> {
        let mut to = Writer::new(FORMAT);
        to.lease(&self.lease);
        to.uint(self.now);
        to.done()
    }

    pub(super) fn put_dropped(id: u32) -> Change {
        Change::Put(Place::Dropped(id), vec![FORMAT])
    }
}
