//! Whole regions: made, copied to files, replaced by such files, removed.
//!
//! ```text
//!   export    moment ─► reachable rows ─► dir/<family>-<n>.sst …, dir/MANIFEST        export.rs
//!   verify    dir/MANIFEST ─► every file there, of its length, with its checksum      files.rs
//!   install   verify ─► old rows out, note in ─► files in ─► state in, note out       install.rs
//!   remove    old rows and state out                                                  remove.rs
//! ```
//!
//! Rows have no write-ahead log, so each of these must be right after a crash by the order of its steps
//! alone. Two things make that simple: a write batch is in all families or in none, and a flush brings
//! all families to disk at one moment. So "the rows of a region and its state row go, and a note that
//! says so comes" is *one* step, however many rows there are: range deletions in one batch, then a flush.
//!
//! *Invariants*: a region has either a state row or a note of an install, after any crash; with a state
//! row, its rows are those of that state; nobody else's rows are touched; nothing here runs on a core.

mod export;
mod files;
mod install;
mod remove;
#[cfg(test)]
mod tests;

use base::cluster::RegionId;
use keyspace::rows::layout;
use keyspace::rows::{Family, RegionError, State, state_row};
use rust_rocksdb::{WriteBatch, WriteOptions};

use crate::{Store, steps};

pub(crate) use export::export;
pub use files::read_manifest;
pub(crate) use files::verify;
pub(crate) use install::{install, redo, unfinished};
pub(crate) use remove::remove;

fn failed(what: impl std::fmt::Display) -> RegionError {
    RegionError::Failed(what.to_string())
}

fn refused(what: impl std::fmt::Display) -> RegionError {
    RegionError::Refused(what.to_string())
}

/// Regions that have nothing but their states.
pub(crate) fn create(store: &Store, regions: &[(RegionId, State)]) -> Result<(), RegionError> {
    let mut batch = WriteBatch::default();
    let db = &store.open.db;
    for (region, state) in regions {
        if state_row(store, *region)?.is_some() {
            continue;
        }
        let mut value = Vec::new();
        state.push(&mut value);
        batch.put_cf(&db.family(Family::Info), layout::state_key(*region), value);
        tell(store, *region, state);
    }
    write_durably(store, &batch)
}

/// Before the first row of a region is written, or once its new rows are all there.
fn tell(store: &Store, home: u64, state: &State) {
    let mut told = store.telling();
    told.tell(home, state.dbs.iter().map(|db| db.index_id).collect());
    store.publish(&told);
}

/// All of the batch is on disk, with everything written before; after a crash, that or nothing.
fn write_durably(store: &Store, batch: &WriteBatch) -> Result<(), RegionError> {
    let mut writes = WriteOptions::default();
    writes.disable_wal(true);
    store.open.db.write_opt(batch, &writes).map_err(failed)?;
    step()?;
    store.flush()?;
    step()
}

fn step() -> Result<(), RegionError> {
    match steps::ends_here() {
        true => Err(failed(steps::ENDED)),
        false => Ok(()),
    }
}
