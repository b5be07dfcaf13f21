//! The database is away: cached rows go on, others are refused fast and clearly, and SQL has everything afterwards.

use std::time::{Duration, Instant};

use redis::Value;

use crate::node::{call, try_call};
use crate::sql::{Backend, Rows, text};

#[test]
fn cached_rows_go_on_without_the_database() {
    let engines = [databases::Engine::Postgres, databases::Engine::Mariadb];
    for backend in engines.into_iter().filter_map(Backend::of) {
        let mut rows = Rows::start(backend);
        let client = &mut rows.client();
        for n in 0..50 {
            call::<i64>(client, &format!("HSET users:{n} age 0"));
        }
        rows.drain();
        rows.backend.server.as_mut().unwrap().kill();
        for round in 1..=20 {
            for n in 0..50 {
                let age: i64 = call(client, &format!("HINCRBY users:{n} age 1"));
                assert_eq!(age, round);
            }
        }
        let began = Instant::now();
        let mut slowest = Duration::ZERO;
        for n in 0..20 {
            let asked = Instant::now();
            let told = try_call::<Value>(client, &format!("HGET users:cold{n} age")).unwrap_err();
            assert!(told.to_string().contains("SQLDOWN"), "{told}");
            slowest = slowest.max(asked.elapsed());
        }
        eprintln!(
            "20 misses refused in {:?}, the slowest in {slowest:?}",
            began.elapsed()
        );
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
        // What is dirty survives the node, too.
        rows.restart();
        let client = &mut rows.client();
        assert_eq!(text(client, "HGET users:3 age"), "20");
        rows.backend.server.as_mut().unwrap().restart();
        rows.drain();
        let sql = rows.sql();
        for n in 0..50 {
            assert_eq!(sql.age(&n.to_string()), Some((21, 20)), "{n}");
        }
        assert_eq!(text(client, "HGET users:cold1 age"), "nil");
    }
}
