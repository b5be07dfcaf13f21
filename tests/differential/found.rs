//! Scripts that once failed, as short as they could be made.

use crate::script::Step;
use crate::words::Argv;

/// Each with what was wrong.
pub fn scripts() -> Vec<(&'static str, Vec<Step>)> {
    let mut met_due = Vec::new();
    for _ in 0..10 {
        met_due.extend([
            send("SET s1 x"),
            send("RPUSH l2 a b c d"),
            Step::Lapse {
                db: "0".to_owned(),
                key: "s1".to_owned(),
            },
            send("PEXPIREAT s1 1000000000000"),
            send("LMPOP 2 l0 l2 RIGHT COUNT 11"),
        ]);
    }
    // Keys with one tag are in one region.
    let mut taken_in_turns = Vec::new();
    for _ in 0..20 {
        taken_in_turns.extend([
            send("RPUSH {t}l0 a b"),
            send("RPUSH {t}l1 a b"),
            send("LLEN {t}l1"),
            send("BRPOP {t}l0 {t}l1 0.001"),
            send("LLEN {t}l0"),
            send("BRPOP {t}l1 {t}l0 0.001"),
        ]);
    }
    vec![
        (
            "a due key that an earlier command had met, not in memory any more, made a command on held regions run twice",
            met_due,
        ),
        (
            "who watched a key was not told of a value whose time had come before it was set",
            ["WATCH s1", "SET s1 x PXAT 1", "MULTI", "EXEC"]
                .map(send)
                .to_vec(),
        ),
        (
            "a blocking command loaded its keys one by one, and each pushed the other out of memory",
            taken_in_turns,
        ),
    ]
}

fn send(line: &str) -> Step {
    let command: Argv = line.split(' ').map(str::to_owned).collect();
    Step::Send {
        client: 0,
        commands: vec![command],
    }
}
