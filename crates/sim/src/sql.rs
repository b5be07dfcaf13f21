//! The world's part of tables: statements travel to the database and back, nodes hear which tables there are, the database has its
//! own troubles, and in the end SQL must have everything.

use std::rc::Rc;
use std::sync::Arc;

use node::Said;
use node::catalogue::Wanted;
use table::{RowId, Value, parse_fields};

use crate::check::Broken;
use crate::client::tag;
use crate::database::{Ask, Contents, Health, Statement};
use crate::effects::Known;
use crate::event::Event;
use crate::faults::Fault;
use crate::row_calls::{self, RowState, Shown};
use crate::world::World;

/// How often the desks of a node are tended.
pub const ADVANCE_US: u64 = 20_000;
const TABLE_ID: u32 = 1;

pub fn row_key(region: u64, nth: usize) -> String {
    format!("{}:{}.{nth}", row_calls::TABLE, tag(region))
}

impl World {
    /// Tables are declared, and SQL has some rows already.
    pub(crate) fn found_tables(&mut self) {
        let Some(tables) = self.plan.tables.clone() else {
            return;
        };
        let created = node::Catalogue::default().create(Wanted {
            name: row_calls::TABLE.into(),
            backend: "main".into(),
            sql_name: row_calls::TABLE.into(),
            fields: parse_fields(row_calls::FIELDS, 1).unwrap_or_default(),
        });
        let catalogue = created.map(|(catalogue, _)| catalogue).unwrap_or_default();
        self.catalogue = Rc::new(Known {
            is_used: true,
            catalogue: Arc::new(catalogue),
            limits: tables.limits,
        });
        for region in 1..=self.plan.regions {
            for nth in 0..tables.rows {
                let key = row_key(region, nth);
                self.row_audit.push(key.clone());
                let version = match self.rng.u32(..4) {
                    0 => self.rng.i64(1..5),
                    1 => -self.rng.i64(1..5),
                    _ => continue,
                };
                let (text, number) = (format!("sql{region}.{nth}"), self.rng.i64(-9..=5));
                let row = (version > 0).then(|| Shown {
                    n: number,
                    s: text.as_str().into(),
                    m: 7,
                });
                let mut contents = Contents::new();
                if row.is_some() {
                    contents.insert(2, Value::Text(text.as_str().into()));
                    if number != 5 {
                        contents.insert(1, Value::Int(number));
                    }
                }
                let id = RowId::new(TABLE_ID, &format!("{}.{nth}", tag(region)));
                self.written.on_found(&id, version, contents.clone());
                self.database.rows.insert(id, (version, contents));
                self.row_begin.insert(key, RowState { version, row });
            }
        }
        if tables.adds_field {
            let at_us = self.rng.u64(3_000_000..self.plan.chaos_us * 2 / 3);
            self.after(at_us, Event::AddField);
        }
    }

    /// The column is there, then the catalogue has the field, then nodes hear of it.
    pub(crate) fn on_add_field(&mut self) {
        self.say(&[120], || "a field is added".into());
        let field = parse_fields(row_calls::LATER, 1).unwrap_or_default().pop();
        let next = field.and_then(|field| {
            let with = self.catalogue.catalogue.with_field(row_calls::TABLE, field);
            with.ok().map(|(catalogue, _)| catalogue)
        });
        self.catalogue = Rc::new(Known {
            catalogue: Arc::new(next.unwrap_or_default()),
            ..Known::clone(&self.catalogue)
        });
        for node in 1..=self.machines() {
            self.announce(node);
        }
    }

    /// A node will hear which tables there are.
    pub(crate) fn announce(&mut self, node: u64) {
        if self.plan.tables.is_some() {
            let life = self.nodes[node as usize - 1].life;
            let wait_us = self.rng.u64(1000..400_000);
            self.after(wait_us, Event::Catalogue { node, life });
        }
    }

    /// Every node that is up knows the newest tables: clients may count on them.
    pub(crate) fn is_announced(&self, version: u64) -> bool {
        let mut nodes = self.nodes.iter();
        self.catalogue.catalogue.version >= version
            && nodes.all(|node| node.catalogue.catalogue.version >= version || node.is_lost)
    }

    /// A statement leaves a node; a time-out is the last that is heard of it.
    pub(crate) fn send_statement(&mut self, statement: Statement) {
        let Some(tables) = &self.plan.tables else {
            return;
        };
        let (lost, late, timeout_us) = match self.is_calm {
            true => (0, 0, tables.timeout_us),
            false => (tables.lost, tables.late, tables.timeout_us),
        };
        let said = statement.ask.failed("timed out");
        self.answer_statement(&statement, said, timeout_us);
        let luck = self.rng.u32(..1000);
        if luck < lost {
            return;
        }
        let slow_us = match self.database.health {
            Health::Slow => self.rng.u64(10_000..2_000_000),
            _ => 0,
        };
        let late_us = match luck < lost + late {
            true => self.rng.u64(100_000..9_000_000),
            false => 0,
        };
        let usual_us = self.rng.u64(200..6_000);
        self.database.under_way += 1;
        let event = Event::Statement(Box::new(statement));
        self.after(usual_us + slow_us + late_us, event);
    }

    fn answer_statement(&mut self, statement: &Statement, said: Said, wait_us: u64) {
        let &Statement {
            node,
            life,
            region,
            write_back,
            number,
            ..
        } = statement;
        let event = Event::Sql {
            node,
            life,
            region,
            write_back,
            number,
            said: Box::new(said),
        };
        self.after(wait_us, event);
    }

    /// A statement has come to the database.
    pub(crate) fn on_statement(&mut self, statement: Statement) {
        let wait_us = self.rng.u64(200..6_000);
        match self.database.health {
            Health::Blocked => {
                self.database.blocked.push(statement);
                return;
            }
            Health::Down => {
                self.database.under_way -= 1;
                let said = statement.ask.failed("the database is shutting down");
                self.answer_statement(&statement, said, wait_us);
                return;
            }
            Health::Well | Health::Slow => {}
        }
        self.database.under_way -= 1;
        let said = self.run_statement(&statement);
        let lost = self.plan.tables.as_ref().map_or(0, |tables| tables.lost);
        if self.is_calm || self.rng.u32(..1000) >= lost {
            self.answer_statement(&statement, said, wait_us);
        }
    }

    fn run_statement(&mut self, statement: &Statement) -> Said {
        let &Statement {
            node,
            write_back: term,
            number,
            ..
        } = statement;
        match &statement.ask {
            Ask::Load(table, keys) => {
                let read = self.database.load(table, keys);
                self.say(&[121, node, term, number], || {
                    format!("SQL of node {node}, write-back {term}: SELECT {keys:?} = {read:?}")
                });
                Said::Loaded(Ok(read))
            }
            Ask::Flush(table, rows) => {
                // Sometimes the connection breaks between two transactions.
                let is_torn = rows.len() > 1 && !self.is_calm && self.rng.u32(..50) == 0;
                let count = match is_torn {
                    true => self.rng.usize(..rows.len()),
                    false => rows.len(),
                };
                let (wrote, changes) = self.database.flush(table, &rows[..count]);
                let words = [122, node, term, number, changes.len() as u64];
                self.say(&words, || {
                    let row = |row: &table::leader::Flush| {
                        format!("{} {} ({}..={})", row.key, row.version, row.low, row.high)
                    };
                    let rows: Vec<String> = rows.iter().map(row).collect();
                    format!("SQL of node {node}, write-back {term}: UPSERT {rows:?} = {wrote:?}")
                });
                for change in changes {
                    if let Err(broken) = self.written.on_written(change) {
                        self.fail(broken);
                    }
                }
                match is_torn {
                    true => statement.ask.failed("the connection is gone"),
                    false => Said::Flushed(Ok(wrote)),
                }
            }
        }
    }

    pub(crate) fn trouble_database(&mut self, health: Health) {
        if self.database.health == Health::Well {
            self.database.health = health;
            let rest_us = self.nemesis.u64(50_000..5_000_000);
            self.after(rest_us, Event::Mend(Fault::Database));
        }
    }

    /// It is well again; what waited for the lock runs, in any order, or was cancelled.
    pub(crate) fn mend_database(&mut self) {
        self.database.health = Health::Well;
        for statement in std::mem::take(&mut self.database.blocked) {
            if self.rng.u32(..4) == 0 {
                self.database.under_way -= 1;
                continue;
            }
            let wait_us = self.rng.u64(100..30_000);
            self.after(wait_us, Event::Statement(Box::new(statement)));
        }
    }

    /// Whether SQL has everything as far as leaders know, and nothing is on its way there.
    pub(crate) fn is_drained(&self) -> bool {
        let is_drained = |region: u64| {
            let leader = self.leader_of(region);
            let leader = leader.map(|node| &self.nodes[node as usize - 1]);
            leader.is_some_and(|node| node.is_drained(region))
        };
        self.plan.tables.is_none()
            || self.row_audit.is_empty()
                && self.database.under_way == 0
                && (1..=self.plan.regions).all(is_drained)
    }

    /// In the end: SQL has the last version of every row, and so has every replica that caches it.
    pub(crate) fn check_drained(&mut self) {
        if self.plan.tables.is_none() {
            return;
        }
        if let Err(broken) = self.written.on_drained(&self.database) {
            return self.fail(broken);
        }
        for region in 1..=self.plan.regions {
            let leader = self.leader_of(region);
            let leader = leader.map(|node| &self.nodes[node as usize - 1]);
            let leader = leader.and_then(|node| node.replica(region));
            let Some(counted) = leader.map(|replica| replica.members().clone()) else {
                continue;
            };
            let mut wrong = None;
            for node in &self.nodes {
                let Some(replica) = node.replica(region).map(|replica| replica.id()) else {
                    continue;
                };
                if !counted.contains(replica) {
                    continue;
                }
                for (id, cached) in node.all_cached(region) {
                    let missing = (0, Contents::new());
                    let in_sql = self.database.rows.get(&id).unwrap_or(&missing);
                    if *in_sql != (cached.version, cached.contents.clone()) {
                        wrong = Some(format!(
                            "replica {replica} caches {id:?} as {cached:?}; SQL has {in_sql:?}"
                        ));
                    }
                }
            }
            if let Some(what) = wrong {
                return self.fail(Broken::new("written", what));
            }
        }
    }
}
