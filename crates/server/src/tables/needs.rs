//! Which rows of tables commands need, and waiting until they are cached.
//!
//! A command that writes goes into the log only when its rows are cached: what is applied cannot wait for SQL. One that
//! reads is run, misses, and is run again. Either waits here, alone; the region goes on meanwhile.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::slot::slot_of;
use base::{DbIndex, Refusal};
use command::{Command, RowGrowth, Traits};
use keyspace::Keyspace;
use resp::Args;
use table::leader::{End, Failure};
use table::{RowId, Value};

use super::ask::{Ask, Told};
use super::desk::Desk;
use crate::cluster::Unserved;
use crate::cores::{Answer, BatchBox, Call, Core, Held, RegionBox, RegionId, Ticket};

/// How long a row may take to come from SQL.
const LOAD_MS: u64 = 5_000;
/// A region that is lent is asked again.
const LENT: Duration = Duration::from_millis(1);

/// What stands between a batch and the log.
enum Needs {
    Nothing,
    /// Rows that are not cached.
    Rows(Vec<RowId>),
    /// An entry on its way that may let a row go.
    Departing,
}

impl Core {
    /// Of the batches for a region's next entry, those that may go; the others wait for their rows by themselves.
    pub(crate) fn only_ready(
        self: &Rc<Self>,
        id: RegionId,
        space: &Keyspace,
        desk: &mut Desk,
        batches: Vec<BatchBox>,
    ) -> Vec<BatchBox> {
        let mut ready = Vec::with_capacity(batches.len());
        for mut batch in batches {
            match self.needs(space, desk, &mut batch) {
                Needs::Nothing => {
                    self.each_kicked(space, &batch, |id| desk.departing.note(&id));
                    ready.push(batch);
                }
                Needs::Departing => desk.wait_behind(batch),
                Needs::Rows(rows) => self.wait_for_rows(id, batch, rows),
            }
        }
        ready
    }

    fn needs(&self, space: &Keyspace, desk: &Desk, batch: &mut BatchBox) -> Needs {
        let Some(rows) = space.table_rows() else {
            return Needs::Nothing;
        };
        let has_room = desk.leader.has_room(rows);
        let departing = &desk.departing;
        let (mut cold, mut is_departing, mut full) = (Vec::new(), false, Vec::new());
        for (at, &(stat, db)) in batch.heads.iter().enumerate() {
            let row = self.shared.commands.row(stat as usize);
            if batch.is_refused(at) || row.is(Traits::RELEASES_ROW) {
                continue;
            }
            let mut named = false;
            let args = batch.commands.args(at);
            row.each_key(db, &args, &mut |db, key| {
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
            if named && !has_room && row.is_write() && needs_room(space, row, db, &args) {
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

    /// The log did not take these batches: the rows they would let go stay, until they are proposed again.
    pub(crate) fn forget_kicks(&self, space: &Keyspace, desk: &mut Desk, batches: &[BatchBox]) {
        for batch in batches {
            self.each_kicked(space, batch, |id| desk.departing.forget(&id));
        }
    }

    /// Rows that clients let go with this batch.
    fn each_kicked(&self, space: &Keyspace, batch: &BatchBox, mut each: impl FnMut(RowId)) {
        for (at, &(stat, db)) in batch.heads.iter().enumerate() {
            let row = self.shared.commands.row(stat as usize);
            if row.is(Traits::RELEASES_ROW) {
                let args = batch.commands.args(at);
                each_row(space, row, db, &args, &mut each);
            }
        }
    }

    fn wait_for_rows(self: &Rc<Self>, region: RegionId, mut batch: BatchBox, rows: Vec<RowId>) {
        let core = self.clone();
        tokio::task::spawn_local(async move {
            let failed = core.bring_rows(region, rows).await;
            core.begin_batch();
            if !failed.is_empty() {
                core.refuse_rows(region, &mut batch, &failed);
            }
            core.enqueue(batch);
        });
    }

    /// Commands of a batch that name a row which cannot be had are not run.
    fn refuse_rows(&self, region: RegionId, batch: &mut BatchBox, failed: &[(RowId, Refusal)]) {
        let mut home = self.home.borrow_mut();
        let Some(region) = home.region_mut(region) else {
            return; // tried once more
        };
        let mut refused = Vec::new();
        for (at, &(stat, db)) in batch.heads.iter().enumerate() {
            let row = self.shared.commands.row(stat as usize);
            let mut why = None;
            each_row(&region.space, row, db, &batch.commands.args(at), |id| {
                let found = failed.iter().find(|(failed, _)| *failed == id);
                why = why.take().or(found.map(|(_, refusal)| refusal.clone()));
            });
            refused.extend(why.map(|why| (at, why)));
        }
        batch.refused.append(&mut refused);
    }

    /// Waits until rows of a region of this core are cached; those that cannot be had, and why.
    pub(crate) async fn bring_rows(
        self: &Rc<Self>,
        region: RegionId,
        rows: Vec<RowId>,
    ) -> Vec<(RowId, Refusal)> {
        self.follow_catalogue(region).await;
        let mut failed = Vec::new();
        let mut waiting: Vec<(RowId, Ticket)> = Vec::new();
        while !self.want_rows(region, &rows, &mut waiting, &mut failed) {
            tokio::time::sleep(LENT).await;
            self.begin_batch();
        }
        self.tend(region);
        for (id, ticket) in waiting {
            if let Answer::Table(Some(End::Failed(failure))) = ticket.await {
                failed.push((id, refusal_of(failure)));
            }
        }
        failed
    }

    /// False while the region is lent.
    fn want_rows(
        self: &Rc<Self>,
        region: RegionId,
        rows: &[RowId],
        waiting: &mut Vec<(RowId, Ticket)>,
        failed: &mut Vec<(RowId, Refusal)>,
    ) -> bool {
        self.tend(region);
        let mut home = self.home.borrow_mut();
        if home.region_mut(region).is_none() {
            return !home.is_used(region);
        }
        let Some(region) = home.region_mut(region) else {
            return true;
        };
        let cached = region.space.table_rows();
        let member = region.member.as_deref_mut();
        let desk = member.and_then(|member| member.desk.as_deref_mut());
        let (Some(desk), Some(cached)) = (desk, cached) else {
            // Only a leader brings rows: who wants to read them goes there.
            let catalogue = self.shared.catalogue.load();
            let slot = |id: &RowId| {
                let name = catalogue.tables.get(&id.table);
                let name = name.map_or("", |table| &table.name);
                slot_of(format!("{name}:{}", id.key).as_bytes())
            };
            let slots: Vec<u16> = rows.iter().map(slot).collect();
            drop(home); // looked at for who leads
            for (id, slot) in rows.iter().zip(slots) {
                failed.push((id.clone(), self.unserved(slot, Unserved::Elsewhere)));
            }
            return true;
        };
        let now_ms = self.now_ms();
        for id in rows {
            if cached.get(id).is_some() {
                continue;
            }
            let ticket = Ticket::new(self);
            let number = ticket.number() as u64;
            let deadline_ms = now_ms + LOAD_MS;
            match desk.leader.want(cached, id, number, deadline_ms, now_ms) {
                Ok(()) => {
                    desk.waiting.insert(number);
                    waiting.push((id.clone(), ticket));
                }
                Err(failure) => {
                    ticket.close();
                    failed.push((id.clone(), refusal_of(failure)));
                }
            }
        }
        true
    }

    /// Waits until the leader's region knows all tables this node knows.
    pub(crate) async fn follow_catalogue(self: &Rc<Self>, region: RegionId) {
        loop {
            self.tend(region);
            let version = self.shared.catalogue_version();
            let is_behind = match self.home.borrow_mut().region_mut(region) {
                Some(region) => region.is_behind(version),
                None => true,
            };
            let is_used = self.home.borrow_mut().is_used(region);
            if !is_behind || !is_used || self.is_stopping() {
                return;
            }
            tokio::time::sleep(LENT).await;
            self.begin_batch();
        }
    }

    /// Brings the rows that commands name, wherever their regions are: before these are held, because nothing can be loaded then.
    pub(crate) async fn bring_named<'a>(
        self: &Rc<Self>,
        commands: impl Iterator<Item = (&'a Command, DbIndex, Args<'a>)>,
    ) {
        if self.shared.catalogue_version() == 0 {
            return;
        }
        let catalogue = self.shared.catalogue.load_full();
        let mut wanted: Vec<(RegionId, RowId)> = Vec::new();
        for (row, db, args) in commands {
            row.each_key(db, &args, &mut |db, key| {
                if db == 0
                    && !row.is(Traits::RELEASES_ROW)
                    && let Some(id) = catalogue.row_of(key)
                {
                    wanted.push((self.shared.map.region_of(key), id));
                }
            });
        }
        wanted.sort();
        wanted.dedup();
        for of_region in wanted.chunk_by(|a, b| a.0 == b.0) {
            let rows = of_region.iter().map(|(_, id)| id.clone()).collect();
            let Some((region, _)) = of_region.first() else {
                continue;
            };
            // What cannot be had is told by the command itself.
            let _: Result<Told, Refusal> = self.ask_table(*region, Ask::Bring(rows)).await;
        }
    }
}

impl Held {
    /// What is said instead of running a command that may make a row larger, if there is no room for it. Commands on regions that are
    /// held (a transaction over several of them) do not come through [`Core::only_ready`].
    pub(crate) fn lacks_room(&mut self, call: &Call<'_>, args: &Args<'_>) -> Option<Refusal> {
        let has_tables = |region: &RegionBox| region.space.has_tables();
        if !call.row.is_write() || !self.regions().iter().any(has_tables) {
            return None;
        }
        let mut lacks = false;
        call.row.each_key(call.db, args, &mut |db, key| {
            let Some(region) = self.region_of(key) else {
                return;
            };
            if !region.space.names_row(db, key) {
                return;
            }
            let desk = region.member.as_deref().and_then(|it| it.desk.as_deref());
            if let (Some(desk), Some(rows)) = (desk, region.space.table_rows()) {
                lacks |=
                    !desk.leader.has_room(rows) && needs_room(&region.space, call.row, db, args);
            }
        });
        lacks.then(full_refusal)
    }
}

/// The rows that a command names.
fn each_row(
    space: &Keyspace,
    row: &Command,
    db: DbIndex,
    args: &Args<'_>,
    mut each: impl FnMut(RowId),
) {
    row.each_key(db, args, &mut |db, key| {
        if let Some(Ok(found)) = space.row_of(db, key) {
            each(found.id);
        }
    });
}

/// Whether a command may make its row larger. A row that is not cached is for who brings it.
fn needs_room(space: &Keyspace, row: &Command, db: DbIndex, args: &Args<'_>) -> bool {
    let values_of = match row.row_growth {
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

fn full_refusal() -> Refusal {
    Refusal::new(
        "TRYAGAIN the cache of tables is full and SQL does not have what could go; see ROW.TABLE STATUS, or raise table-cache-hard-bytes",
    )
}

/// What a client is told whose row cannot be had.
pub(super) fn refusal_of(failure: Failure) -> Refusal {
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
