//! The leader's desk: what the leader of a region does about its rows of tables, between log and SQL.
//!
//! ```text
//!   entries applied ─┐                          ┌─► proposals ─► the region's next entry (`durable::compose`)
//!   words of SQL ────┼─► tend: table::Leader ───┼─► Load, Flush ─► `Sql`, whose word comes back as a message
//!   time ────────────┘                          └─► Done ─► who waits for a row, for SQL, for a drain
//! ```
//!
//! The one idea: a desk belongs to one term. It is opened when the replica leads and has applied an entry of its term, and closed with
//! everything on it when that is over; whoever waited looks again. What decides is `table::Leader`; here it meets threads.
//! A term may have several desks, one after the other (memory was put back to what the store has): what SQL says is for the one that asked.
//!
//! **Invariants.** Proposals enter the log of this term, once and in order. A batch is proposed only when every row it names is cached and no entry
//! on its way lets one go, so applying it never has to wait for SQL. Nothing is tended while memory is ahead of the log.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use table::entry::{Entry, Found};
use table::leader::{Action, End, Fault, Leader, Numbers, Read, Wrote};
use table::rows::{Applied, What};
use table::{Departing, RowId, Rows, Table};

use super::follow::Follow;
use crate::cores::{Answer, BatchBox, Core, Message, Region, RegionId};
use crate::durable::Member;

/// Bytes of proposals in one log entry, roughly; at least one proposal.
const PROPOSED_BYTES: usize = 1024 * 1024;

/// Between two looks at the desks: while rows wait for something, and else.
const BUSY: Duration = Duration::from_millis(5);
const IDLE: Duration = Duration::from_millis(100);

pub struct Desk {
    pub(super) leader: Leader,
    /// No other of this process has it: statements of each are counted from 0.
    number: u64,
    term: u64,
    follow: Follow,
    /// For the next entry of the log.
    proposals: VecDeque<Entry>,
    /// Rows that entries on their way may let go.
    pub(super) departing: Departing,
    /// Batches that name such rows.
    behind: Vec<BatchBox>,
    /// Tickets of this core that wait for a `Done`.
    pub(super) waiting: BTreeSet<u64>,
    /// Tickets that wait until something is done about a dead letter.
    pub(super) letters: Vec<(RowId, usize)>,
    out: Vec<Action>,
}

/// What the database said, on its way to the core that asked.
pub struct Word {
    region: RegionId,
    /// The one that asked.
    desk: u64,
    number: u64,
    said: Said,
}

pub enum Said {
    Loaded(Result<Vec<Read>, Fault>),
    Flushed(Result<Vec<Wrote>, Fault>),
}

/// What is to be done when the region is let go.
#[derive(Default)]
struct Todo {
    actions: Vec<Action>,
    letters: Vec<usize>,
    batches: Vec<BatchBox>,
    closed: Vec<u64>,
    /// There is something for the next entry, or what waited for it may go now.
    composes: bool,
    desk: u64,
}

impl Desk {
    fn open(core: &Core, member: &Member, rows: &Rows) -> Desk {
        let limits = super::limits(&core.shared, &core.settings());
        let (id, term) = (member.replica.id(), member.replica.term());
        Desk::new(Leader::new(limits, id, term, rows, core.now_ms()), term)
    }

    fn new(leader: Leader, term: u64) -> Desk {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        Desk {
            leader,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            term,
            follow: Follow::default(),
            proposals: VecDeque::new(),
            departing: Departing::default(),
            behind: Vec::new(),
            waiting: BTreeSet::new(),
            letters: Vec::new(),
            out: Vec::new(),
        }
    }

    pub fn has_proposals(&self) -> bool {
        !self.proposals.is_empty()
    }

    pub(super) fn propose(&mut self, entry: Entry) {
        self.proposals.push_back(entry);
    }

    /// What goes into the next entry; rows it may let go are not to be counted on any more.
    pub fn take_proposals(&mut self) -> Vec<Entry> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < PROPOSED_BYTES
            && let Some(entry) = self.proposals.pop_front()
        {
            bytes += size(&entry);
            self.departing.on_proposed(&entry);
            taken.push(entry);
        }
        taken
    }

    /// The log did not take these.
    pub fn put_back(&mut self, entries: Vec<Entry>) {
        for entry in entries.into_iter().rev() {
            self.departing.on_refused(&entry);
            self.proposals.push_front(entry);
        }
    }

    pub fn wait_behind(&mut self, batch: BatchBox) {
        self.behind.push(batch);
    }

    /// Batches that waited for rows to leave, if some may have; or if none will, because the log did not take what would have let them go.
    fn take_behind(&mut self, some_applied: bool) -> Vec<BatchBox> {
        match some_applied || self.departing.is_empty() {
            true => std::mem::take(&mut self.behind),
            false => Vec::new(),
        }
    }

    fn on_applied(&mut self, rows: &Rows, applied: &Applied, now_ms: u64) {
        let out = &mut self.out;
        self.leader.on_applied(rows, applied, now_ms, out);
        self.departing.on_applied(applied);
    }

    /// Tickets of those who waited for something to be done about these letters.
    fn take_letters(&mut self, applied: &Applied) -> Vec<usize> {
        if !matches!(applied.what, What::Retried { .. } | What::Discarded) {
            return Vec::new();
        }
        let about = |(id, _): &mut (RowId, usize)| applied.rows.contains(id);
        let done = self.letters.extract_if(.., about);
        done.map(|(_, ticket)| ticket).collect()
    }

    /// Whether time brings something soon.
    fn is_busy(&self, rows: &Rows) -> bool {
        !self.waiting.is_empty() || self.has_proposals() || rows.dirty().next().is_some()
    }
}

/// Roughly. Loaded rows have up to a megabyte each.
fn size(entry: &Entry) -> usize {
    let of_found = |(id, found): &(RowId, Found)| match found {
        Found::Row(image) => id.key.len() + image.size(),
        Found::Missing => id.key.len() + 8,
    };
    match entry {
        Entry::Loaded { rows, .. } => rows.iter().map(of_found).sum(),
        Entry::Flushed(rows) => rows.len() * 32,
        Entry::Kick(rows) => rows.len() * 32,
        _ => 256,
    }
}

/// Whether this replica may have a desk now.
fn has_office(member: &Member) -> bool {
    !member.failed && (member.peers.is_none() || member.replica.is_serving())
}

impl Region {
    /// Whether this is the leader and has not heard yet which tables there are.
    #[inline]
    pub fn is_behind(&self, catalogue_version: u64) -> bool {
        self.catalogue_seen != catalogue_version
            && self.member.as_ref().is_some_and(|member| {
                !member.failed && (member.peers.is_none() || member.replica.is_leader())
            })
    }

    /// The desk of the term that is now.
    pub(crate) fn desk_mut(&mut self) -> Option<&mut Desk> {
        let member = self.member.as_deref_mut()?;
        let term = member.replica.term();
        member.desk.as_deref_mut().filter(|desk| desk.term == term)
    }

    /// Numbers of a region that has a desk.
    pub(crate) fn table_numbers(&mut self, now_ms: u64) -> Option<Numbers> {
        let desk = self.member.as_mut()?.desk.as_deref_mut()?;
        let rows = self.space.table_rows()?;
        Some(desk.leader.numbers(rows, now_ms))
    }
}

impl Core {
    /// Looks after the rows of a region: after entries were applied, the database has spoken, time has passed.
    pub(crate) fn tend(self: &Rc<Self>, id: RegionId) {
        if self.has_no_tables() {
            return;
        }
        let todo = match self.home.borrow_mut().region_mut(id) {
            Some(region) if self.shared.catalogue_version() == 0 && !region.space.has_tables() => {
                return;
            }
            Some(region) => self.tend_region(region),
            None => return,
        };
        self.carry_out(id, todo);
    }

    fn tend_region(&self, region: &mut Region) -> Todo {
        let mut todo = Todo::default();
        let Some(member) = region.member.as_deref_mut() else {
            return todo;
        };
        let is_over = |desk: &Desk| !has_office(member) || desk.term != member.replica.term();
        if member.desk.as_deref().is_some_and(is_over) {
            if let Some(desk) = member.desk.take() {
                todo.close(*desk);
            }
            region.space.note_applied(false);
            region.catalogue_seen = 0;
        }
        if !has_office(member) || member.ahead.is_some() {
            return todo;
        }
        if region.space.tables_in_quarantine().is_some() {
            // Commands on rows are told so; the others need not wait for schemas.
            region.catalogue_seen = self.shared.catalogue_version();
            return todo;
        }
        let now_ms = self.now_ms();
        if member.desk.is_none() {
            region.space.note_applied(true);
            if let Some(rows) = region.space.table_rows() {
                member.desk = Some(Box::new(Desk::open(self, member, rows)));
            }
        }
        let applied = region.space.take_applied();
        let (Some(desk), Some(rows)) = (member.desk.as_deref_mut(), region.space.table_rows())
        else {
            return todo;
        };
        for applied in &applied {
            desk.on_applied(rows, applied, now_ms);
            todo.letters.append(&mut desk.take_letters(applied));
        }
        let catalogue = self.shared.catalogue.load();
        if region.catalogue_seen != catalogue.version {
            let proposals = &mut desk.proposals;
            let propose = |entry| proposals.push_back(entry);
            if desk.follow.follow(&catalogue, rows, propose) {
                region.catalogue_seen = catalogue.version;
                todo.composes = true; // commands wait for this
            }
        }
        let out = &mut desk.out;
        desk.leader.turn(rows, now_ms, out);
        todo.desk = desk.number;
        todo.actions = desk.sort_actions();
        todo.batches = desk.take_behind(!applied.is_empty());
        todo.composes |= desk.has_proposals();
        todo
    }

    fn carry_out(self: &Rc<Self>, id: RegionId, todo: Todo) {
        let lost = || Answer::Table(None);
        for ticket in todo.closed {
            let _ = self.tickets().deliver(ticket as usize, lost());
        }
        for ticket in todo.letters {
            let _ = self
                .tickets()
                .deliver(ticket, Answer::Table(Some(End::Ready)));
        }
        for action in todo.actions {
            self.act(id, todo.desk, action);
        }
        if todo.composes {
            let mut turns = self.turns.borrow_mut();
            if !turns.contains(&id) {
                turns.push(id);
            }
            drop(turns);
            self.wake_composer();
        }
        for batch in todo.batches {
            self.enqueue(batch);
        }
    }

    fn act(self: &Rc<Self>, region: RegionId, desk: u64, action: Action) {
        let (core, shared) = (self.id, self.shared.clone());
        let tell = move |number, said| {
            if let Some(mailbox) = shared.mailboxes.get(core) {
                mailbox.send(Message::Table(Box::new(Word {
                    region,
                    desk,
                    number,
                    said,
                })));
            }
        };
        match action {
            Action::Propose(_) => {}
            Action::Load {
                number,
                table,
                keys,
            } => {
                let done = move |result| tell(number, Said::Loaded(result));
                self.shared.sql.load(table, keys, Box::new(done));
            }
            Action::Flush {
                number,
                table,
                rows,
            } => {
                let done = move |result| tell(number, Said::Flushed(result));
                let known = self.shared.clone();
                let is_meant = move |table: &Table| !known.catalogue.load().has_dropped(table);
                let sql = &self.shared.sql;
                sql.flush(table, rows, Box::new(is_meant), Box::new(done));
            }
            Action::Done { ticket, end } => {
                let answer = Answer::Table(Some(end));
                let _ = self.tickets().deliver(ticket as usize, answer);
            }
        }
    }

    /// The database has spoken.
    pub(crate) fn on_word(self: &Rc<Self>, word: Word) {
        self.begin_batch();
        let id = word.region;
        {
            let mut home = self.home.borrow_mut();
            if home.region_mut(id).is_none() {
                if home.is_used(id) {
                    self.words.borrow_mut().push(word); // lent: when it is back
                }
                return;
            }
            let Some(region) = home.region_mut(id) else {
                return;
            };
            let rows = region.space.table_rows();
            let member = region.member.as_deref_mut();
            let desk = member.and_then(|member| member.desk.as_deref_mut());
            let (Some(desk), Some(rows)) = (desk, rows) else {
                return;
            };
            if desk.number != word.desk {
                return; // asked by one that is closed
            }
            let (now_ms, out) = (self.now_ms(), &mut desk.out);
            let leader = &mut desk.leader;
            match word.said {
                Said::Loaded(result) => leader.on_loaded(rows, word.number, result, now_ms, out),
                Said::Flushed(result) => leader.on_flushed(rows, word.number, result, now_ms, out),
            }
        }
        self.tend(id);
    }

    /// What the database said while regions were lent. Those of a region that still is are kept again, so the list
    /// must be free while they are handled.
    pub(crate) fn hear_words(self: &Rc<Self>) {
        let words = std::mem::take(&mut *self.words.borrow_mut());
        for word in words {
            self.on_word(word);
        }
    }

    /// A node of a cluster may not have heard of tables that its regions have.
    fn has_no_tables(&self) -> bool {
        self.shared.catalogue_version() == 0 && self.shared.cluster.is_none()
    }

    /// Tends every region of this core; whether time will bring something soon.
    pub(crate) fn tend_home(self: &Rc<Self>) -> bool {
        if self.has_no_tables() {
            return false;
        }
        self.hear_words();
        let places: Vec<RegionId> = self.home.borrow().places().collect();
        let mut is_busy = false;
        for id in places {
            self.tend(id);
            let mut home = self.home.borrow_mut();
            let Some(region) = home.region_mut(id) else {
                continue;
            };
            let member = region.member.as_deref();
            let desk = member.and_then(|member| member.desk.as_deref());
            if let (Some(desk), Some(rows)) = (desk, region.space.table_rows()) {
                is_busy |= desk.is_busy(rows);
            }
        }
        is_busy
    }

    /// The task that lets time pass for desks.
    pub(crate) async fn run_tables(self: Rc<Self>) {
        while !self.is_stopping() {
            self.begin_batch();
            let pause = match self.tend_home() {
                true => BUSY,
                false => IDLE,
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// The region was taken away, or memory was put back to what the store has: whoever waits looks again.
    pub(crate) fn close_desk(self: &Rc<Self>, region: &mut Region) {
        let member = region.member.as_deref_mut();
        if let Some(desk) = member.and_then(|member| member.desk.take()) {
            let mut todo = Todo::default();
            todo.close(*desk);
            region.catalogue_seen = 0;
            region.space.note_applied(false);
            for ticket in todo.closed {
                let _ = self.tickets().deliver(ticket as usize, Answer::Table(None));
            }
            let core = self.clone();
            tokio::task::spawn_local(async move {
                for batch in todo.batches {
                    core.enqueue(batch);
                }
            });
        }
    }
}

impl Desk {
    /// Proposals stay here; the rest is for others.
    fn sort_actions(&mut self) -> Vec<Action> {
        let mut rest = Vec::new();
        for action in self.out.drain(..) {
            match action {
                Action::Propose(entry) => self.proposals.push_back(entry),
                Action::Done { ticket, end } => {
                    self.waiting.remove(&ticket);
                    rest.push(Action::Done { ticket, end });
                }
                other => rest.push(other),
            }
        }
        rest
    }
}

impl Todo {
    fn close(&mut self, desk: Desk) {
        self.closed.extend(desk.waiting);
        let letters = desk.letters.into_iter();
        self.closed.extend(letters.map(|(_, ticket)| ticket as u64));
        self.batches.extend(desk.behind);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use table::leader::Limits;
    use table::{Delta, Image, Value};

    use super::*;
    use crate::clients::Client;
    use crate::cores::Batch;

    #[test]
    fn a_log_entry_takes_large_rows_a_few_at_a_time() {
        let leader = Leader::new(Limits::default(), 1, 1, &Rows::new(), 0);
        let mut desk = Desk::new(leader, 1);
        let mut change = Delta::new(1);
        change.set(1, Value::Text("x".repeat(300_000).into()));
        let mut image = Image::default();
        image.apply(change);
        for n in 0..100 {
            let rows = vec![(RowId::new(1, &n.to_string()), Found::Row(image.clone()))];
            desk.propose(Entry::Loaded { term: 1, rows });
        }
        let taken = desk.take_proposals();
        let bytes: usize = taken.iter().map(|entry| entry.encode().len()).sum();
        assert!(bytes < 2 * PROPOSED_BYTES, "{bytes}");
        desk.put_back(taken);
        let mut rest = 100;
        while desk.has_proposals() {
            rest -= desk.take_proposals().len();
        }
        assert_eq!(rest, 0);
    }

    #[test]
    fn who_waits_behind_a_kick_goes_on_when_the_log_does_not_take_it() {
        let leader = Leader::new(Limits::default(), 1, 1, &Rows::new(), 0);
        let mut desk = Desk::new(leader, 1);
        let id = RowId::new(1, "alice");
        desk.departing.note(&id);
        let client = Arc::new(Client::new(1, String::new(), String::new(), 0, 0));
        desk.wait_behind(Batch::new(0, 0, client));
        assert!(desk.take_behind(false).is_empty(), "it is on its way");
        desk.departing.forget(&id); // refused: nothing will be applied
        assert_eq!(desk.take_behind(false).len(), 1);
    }
}
