//! The pure command table against redis-server.

use std::time::Instant;

use crate::alike::{alike, show};
use crate::process::Server;
use crate::setting;
use crate::transcript::target::{Live, Pure, Request, Target};
use crate::transcript::wire::Value;
use crate::words::{Dice, Words};

fn ask(target: &mut dyn Target, argv: &[Vec<u8>]) -> Value {
    target.send(1, Request::Command(argv)).expect("send");
    target.receive(1).expect("receive")
}

/// The pure table cannot wait, so it answers as in MULTI, where BLMOVE's nothing is a bulk.
fn comparable(value: Value) -> Value {
    match value {
        Value::NilArray => Value::Nil,
        value => value,
    }
}

fn compare(version: u8) {
    let Some(server) = Server::redis() else {
        return;
    };
    let mut redis = Live::new(server.port).expect("connect");
    let mut pure = Pure::new();
    redis.protocol(1, version).expect("protocol");
    pure.protocol(1, version).expect("protocol");
    let mut words = Words {
        dice: Dice::new(setting("NEOKV_SEED", 1) ^ u64::from(version)),
        many: 12,
        spoils: true,
    };
    let mut history = Vec::new();
    let mut last = Instant::now();
    for round in 0..setting("NEOKV_ROUNDS", 25) * 150 {
        if round % 500 == 0 {
            history.clear();
            // Its clock stands still.
            pure.advance(last.elapsed().as_millis() as u64);
            last = Instant::now();
            let flush = [b"FLUSHALL".to_vec()];
            ask(&mut redis, &flush);
            ask(&mut pure, &flush);
        }
        let waits = words.dice.one_in(100);
        let command = if waits {
            words.waiting()
        } else {
            words.command()
        };
        history.push(crate::script::line(&command));
        let argv: Vec<Vec<u8>> = command
            .iter()
            .map(|word| word.clone().into_bytes())
            .collect();
        let expected = ask(&mut redis, &argv);
        let got = ask(&mut pure, &argv);
        let (expected, got) = match waits {
            true => (comparable(expected), comparable(got)),
            false => (expected, got),
        };
        assert!(
            alike(&command, &expected, &got),
            "round {round}, RESP{version}: {:#?}\nredis {}\npure  {}",
            &history[history.len().saturating_sub(12)..],
            show(&expected),
            show(&got)
        );
    }
}

#[test]
fn pure_table_resp2() {
    compare(2);
}

#[test]
fn pure_table_resp3() {
    compare(3);
}
