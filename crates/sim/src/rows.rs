//! SQL rows of a simulated node: requests of its write-backs leave for the database, and the checkers are
//! told what is cached.

use std::collections::BTreeMap;

use node::Said;
use table::RowId;
use table::entry::{Entry, Flushed};
use table::leader::Action;

use crate::bugs::Bug;
use crate::check::written::Cached;
use crate::database::{Ask, contents_of};
use crate::effects::{Effects, Fact};
use crate::machine::Node;
use crate::mail::Mail;

impl Node {
    /// A request of a region's write-back leaves for the database.
    pub(crate) fn ask_sql(&mut self, request: node::RowsRequest, out: &mut Effects) {
        let region = request.place as u64;
        let write_back = request.write_back;
        match request.action {
            Action::Load {
                number,
                table,
                keys,
            } => {
                let ask = Ask::Load(table, keys);
                out.statements.push((region, write_back, number, ask));
            }
            Action::Flush {
                number,
                table,
                rows,
            } => {
                if self.bug == Bug::KickDirty && self.rng.u32(..8) == 0 {
                    let id = |row: &table::leader::Flush| RowId {
                        table: table.id,
                        key: row.key.clone(),
                    };
                    let kicks = rows.iter().map(|row| (id(row), row.version));
                    let kicks = Entry::Kick(kicks.collect());
                    let flushed = rows.iter().map(|row| Flushed {
                        id: id(row),
                        version: row.version.unsigned_abs(),
                        taken: 0,
                    });
                    let flushed = Entry::Flushed(flushed.collect());
                    let region = self.regions.region_mut(region);
                    if let Some(write_back) = region.and_then(|it| it.write_back_mut()) {
                        write_back.propose(flushed);
                        write_back.propose(kicks);
                    }
                    return;
                }
                let ask = Ask::Flush(table, rows);
                out.statements.push((region, write_back, number, ask));
            }
            Action::Propose(_) | Action::Done { .. } => {}
        }
    }

    /// The database has answered, or has not in time.
    pub fn on_sql(
        &mut self,
        (region, write_back, number): (u64, u64, u64),
        said: Said,
        true_us: u64,
        out: &mut Effects,
    ) {
        let unheard = self.on_region(region, true_us, out, |owned, cx, asked| {
            let whose = (region as usize, write_back, number);
            owned.on_sql(whose, said, cx, asked)
        });
        // It is lent: it hears of it when it comes back.
        let unheard = unheard.map(|said| ((region, write_back, number), said));
        self.regions.unheard.extend(unheard);
    }

    /// Tells the checkers what became of SQL rows.
    pub(crate) fn tell_rows(&mut self, out: &mut Effects) {
        let regions = &mut self.regions;
        let home = regions.owned.iter_mut().flat_map(|owned| owned.present());
        let home: Vec<usize> = home.map(|region| region.id).collect();
        let home = home.iter().filter_map(|&place| {
            let mut cores = regions.owned.iter();
            cores.find_map(|owned| owned.region(place))
        });
        let lent = regions.owned.iter().flat_map(|owned| owned.held());
        let sent = regions.mail.iter().flatten().flat_map(Mail::regions);
        for region in home.chain(lent).chain(sent) {
            let Some(member) = region.member.as_deref() else {
                continue;
            };
            if member.peers.as_ref().is_some_and(|it| it.is_installing) {
                continue; // there is no state to speak of
            }
            let (id, replica) = (region.id as u64, member.replica.id());
            let now: BTreeMap<RowId, Cached> = all_cached(&region.space).into_iter().collect();
            let before = regions.cached.entry(id).or_default();
            let gone = before.keys().filter(|id| !now.contains_key(id)).cloned();
            let gone: Vec<RowId> = gone.collect();
            let changed = now.iter().filter(|(id, it)| before.get(id) != Some(it));
            let changed = changed.map(|(id, it)| (id.clone(), Some(it.clone())));
            let gone = gone.into_iter().map(|id| (id, None));
            let facts = changed.chain(gone).map(|(row, cached)| Fact::Row {
                region: id,
                replica,
                id: row,
                cached,
            });
            out.facts.extend(facts);
            *before = now;
        }
    }

    /// A replica begins, or begins anew, with these SQL rows.
    pub fn tell_all_rows(&mut self, region: u64, out: &mut Effects) {
        let Some(at) = self.regions.region(region) else {
            return;
        };
        let rows = all_cached(&at.space);
        let member = at.member.as_deref();
        let replica = member.map_or(0, |member| member.replica.id());
        let known = rows.iter().cloned().collect();
        self.regions.cached.insert(region, known);
        out.facts.push(Fact::Rows { replica, rows });
    }

    /// All SQL rows that a region caches here.
    pub fn all_cached(&self, region: u64) -> Vec<(RowId, Cached)> {
        let region = self.regions.region(region);
        region.map_or_else(Vec::new, |region| all_cached(&region.space))
    }

    /// Whether SQL has everything, as far as this replica knows.
    pub fn is_drained(&self, region: u64) -> bool {
        let region = self.regions.region(region);
        let rows = region.and_then(|region| region.space.table_rows());
        rows.is_none_or(|rows| rows.dirty_count() == 0 && rows.dead_count() == 0)
    }
}

/// All SQL rows of a keyspace.
fn all_cached(space: &keyspace::Keyspace) -> Vec<(RowId, Cached)> {
    let Some(rows) = space.table_rows() else {
        return Vec::new();
    };
    let one = |id: RowId| {
        let (row, table) = (rows.get(&id)?, rows.table(id.table)?);
        let cached = Cached {
            version: row.image.version,
            contents: contents_of(table, &row.image),
            sql: row.sql,
            dead: row.dead.as_ref().map(|dead| dead.why.to_string()),
        };
        Some((id, cached))
    };
    let tables = rows.tables().map(|table| table.id);
    let ids = tables.flat_map(|table| rows.ids_of(table));
    ids.filter_map(one).collect()
}
