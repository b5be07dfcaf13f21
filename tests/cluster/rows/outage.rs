//! The drill: the database is stopped under load. Cached rows go on without an error, others are refused at once and
//! clearly, and afterwards SQL has everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use databases::Engine;

use super::{Rig, TABLE};
use crate::client::{Client, Fate};
use crate::given;
use crate::wire::Value;

const ROWS: usize = 300;
const SESSIONS: usize = 4;

/// What one session did to its own rows.
struct Done {
    counts: Vec<i64>,
    slowest: Duration,
}

fn work(mut client: Client, session: usize, stopped: &AtomicBool) -> Done {
    let own: Vec<usize> = (session..ROWS).step_by(SESSIONS).collect();
    let (mut counts, mut slowest) = (vec![0; ROWS], Duration::ZERO);
    while !stopped.load(Ordering::Relaxed) {
        for &row in &own {
            let key = key(row);
            counts[row] += 1;
            let asked = Instant::now();
            for (words, right) in [
                (&["HINCRBY", &key, "n", "1"][..], Value::Int(counts[row])),
                (
                    &["HGET", &key, "n"],
                    Value::Bulk(counts[row].to_string().into()),
                ),
            ] {
                match client.ask(&key, words) {
                    Fate::Done(replies) if replies == [right.clone()] => {}
                    other => panic!("{words:?} answered {other:?}, not {right:?}"),
                }
            }
            slowest = slowest.max(asked.elapsed() / 2);
        }
    }
    Done { counts, slowest }
}

fn key(row: usize) -> String {
    format!("{TABLE}:{row}")
}

#[test]
fn nobody_notices_that_the_database_is_away() {
    let Some(mut rig) = Rig::start(Engine::Postgres, &[]) else {
        return;
    };
    let away = given("NEOKV_SECONDS").map_or(5, |seconds| seconds.min(60));
    let away = Duration::from_secs(away);
    let mut client = rig.cluster.client();
    for row in 0..ROWS {
        let made = client.ask(&key(row), &["HSET", &key(row), "n", "0"]);
        assert!(matches!(made, Fate::Done(_)), "{made:?}");
    }
    rig.drain();
    let stopped = Arc::new(AtomicBool::new(false));
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|session| {
            let (mut client, stopped) = (rig.cluster.client(), stopped.clone());
            // Nothing happens to the nodes: only a very slow machine takes so long.
            client.timeout = Duration::from_secs(20);
            std::thread::spawn(move || work(client, session, &stopped))
        })
        .collect();
    rig.rest(Duration::from_millis(500));
    rig.database.kill();
    let began = Instant::now();
    let (mut misses, mut slowest, mut total) = (0, Duration::ZERO, Duration::ZERO);
    while began.elapsed() < away {
        misses += 1;
        let cold = format!("{TABLE}:cold{misses}");
        let words: [&str; 3] = match misses % 2 {
            0 => ["HGET", &cold, "n"],
            _ => ["ROW.DEL", &cold, "XX"],
        };
        let asked = Instant::now();
        match client.ask(&cold, &words) {
            Fate::Refused(why) if why.contains("SQLDOWN ") => {}
            other => panic!("a miss while the database is away: {other:?}"),
        }
        slowest = slowest.max(asked.elapsed());
        total += asked.elapsed();
        std::thread::sleep(Duration::from_millis(20));
    }
    rig.database.restart();
    // Still under load.
    let drained = rig.drain();
    stopped.store(true, Ordering::Relaxed);
    let (mut counts, mut slowest_hit) = (vec![0; ROWS], Duration::ZERO);
    for session in sessions {
        let done = session.join().expect("no error on a cached row");
        slowest_hit = slowest_hit.max(done.slowest);
        for (sum, count) in counts.iter_mut().zip(done.counts) {
            *sum += count;
        }
    }
    rig.drain();
    let keys: Vec<String> = (0..ROWS).map(key).collect();
    let rows = rig.sql().rows(&keys).expect("rows in SQL");
    for ((row, count), key) in rows.iter().zip(&counts).zip(&keys) {
        assert_eq!((row.version, row.n), (count + 1, *count), "{key}");
    }
    // Loads are tried again after a while only.
    rig.cluster.until("misses are answered again", |_| {
        let cold = format!("{TABLE}:cold1");
        match client.ask(&cold, &["HGET", &cold, "n"]) {
            Fate::Done(replies) if replies == [Value::Nil] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let changes: i64 = counts.iter().sum();
    assert!(slowest < Duration::from_secs(5), "a miss took {slowest:?}");
    eprintln!(
        "SUMMARY outage: {away:?} without the database, {changes} changes of {ROWS} rows without an error (the slowest \
         took {slowest_hit:?}); {misses} misses refused in {:?} on average, at most {slowest:?}; SQL had \
         everything {drained:?} after it was back",
        total / misses,
    );
}
