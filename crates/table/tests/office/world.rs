//! Three replicas of a region, a leader among them, one that believes to be, and a database; all of it by dice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use table::entry::*;
use table::leader::*;
use table::rows::{Applied, Change, Place, State, What};
use table::{Amount, Entry, Outcome, Rows, Table, Value, parse_fields};

use crate::dice::Dice;
use crate::model::Model;
use crate::sql::{POISON, Sql};

/// Mistakes that the test must see.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Plant {
    None,
    /// After a restart the last entry is applied once more.
    ApplyTwice,
    /// SQL takes anything.
    NoGuard,
    /// The owner says "written" of what it never sent.
    FalseWritten,
    /// A load of long ago comes through the log once more, under today's term.
    LateLoad,
    /// One of the changes is not stored.
    ForgetChange,
    /// An old leader believes to have its lease for longer.
    NoLease,
}

pub struct Replica {
    rows: Rows,
    stored: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct Office {
    node: usize,
    number: u64,
    leader: Leader,
    /// Of one that was deposed and does not know: the rows as it had them.
    frozen: Option<Rows>,
}

enum Ask {
    Load(Arc<Table>, Vec<Arc<str>>),
    Flush(Arc<Table>, Vec<Flush>),
}

struct Statement {
    office: u64,
    number: u64,
    ask: Ask,
}

pub struct World {
    dice: Dice,
    plant: Plant,
    clock: u64,
    limits: Limits,
    term: u64,
    offices: u64,
    office: Office,
    zombie: Option<Office>,
    replicas: Vec<Replica>,
    log: Vec<(u64, Vec<u8>)>,
    outcomes: BTreeMap<usize, Option<Outcome>>,
    pending: VecDeque<Entry>,
    statements: Vec<Statement>,
    sql: Sql,
    model: Model,
    requests: Vec<Write>,
    next_request: u64,
    tickets: u64,
    drained: bool,
    /// Node and time of the last flush sent.
    wrote: (usize, u64),
    old_loads: Vec<Entry>,
    /// By hand, and not loaded yet.
    edits: BTreeSet<(RowId, i64)>,
    ever_edited: BTreeSet<RowId>,
    pub kicks: u64,
    pub deads: u64,
    pub flushes: u64,
    pub writes: u64,
}

fn table() -> Table {
    Table {
        id: 1,
        name: "t".into(),
        epoch: 1,
        backend: "main".into(),
        sql_name: "t".into(),
        next_field: 3,
        fields: parse_fields("n:int64=5,s:string='x'", 1).unwrap(),
    }
}

impl World {
    pub fn new(seed: u64, plant: Plant) -> World {
        let limits = Limits {
            load_keys: 3,
            load_batches: 2,
            flush_rows: 3,
            flush_bytes: 800,
            flush_batches: 2,
            linger: 20,
            entry_rows: 2,
            entry_bytes: 200,
            backoff_min: 10,
            backoff_max: 100,
            lease: 600,
            lease_margin: 60,
            soft_bytes: 4_000,
            hard_bytes: 6_000,
            evict_looks: 6,
            ..Limits::default()
        };
        let replicas = (0..3).map(|_| Replica {
            rows: Rows::new(),
            stored: BTreeMap::new(),
        });
        let leader = Leader::new(limits.clone(), 0, 1, &Rows::new(), 1000);
        let mut world = World {
            dice: Dice::new(seed),
            plant,
            clock: 1000,
            limits,
            term: 1,
            offices: 0,
            office: Office {
                node: 0,
                number: 0,
                leader,
                frozen: None,
            },
            zombie: None,
            replicas: replicas.collect(),
            log: Vec::new(),
            outcomes: BTreeMap::new(),
            pending: VecDeque::new(),
            statements: Vec::new(),
            sql: Sql::default(),
            model: Model::default(),
            requests: Vec::new(),
            next_request: 0,
            tickets: 0,
            drained: false,
            wrote: (0, 0),
            old_loads: Vec::new(),
            edits: BTreeSet::new(),
            ever_edited: BTreeSet::new(),
            kicks: 0,
            deads: 0,
            flushes: 0,
            writes: 0,
        };
        world.sql.careless = plant == Plant::NoGuard;
        // SQL has some rows of its own
        for key in 0..4 {
            let row = (key as i64 * 3 - 4, BTreeMap::from([(1, Value::Int(7))]));
            let row = if row.0 < 0 {
                (row.0, BTreeMap::new())
            } else {
                row
            };
            let id = RowId::new(1, &format!("k{key}"));
            let mut shown = row.1.clone();
            shown.insert(2, Value::Text("x".into()));
            let shown = (row.0 >= 0).then_some(shown);
            world.model.rows.insert(id.clone(), (row.0, shown));
            world.sql.rows.insert(id, row);
        }
        world.pending.push_back(Entry::Schema(table()));
        world
    }

    fn rows(&self) -> &Rows {
        &self.replicas[self.office.node].rows
    }

    fn any_id(&mut self) -> RowId {
        RowId::new(1, &format!("k{}", self.dice.below(24)))
    }

    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.clock += self.dice.below(12);
            match self.dice.below(100) {
                0..35 => self.client(),
                35..55 => self.commit_some(),
                55..70 => self.statement(),
                70..90 => self.turn(),
                90..93 => self.catch_up(),
                93 => self.restart(),
                94 => self.sql.down = self.dice.once_in(2),
                95 if self.dice.once_in(3) => self.edit(),
                96 => self.depose(),
                97 => self.wake(),
                98 if self.plant != Plant::NoLease => self.zombie = None,
                _ => self.schema(),
            }
        }
        self.finish();
    }

    fn client(&mut self) {
        let id = self.any_id();
        if self.dice.once_in(4) && !self.requests.is_empty() {
            // once more: perhaps the answer was lost
            let back = self.dice.below(self.requests.len().min(20) as u64) as usize;
            let write = self.requests[self.requests.len() - 1 - back].clone();
            return self.propose(Entry::Write(write));
        }
        let node = self.office.node;
        self.replicas[node].rows.touch(&id);
        let Some(table) = self.rows().table(1).cloned() else {
            return;
        };
        if self.rows().get(&id).is_none() {
            self.tickets += 1;
            let (ticket, deadline) = (self.tickets, self.clock + self.dice.below(200));
            let rows = &self.replicas[node].rows;
            let _ = self
                .office
                .leader
                .want(rows, &id, ticket, deadline, self.clock);
            return;
        }
        if self.dice.once_in(20) {
            let version = self.model.get(&id).0;
            return self.propose(Entry::Kick(vec![(id, version)]));
        }
        let write = self.some_write(id, &table);
        if !self.office.leader.takes(self.rows(), &write) {
            return;
        }
        if write.request.is_some() {
            self.requests.push(write.clone());
        }
        self.propose(Entry::Write(write));
    }

    fn some_write(&mut self, id: RowId, table: &Table) -> Write {
        let n = Value::Int(self.dice.below(4) as i64);
        let poison = if self.dice.once_in(12) { POISON } else { 5 };
        let last = table.fields.last().unwrap().id;
        let extra = if last > 2 {
            (last, Value::Int(self.dice.below(9) as i64))
        } else {
            (2, Value::Text("yy".into()))
        };
        let op = match self.dice.below(8) {
            0 | 1 => Op::Set(vec![(1, n), extra]),
            2 => Op::Set(vec![(1, Value::Int(poison))]),
            3 => Op::SetNx(vec![extra]),
            4 => Op::Cas {
                when: vec![(1, n.clone())],
                set: vec![(1, n), extra],
            },
            5 => Op::CasNx {
                when: vec![(1, n)],
                set: vec![extra],
            },
            6 => Op::Incr {
                field: 1,
                by: Amount::Integer(i128::from(self.dice.below(9)) - 4),
            },
            _ => Op::Del,
        };
        let expect = match self.dice.below(8) {
            0 => Expect::Present,
            1 => Expect::Version(self.dice.below(9) as i64 - 3),
            2 => Expect::Version(self.model.get(&id).0),
            _ => Expect::Any,
        };
        let request = self.dice.once_in(2).then(|| {
            self.next_request += 1;
            Request {
                client: u128::from(self.dice.below(3)),
                number: self.next_request,
            }
        });
        Write {
            id,
            op,
            expect,
            ask: table::entry::Ask::All,
            request,
            epoch: table.epoch,
            row_max: 1 << 20,
        }
    }

    fn propose(&mut self, entry: Entry) {
        self.pending.push_back(entry);
    }

    fn commit_some(&mut self) {
        let count = self.dice.below(6);
        (0..count).for_each(|_| self.commit());
    }

    /// The oldest proposal is in the log, and the leader applies it.
    fn commit(&mut self) {
        let Some(entry) = self.pending.pop_front() else {
            return;
        };
        if let Entry::Loaded { .. } = &entry {
            self.old_loads.push(entry.clone());
        }
        self.log.push((self.clock, entry.encode()));
        self.apply_all(self.office.node);
    }

    fn apply_all(&mut self, node: usize) {
        while let Some(applied) = self.apply(node) {
            if node == self.office.node {
                let mut out = Vec::new();
                let rows = &self.replicas[node].rows;
                self.office
                    .leader
                    .on_applied(rows, &applied, self.clock, &mut out);
                self.obey(out, false);
            }
        }
    }

    fn apply(&mut self, node: usize) -> Option<Applied> {
        let replica = &mut self.replicas[node];
        let at = replica.rows.applied() as usize;
        let (stamp, bytes) = self.log.get(at)?;
        let entry = Entry::decode(bytes).unwrap();
        assert_eq!(&entry.encode(), bytes);
        let applied = replica.rows.apply(at as u64 + 1, *stamp, entry.clone());
        let again = replica
            .rows
            .clone()
            .apply(at as u64 + 1, *stamp, entry.clone());
        assert_eq!(again.what, What::Nothing);
        for change in &applied.changes {
            if self.plant == Plant::ForgetChange && self.dice.once_in(50) {
                continue;
            }
            match change {
                Change::Put(place, bytes) => {
                    assert_eq!(Place::decode(&place.encode()).as_ref(), Ok(place));
                    replica.stored.insert(place.encode(), bytes.clone());
                }
                Change::Remove(place) => assert!(replica.stored.remove(&place.encode()).is_some()),
                Change::RemoveRows(table) => {
                    let prefix = Place::rows_of(*table);
                    replica.stored.retain(|key, _| !key.starts_with(&prefix));
                }
            }
        }
        let first = !self.outcomes.contains_key(&at);
        let known = self
            .outcomes
            .entry(at)
            .or_insert_with(|| applied.outcome.clone());
        assert_eq!(known, &applied.outcome, "replicas answer differently");
        if first {
            self.check(node, &entry, &applied);
        }
        Some(applied)
    }

    /// Of the first replica that applies an entry.
    fn check(&mut self, node: usize, entry: &Entry, applied: &Applied) {
        let rows = self.replicas[node].rows.clone();
        match entry {
            Entry::Write(write) => {
                let table = rows.table(1).unwrap();
                self.model
                    .write(table, write, applied.outcome.as_ref().unwrap());
                self.writes += 1;
            }
            Entry::Dead(dead) => {
                self.deads += 1;
                let refused = dead.kind == DeadKind::Refused;
                let edited = self.ever_edited.contains(&dead.id);
                assert!(refused || edited, "a conflict nobody made: {dead:?}");
            }
            Entry::Retry {
                id, over: Some(_), ..
            } => {
                // the version may have been raised, nothing else
                if let Some(row) = rows.get(id) {
                    self.model.rows.entry(id.clone()).or_default().0 = row.image.version;
                }
                self.sql.edited.remove(id);
            }
            _ => {}
        }
        for id in &applied.rows {
            let Some(row) = rows.get(id) else {
                self.kicks += u64::from(applied.what == What::Kicked);
                if !rows.is_forgotten(id) && !self.sql.edited.contains(id) {
                    assert_eq!(self.sql.version(id), self.model.get(id).0, "{id:?} is lost");
                }
                continue;
            };
            assert_eq!(row.since == 0, !row.is_dirty());
            let table = rows.table(1).unwrap();
            let shown = (row.state == State::Present).then(|| {
                let ids = table.fields.iter().map(|field| field.id);
                ids.zip(row.image.values(table)).collect::<BTreeMap<_, _>>()
            });
            let is = (row.image.version, shown);
            if applied.what == What::Loaded && self.edits_are_taken(id, &is) {
                self.model.rows.insert(id.clone(), is);
                continue;
            }
            let (version, mut values) = self.model.get(id);
            if let Some(values) = &mut values {
                for field in &table.fields {
                    values.entry(field.id).or_insert(field.default.clone());
                }
            }
            assert_eq!(is, (version, values), "{id:?} after {:?}", applied.what);
        }
    }

    /// Whether the row loaded is what a hand made of it, or what is left after a discard.
    fn edits_are_taken(&mut self, id: &RowId, is: &(i64, Option<BTreeMap<u16, Value>>)) -> bool {
        let discarded = self.model.get(id).0 == i64::MAX;
        if self.sql.version(id) == is.0 {
            self.sql.edited.remove(id);
        }
        // perhaps an edit that was edited since
        discarded || self.edits.remove(&(id.clone(), is.0))
    }

    fn obey(&mut self, actions: Vec<Action>, zombie: bool) {
        let office = if zombie {
            self.zombie.as_ref()
        } else {
            Some(&self.office)
        };
        let Some((node, office)) = office.map(|office| (office.node, office.number)) else {
            return;
        };
        for action in actions {
            let (number, ask) = match action {
                Action::Propose(_) if zombie => continue,
                Action::Propose(entry) => {
                    self.propose(entry);
                    continue;
                }
                Action::Done {
                    end: End::Drained { dead, named },
                    ..
                } => {
                    assert_eq!(dead, named.len());
                    self.drained = true;
                    continue;
                }
                Action::Done { .. } => continue,
                Action::Load {
                    number,
                    table,
                    keys,
                } => (number, Ask::Load(table, keys)),
                Action::Flush {
                    number,
                    table,
                    rows,
                } => {
                    let (last, at) = self.wrote;
                    // a margin on both sides
                    let apart = node == last || self.clock >= at + 2 * 60;
                    assert!(apart || at == 0, "two leaders write back");
                    self.wrote = (node, self.clock);
                    self.flushes += 1;
                    for row in &rows {
                        let key = |other: &&Flush| other.key == row.key;
                        let under_way = self
                            .statements
                            .iter()
                            .filter(|other| other.office == office);
                        let same = under_way.filter(|other| match &other.ask {
                            Ask::Flush(_, rows) => rows.iter().any(|row| key(&row)),
                            Ask::Load(..) => false,
                        });
                        assert_eq!(same.count(), 0, "two statements for {}", row.key);
                    }
                    (number, Ask::Flush(table, rows))
                }
            };
            self.statements.push(Statement {
                office,
                number,
                ask,
            });
        }
    }

    /// Some statement runs, or does not; its answer arrives, or does not.
    fn statement(&mut self) {
        if self.statements.is_empty() {
            return;
        }
        let at = self.dice.below(self.statements.len() as u64) as usize;
        let statement = self.statements.remove(at);
        let fault = Fault::Transient("gone".into());
        let runs = !self.sql.down && !self.dice.once_in(8);
        let lost = !runs || self.dice.once_in(8);
        let mut out = Vec::new();
        let node = self.office.node;
        let ours = statement.office == self.office.number;
        match &statement.ask {
            Ask::Load(table, keys) => {
                let ids = keys.iter().map(|key| RowId {
                    table: table.id,
                    key: key.clone(),
                });
                let reads: Vec<Read> = ids.map(|id| self.sql.load(table, &id)).collect();
                let result = if lost { Err(fault) } else { Ok(reads) };
                if ours {
                    let rows = &self.replicas[node].rows;
                    let leader = &mut self.office.leader;
                    leader.on_loaded(rows, statement.number, result, self.clock, &mut out);
                }
            }
            Ask::Flush(table, flushes) => {
                let lie = self.plant == Plant::FalseWritten && self.dice.once_in(10);
                let mut wrote = Vec::new();
                if runs {
                    wrote = flushes
                        .iter()
                        .map(|row| match lie {
                            true => Wrote::Written,
                            false => self.sql.flush(table, row),
                        })
                        .collect();
                }
                if ours {
                    let result = if lost { Err(fault) } else { Ok(wrote) };
                    let rows = &self.replicas[node].rows;
                    let leader = &mut self.office.leader;
                    leader.on_flushed(rows, statement.number, result, self.clock, &mut out);
                } else if let Some(zombie) = &mut self.zombie
                    && zombie.number == statement.office
                {
                    // it tries again until its lease is over; what it proposes nobody hears
                    let result = if lost { Err(fault) } else { Ok(wrote) };
                    let rows = zombie.frozen.as_ref().unwrap();
                    let mut unheard = Vec::new();
                    let leader = &mut zombie.leader;
                    leader.on_flushed(rows, statement.number, result, self.clock, &mut unheard);
                }
                if lost && self.dice.once_in(2) {
                    // given up by the node, but still on its way to the database
                    self.statements.push(Statement {
                        office: u64::MAX,
                        ..statement
                    });
                }
            }
        }
        self.obey(out, false);
    }

    fn turn(&mut self) {
        let mut out = Vec::new();
        let office = &mut self.office;
        let rows = &mut self.replicas[office.node].rows;
        office.leader.turn(rows, self.clock, &mut out);
        self.obey(out, false);
        let mut out = Vec::new();
        if let Some(zombie) = &mut self.zombie {
            let lag = if self.plant == Plant::NoLease { 700 } else { 0 };
            let clock = self.clock - lag;
            zombie
                .leader
                .turn(zombie.frozen.as_mut().unwrap(), clock, &mut out);
        }
        self.obey(out, true);
        if self.plant == Plant::LateLoad && self.dice.once_in(10) && !self.old_loads.is_empty() {
            let at = self.dice.below(self.old_loads.len() as u64) as usize;
            if let Entry::Loaded { rows, .. } = self.old_loads[at].clone() {
                self.propose(Entry::Loaded {
                    term: self.term,
                    rows,
                });
            }
        }
    }

    fn catch_up(&mut self) {
        let node = self.dice.below(3) as usize;
        for _ in 0..self.dice.below(60) {
            if node != self.office.node && self.apply(node).is_none() {
                return;
            }
        }
    }

    fn restart(&mut self) {
        let node = self.dice.below(3) as usize;
        let replica = &mut self.replicas[node];
        let stored = replica
            .stored
            .iter()
            .map(|(key, bytes)| (&key[..], &bytes[..]));
        let rows = Rows::restore(stored.clone(), replica.rows.applied()).unwrap();
        assert!(rows == replica.rows, "what is stored is not what was");
        let dumped: BTreeMap<_, _> = rows
            .dump()
            .into_iter()
            .map(|(place, bytes)| (place.encode(), bytes))
            .collect();
        assert_eq!(dumped, replica.stored);
        if node != self.office.node {
            replica.rows = rows;
            if self.plant == Plant::ApplyTwice {
                let applied = replica.rows.applied().saturating_sub(1);
                replica.rows = Rows::restore(stored, applied).unwrap();
            }
        }
    }

    /// Another leads: some of what was proposed is in its log, the rest is lost.
    fn depose(&mut self) {
        for _ in 0..self.dice.below(4) {
            self.commit();
        }
        self.pending.clear();
        self.term += 1;
        self.offices += 1;
        let node = self.dice.below(3) as usize;
        self.apply_all(node);
        let rows = &self.replicas[node].rows;
        let office = Office {
            node,
            number: self.offices,
            leader: Leader::new(
                self.limits.clone(),
                node as u64,
                self.term,
                rows,
                self.clock,
            ),
            frozen: None,
        };
        let mut old = std::mem::replace(&mut self.office, office);
        if old.node != node {
            old.frozen = Some(self.replicas[old.node].rows.clone());
            self.zombie = Some(old);
        } else {
            // a node answers for one office at a time; what it had under way runs late
            self.zombie = None;
        }
    }

    /// Somebody does something about dead letters.
    fn wake(&mut self) {
        let dead = self
            .rows()
            .dead()
            .next()
            .map(|(id, letter)| (id.clone(), letter.clone()));
        let Some((id, letter)) = dead else {
            return;
        };
        let version = letter.version;
        let entry = match self.dice.below(3) {
            0 => Entry::Retry {
                id,
                version,
                over: None,
            },
            1 => Entry::Retry {
                id: id.clone(),
                version,
                over: Some(self.sql.version(&id).unsigned_abs()),
            },
            _ => Entry::Discard { id, version },
        };
        self.resolve(entry);
    }

    /// At once, so that nothing happens to SQL in between.
    fn resolve(&mut self, entry: Entry) {
        while !self.pending.is_empty() {
            self.commit();
        }
        let (Entry::Retry { id, version, .. } | Entry::Discard { id, version }) = &entry else {
            return;
        };
        let it = |letter: &table::rows::DeadLetter| letter.version == *version;
        let still = self
            .rows()
            .get(id)
            .and_then(|row| row.dead.as_deref())
            .is_some_and(it);
        if !still {
            return;
        }
        if let Entry::Discard { id, .. } = &entry {
            self.model.rows.insert(id.clone(), (i64::MAX, None));
            self.sql.edited.remove(id);
        }
        self.propose(entry);
        self.commit();
    }

    fn edit(&mut self) {
        let id = self.any_id();
        if self.model.get(&id).0 == i64::MAX {
            return;
        }
        let version = self.sql.version(&id).abs().max(self.model.get(&id).0.abs()) + 1000;
        let values = BTreeMap::from([(1, Value::Int(77))]);
        self.sql.rows.insert(id.clone(), (version, values));
        self.edits.insert((id.clone(), version));
        self.ever_edited.insert(id.clone());
        self.sql.edited.insert(id);
    }

    fn schema(&mut self) {
        let Some(table) = self.rows().table(1).cloned() else {
            return;
        };
        if self.dice.once_in(4) && table.epoch < 3 && self.pending.is_empty() {
            let field = parse_fields(&format!("f{}:int64=3", table.epoch), 0)
                .unwrap()
                .remove(0);
            self.propose(Entry::Schema(table.with_field(field).unwrap()));
        }
    }

    /// Quiet times: SQL gets everything.
    fn finish(&mut self) {
        self.sql.down = false;
        self.zombie = None;
        for round in 0..4000 {
            self.clock += 10;
            self.turn();
            while !self.pending.is_empty() {
                self.commit();
            }
            if round % 3 == 0 {
                self.statement();
            }
            let dead = self
                .rows()
                .dead()
                .next()
                .map(|(id, letter)| (id.clone(), letter.version));
            if let Some((id, version)) = dead {
                let table = self.rows().table(1).unwrap().clone();
                let mut write = self.some_write(id.clone(), &table);
                (write.op, write.expect) = (Op::Set(vec![(1, Value::Int(1))]), Expect::Any);
                self.propose(Entry::Write(write));
                let over = Some(self.sql.version(&id).unsigned_abs());
                self.resolve(Entry::Retry { id, version, over });
            }
            if self.rows().dirty_count() + self.rows().dead_count() == 0
                && self.statements.is_empty()
            {
                break;
            }
        }
        self.drained = false;
        let mut out = Vec::new();
        let node = self.office.node;
        let rows = &mut self.replicas[node].rows;
        self.office
            .leader
            .drain(rows, 1, u64::MAX, self.clock)
            .unwrap();
        self.office.leader.turn(rows, self.clock, &mut out);
        self.obey(out, false);
        assert!(
            self.drained,
            "never drained: {:?}",
            self.office.leader.numbers(self.rows(), self.clock)
        );
        for (id, (version, _)) in &self.model.rows {
            if *version != i64::MAX && !self.sql.edited.contains(id) {
                assert_eq!(
                    self.sql.version(id),
                    *version,
                    "SQL and the cache differ: {id:?}"
                );
            }
        }
        for node in 0..3 {
            self.apply_all(node);
            assert!(self.replicas[node].rows == self.replicas[self.office.node].rows);
        }
        let mut again = Rows::new();
        for (at, (stamp, bytes)) in self.log.iter().enumerate() {
            let applied = again.apply(at as u64 + 1, *stamp, Entry::decode(bytes).unwrap());
            assert_eq!(self.outcomes.get(&at), Some(&applied.outcome));
        }
        assert!(&again == self.rows(), "the same log, another state");
    }
}
