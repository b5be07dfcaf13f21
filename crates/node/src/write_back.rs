//! What the leader of a region does about its SQL rows, between log and SQL: it loads rows that commands
//! need, writes changes back, and lets rows go.
//!
//! ```text
//!   entries applied ─┐                          ┌─► proposals ─► the region's next entry (`order.rs`)
//!   answers of SQL ──┼─► advance: table::Leader ───┼─► Load, Flush ─► SQL, whose answer comes back
//!   time ────────────┘                          └─► Done ─► who waits for a row, for SQL, for a drain
//! ```
//!
//! The one idea: a write-back belongs to one term. It is opened when the replica leads and has applied an
//! entry of its term, and closed with everything in it when that is over; whoever waited looks again. What
//! decides is `table::Leader`. A term may have several, one after the other (memory was put back to what
//! the store has): an answer of SQL is for the one that asked.
//!
//! **Invariants.** Proposals enter the log of this term, once and in order. A batch is proposed only when
//! every row it names is cached and no entry on its way lets one go, so applying it never has to wait for
//! SQL. Nothing is tended while memory is ahead of the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Refusal;
use table::entry::{Entry, Found};
use table::leader::{Action, End, Failure, Fault, Leader, Numbers, Read, Wrote};
use table::rows::{Applied, What};
use table::{Departing, RowId, Rows};

use crate::effects::{Effects, RowsRequest};
use crate::follow::Follow;
use crate::row_needs::refusal_of;
use crate::{BatchBox, Catalogue, Context, Member, Outcome, OwnedRegions, Place, Region, Unserved};

/// Bytes of proposals in one log entry, roughly; at least one proposal.
const PROPOSED_BYTES: usize = 1024 * 1024;
/// Tickets of batches that wait here; those of the host's tasks are smaller.
const OWN_TICKETS: u64 = 1 << 63;

pub struct WriteBack {
    pub leader: Leader,
    /// No other of this region has it: statements of each are counted from 0.
    pub number: u64,
    pub(crate) term: u64,
    follow: Follow,
    /// For the next entry of the log.
    proposals: VecDeque<Entry>,
    /// Rows that entries on their way may let go.
    pub(crate) departing: Departing,
    /// Batches that name such rows.
    behind: Vec<BatchBox>,
    /// Batches that wait until rows are cached.
    loading: Vec<Loading>,
    /// Tickets of the host, each with how many rows it still waits for.
    row_requests: BTreeMap<u64, RowRequest>,
    last_ticket: u64,
    /// Tickets of the host's tasks that wait for a `Done`.
    pub waiting: BTreeSet<u64>,
    /// Tickets of the host's tasks that wait until something is done about a dead letter.
    pub letters: Vec<(RowId, usize)>,
    out: Vec<Action>,
}

/// A ticket of the host that waits for several rows.
#[derive(Default)]
struct RowRequest {
    rows: BTreeSet<u64>,
    failure: Option<Failure>,
}

/// A batch that waits for rows: the ticket of each, and those that cannot be had.
struct Loading {
    batch: BatchBox,
    rows: Vec<(u64, RowId)>,
    failed: Vec<(RowId, Refusal)>,
}

/// What became of a request for SQL rows.
pub enum Wanted {
    /// The ticket is answered when all of them are cached, or one cannot be had.
    Waits,
    Cached,
    Failed(Failure),
    /// Only a leader loads rows.
    NotLeader,
}

/// An answer of SQL.
pub enum Said {
    Loaded(Result<Vec<Read>, Fault>),
    Flushed(Result<Vec<Wrote>, Fault>),
}

impl WriteBack {
    fn open(member: &Member, rows: &Rows, cx: &Context<'_>) -> WriteBack {
        let (id, term) = (member.replica.id(), member.replica.term());
        let limits = cx.host.table_limits();
        let leader = Leader::new(limits, id, term, rows, cx.now_ms);
        WriteBack::new(leader, term, cx.seed())
    }

    fn new(leader: Leader, term: u64, number: u64) -> WriteBack {
        WriteBack {
            leader,
            number,
            term,
            follow: Follow::default(),
            proposals: VecDeque::new(),
            departing: Departing::default(),
            behind: Vec::new(),
            loading: Vec::new(),
            row_requests: BTreeMap::new(),
            last_ticket: OWN_TICKETS,
            waiting: BTreeSet::new(),
            letters: Vec::new(),
            out: Vec::new(),
        }
    }

    pub fn has_proposals(&self) -> bool {
        !self.proposals.is_empty()
    }

    pub fn propose(&mut self, entry: Entry) {
        self.proposals.push_back(entry);
    }

    /// What goes into the next entry; rows it may let go are not to be counted on any more.
    pub(crate) fn take_proposals(&mut self) -> Vec<Entry> {
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
    pub(crate) fn put_back(&mut self, entries: Vec<Entry>) {
        for entry in entries.into_iter().rev() {
            self.departing.on_refused(&entry);
            self.proposals.push_front(entry);
        }
    }

    pub(crate) fn wait_for_table(&mut self, batch: BatchBox) {
        self.behind.push(batch);
    }

    /// The batch goes on when these rows are cached, or cannot be had.
    pub(crate) fn wait_for_rows(
        &mut self,
        batch: BatchBox,
        ids: Vec<RowId>,
        rows: &Rows,
        deadline_ms: u64,
        now_ms: u64,
    ) {
        let mut loading = Loading {
            batch,
            rows: Vec::new(),
            failed: Vec::new(),
        };
        for id in ids {
            self.last_ticket += 1;
            let ticket = self.last_ticket;
            match self.leader.want(rows, &id, ticket, deadline_ms, now_ms) {
                Ok(()) => loading.rows.push((ticket, id)),
                Err(failure) => loading.failed.push((id, refusal_of(failure))),
            }
        }
        self.loading.push(loading);
    }

    /// The ticket is answered once when all these rows are cached, or one of them cannot be had.
    fn want(
        &mut self,
        ids: &[RowId],
        ticket: u64,
        rows: &Rows,
        deadline_ms: u64,
        now_ms: u64,
    ) -> Wanted {
        let mut request = RowRequest::default();
        for id in ids {
            if rows.get(id).is_some() {
                continue;
            }
            self.last_ticket += 1;
            let own = self.last_ticket;
            match self.leader.want(rows, id, own, deadline_ms, now_ms) {
                Ok(()) => {
                    request.rows.insert(own);
                }
                Err(failure) => request.failure = Some(failure),
            }
        }
        match (request.rows.is_empty(), request.failure.take()) {
            (true, Some(failure)) => Wanted::Failed(failure),
            (true, None) => Wanted::Cached,
            (false, failure) => {
                request.failure = failure;
                self.row_requests.insert(ticket, request);
                Wanted::Waits
            }
        }
    }

    /// A row of a request has come, or cannot be had; the ticket, if that was the last.
    fn on_row_request(&mut self, own: u64, end: &End) -> Option<(u64, End)> {
        let mut row_requests = self.row_requests.iter_mut();
        let (&ticket, request) = row_requests.find(|(_, request)| request.rows.contains(&own))?;
        request.rows.remove(&own);
        if let End::Failed(failure) = end {
            request.failure = Some(failure.clone());
        }
        if !request.rows.is_empty() {
            return None;
        }
        let request = self.row_requests.remove(&ticket)?;
        let end = request.failure.map_or(End::Ready, End::Failed);
        Some((ticket, end))
    }

    /// A ticket of a batch that waits here is over.
    fn on_loaded(&mut self, ticket: u64, end: End) {
        let has_it = |it: &&mut Loading| it.rows.iter().any(|(of, _)| *of == ticket);
        let Some(loading) = self.loading.iter_mut().find(has_it) else {
            return;
        };
        let is_it = |(of, _): &mut (u64, RowId)| *of == ticket;
        for (_, id) in loading.rows.extract_if(.., is_it) {
            if let End::Failed(failure) = &end {
                loading.failed.push((id, refusal_of(failure.clone())));
            }
        }
    }

    /// Batches whose rows are cached, or cannot be had.
    fn take_loaded(&mut self) -> Vec<(BatchBox, Vec<(RowId, Refusal)>)> {
        if self.loading.is_empty() {
            return Vec::new();
        }
        let is_over = |it: &mut Loading| it.rows.is_empty();
        let over = self.loading.extract_if(.., is_over);
        over.map(|it| (it.batch, it.failed)).collect()
    }

    /// Batches that waited for rows to leave, if some may have; or if none will, because the log did not
    /// take what would have let them go.
    fn take_waiting(&mut self, some_applied: bool) -> Vec<BatchBox> {
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
    pub fn is_busy(&self, rows: &Rows) -> bool {
        !self.waiting.is_empty()
            || !self.loading.is_empty()
            || !self.row_requests.is_empty()
            || self.has_proposals()
            || rows.dirty().next().is_some()
    }

    /// Proposals stay here; the rest is for others.
    fn carry_out(&mut self, place: Place, out: &mut Effects) {
        for action in std::mem::take(&mut self.out) {
            match action {
                Action::Propose(entry) => self.proposals.push_back(entry),
                Action::Done { ticket, end } if ticket > OWN_TICKETS => {
                    match self.on_row_request(ticket, &end) {
                        Some((ticket, end)) => out.row_answers.push((ticket, Some(end))),
                        None => self.on_loaded(ticket, end),
                    }
                }
                Action::Done { ticket, end } => {
                    self.waiting.remove(&ticket);
                    out.row_answers.push((ticket, Some(end)));
                }
                action => out.rows.push(RowsRequest {
                    place,
                    write_back: self.number,
                    action,
                }),
            }
        }
    }

    /// Everything that waits looks again.
    fn close(self, out: &mut Effects) {
        let letters = self.letters.into_iter().map(|(_, ticket)| ticket as u64);
        let row_requests = self.row_requests.into_keys();
        let tickets = self.waiting.into_iter().chain(letters).chain(row_requests);
        out.row_answers.extend(tickets.map(|ticket| (ticket, None)));
        out.requeued.extend(self.behind);
        out.requeued
            .extend(self.loading.into_iter().map(|it| it.batch));
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

impl Member {
    /// Whether this replica may have a write-back now.
    fn may_write_back(&self) -> bool {
        !self.failed && (self.peers.is_none() || self.replica.is_serving())
    }
}

impl Region {
    /// Whether this is the leader and its log does not have all tables yet.
    #[inline]
    pub fn is_catalogue_old(&self, catalogue_version: u64) -> bool {
        self.catalogue_seen != catalogue_version
            && self.member.as_ref().is_some_and(|member| {
                !member.failed && (member.peers.is_none() || member.replica.is_leader())
            })
    }

    /// Whether this replica, leader or follower, is not known to have all tables of the catalogue.
    #[inline]
    pub fn lacks_tables(&self, catalogue_version: u64) -> bool {
        self.catalogue_seen != catalogue_version
            && self.member.as_ref().is_some_and(|member| !member.failed)
    }

    /// On a follower: whether its log has all tables of the catalogue by now.
    pub fn learn_tables(&mut self, catalogue: &Catalogue) -> bool {
        let is_known = match self.space.table_rows() {
            Some(rows) => Follow::knows(catalogue, rows),
            None => catalogue.tables.is_empty(),
        };
        let is_known = is_known || self.space.tables_in_quarantine().is_some();
        if is_known {
            self.catalogue_seen = catalogue.version;
        }
        is_known
    }

    /// The write-back of the term that is now.
    pub fn write_back_mut(&mut self) -> Option<&mut WriteBack> {
        let member = self.member.as_deref_mut()?;
        let term = member.replica.term();
        member
            .write_back
            .as_deref_mut()
            .filter(|write_back| write_back.term == term)
    }

    /// Asks for SQL rows; the ticket is answered if they have to be loaded.
    pub fn want_rows(&mut self, ids: &[RowId], ticket: u64, cx: &Context<'_>) -> Wanted {
        let rows = self.space.table_rows();
        let member = self.member.as_deref_mut();
        let write_back = member.and_then(|member| member.write_back.as_deref_mut());
        match (write_back, rows) {
            (Some(write_back), Some(rows)) => {
                let deadline_ms = cx.now_ms + crate::row_needs::LOAD_MS;
                write_back.want(ids, ticket, rows, deadline_ms, cx.now_ms)
            }
            _ => Wanted::NotLeader,
        }
    }

    /// Numbers of a region that has a write-back.
    pub fn table_numbers(&mut self, now_ms: u64) -> Option<Numbers> {
        let write_back = self.member.as_mut()?.write_back.as_deref_mut()?;
        let rows = self.space.table_rows()?;
        Some(write_back.leader.numbers(rows, now_ms))
    }

    /// The region was taken away, or memory was put back to what the store has: whoever waits looks
    /// again.
    pub fn close_write_back(&mut self, out: &mut Effects) {
        let member = self.member.as_deref_mut();
        if let Some(write_back) = member.and_then(|member| member.write_back.take()) {
            write_back.close(out);
            self.catalogue_seen = 0;
            self.space.note_applied(false);
        }
    }

    /// Looks after the SQL rows; whether there is something for the next entry, or what waited for it may
    /// go now.
    fn advance(&mut self, cx: &Context<'_>, out: &mut Effects) -> bool {
        let Some(member) = self.member.as_deref_mut() else {
            return false;
        };
        let may_write_back = member.may_write_back();
        let term = member.replica.term();
        let is_over = |it: &WriteBack| !may_write_back || it.term != term;
        if member.write_back.as_deref().is_some_and(is_over) {
            self.close_write_back(out);
        }
        let Some(member) = self.member.as_deref_mut() else {
            return false;
        };
        if !may_write_back || member.uncommitted.is_some() {
            return false;
        }
        if self.space.tables_in_quarantine().is_some() {
            // Commands on rows are told so; the others need not wait for schemas.
            if self.catalogue_seen != cx.catalogue.version {
                self.catalogue_seen = cx.catalogue.version;
                out.looks_again.push(self.id);
            }
            return false;
        }
        let now_ms = cx.now_ms;
        if member.write_back.is_none() {
            // What it knew as a follower is looked at again.
            self.catalogue_seen = 0;
            self.space.note_applied(true);
            if let Some(rows) = self.space.table_rows() {
                member.write_back = Some(Box::new(WriteBack::open(member, rows, cx)));
            }
        }
        let applied = self.space.take_applied();
        let write_back = member.write_back.as_deref_mut();
        let (Some(write_back), Some(rows)) = (write_back, self.space.table_rows()) else {
            return false;
        };
        let mut proposes = false;
        for applied in &applied {
            write_back.on_applied(rows, applied, now_ms);
            let letters = write_back.take_letters(applied).into_iter();
            out.row_answers
                .extend(letters.map(|ticket| (ticket as u64, Some(End::Ready))));
        }
        if self.catalogue_seen != cx.catalogue.version {
            let proposals = &mut write_back.proposals;
            let propose = |entry| proposals.push_back(entry);
            if write_back.follow.follow(cx.catalogue, rows, propose) {
                self.catalogue_seen = cx.catalogue.version;
                out.looks_again.push(self.id);
                proposes = true; // commands wait for this
            }
        }
        write_back.leader.tick(rows, now_ms, &mut write_back.out);
        write_back.carry_out(self.id, out);
        out.requeued
            .append(&mut write_back.take_waiting(!applied.is_empty()));
        proposes |= write_back.has_proposals();
        for (mut batch, failed) in write_back.take_loaded() {
            if !failed.is_empty() {
                self.refuse_rows(&mut batch, &failed, cx);
            }
            out.requeued.push(batch);
        }
        proposes
    }
}

impl OwnedRegions {
    /// Looks after the SQL rows of a region: after entries were applied, SQL has answered, time has
    /// passed.
    pub fn advance(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        let has_tables = cx.catalogue.version != 0;
        if !has_tables && !cx.is_cluster {
            return;
        }
        let Some(region) = self.slots.region_mut(place) else {
            return;
        };
        // A node of a cluster may not have heard of tables that its regions have.
        if !has_tables && !region.space.has_tables() {
            return;
        }
        if region.advance(cx, out) {
            self.note_queued(place);
            out.wakes = true;
        }
        for batch in std::mem::take(&mut out.requeued) {
            if let Some(batch) = self.enqueue(batch) {
                let outcome = Outcome::Unserved(Unserved::Elsewhere);
                out.finished.push((batch, outcome));
            }
            out.wakes = true;
        }
    }

    /// SQL has answered a request. A region that is lent hears of it when it is back: then the answer is
    /// given again.
    pub fn on_sql(
        &mut self,
        (place, write_back, number): (Place, u64, u64),
        said: Said,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Option<Said> {
        let Some(region) = self.slots.region_mut(place) else {
            return self.is_used(place).then_some(said);
        };
        let rows = region.space.table_rows();
        let member = region.member.as_deref_mut();
        let asker = member.and_then(|member| member.write_back.as_deref_mut());
        let (Some(asker), Some(rows)) = (asker, rows) else {
            return None;
        };
        if asker.number != write_back {
            return None; // asked by one that is closed
        }
        let (now_ms, actions) = (cx.now_ms, &mut asker.out);
        let leader = &mut asker.leader;
        match said {
            Said::Loaded(result) => leader.on_loaded(rows, number, result, now_ms, actions),
            Said::Flushed(result) => leader.on_flushed(rows, number, result, now_ms, actions),
        }
        self.advance(place, cx, out);
        None
    }
}

#[cfg(test)]
mod tests {
    use table::leader::Limits;

    use super::*;

    fn kick() -> Entry {
        Entry::Kick(vec![(RowId::new(1, "k"), 1)])
    }

    #[test]
    fn batches_behind_a_proposal_that_the_log_did_not_take_are_let_go() {
        let leader = Leader::new(Limits::default(), 1, 1, &Rows::default(), 0);
        let mut write_back = WriteBack::new(leader, 1, 1);
        write_back.propose(kick());
        let taken = write_back.take_proposals();
        write_back.wait_for_table(crate::Batch::new(0, 0, crate::Requester::new(1).into()));
        assert!(
            write_back.take_waiting(false).is_empty(),
            "it is on its way"
        );
        write_back.put_back(taken);
        assert!(write_back.has_proposals());
        assert_eq!(write_back.take_waiting(false).len(), 1);
    }
}
