//! Scripts, run on all servers at once.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::alike::{Queue, show};
use crate::field::{Field, Player};
use crate::found;
use crate::script::{self, CLIENTS, Step, line};
use crate::setting;
use crate::shrink::shrink;
use crate::state::{self, argv};
use crate::transcript::wire::Value;
use crate::words::Argv;

#[test]
fn servers_side_by_side() {
    let Some(mut field) = Field::start() else {
        return;
    };
    for (what, steps) in found::scripts() {
        run(&mut field, &steps).unwrap_or_else(|wrong| panic!("again: {what}\n{wrong}"));
    }
    let first = setting("NEOKV_SEED", 1);
    let rounds = setting("NEOKV_ROUNDS", 25);
    for seed in first..first + rounds {
        let steps = script::draw(seed);
        if let Err(wrong) = run(&mut field, &steps) {
            drop(field);
            eprintln!("NEOKV_SEED={seed} NEOKV_ROUNDS=1: {wrong}");
            panic!("{}", shrink(steps, wrong));
        }
    }
}

/// Runs a script on servers that are emptied first. `Err` says what was wrong.
pub fn run(field: &mut Field, steps: &[Step]) -> Result<(), String> {
    field.clear()?;
    let mut queues: Vec<Queue> = (0..CLIENTS).map(|_| Queue::default()).collect();
    for (at, step) in steps.iter().enumerate() {
        let done = match step {
            Step::Send { client, commands } => send(field, *client, commands, &mut queues[*client]),
            Step::Together(all) => together(field, all, &mut queues),
            Step::Draw { db, key } => each(field, |player| draw(player, db, key)),
            Step::Walk { db, command } => each(field, |player| walk(player, db, command)),
            Step::Lapse { db, key } => lapse(field, db, key),
            Step::Kill => {
                queues = (0..CLIENTS).map(|_| Queue::default()).collect();
                field.kill().and_then(|()| state::compare(field))
            }
            Step::Reload => {
                queues = (0..CLIENTS).map(|_| Queue::default()).collect();
                reload(field).and_then(|()| state::compare(field))
            }
            Step::Check => state::compare(field),
        };
        done.map_err(|wrong| format!("step {at}, {step}\n{wrong}"))?;
    }
    state::compare(field).map_err(|wrong| format!("at the end\n{wrong}"))
}

fn send(
    field: &mut Field,
    client: usize,
    commands: &[Argv],
    queue: &mut Queue,
) -> Result<(), String> {
    for player in &mut field.0 {
        player.send(client, commands)?;
    }
    receive(field, client, commands, queue)
}

fn together(field: &mut Field, all: &[Vec<Argv>], queues: &mut [Queue]) -> Result<(), String> {
    // What was queued before is not on keys of its own.
    for (client, queue) in queues.iter_mut().enumerate() {
        if queue.is_open() {
            send(field, client, &[argv(&["DISCARD"])], queue)?;
        }
    }
    for player in &mut field.0 {
        for (client, commands) in all.iter().enumerate() {
            player.send(client, commands)?;
        }
    }
    for (client, (commands, queue)) in all.iter().zip(queues).enumerate() {
        receive(field, client, commands, queue)?;
    }
    Ok(())
}

fn receive(
    field: &mut Field,
    client: usize,
    commands: &[Argv],
    queue: &mut Queue,
) -> Result<(), String> {
    for argv in commands {
        let mut expected = None;
        for player in &mut field.0 {
            let got = player.receive(client)?;
            let expected = expected.get_or_insert_with(|| got.clone());
            if !queue.alike(argv, expected, &got) {
                return Err(format!(
                    "client {client}: reply to {}\nredis    {}\n{:8} {}",
                    line(argv),
                    show(expected),
                    player.name,
                    show(&got)
                ));
            }
        }
        if let Some(reply) = expected {
            queue.remember(argv, &reply);
        }
    }
    Ok(())
}

/// Something each player does by itself and tells of: all must tell the same.
fn each(
    field: &mut Field,
    mut run: impl FnMut(&mut Player) -> Result<String, String>,
) -> Result<(), String> {
    let mut expected = None;
    for player in &mut field.0 {
        let got = run(player)?;
        let expected = expected.get_or_insert_with(|| got.clone());
        if *expected != got {
            return Err(format!("redis    {expected}\n{:8} {got}", player.name));
        }
    }
    Ok(())
}

/// DEBUG RELOAD. Redis takes every watched key as changed by it, which the durable engine need not: all clients connect
/// anew.
fn reload(field: &mut Field) -> Result<(), String> {
    let reload = [argv(&["DEBUG", "RELOAD"])];
    each(field, |player| {
        player.disconnect();
        Ok(format!("{:?}", player.ask("0", &reload)?))
    })
}

/// SRANDMEMBER, and SPOP and back: what is drawn was a member, and is none after SPOP.
fn draw(player: &mut Player, db: &str, key: &str) -> Result<String, String> {
    let mut told = String::new();
    for draw in ["SRANDMEMBER", "SPOP"] {
        let drawn = player.ask(db, &[argv(&[draw, key])])?.remove(0);
        let Value::Bulk(member) = &drawn else {
            told += &format!("{draw}: {drawn:?} ");
            continue;
        };
        let member = String::from_utf8_lossy(member);
        let after = [
            argv(&["SISMEMBER", key, &member]),
            argv(&["SADD", key, &member]),
        ];
        told += &format!("{draw}: {:?} ", player.ask(db, &after)?);
    }
    Ok(told)
}

/// All that the steps of a SCAN give; elements may come twice, in any order.
fn walk(player: &mut Player, db: &str, command: &Argv) -> Result<String, String> {
    let at = command.len();
    let mut seen = BTreeSet::new();
    let mut cursor = "0".to_owned();
    for _ in 0..100_000 {
        let mut step = command.clone();
        step.insert(at, cursor);
        step.extend(argv(&["COUNT", "50"]));
        let reply = player.ask(db, &[step])?.remove(0);
        let parts = match &reply {
            Value::Array(parts) => parts.as_slice(),
            _ => return Ok(format!("{reply:?}")),
        };
        let [Value::Bulk(next), Value::Array(items)] = parts else {
            return Err(format!("{}: {reply:?}", player.name));
        };
        let together = match command[0].as_str() {
            "HSCAN" | "ZSCAN" => 2,
            _ => 1,
        };
        for item in items.chunks(together) {
            let mut text: Vec<String> = item.iter().map(show).collect();
            if command[0] == "ZSCAN" {
                // Redis writes the integers of its small sorted sets in full, 1e17, too.
                let score = text[1].trim_matches('"').parse::<f64>();
                text[1] = format!("{:?}", score.map(|score| score + 0.0));
            }
            seen.insert(text.join(" "));
        }
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            return Ok(format!("{} elements: {seen:?}", seen.len()));
        }
    }
    Err(format!("{}: the walk does not end", player.name))
}

fn lapse(field: &mut Field, db: &str, key: &str) -> Result<(), String> {
    let expire = [argv(&["PEXPIRE", key, "15"])];
    each(field, |player| {
        Ok(format!("{:?}", player.ask(db, &expire)?))
    })?;
    std::thread::sleep(Duration::from_millis(30));
    Ok(())
}
