//! The leader's desk of tables: stands for `server::tables::{desk, needs}`, over the same `table::Leader`.
//!
//! Where the server has batches and tasks that wait, there are requests here that lie on the desk until their rows are cached. All
//! else is as there: one desk per term, proposals in order and once, a write goes into the log only when its rows are
//! cached and no entry on its way lets one go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use table::entry::{Entry, Flushed, RowId};
use table::leader::{Action, End, Leader, Limits};
use table::rows::Applied;
use table::{Departing, Rows, Table};

use super::{Around, Fact, Member};
use crate::bugs::Bug;
use crate::check::written::Cached;
use crate::client::{Answer, Request, Words};
use crate::database::{Ask, Said, contents_of};

/// How long a row may take to come.
const LOAD_MS: u64 = 1_200;
/// Proposals of one entry.
const PROPOSALS: usize = 8;

/// What a node knows of tables.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// There are tables in this run.
    pub is_used: bool,
    pub version: u64,
    pub tables: Vec<Table>,
    pub limits: Limits,
}

pub struct TableDesk {
    leader: Leader,
    term: u64,
    /// The catalogue whose schemas were proposed.
    catalogue: u64,
    proposals: VecDeque<Entry>,
    /// Rows that entries on their way may let go.
    departing: Departing,
    /// Requests that name such rows.
    behind: Vec<Request>,
    /// Who waits for rows, by the ticket of each.
    tickets: BTreeMap<u64, u64>,
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    out: Vec<Action>,
}

struct Waiting {
    request: Request,
    tickets: BTreeSet<u64>,
    has_failed: bool,
}

impl TableDesk {
    fn open(limits: Limits, me: u64, term: u64, rows: &Rows, now_ms: u64) -> TableDesk {
        TableDesk {
            leader: Leader::new(limits, me, term, rows, now_ms),
            term,
            catalogue: 0,
            proposals: VecDeque::new(),
            departing: Departing::default(),
            behind: Vec::new(),
            tickets: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            out: Vec::new(),
        }
    }

    pub(super) fn take_proposals(&mut self) -> Vec<Entry> {
        let count = self.proposals.len().min(PROPOSALS);
        let taken: Vec<Entry> = self.proposals.drain(..count).collect();
        for entry in &taken {
            self.departing.on_proposed(entry);
        }
        taken
    }

    pub(super) fn put_back(&mut self, entries: Vec<Entry>) {
        for entry in entries.into_iter().rev() {
            self.departing.on_refused(&entry);
            self.proposals.push_front(entry);
        }
    }

    fn on_applied(&mut self, rows: &Rows, applied: &Applied, now_ms: u64) {
        let out = &mut self.out;
        self.leader.on_applied(rows, applied, now_ms, out);
        self.departing.on_applied(applied);
    }

    /// Proposes what the region does not know of the catalogue; whether it knows all of it.
    fn follow(&mut self, catalogue: &Catalogue, rows: &Rows) -> bool {
        let known = |table: &&Table| {
            let known = rows.table(table.id);
            known.is_some_and(|known| known.epoch >= table.epoch)
        };
        let behind = catalogue.tables.iter().filter(|table| !known(table));
        let behind: Vec<Entry> = behind.cloned().map(Entry::Schema).collect();
        let follows = behind.is_empty();
        if self.catalogue != catalogue.version {
            self.catalogue = catalogue.version;
            self.proposals.extend(behind);
        }
        follows
    }

    /// Requests that waited for this ticket alone, and whether their rows can be had.
    fn on_done(&mut self, ticket: u64, end: &End) -> Option<(Request, bool)> {
        let group = self.tickets.remove(&ticket)?;
        let waiting = self.waiting.get_mut(&group)?;
        waiting.tickets.remove(&ticket);
        waiting.has_failed |= matches!(end, End::Failed(_));
        if !waiting.tickets.is_empty() {
            return None;
        }
        let waiting = self.waiting.remove(&group)?;
        Some((waiting.request, waiting.has_failed))
    }
}

fn is_kick(words: &Words) -> bool {
    words.first().is_some_and(|word| word == b"ROW.KICK")
}

/// Whether a command may make a row larger.
fn grows(words: &Words) -> bool {
    let small: [&[u8]; 4] = [b"DEL", b"HINCRBY", b"ROW.DEL", b"ROW.INCRBY"];
    words.first().is_some_and(|word| !small.contains(&&**word))
}

impl Member {
    /// Whether this is the leader and has not heard yet which tables there are.
    pub(super) fn is_behind(&self, around: &Around<'_>) -> bool {
        self.catalogue_seen != around.catalogue.version && self.replica.is_leader()
    }

    /// Whether the tables this node has heard of are all in the region's log, as far as it was applied.
    pub(super) fn knows_tables(&self, around: &Around<'_>) -> bool {
        let rows = self.space.table_rows();
        let knows = |table: &Table| {
            let known = rows.and_then(|rows| rows.table(table.id));
            known.is_some_and(|known| known.epoch >= table.epoch)
        };
        around.catalogue.tables.iter().all(knows)
    }

    /// The desk of the term that is now.
    pub(super) fn desk_mut(&mut self, bug: Bug) -> Option<&mut TableDesk> {
        let term = self.replica.term();
        let is_it = |desk: &&mut TableDesk| desk.term == term || bug == Bug::KeepDesk;
        self.desk.as_deref_mut().filter(is_it)
    }

    pub(super) fn has_proposals(&mut self, bug: Bug) -> bool {
        let desk = self.desk_mut(bug);
        desk.is_some_and(|desk| !desk.proposals.is_empty())
    }

    /// Looks after the rows: after entries were applied, the database has spoken, time has passed.
    pub fn tend(&mut self, around: &mut Around<'_>) {
        if !around.catalogue.is_used {
            return;
        }
        let (term, in_office) = (self.replica.term(), self.replica.is_serving());
        let is_over = |desk: &TableDesk| !in_office || desk.term != term;
        if self.desk.as_deref().is_some_and(is_over) && around.bug != Bug::KeepDesk {
            self.close_desk(around);
        }
        if !in_office {
            self.applied.clear();
            return;
        }
        let now_ms = around.wall_ms;
        let applied = std::mem::take(&mut self.applied);
        if let Some(rows) = self.space.table_rows()
            && self.desk.is_none()
        {
            let limits = around.catalogue.limits.clone();
            let desk = TableDesk::open(limits, self.replica.id(), term, rows, now_ms);
            self.desk = Some(Box::new(desk));
        } else if let (Some(desk), Some(rows)) = (&mut self.desk, self.space.table_rows()) {
            for applied in &applied {
                desk.on_applied(rows, applied, now_ms);
            }
        }
        let (Some(desk), Some(rows)) = (&mut self.desk, self.space.table_rows()) else {
            return;
        };
        let catalogue = Rc::clone(&around.catalogue);
        if self.catalogue_seen != catalogue.version && desk.follow(&catalogue, rows) {
            self.catalogue_seen = catalogue.version;
        }
        desk.leader.turn(rows, now_ms, &mut desk.out);
        if !applied.is_empty() || desk.departing.is_empty() {
            self.turn.append(&mut desk.behind);
        }
        self.act(around);
    }

    /// Proposals stay; the rest is for others.
    fn act(&mut self, around: &mut Around<'_>) {
        let Some(desk) = &mut self.desk else {
            return;
        };
        let (term, region) = (desk.term, self.region);
        let mut done = Vec::new();
        for action in std::mem::take(&mut desk.out) {
            match action {
                Action::Propose(entry) => desk.proposals.push_back(entry),
                Action::Load {
                    number,
                    table,
                    keys,
                } => {
                    let ask = Ask::Load(table, keys);
                    around.out.statements.push((region, term, number, ask));
                }
                Action::Flush {
                    number,
                    table,
                    rows,
                } => {
                    if around.bug == Bug::KickDirty && around.rng.u32(..8) == 0 {
                        let id = |row: &table::leader::Flush| RowId {
                            table: table.id,
                            key: row.key.clone(),
                        };
                        let kicks = rows.iter().map(|row| (id(row), row.version));
                        let kicks = Entry::Kick(kicks.collect());
                        let flushed = rows.iter().map(|row| Flushed {
                            id: id(row),
                            version: row.version.unsigned_abs(),
                            taken: around.wall_ms,
                        });
                        desk.proposals.push_back(Entry::Flushed(flushed.collect()));
                        desk.proposals.push_back(kicks);
                        continue;
                    }
                    let ask = Ask::Flush(table, rows);
                    around.out.statements.push((region, term, number, ask));
                }
                Action::Done { ticket, end } => done.extend(desk.on_done(ticket, &end)),
            }
        }
        for (request, has_failed) in done {
            match (has_failed, request.is_read) {
                (true, _) => around.out.answers.push((request, Answer::Refused)),
                (false, true) => self.on_read(request, around),
                (false, false) => self.turn.push(request),
            }
        }
    }

    /// The database has spoken, or has not in time.
    pub fn on_word(&mut self, term: u64, number: u64, said: Said, around: &mut Around<'_>) {
        let is_it = |desk: &&mut Box<TableDesk>| desk.term == term;
        let desk = self.desk.as_mut().filter(is_it);
        if let (Some(desk), Some(rows)) = (desk, self.space.table_rows()) {
            let (now_ms, out) = (around.wall_ms, &mut desk.out);
            let leader = &mut desk.leader;
            match said {
                Said::Loaded(result) => leader.on_loaded(rows, number, result, now_ms, out),
                Said::Flushed(result) => leader.on_flushed(rows, number, result, now_ms, out),
            }
            self.drive(around);
        }
    }

    /// The office is over: whoever waits looks again, and is sent away.
    pub(super) fn close_desk(&mut self, around: &mut Around<'_>) {
        self.catalogue_seen = 0;
        let Some(desk) = self.desk.take() else {
            return;
        };
        let waiting = desk.waiting.into_values().map(|it| it.request);
        for request in desk.behind.into_iter().chain(waiting) {
            let answer = Answer::Moved(self.replica.leader());
            around.out.answers.push((request, answer));
        }
    }

    /// The rows that a command names.
    fn row_of(&self, words: &Words) -> Option<RowId> {
        let row = self.space.row_of(0, words.get(1)?)?;
        row.ok().map(|row| row.id)
    }

    /// Of requests for the next entry, those that may go; the others wait.
    pub(super) fn only_ready(
        &mut self,
        requests: Vec<Request>,
        around: &mut Around<'_>,
    ) -> Vec<Request> {
        let mut ready = Vec::new();
        for request in requests {
            let Some(rows) = self.space.table_rows() else {
                ready.push(request);
                continue;
            };
            let Some(desk) = self.desk.as_deref() else {
                ready.push(request);
                continue;
            };
            let has_room = desk.leader.has_room(rows);
            let (mut cold, mut is_departing, mut is_full) = (Vec::new(), false, false);
            for words in request.commands.iter().filter(|words| !is_kick(words)) {
                let Some(id) = self.row_of(words) else {
                    continue;
                };
                is_departing |= desk.departing.contains(&id);
                is_full |= !has_room && grows(words);
                if rows.get(&id).is_none() {
                    cold.push(id);
                }
            }
            if is_full {
                around.out.answers.push((request, Answer::Refused));
            } else if is_departing {
                if let Some(desk) = &mut self.desk {
                    desk.behind.push(request);
                }
            } else if cold.is_empty() {
                self.note_kicks(&request, Departing::note, around.bug);
                ready.push(request);
            } else {
                self.wait_for_rows(request, &cold, around);
            }
        }
        ready
    }

    /// Rows that clients let go with this request; or not, for the log did not take it.
    fn note_kicks(&mut self, request: &Request, note: fn(&mut Departing, &RowId), bug: Bug) {
        let kicks = request.commands.iter().filter(|words| is_kick(words));
        let kicks: Vec<RowId> = kicks.filter_map(|words| self.row_of(words)).collect();
        if let Some(desk) = self.desk_mut(bug) {
            kicks.iter().for_each(|id| note(&mut desk.departing, id));
        }
    }

    pub(super) fn forget_kicks(&mut self, request: &Request, bug: Bug) {
        self.note_kicks(request, Departing::forget, bug);
    }

    /// The request goes on when these rows are cached.
    pub(super) fn wait_for_rows(
        &mut self,
        request: Request,
        ids: &[RowId],
        around: &mut Around<'_>,
    ) {
        let now_ms = around.wall_ms;
        let leader = self.replica.leader();
        let (Some(desk), Some(rows)) = (&mut self.desk, self.space.table_rows()) else {
            // Only a leader brings rows.
            around.out.answers.push((request, Answer::Moved(leader)));
            return;
        };
        desk.next += 1;
        let group = desk.next;
        let mut waiting = Waiting {
            request,
            tickets: BTreeSet::new(),
            has_failed: false,
        };
        for id in ids {
            if rows.get(id).is_some() {
                continue;
            }
            desk.next += 1;
            let ticket = desk.next;
            let deadline = now_ms + LOAD_MS;
            match desk.leader.want(rows, id, ticket, deadline, now_ms) {
                Ok(()) => {
                    waiting.tickets.insert(ticket);
                    desk.tickets.insert(ticket, group);
                }
                Err(_) => waiting.has_failed = true,
            }
        }
        if !waiting.tickets.is_empty() {
            desk.waiting.insert(group, waiting);
        } else {
            // The database is down, the cache full; or they have come meanwhile, and it asks again.
            around.out.answers.push((waiting.request, Answer::Refused));
        }
    }

    /// Tells the checkers what became of rows, and keeps it for the desk.
    pub(super) fn tell_rows(&mut self, around: &mut Around<'_>) {
        let applied = self.space.take_applied();
        let changed = self.space.table_rows().into_iter();
        let changed = changed.flat_map(|rows| rows.unsaved());
        let about = applied.iter().flat_map(|it| &it.rows);
        let mut ids: Vec<&RowId> = about.chain(changed).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let (region, replica) = (self.region, self.id());
            around.out.facts.push(Fact::Row {
                region,
                replica,
                id: id.clone(),
                cached: self.cached(id),
            });
        }
        self.applied.extend(applied);
    }

    /// A replica begins, or begins anew.
    pub(super) fn tell_all_rows(&self, around: &mut Around<'_>) {
        around.out.facts.push(Fact::Rows {
            replica: self.id(),
            rows: self.all_cached(),
        });
    }

    /// What this replica holds of a row.
    pub fn cached(&self, id: &RowId) -> Option<Cached> {
        let rows = self.space.table_rows()?;
        let (row, table) = (rows.get(id)?, rows.table(id.table)?);
        Some(Cached {
            version: row.image.version,
            contents: contents_of(table, &row.image),
            sql: row.sql,
            dead: row.dead.as_ref().map(|dead| dead.why.to_string()),
        })
    }

    /// All rows that are cached here.
    pub fn all_cached(&self) -> Vec<(RowId, Cached)> {
        let Some(rows) = self.space.table_rows() else {
            return Vec::new();
        };
        let tables = rows.tables().map(|table| table.id);
        let ids = tables.flat_map(|table| rows.ids_of(table));
        let one = |id: RowId| Some((id.clone(), self.cached(&id)?));
        ids.filter_map(one).collect()
    }

    /// Whether SQL has everything, as far as this replica knows.
    pub fn is_drained(&self) -> bool {
        let rows = self.space.table_rows();
        rows.is_none_or(|rows| rows.dirty_count() == 0 && rows.dead_count() == 0)
    }
}
