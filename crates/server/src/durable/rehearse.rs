//! Commands that change big collections: which rows they will read is found out before they run.
//!
//! A change cannot be taken back, so a command that writes runs only when what it reads is in memory.
//! It is rehearsed until it meets no cold row, or a few times; a rehearsal changes nothing
//! (`keyspace::rows`, `cold.rs`). Commands on keys that are in memory whole are not rehearsed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base::DbIndex;
use command::Command;
use keyspace::rows::ColdRows;
use keyspace::{Keyspace, View};
use resp::{Args, Protocol, Reply};

use super::Flight;
use super::member::seed_of;
use crate::cores::{Call, Core, Held, call_function};

/// Whether a command names a big collection.
fn is_on_rows(space: &mut Keyspace, row: &Command, db: DbIndex, args: &Args<'_>) -> bool {
    let mut found = false;
    row.each_key(db, args, &mut |db, key| {
        found = found || space.is_on_rows(db, key);
    });
    found
}

fn rehearse(row: &Command, view: View<'_>, args: &Args<'_>) {
    let mut reply = Reply::new(Protocol::Resp2);
    // If it panics it will do so again, where somebody is told.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let _ = call_function(row, view.rehearsal(), args, &mut reply);
    }));
}

impl Core {
    /// The rows an entry needs that are not in memory, as far as that can be told now.
    pub(super) fn cold_rows(&self, space: &mut Keyspace, flight: &Flight) -> Vec<ColdRows> {
        if space.has_whole() {
            space.take_wholes();
        }
        if !space.may_be_on_rows() {
            return Vec::new();
        }
        let settings = self.settings().clone();
        let mut nth = flight.tables.len();
        space.read_cached(true);
        for batch in &flight.batches {
            for (at, &(stat, db)) in batch.heads.iter().enumerate() {
                let row = self.shared.commands.row(stat as usize);
                if batch.is_refused(at) {
                    continue;
                }
                let args = batch.commands.args(at);
                let seed = seed_of(flight.seed, nth);
                nth += usize::from(row.is_write());
                if is_on_rows(space, row, db, &args) {
                    let tuning = &settings.tuning;
                    let view = View::one(space, db, flight.stamp_ms, seed, tuning);
                    rehearse(row, view, &args);
                }
            }
        }
        space.read_cached(false);
        // Keys it looked for besides those it names are not its business.
        space.take_missing();
        space.take_cold()
    }
}

impl Held {
    /// As [`Core::cold_rows`], for a command on held regions.
    pub(super) fn cold_rows(&mut self, call: &Call<'_>, args: &Args<'_>) -> Vec<ColdRows> {
        let mut found = false;
        call.row.each_key(call.db, args, &mut |db, key| {
            let region = self.region_of(key);
            found = found || region.is_some_and(|region| region.space.is_on_rows(db, key));
        });
        if !found {
            return Vec::new();
        }
        self.read_cached(true);
        self.with_view_only(call.db, |view| rehearse(call.row, view, args));
        self.read_cached(false);
        // Keys that are missing are found out about when the command runs.
        self.spaces().for_each(|space| {
            space.take_missing();
        });
        self.take_cold()
    }
}
