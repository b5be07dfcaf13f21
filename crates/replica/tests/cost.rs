//! What a proposal costs in CPU beside disk and commands. For people, not for CI:
//! `cargo test --release -p replica --test cost -- --ignored --nocapture`

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // measuring needs a clock

use std::time::Instant;

use replica::entry::{self, Body, EntryWriter};
use replica::{MapLog, Ready, Replica, ReplicaConfig};

const ROUNDS: u64 = 200_000;

fn cycles(in_flight: usize, payload_bytes: usize) -> f64 {
    let log = MapLog::new();
    let mut replica = Replica::new(ReplicaConfig::default(), &log).unwrap();
    let mut out = Ready::default();
    let mut numbers = std::collections::VecDeque::new();
    let started = Instant::now();
    for _ in 0..ROUNDS {
        if replica.propose(vec![7; payload_bytes]).is_err() {
            panic!("refused");
        }
        replica.ready(&mut out);
        numbers.extend(out.write.as_ref().map(|write| write.number));
        if numbers.len() > in_flight {
            replica.on_persisted(numbers.pop_front().unwrap_or_default());
        }
        while replica.has_ready() {
            replica.ready(&mut out);
            if let Some(last) = out.committed.last() {
                replica.on_applied(last.index);
            }
        }
    }
    started.elapsed().as_nanos() as f64 / ROUNDS as f64
}

#[test]
#[ignore = "a measurement"]
fn cost_of_a_cycle() {
    for (in_flight, bytes) in [(0, 128), (0, 4096), (8, 128)] {
        cycles(in_flight, bytes);
        let ns = cycles(in_flight, bytes);
        println!("propose to applied, {bytes} bytes, {in_flight} writes behind: {ns:.0} ns");
    }

    let mut writer = EntryWriter::new();
    let args: [&[u8]; 3] = [
        b"SET",
        b"key:000000012345",
        b"a value of some thirty-two bytes",
    ];
    let (mut bytes, mut seen) = (0, 0);
    let started = Instant::now();
    for round in 0..ROUNDS / 16 {
        for _ in 0..16 {
            writer.push(0, args.into_iter());
        }
        let payload = writer.finish(round, round);
        bytes = payload.len();
        let Ok(decoded) = entry::decode(&payload) else {
            panic!("corrupt");
        };
        if let Body::Commands(commands) = decoded.body {
            seen += commands
                .map(|c| c.spans().map(|(_, len)| len).sum::<u32>())
                .sum::<u32>();
        }
    }
    let ns = started.elapsed().as_nanos() as f64 / ROUNDS as f64;
    assert!(seen > 0);
    println!("written and read back, 16 SET in an entry of {bytes} bytes: {ns:.0} ns per command");
}
