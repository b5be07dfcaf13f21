//! Rows of a table on three nodes over a real database, while nodes and database fail at random: the oracle test.
//!
//! ```text
//!   traffic.rs, grpc.rs: sessions ─► nodes (killed, paused, cut off) ─► database (killed, paused, slow, locked: faults.rs)
//!        │                                                         │
//!        └─► calls ──► judge.rs: one order explains them ◄── watch.rs: what SQL has, all the while
//!                      (model.rs: a row without copies)
//! ```
//!
//! In the end, with nothing broken: drained, SQL has exactly what the cache has, no row is a dead letter, every row can leave the
//! cache and comes back the same, all replicas are equal. `outage.rs` is the drill with the database stopped, `together.rs`
//! that in which all nodes die at once.

mod faults;
mod grpc;
mod judge;
mod model;
mod outage;
mod together;
mod traffic;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use databases::{Engine, Server};

use self::model::{FIELDS, Row};
use self::traffic::Traffic;
use self::watch::{Sql, Watch};
use crate::client::{Fate, Session, text};
use crate::network::Network;
use crate::nodes::{Cluster, Plan};
use crate::wire::Value;
use crate::{Dice, given, seed, storm, verify};

const TABLE: &str = "things";
/// Until rows of every region are written again, when nothing is broken any more.
const RESUMED: Duration = Duration::from_secs(30);

/// Three nodes over one database.
pub struct Rig {
    pub cluster: Cluster,
    pub database: Server,
    engine: Engine,
    url: String,
    lock: Option<faults::Lock>,
    /// The database answers in beats.
    is_slow: bool,
}

impl Rig {
    /// `None`: the database is not installed.
    pub fn start(engine: Engine, settings: &[&str]) -> Option<Rig> {
        let database = Server::start(engine)?;
        let url = database.url();
        let plan = Plan::default()
            .with(&["--table-backend", &url])
            .with(settings);
        let rig = Rig {
            cluster: Cluster::start_on(Network::new(), plan),
            database,
            engine,
            url,
            lock: None,
            is_slow: false,
        };
        let created = rig.ask(1, &["ROW.TABLE", "CREATE", TABLE, "FIELDS", FIELDS]);
        assert_eq!(created, Value::Simple(b"OK".to_vec()));
        Some(rig)
    }

    /// One node, with much timeout.
    fn ask(&self, number: usize, words: &[&str]) -> Value {
        let address = self.cluster.address(number);
        let session = Session::open(&address, Duration::from_secs(90));
        let reply = session.and_then(|mut it| it.ask(words));
        reply.unwrap_or_else(|error| panic!("{words:?} at node {number}: {error}"))
    }

    fn sql(&self) -> Sql {
        Sql::open(&self.url, TABLE)
    }

    /// SQL has everything; how long that took. Nobody changes anything meanwhile.
    pub fn drain(&self) -> Duration {
        let began = Instant::now();
        self.cluster.until("all regions are drained", |_| {
            let mut slots = 0;
            for number in 1..=3 {
                let reply = self.ask(number, &["ROW.TABLE", "DRAIN", "TIMEOUT", "60000"]);
                let of = |name| number_of(&reply, name).ok_or_else(|| format!("{reply:?}"));
                slots += of("slots")?;
                assert_eq!(of("dead")?, 0, "dead letters: {reply:?}");
            }
            // A region may have gone from one to the other just then.
            match slots {
                16384 => Ok(()),
                slots => Err(format!("{slots} slots were drained")),
            }
        });
        began.elapsed()
    }

    /// Everything that must hold when nothing is broken and nobody works any more: how many keys could not be decided, and how
    /// long SQL took to have everything.
    fn verify(&self, keys: &[String], traffic: Traffic, watch: Watch) -> (usize, Duration) {
        let (mut calls, after) = traffic.finish();
        self.cluster.until_healthy();
        let last = after.read(&self.cluster, keys, &mut calls);
        let drained = self.drain();
        let began = Instant::now();
        let seen = watch.finish();
        compare(keys, &last, &self.sql().rows(keys).expect("rows in SQL"));
        self.kick_all(keys);
        let again = after.read(&self.cluster, keys, &mut calls);
        compare(keys, &last, &again);
        verify::digest(&self.cluster);
        let compared = began.elapsed();
        let undecided = judge::judge(keys, &calls, &last, &seen);
        eprintln!(
            "compared in {compared:?}, judged after {:?}",
            began.elapsed()
        );
        for number in 1..=3 {
            let log = self.cluster.log(number);
            for word in ["panicked", "uarantine"] {
                assert!(!log.contains(word), "node {number}: {word}\n{log}");
            }
        }
        (undecided, drained)
    }

    /// SQL has everything, so every row may leave the cache.
    fn kick_all(&self, keys: &[String]) {
        let mut client = self.cluster.client();
        for key in keys {
            self.cluster.until(&format!("{key} is kicked"), |_| {
                match client.ask(key, &["ROW.KICK", key]) {
                    Fate::Done(_) => Ok(()),
                    why => Err(format!("{why:?}")),
                }
            });
        }
    }
}

fn compare(keys: &[String], right: &[Row], found: &[Row]) {
    for ((key, right), found) in keys.iter().zip(right).zip(found) {
        assert_eq!(right, found, "{key}");
    }
    assert_eq!(right.len(), found.len());
}

/// A number of a reply that is a map, by name.
fn number_of(reply: &Value, name: &str) -> Option<i64> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let mut pairs = parts.chunks(2);
    let pair = pairs.find(|pair| text(&pair[0]).as_deref() == Some(name))?;
    match pair.get(1)? {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// Counters and registers, new ones for each round.
fn keys(round: usize) -> Arc<Vec<String>> {
    let counters = (0..10).map(|n| format!("{TABLE}:c{round}-{n}"));
    let registers = (0..14).map(|n| format!("{TABLE}:r{round}-{n}"));
    Arc::new(counters.chain(registers).collect())
}

#[test]
fn rows_survive_faults_of_nodes_and_database() {
    let seed = seed();
    let seconds = given("NEOKV_SECONDS");
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(1));
    let mut dice = Dice::new(seed);
    let engine = match seconds {
        Some(_) => dice.pick(&[Engine::Postgres, Engine::Mariadb]),
        None => Engine::Postgres,
    };
    // Time-outs that are shorter than some of the faults; a short log, so that those who were away need snapshots.
    let settings = "--table-statement-timeout-ms 1000 --log-size 64kb --log-keep-entries 50";
    let settings: Vec<&str> = settings.split(' ').collect();
    let Some(mut rig) = Rig::start(engine, &settings) else {
        return;
    };
    let (mut round, mut undecided, mut slowest) = (0, 0, Duration::ZERO);
    while round == 0 || Instant::now() < until {
        round += 1;
        eprintln!("round {round}");
        let keys = keys(round);
        let watch = Watch::start(&rig.url, TABLE, keys.clone());
        let (floors, dice_seed) = (watch.floors.clone(), dice.roll(1 << 30));
        let traffic = Traffic::start(&rig.cluster, keys.clone(), floors, dice_seed);
        traffic.until_written(RESUMED);
        let first = dice.roll(2);
        for strike in 0..if seconds.is_some() { 8 } else { 3 } {
            // Of both kinds in every round.
            match strike % 2 == first {
                true => storm::strike(&mut rig.cluster, &mut dice),
                false => rig.strike_database(&mut dice),
            }
            rig.rest(Duration::from_millis(200 + dice.roll(2000)));
            if dice.roll(3) > 0 {
                rig.calm();
                rig.rest(Duration::from_millis(dice.roll(1000)));
            }
        }
        rig.calm();
        rig.depose(&traffic, round);
        let pause = traffic.until_written(RESUMED);
        let (undecided_now, drained) = rig.verify(&keys, traffic, watch);
        eprintln!("all is well; written again after {pause:?}, drained after {drained:?}");
        undecided += undecided_now;
        slowest = slowest.max(drained);
    }
    eprintln!(
        "SUMMARY rows: {round} rounds over {engine:?}; SQL equals the cache and all replicas are equal; \
         the slowest drain took {slowest:?}; {undecided} keys undecided"
    );
}
