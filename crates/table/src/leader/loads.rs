//! Misses: many clients, one load per key; many keys, one SELECT.
//!
//! ```text
//!   want ──► queued ──► flying (SELECT) ──► proposed (Loaded) ──► applied: all who wait go on
//!               │            │ fault: they are told; the backend is left alone for a while
//!               └── deadline: the client is told, the load goes on
//! ```
//!
//! **Invariant.** A key has at most one load between its SELECT and the moment its entry is applied. So nothing can be written back and kicked
//! between what the SELECT saw and what the cache gets; a second load under way could bring back an old row. What answers to a number
//! that is not under way (too late, twice) is ignored.
//!
//! While a backend is left alone, misses fail at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::entry::{Entry, Found, RowId};
use crate::rows::Rows;

use super::backoff::Backoff;
use super::{Action, End, Failure, Fault, Limits, Numbers, Read};

#[derive(Debug)]
pub struct Loads {
    term: u64,
    next: u64,
    wants: BTreeMap<RowId, Want>,
    queues: BTreeMap<u32, VecDeque<Arc<str>>>,
    flying: BTreeMap<u64, Batch>,
    backends: BTreeMap<String, Backend>,
    deadlines: BTreeSet<(u64, u64, RowId)>,
    /// The table whose turn it is.
    first: u32,
    loads: u64,
    loaded: u64,
    faults: u64,
}

#[derive(Debug)]
struct Want {
    /// With their deadlines.
    tickets: Vec<(u64, u64)>,
    stage: Stage,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Flying(u64),
    Proposed,
}

#[derive(Debug)]
struct Batch {
    backend: String,
    rows: Vec<RowId>,
}

#[derive(Debug, Default)]
struct Backend {
    backoff: Backoff,
    flying: usize,
    why: Box<str>,
}

impl Loads {
    /// The database has done something else well: it need not be left alone any more.
    pub(super) fn on_alive(&mut self, backend: &str) {
        if let Some(backend) = self.backends.get_mut(backend) {
            backend.backoff.succeeded();
        }
    }

    pub(super) fn new(term: u64) -> Loads {
        Loads {
            term,
            next: 0,
            wants: BTreeMap::new(),
            queues: BTreeMap::new(),
            flying: BTreeMap::new(),
            backends: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            first: 0,
            loads: 0,
            loaded: 0,
            faults: 0,
        }
    }

    pub(super) fn want(
        &mut self,
        limits: &Limits,
        rows: &Rows,
        id: &RowId,
        ticket: u64,
        deadline: u64,
        now: u64,
    ) -> Result<(), Failure> {
        let table = rows.table(id.table).ok_or(Failure::NoTable)?;
        // keys outlive those who waited for them while the database is silent
        if self.deadlines.len() >= limits.waiters || self.wants.len() >= limits.waiters {
            return Err(Failure::Full);
        }
        if let Some(backend) = self.backends.get(&table.backend)
            && backend.backoff.is_down(now)
        {
            return Err(Failure::Down(backend.why.clone()));
        }
        let want = self.wants.entry(id.clone()).or_insert_with(|| {
            let queue = self.queues.entry(id.table).or_default();
            queue.push_back(id.key.clone());
            Want {
                tickets: Vec::new(),
                stage: Stage::Queued,
            }
        });
        want.tickets.push((ticket, deadline));
        self.deadlines.insert((deadline, ticket, id.clone()));
        Ok(())
    }

    pub(super) fn tick(&mut self, limits: &Limits, rows: &Rows, now: u64, out: &mut Vec<Action>) {
        while let Some((deadline, ticket, id)) = self.deadlines.pop_first() {
            if deadline > now {
                self.deadlines.insert((deadline, ticket, id));
                break;
            }
            if let Some(want) = self.wants.get_mut(&id) {
                want.tickets.retain(|(other, _)| *other != ticket);
            }
            let end = End::Failed(Failure::TimedOut);
            out.push(Action::Done { ticket, end });
        }
        let mut order: Vec<u32> = self.queues.keys().copied().collect();
        let turned = order.partition_point(|table| *table < self.first);
        order.rotate_left(turned);
        for table in order {
            while let Some(keys) = self.take(limits, rows, table, now, out) {
                self.send(rows, table, keys, out);
                self.first = table.saturating_add(1);
            }
        }
        if self.queues.range(self.first..).next().is_none() {
            self.first = 0;
        }
    }

    /// Keys of the next SELECT of a table, if one may be sent.
    fn take(
        &mut self,
        limits: &Limits,
        rows: &Rows,
        table: u32,
        now: u64,
        out: &mut Vec<Action>,
    ) -> Option<Vec<RowId>> {
        let schema = rows.table(table)?;
        let backend = self.backends.entry(schema.backend.clone()).or_default();
        let may_send = backend.backoff.may_send(now, backend.flying);
        if !may_send || backend.flying >= limits.load_batches {
            return None;
        }
        let queue = self.queues.get_mut(&table)?;
        let mut keys = Vec::new();
        while keys.len() < limits.load_keys.max(1) {
            let Some(key) = queue.pop_front() else {
                break;
            };
            let id = RowId { table, key };
            let Some(want) = self.wants.get_mut(&id) else {
                continue;
            };
            if want.stage != Stage::Queued {
                continue;
            }
            if want.tickets.is_empty() {
                self.wants.remove(&id); // all who waited are gone
            } else if rows.get(&id).is_some() {
                finish(&mut self.wants, &mut self.deadlines, &id, &End::Ready, out);
            } else {
                keys.push(id);
            }
        }
        if queue.is_empty() {
            self.queues.remove(&table);
        }
        (!keys.is_empty()).then_some(keys)
    }

    fn send(&mut self, rows: &Rows, table: u32, ids: Vec<RowId>, out: &mut Vec<Action>) {
        let Some(schema) = rows.table(table) else {
            return;
        };
        let number = self.next;
        self.next += 1;
        self.loads += 1;
        for id in &ids {
            if let Some(want) = self.wants.get_mut(id) {
                want.stage = Stage::Flying(number);
            }
        }
        let backend = schema.backend.clone();
        self.backends.entry(backend.clone()).or_default().flying += 1;
        out.push(Action::Load {
            number,
            table: schema.clone(),
            keys: ids.iter().map(|id| id.key.clone()).collect(),
        });
        self.flying.insert(number, Batch { backend, rows: ids });
    }

    pub(super) fn on_loaded(
        &mut self,
        limits: &Limits,
        rows: &Rows,
        number: u64,
        result: Result<Vec<Read>, Fault>,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        let Some(batch) = self.flying.remove(&number) else {
            return;
        };
        let backend = self.backends.entry(batch.backend.clone()).or_default();
        backend.flying = backend.flying.saturating_sub(1);
        let reads = match result {
            Ok(reads) => {
                backend.backoff.succeeded();
                reads
            }
            Err(fault) => {
                self.faults += 1;
                self.on_fault(limits, rows, batch, &fault, now, out);
                return;
            }
        };
        let mut reads = reads.into_iter();
        let mut found = Vec::new();
        let mut bytes = 0;
        for id in batch.rows {
            let read = reads.next();
            let Some(want) = self.wants.get_mut(&id) else {
                continue;
            };
            if want.stage != Stage::Flying(number) {
                continue;
            }
            let row = match read {
                Some(Read::Found(row)) => row,
                other => {
                    let why = match other {
                        Some(Read::Unreadable { why }) => why,
                        _ => "no answer for this key".into(),
                    };
                    let end = End::Failed(Failure::Unreadable(why));
                    finish(&mut self.wants, &mut self.deadlines, &id, &end, out);
                    continue;
                }
            };
            want.stage = Stage::Proposed;
            self.loaded += 1;
            bytes += id.key.len()
                + if let Found::Row(image) = &row {
                    image.size()
                } else {
                    8
                };
            found.push((id, row));
            if bytes >= limits.entry_bytes {
                self.propose(&mut found, out);
                bytes = 0;
            }
        }
        self.propose(&mut found, out);
    }

    fn propose(&self, found: &mut Vec<(RowId, Found)>, out: &mut Vec<Action>) {
        if !found.is_empty() {
            out.push(Action::Propose(Entry::Loaded {
                term: self.term,
                rows: std::mem::take(found),
            }));
        }
    }

    fn on_fault(
        &mut self,
        limits: &Limits,
        rows: &Rows,
        batch: Batch,
        fault: &Fault,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        let end = match fault {
            Fault::Transient(why) => End::Failed(Failure::Down(why.clone())),
            Fault::Unfit(why) => End::Failed(Failure::Unreadable(why.clone())),
        };
        let mut ids = batch.rows;
        if matches!(fault, Fault::Transient(_)) {
            let backend = self.backends.entry(batch.backend.clone()).or_default();
            backend.backoff.failed(limits, now);
            backend.why = fault.why().into();
            // those in the queue would only hear it later
            let here = |id: &u32| rows.table(*id).is_none_or(|t| t.backend == batch.backend);
            for (table, queue) in self.queues.extract_if(.., |id, _| here(id)) {
                ids.extend(queue.into_iter().map(|key| RowId { table, key }));
            }
        }
        for id in ids {
            finish(&mut self.wants, &mut self.deadlines, &id, &end, out);
        }
    }

    /// Their entry is applied.
    pub(super) fn on_cached(&mut self, ids: &[RowId], out: &mut Vec<Action>) {
        for id in ids {
            finish(&mut self.wants, &mut self.deadlines, id, &End::Ready, out);
        }
    }

    pub(super) fn on_dropped(&mut self, table: u32, out: &mut Vec<Action>) {
        self.queues.remove(&table);
        let ids: Vec<RowId> = self
            .wants
            .keys()
            .filter(|id| id.table == table)
            .cloned()
            .collect();
        let end = End::Failed(Failure::NoTable);
        for id in ids {
            finish(&mut self.wants, &mut self.deadlines, &id, &end, out);
        }
    }

    /// Backends that are left alone, and why.
    pub(super) fn troubles(&self, now: u64) -> impl Iterator<Item = (&str, &str)> {
        let down = move |(_, backend): &(&String, &Backend)| backend.backoff.is_down(now);
        let all = self.backends.iter().filter(down);
        all.map(|(name, backend)| (name.as_str(), &*backend.why))
    }

    pub(super) fn count(&self, numbers: &mut Numbers) {
        numbers.waiting = self.deadlines.len();
        numbers.loads = self.loads;
        numbers.loaded = self.loaded;
        numbers.faults += self.faults;
    }
}

fn finish(
    wants: &mut BTreeMap<RowId, Want>,
    deadlines: &mut BTreeSet<(u64, u64, RowId)>,
    id: &RowId,
    end: &End,
    out: &mut Vec<Action>,
) {
    let Some(want) = wants.remove(id) else {
        return;
    };
    for (ticket, deadline) in want.tickets {
        deadlines.remove(&(deadline, ticket, id.clone()));
        let end = end.clone();
        out.push(Action::Done { ticket, end });
    }
}
