//! What SQL is asked, counted: one SELECT for all who miss a row or many, none for what is known to be missing, one statement for many
//! changes, and never two for one row at a time.

use databases::Engine;

use crate::node::{call, try_call};
use crate::sql::{Backend, Lock, Rows, number, text, until};

/// SELECTs for rows, and rows they were for.
fn loads(client: &mut redis::Connection) -> (i64, i64) {
    (number(client, "loads"), number(client, "loaded"))
}

#[test]
fn all_who_miss_a_row_share_one_select() {
    let Some(backend) = Backend::of(Engine::Postgres) else {
        return;
    };
    let rows = Rows::start(backend);
    let client = &mut rows.client();
    assert_eq!(loads(client), (0, 0));
    const CLIENTS: usize = 24;
    let lock = Lock::take(&rows, "LOCK TABLE users IN ACCESS EXCLUSIVE MODE");
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let mut client = rows.client();
                scope.spawn(move || match n % 2 {
                    0 => text(&mut client, "HGET users:{x}nobody age"),
                    _ => text(&mut client, "HINCRBY users:{x}somebody gold 1"),
                })
            })
            .collect();
        until("all of them wait", || {
            number(client, "waiting") == CLIENTS as i64
        });
        drop(lock);
        let told: Vec<String> = asking.into_iter().map(|it| it.join().unwrap()).collect();
        assert!(told.iter().step_by(2).all(|it| it == "nil"), "{told:?}");
        let mut sums: Vec<i64> = told
            .iter()
            .skip(1)
            .step_by(2)
            .map(|it| it.parse().unwrap())
            .collect();
        sums.sort();
        let expected: Vec<i64> = (1..=CLIENTS as i64 / 2).collect();
        assert_eq!(sums, expected, "one after the other, and none lost");
    });
    let (selects, loaded) = loads(client);
    assert!(
        selects <= 2 && loaded == 2,
        "{selects} SELECTs, {loaded} rows"
    );
    // It is known that there is none.
    for _ in 0..50 {
        assert_eq!(text(client, "HGET users:{x}nobody age"), "nil");
        assert_eq!(text(client, "EXISTS users:{x}nobody"), "0");
    }
    assert_eq!(loads(client), (selects, 2));
    // Many rows at once.
    let mut many = redis::cmd("ROW.MGET");
    many.arg(100);
    (0..100).for_each(|n| {
        many.arg(format!("users:{{x}}{n}"));
    });
    let found: Vec<(String, i64, Vec<String>)> = many.query(client).unwrap();
    assert!(found.iter().all(|row| row.0 == "not_exist"));
    assert_eq!(loads(client), (selects + 1, 102), "all by one SELECT");
}

#[test]
fn many_changes_are_one_statement_and_no_row_has_two_at_a_time() {
    let Some(backend) = Backend::of(Engine::Postgres) else {
        return;
    };
    let rows = Rows::start(backend);
    let client = &mut rows.client();
    const ROWS: usize = 5;
    for n in 0..ROWS {
        call::<i64>(client, &format!("HSET users:{n} gold 0"));
    }
    rows.drain();
    let before = number(client, "flushes");
    rows.backend.server.as_ref().unwrap().pause();
    const CHANGES: usize = 4000;
    for round in 1..=8 {
        let mut pipe = redis::pipe();
        for n in 0..CHANGES / 8 {
            let key = format!("users:{}", n % ROWS);
            pipe.cmd("HINCRBY").arg(key).arg("gold").arg(1).ignore();
        }
        pipe.query::<()>(client).unwrap();
        if round == 1 {
            until("the first of them is sent", || number(client, "flying") > 0);
        }
        let flying = number(client, "flying");
        assert!(flying <= ROWS as i64, "{flying} statements' rows under way");
    }
    // What SQL does not have stays, whoever asks.
    let told = try_call::<String>(client, "ROW.KICK users:1").unwrap_err();
    assert!(told.to_string().contains("not in SQL yet"), "{told}");
    rows.backend.server.as_ref().unwrap().resume();
    rows.drain();
    let flushes = number(client, "flushes") - before;
    assert!(
        flushes * 50 <= CHANGES as i64,
        "{flushes} statements for {CHANGES} changes"
    );
    let sql = rows.sql();
    for n in 0..ROWS {
        let (version, values) = sql.row(&n.to_string()).unwrap();
        let each = (CHANGES / ROWS) as u64;
        assert_eq!(version, each as i64 + 1, "{n}");
        assert_eq!(values["gold"], table::Value::Uint(each), "{n}");
    }
    assert_eq!(text(client, "ROW.KICK users:1"), "OK");
}
