//! A panic in a core, in the log writer or while an entry is applied ends the process, loudly: nobody is left waiting for
//! a thread that is gone, the other nodes go on, and nothing half applied survives.
//!
//! Milestones of a request are fail points in the binary that tests start (`neokv/milestones.rs`).

mod process;
mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::path::Path;

use process::Server;
use trio::{Link, Trio};

const ORDERS: &str = "fail-points";
const VARIABLE: &str = "NEOKV_FAIL_POINTS";

/// From now on a milestone does this.
fn order(file: &Path, milestone: &str, actions: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{milestone}={actions}\n")).expect("a file");
    std::fs::rename(&new, file).expect("a file");
}

fn slot(key: &str) -> u16 {
    base::slot::slot_of(key.as_bytes())
}

/// Writes at whoever leads, until it is taken; answers by nobody and doubts are no answer.
fn write(trio: &Trio, seen_by: usize, line: &str, key: &str) {
    trio.until(line, |trio| {
        let leader = trio.leader_of(slot(key), seen_by).unwrap_or(seen_by);
        let Ok(mut link) = trio.try_link(leader) else {
            return false;
        };
        let words: Vec<&str> = line.split(' ').collect();
        link.ask(&words)
            .is_ok_and(|value| trio::show(&value) == "OK")
    });
}

/// A transaction of several counters in one region, whose connection may break.
fn count_together(link: &mut Link, counters: &[String]) {
    let _ = link.send(&["MULTI"]);
    for counter in counters {
        let _ = link.send(&["INCR", counter]);
    }
    let _ = link.send(&["EXEC"]);
    for _ in 0..counters.len() + 2 {
        if link.receive().is_err() {
            return;
        }
    }
}

#[test]
fn a_node_that_panics_ends_and_the_others_go_on() {
    let mut trio = Trio::start_in(&[], &[(VARIABLE, ORDERS)]);
    let counters: Vec<String> = (0..6).map(|n| format!("{{t}}:{n}")).collect();
    let places = [
        ("the core sent the log job", "1*off->panic"),
        ("the log writer wrote the entry", "1*off->panic"),
        // In the middle of an entry.
        ("the region executed the command", "3*off->panic"),
        ("the region took a message of a peer", "20*off->panic"),
    ];
    for (round, (milestone, actions)) in places.into_iter().enumerate() {
        write(&trio, 0, &format!("SET {{t}}:before {round}"), "{t}");
        let mut leader = 0;
        trio.until("a leader", |trio| {
            let found = trio.leader_of(slot("{t}"), round % 3);
            leader = found.unwrap_or(0);
            found.is_some()
        });
        let others: Vec<usize> = (0..3).filter(|&node| node != leader).collect();
        order(&trio.file(leader, ORDERS), milestone, actions);
        for _ in 0..20 {
            match trio.try_link(leader) {
                Ok(mut link) => count_together(&mut link, &counters),
                Err(_) => break,
            }
        }
        assert!(
            !trio.ended(leader),
            "{milestone}: it ends, and not as if all were well"
        );
        let log = trio.log(leader);
        assert!(log.contains("this is a bug, and the process ends"), "{log}");
        write(&trio, others[0], &format!("SET {{t}}:after {round}"), "{t}");
        trio.restart(leader, &[]);
        // Whoever leads now: all counters are the same.
        trio.until("the counters can be read", |trio| {
            let leader = trio.leader_of(slot("{t}"), others[0]).unwrap_or(0);
            let Ok(mut link) = trio.try_link(leader) else {
                return false;
            };
            let words: Vec<&str> = ["MGET"]
                .into_iter()
                .chain(counters.iter().map(|it| &**it))
                .collect();
            let Ok(wire::Value::Array(values)) = link.ask(&words) else {
                return false;
            };
            assert!(
                values.windows(2).all(|two| two[0] == two[1]),
                "{milestone}: half of a transaction: {values:?}"
            );
            true
        });
    }
}

/// The same on a node alone: after a start an entry is there as a whole, or not at all.
#[test]
fn nothing_half_applied_survives() {
    let mut server = Server::durable_in(1, &[], &[(VARIABLE, ORDERS)]);
    let open = |server: &Server| Link::open(&format!("127.0.0.1:{}", server.port));
    let counters: Vec<String> = (0..6).map(|n| format!("counter:{n}")).collect();
    assert_eq!(open(&server).unwrap().say("SET kept 1"), "OK");
    order(
        &server.file(ORDERS),
        "the region executed the command",
        "3*off->panic",
    );
    count_together(&mut open(&server).unwrap(), &counters);
    assert!(!server.ended(), "it ends, and not as if all were well");
    assert!(server.log().contains("this is a bug, and the process ends"));
    server.kill_and_restart();
    let mut link = open(&server).unwrap();
    assert_eq!(link.say("GET kept"), "1");
    let all = link.say(&format!("MGET {}", counters.join(" ")));
    // The log had it before it was applied.
    assert_eq!(all, "[1 1 1 1 1 1]");
}
