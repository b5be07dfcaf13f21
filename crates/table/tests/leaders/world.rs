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

mod log;
mod outside;
mod people;

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

struct Region {
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
    region: u64,
    number: u64,
    ask: Ask,
}

pub struct World {
    dice: Dice,
    plant: Plant,
    clock: u64,
    limits: Limits,
    term: u64,
    regions: u64,
    region: Region,
    zombie: Option<Region>,
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
        closed: false,
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
            regions: 0,
            region: Region {
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
        world.commit();
        world
    }

    fn rows(&self) -> &Rows {
        &self.replicas[self.region.node].rows
    }

    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.clock += self.dice.below(12);
            match self.dice.below(100) {
                0..35 => self.client(),
                35..55 => self.commit_some(),
                55..70 => self.statement(),
                70..90 => self.tick(),
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

    /// Quiet times: SQL gets everything.
    fn finish(&mut self) {
        self.sql.down = false;
        self.zombie = None;
        for round in 0..4000 {
            self.clock += 10;
            self.tick();
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
        let node = self.region.node;
        let rows = &mut self.replicas[node].rows;
        self.region
            .leader
            .drain(rows, None, 1, u64::MAX, self.clock)
            .unwrap();
        self.region.leader.tick(rows, self.clock, &mut out);
        self.obey(out, false);
        assert!(
            self.drained,
            "never drained: {:?}",
            self.region.leader.numbers(self.rows(), self.clock)
        );
        for (id, (version, _)) in &self.model.rows {
            if *version != i64::MAX && !self.sql.edited.contains(id) {
                self.check_sql(self.rows(), id);
            }
        }
        for node in 0..3 {
            self.apply_all(node);
            assert!(self.replicas[node].rows == self.replicas[self.region.node].rows);
        }
        let mut again = Rows::new();
        for (at, (stamp, bytes)) in self.log.iter().enumerate() {
            let applied = again.apply(at as u64 + 1, *stamp, Entry::decode(bytes).unwrap());
            assert_eq!(self.outcomes.get(&at), Some(&applied.outcome));
        }
        assert!(&again == self.rows(), "the same log, another state");
    }
}
