//! What a command over several regions changes is more than the log takes: it is refused, nothing of it has
//! happened, and everybody else goes on. On the running binary, whose log takes little in these tests
//! (`NEOKV_TEST_CHANGE_BYTES`, in builds for tests only).

#[allow(dead_code)] // shared with other tests, which use the rest
mod process;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use process::Server;
use redis::{Cmd, Connection, FromRedisValue, RedisResult, cmd};

const MOST_BYTES: usize = 64 * 1024;
const REFUSED: &str = "the change is too large for the log";

fn server(shards: usize) -> Option<Server> {
    let most = MOST_BYTES.to_string();
    let environment = [("NEOKV_TEST_CHANGE_BYTES", &*most)];
    // A release build has the limit of 1 GiB.
    cfg!(debug_assertions).then(|| Server::durable_in(shards, &[], &environment))
}

fn client(server: &Server) -> Connection {
    client_at(server.port)
}

fn client_at(port: u16) -> Connection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let connection = client.get_connection().unwrap();
    let timeout = Some(Duration::from_secs(60));
    connection.set_read_timeout(timeout).unwrap();
    connection
}

fn words(line: &str) -> Cmd {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command
}

fn ask<T: FromRedisValue>(client: &mut Connection, line: &str) -> T {
    words(line)
        .query(client)
        .unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[track_caller]
fn is_refused(result: RedisResult<redis::Value>) {
    let error = result.expect_err("it is too large").to_string();
    assert!(error.contains(REFUSED), "{error}");
}

/// Two keys with this name, in regions of different cores: the first and the last of all slots.
fn apart(name: &str) -> (String, String) {
    let key = |wanted: fn(u16) -> bool| {
        let tags = (0..).map(|n| format!("{n}"));
        let mut found = tags.filter(|tag| wanted(base::slot::slot_of(tag.as_bytes())));
        format!("{{{}}}{name}", found.next().unwrap())
    };
    (key(|slot| slot < 1000), key(|slot| slot > 15_000))
}

fn digest(client: &mut Connection) -> String {
    ask(client, "DEBUG DIGEST")
}

/// Fills a list of four times what the log takes; it is not in the store yet when this returns.
fn fill(client: &mut Connection, key: &str) {
    let element = "x".repeat(1024);
    for _ in 0..8 {
        let mut push = cmd("RPUSH");
        push.arg(key);
        (0..32).for_each(|n| {
            push.arg(format!("{n}{element}"));
        });
        push.query::<()>(client).unwrap();
    }
}

#[test]
fn it_is_refused_and_nothing_has_happened() {
    let Some(mut server) = server(4) else {
        return;
    };
    let client = &mut client(&server);
    let ((big, big_there), (small, small_there)) = (apart("big"), apart("small"));
    let (set, set_there) = apart("set");
    let (text, text_there) = apart("text");
    let (count, count_there) = apart("count");
    fill(client, &big);
    for n in 0..100 {
        let line = format!("SADD {set} {n}{}", "m".repeat(1024));
        ask::<()>(client, &line);
    }
    ask::<()>(client, &format!("SET {text} {}", "t".repeat(100_000)));
    ask::<()>(client, &format!("SET {small} v PX 600000"));
    let half = "h".repeat(MOST_BYTES * 2 / 3);
    let commands = [
        format!("RENAME {big} {big_there}"),
        format!("COPY {big} {big_there}"),
        format!("COPY {text} {text_there}"),
        format!("SUNIONSTORE {set_there} {set} {small_there}:none"),
        format!("SORT {big} ALPHA STORE {set_there}"),
        // No region has too much, the record has.
        format!("MSET {small} {half} {small_there} {half}"),
    ];
    let mut n = 0;
    for line in &commands {
        // Acknowledged, and in memory and the log only.
        n += 1;
        assert_eq!(ask::<i64>(client, &format!("INCR {count}")), n);
        assert_eq!(ask::<i64>(client, &format!("INCR {count_there}")), n);
        is_refused(words(line).query(client));
        assert_eq!(ask::<i64>(client, &format!("GET {count}")), n, "{line}");
        assert_eq!(ask::<i64>(client, &format!("GET {count_there}")), n);
        assert_eq!(ask::<i64>(client, &format!("LLEN {big}")), 256, "{line}");
        assert_eq!(ask::<i64>(client, &format!("SCARD {set}")), 100);
        assert_eq!(ask::<i64>(client, &format!("STRLEN {text}")), 100_000);
        let there = format!("EXISTS {big_there} {set_there} {text_there} {small_there}");
        assert_eq!(ask::<i64>(client, &there), 0, "{line}");
        assert!(ask::<i64>(client, &format!("PTTL {small}")) > 500_000);
        // What is not too large goes as ever.
        ask::<()>(client, &format!("MSET {small}:1 {n} {small_there}:1 {n}"));
        ask::<()>(client, &format!("RENAME {small}:1 {small_there}:2"));
    }
    let before = digest(client);
    // A transaction is refused whole, whatever is in it.
    for watch in [false, true] {
        for line in &commands[..5] {
            if watch {
                ask::<()>(client, &format!("WATCH {count} {big}"));
            }
            ask::<()>(client, "MULTI");
            for queued in [
                &format!("INCR {count}"),
                &format!("DEL {small}"),
                line,
                &format!("SET {count_there} x"),
                &"FLUSHDB".to_owned(),
                &"SWAPDB 0 1".to_owned(),
                &format!("MSET {small} {half} {small_there} {half}"),
            ] {
                assert_eq!(ask::<String>(client, queued), "QUEUED");
            }
            is_refused(words("EXEC").query(client));
            assert_eq!(digest(client), before, "{line}");
        }
    }
    // With a command about the session in it, it goes another way.
    ask::<()>(client, "MULTI");
    ask::<()>(client, "CLIENT GETNAME");
    ask::<()>(client, &format!("INCR {count}"));
    ask::<()>(client, &commands[0]);
    is_refused(words("EXEC").query(client));
    assert_eq!(digest(client), before);
    is_refused(words("DEBUG POPULATE 1000 key 1000").query(client));
    assert_eq!(digest(client), before);
    assert_eq!(ask::<i64>(client, &format!("INCR {count}")), n + 1);
    let after = digest(client);
    server.kill_and_restart();
    assert_eq!(digest(&mut self::client(&server)), after);
    assert!(!server.log().contains("writes stopped"), "{}", server.log());
}

#[test]
fn who_watches_and_who_waits_is_not_lost() {
    let Some(server) = server(4) else {
        return;
    };
    let (culprit, other) = (&mut client(&server), &mut client(&server));
    let ((big, big_there), (watched, _)) = (apart("big"), apart("watched"));
    let (_, queue) = apart("queue");
    fill(culprit, &big);
    ask::<()>(culprit, &format!("SET {watched} 0"));
    let mut waiting = client(&server);
    let line = format!("BLPOP {queue} 60");
    let waiter = thread::spawn(move || ask::<(String, String)>(&mut waiting, &line));
    while !ask::<String>(other, "INFO clients").contains("blocked_clients:1") {
        thread::sleep(Duration::from_millis(5));
    }
    let too_much = |culprit: &mut Connection| {
        ask::<()>(culprit, "MULTI");
        ask::<()>(culprit, &format!("INCR {watched}"));
        ask::<()>(culprit, &format!("RPUSH {queue} never"));
        ask::<()>(culprit, &format!("RENAME {big} {big_there}"));
        is_refused(words("EXEC").query(culprit));
    };
    // What never was is no change.
    ask::<()>(other, &format!("WATCH {watched}"));
    too_much(culprit);
    ask::<()>(other, "MULTI");
    ask::<()>(other, &format!("INCR {watched}"));
    assert_eq!(ask::<Vec<i64>>(other, "EXEC"), [1]);
    // What was, is, also if the region's memory was dropped in between.
    ask::<()>(other, &format!("WATCH {watched}"));
    too_much(culprit);
    ask::<()>(culprit, &format!("SET {watched} 5"));
    ask::<()>(other, "MULTI");
    ask::<()>(other, &format!("INCR {watched}"));
    assert_eq!(ask::<Option<Vec<i64>>>(other, "EXEC"), None);
    assert_eq!(ask::<i64>(other, &format!("GET {watched}")), 5);
    assert!(!waiter.is_finished());
    ask::<()>(culprit, &format!("RPUSH {queue} now"));
    assert_eq!(waiter.join().unwrap(), (queue.clone(), "now".into()));
    assert_eq!(ask::<i64>(other, &format!("EXISTS {queue}")), 0);
}

/// Commands that share a group with one that is too large are done, exactly once.
#[test]
fn others_of_the_group_do_not_suffer() {
    let (big, there) = apart("big");
    let lines = |words: [&str; 2]| words.map(|it| it.replace("BIG", &big).replace("THERE", &there));
    stress(4, &lines(["RENAME BIG THERE", "COPY BIG THERE"]));
    // One region, one core: all of these gather.
    let sorts = [
        "SORT BIG ALPHA STORE THERE",
        "SORT BIG ALPHA DESC STORE THERE",
    ];
    stress(1, &lines(sorts));
}

fn stress(shards: usize, culprits: &[String]) {
    const RUN: Duration = Duration::from_secs(3);
    let Some(mut server) = server(shards) else {
        return;
    };
    let (big, big_there) = apart("big");
    let first = &mut client(&server);
    fill(first, &big);
    let length: i64 = ask(first, &format!("LLEN {big}"));
    let stop = AtomicBool::new(false);
    let (port, stop_ref) = (server.port, &stop);
    let (refused, counts) = thread::scope(|scope| {
        let culprits: Vec<_> = culprits
            .iter()
            .map(|line| {
                scope.spawn(move || {
                    let (client, mut refused) = (&mut client_at(port), 0);
                    while !stop_ref.load(Ordering::Relaxed) {
                        is_refused(words(line).query(client));
                        refused += 1;
                    }
                    refused
                })
            })
            .collect();
        let others: Vec<_> = (0..8)
            .map(|at| {
                let (here, there) = apart(&format!("n{at}"));
                let (shared, _) = apart("shared");
                scope.spawn(move || {
                    let (client, mut count) = (&mut client_at(port), 0);
                    while !stop_ref.load(Ordering::Relaxed) {
                        ask::<()>(client, &format!("WATCH {shared}"));
                        let seen: Option<i64> = ask(client, &format!("GET {shared}"));
                        ask::<()>(client, "MULTI");
                        ask::<()>(client, &format!("INCR {here}"));
                        ask::<()>(client, &format!("SET {shared} {}", seen.unwrap_or(0) + 1));
                        ask::<()>(client, &format!("INCR {there}"));
                        let done: Option<(i64, String, i64)> = ask(client, "EXEC");
                        if let Some((of_here, _, of_there)) = done {
                            count += 1;
                            assert_eq!((of_here, of_there), (count, count));
                        }
                        let line = format!("MSET {here}:a {count} {there}:a {count}");
                        ask::<()>(client, &line);
                    }
                    (here, there, count)
                })
            })
            .collect();
        thread::sleep(RUN);
        stop.store(true, Ordering::Relaxed);
        let refused: Vec<u64> = culprits.into_iter().map(|it| it.join().unwrap()).collect();
        let counts: Vec<_> = others.into_iter().map(|it| it.join().unwrap()).collect();
        (refused, counts)
    });
    let done: Vec<i64> = counts.iter().map(|it| it.2).collect();
    eprintln!("refused {refused:?}, done {done:?}");
    assert!(refused.iter().all(|&refused| refused > 0), "{refused:?}");
    assert!(done.iter().sum::<i64>() > 0);
    for restarted in [false, true] {
        if restarted {
            server.kill_and_restart();
        }
        let client = &mut client(&server);
        for (here, there, count) in counts.iter().filter(|it| it.2 > 0) {
            assert_eq!(ask::<i64>(client, &format!("GET {here}")), *count);
            assert_eq!(ask::<i64>(client, &format!("GET {there}")), *count);
        }
        let shared: i64 = ask(client, &format!("GET {}", apart("shared").0));
        assert_eq!(shared, done.iter().sum::<i64>());
        assert_eq!(ask::<i64>(client, &format!("LLEN {big}")), length);
        assert_eq!(ask::<i64>(client, &format!("EXISTS {big_there}")), 0);
    }
    assert!(!server.log().contains("writes stopped"), "{}", server.log());
}
