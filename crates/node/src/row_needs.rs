//! Which SQL rows commands need before they may go into the log.
//!
//! A command that writes goes into the log only when its rows are cached: what is applied cannot wait for
//! SQL. One that reads is run, misses, and is run again.

use std::collections::BTreeMap;

use base::{DbIndex, Refusal};
use command::{CommandSpec, RowGrowth, Traits};
use keyspace::Keyspace;
use resp::Args;
use table::leader::Failure;
use table::{RowId, Value};

use crate::{BatchBox, Context, Region, WriteBack};

/// How long a row may take to come from SQL.
pub const LOAD_MS: u64 = 5_000;

/// What stands between a batch and the log.
enum Needs {
    Nothing,
    /// Rows that are not cached.
    Rows(Vec<RowId>),
    /// An entry on its way that may let a row go.
    Departing,
}

impl Region {
    /// Of the batches for the next entry, those that may go; the others wait in the write-back.
    pub(crate) fn only_ready(&mut self, batches: Vec<BatchBox>, cx: &Context<'_>) -> Vec<BatchBox> {
        let space = &self.space;
        let member = self.member.as_deref_mut();
        let write_back = member.and_then(|member| member.write_back.as_deref_mut());
        let (Some(write_back), Some(rows)) = (write_back, space.table_rows()) else {
            return batches;
        };
        let mut ready = Vec::with_capacity(batches.len());
        for mut batch in batches {
            match needs(space, write_back, &mut batch, cx) {
                Needs::Nothing => {
                    each_kicked(space, &batch, cx, |id| write_back.departing.note(&id));
                    ready.push(batch);
                }
                Needs::Departing => write_back.wait_for_table(batch),
                Needs::Rows(ids) => {
                    let deadline_ms = cx.now_ms + LOAD_MS;
                    write_back.wait_for_rows(batch, ids, rows, deadline_ms, cx.now_ms);
                }
            }
        }
        ready
    }

    /// The log did not take these batches: the rows they would let go stay, until they are proposed again.
    pub(crate) fn forget_kicks(&mut self, batches: &[BatchBox], cx: &Context<'_>) {
        let space = &self.space;
        let member = self.member.as_deref_mut();
        let write_back = member.and_then(|member| member.write_back.as_deref_mut());
        if let Some(write_back) = write_back {
            for batch in batches {
                each_kicked(space, batch, cx, |id| write_back.departing.forget(&id));
            }
        }
    }

    /// Commands of a batch that name a row which cannot be had are not run.
    pub(crate) fn refuse_rows(
        &self,
        batch: &mut BatchBox,
        failed: &[(RowId, Refusal)],
        cx: &Context<'_>,
    ) {
        let mut refused = Vec::new();
        for (at, &(stat, db)) in batch.heads.iter().enumerate() {
            let spec = cx.specs.spec(stat as usize);
            let mut why = None;
            each_row(&self.space, spec, db, &batch.commands.args(at), |id| {
                let found = failed.iter().find(|(failed, _)| *failed == id);
                why = why.take().or(found.map(|(_, refusal)| refusal.clone()));
            });
            refused.extend(why.map(|why| (at, why)));
        }
        batch.refused.append(&mut refused);
    }
}

fn needs(
    space: &Keyspace,
    write_back: &WriteBack,
    batch: &mut BatchBox,
    cx: &Context<'_>,
) -> Needs {
    let Some(rows) = space.table_rows() else {
        return Needs::Nothing;
    };
    let has_room = write_back.leader.has_room(rows);
    let departing = &write_back.departing;
    let (mut cold, mut is_departing, mut full) = (Vec::new(), false, Vec::new());
    for (at, &(stat, db)) in batch.heads.iter().enumerate() {
        let spec = cx.specs.spec(stat as usize);
        if batch.is_refused(at) || spec.is(Traits::RELEASES_ROW) {
            continue;
        }
        let mut named = false;
        let args = batch.commands.args(at);
        spec.each_key(db, &args, &mut |db, key| {
            let Some(is_cached) = space.is_row_cached(db, key) else {
                return;
            };
            named = true;
            if is_cached && departing.is_empty() {
                return; // as nearly always
            }
            if let Some(Ok(found)) = space.row_of(db, key) {
                is_departing |= departing.contains(&found.id);
                if !is_cached {
                    cold.push(found.id);
                }
            }
        });
        if named && !has_room && spec.is_write() && needs_room(space, spec, db, &args) {
            full.push(at);
        }
    }
    for at in full {
        batch.refused.push((at, full_refusal()));
    }
    match is_departing {
        true => Needs::Departing,
        false if cold.is_empty() => Needs::Nothing,
        false => Needs::Rows(cold),
    }
}

/// Rows that clients let go with this batch.
fn each_kicked(space: &Keyspace, batch: &BatchBox, cx: &Context<'_>, mut each: impl FnMut(RowId)) {
    for (at, &(stat, db)) in batch.heads.iter().enumerate() {
        let spec = cx.specs.spec(stat as usize);
        if spec.is(Traits::RELEASES_ROW) {
            let args = batch.commands.args(at);
            each_row(space, spec, db, &args, &mut each);
        }
    }
}

/// The rows that a command names.
fn each_row(
    space: &Keyspace,
    spec: &CommandSpec,
    db: DbIndex,
    args: &Args<'_>,
    mut each: impl FnMut(RowId),
) {
    spec.each_key(db, args, &mut |db, key| {
        if let Some(Ok(found)) = space.row_of(db, key) {
            each(found.id);
        }
    });
}

/// Whether there is no room for a command that may make the row at `key` larger, which is this region's.
/// Commands on borrowed regions (a transaction over several of them) do not come through
/// [`Region::only_ready`].
pub fn lacks_room(
    region: &Region,
    spec: &CommandSpec,
    db: DbIndex,
    args: &Args<'_>,
    key: &[u8],
) -> bool {
    if !region.space.names_row(db, key) {
        return false;
    }
    let member = region.member.as_deref();
    let write_back = member.and_then(|member| member.write_back.as_deref());
    match (write_back, region.space.table_rows()) {
        (Some(write_back), Some(rows)) => {
            !write_back.leader.has_room(rows) && needs_room(&region.space, spec, db, args)
        }
        _ => false,
    }
}

/// Whether a command may make its row larger. A row that is not cached is for who loads it.
fn needs_room(space: &Keyspace, spec: &CommandSpec, db: DbIndex, args: &Args<'_>) -> bool {
    let values_of = match spec.row_growth {
        RowGrowth::Never => return false,
        RowGrowth::By(values_of) => Some(values_of),
        RowGrowth::Unknown => None,
    };
    let Some(Ok(found)) = space.row_of(db, args.at(1)) else {
        return false; // refused by the command itself
    };
    let cached = space.table_rows().and_then(|rows| rows.get(&found.id));
    let (Some(cached), Some(values_of)) = (cached, values_of) else {
        return true;
    };
    let (mut has, mut wants) = (0, 0);
    // Of a field that is named twice the last value counts, and what it replaces once.
    let sets = values_of(&found.table, args).unwrap_or_default();
    let sets: BTreeMap<u16, Value> = sets.into_iter().collect();
    for (field, value) in &sets {
        let Some(old) = cached.image.get(*field) else {
            return true;
        };
        has += old.size();
        wants += value.size();
    }
    wants > has
}

pub fn full_refusal() -> Refusal {
    Refusal::new(
        "TRYAGAIN the cache of tables is full and SQL does not have what could go; see ROW.TABLE STATUS, or raise table-cache-hard-bytes",
    )
}

/// What a client is told whose row cannot be had.
pub fn refusal_of(failure: Failure) -> Refusal {
    match failure {
        Failure::Down(why) => Refusal::text_of(format!(
            "SQLDOWN this row is not cached, and the database does not answer: {why}"
        )),
        Failure::TimedOut => Refusal::new(
            "SQLDOWN this row is not cached, and the database has not answered in time",
        ),
        Failure::Full => full_refusal(),
        Failure::NoTable => Refusal::new("ERR no such table"),
        Failure::Unreadable(why) => {
            Refusal::text_of(format!("ERR the row in SQL cannot be used: {why}"))
        }
        Failure::Dead(why) => Refusal::text_of(format!(
            "ERR SQL does not take this row: {why}. See ROW.TABLE DEAD LIST"
        )),
        Failure::NoSuchVersion => Refusal::new("ERR the row has no such version"),
    }
}
