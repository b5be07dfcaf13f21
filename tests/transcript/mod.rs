//! Transcripts: files of commands and the replies expected, run against several targets.
//!
//! ```text
//!   tests/transcripts/*.txt ── script ──► steps ── run ──► Target (pure table │ server │ redis)
//!                               notation: expectation ◄── compared ──► wire: reply
//! ```
//!
//! The notation is described for people in `tests/transcripts/README.md`.

pub mod notation;
pub mod script;
pub mod tagged;
pub mod target;
pub mod wire;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use script::{Action, Expected, Script, Step};
use target::{Request, TIMEOUT, Target};
use wire::Value;

/// What the target is allowed to leave out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Pure,
    Server,
    /// A durable server whose values do not stay in memory: what tells of that is not compared.
    Uncached,
    /// Of a cluster, all keys in one slot. What it refuses is not compared.
    Cluster,
    /// As `Cluster`, at a node that asks another for everything.
    Forwarding,
    Oracle,
}

pub fn folder() -> PathBuf {
    PathBuf::from("../../tests/transcripts")
}

/// The files whose name contains `NEOKV_TRANSCRIPT` (all if it is not set), by name.
pub fn files() -> Vec<PathBuf> {
    let wanted = std::env::var("NEOKV_TRANSCRIPT").unwrap_or_default();
    let mut files: Vec<_> = std::fs::read_dir(folder())
        .expect("tests/transcripts")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "txt"))
        .filter(|path| path.to_string_lossy().contains(&wanted))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no transcript is called {wanted:?}");
    files
}

/// Runs every transcript that fits the target; panics with all that differed.
pub fn run_all(target: &mut dyn Target, kind: Kind) {
    let mut failures = Vec::new();
    let mut steps = 0;
    for path in files() {
        let script = match Script::read(&path) {
            Ok(script) => script,
            Err(why) => {
                failures.push(why);
                continue;
            }
        };
        if script.needs_server && kind == Kind::Pure {
            continue;
        }
        let left_out = match kind {
            Kind::Cluster => NOT_ON_A_CLUSTER,
            Kind::Forwarding => &[NOT_ON_A_CLUSTER, NOT_FORWARDED].concat(),
            _ => &[],
        };
        if let Some((_, why)) = left_out.iter().find(|(of, _)| path.ends_with(of)) {
            println!("{}: left out: {why}", path.display());
            continue;
        }
        if let (Kind::Oracle, Some(why)) = (kind, &script.oracle_skip) {
            println!("{}: not on the oracle: {why}", path.display());
            continue;
        }
        steps += script.steps.len();
        let result = target
            .reset()
            .map_err(|err| err.to_string())
            .and_then(|()| run(&script, target, kind, &mut |_, _| {}));
        if let Err(why) = result {
            failures.push(format!("{}\n{why}", path.display()));
        }
    }
    assert!(
        failures.is_empty(),
        "{} transcripts differ:\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    println!("{steps} steps as expected");
}

/// Differences of one file that are shown.
const SHOWN: usize = 12;

/// Runs one transcript; the error names what differed. `seen` is given every reply.
pub fn run(
    script: &Script,
    target: &mut dyn Target,
    kind: Kind,
    seen: &mut dyn FnMut(&Step, &Value),
) -> Result<(), String> {
    let mut client = 1;
    let mut differences = Vec::new();
    for step in &script.steps {
        if differences.len() == SHOWN {
            break;
        }
        if step.pure_skip && kind == Kind::Pure {
            continue;
        }
        let at = |why: String| {
            let text = &script.lines[step.line];
            format!("line {}: {text}\n{why}", step.line + 1)
        };
        // Without a reply, nothing after it can be compared.
        let failed = |err: io::Error| {
            let last = at(format!("  failed: {err}"));
            [differences.join("\n"), last].join("\n")
        };
        let got = match &step.action {
            Action::Client(n) => {
                client = *n;
                continue;
            }
            Action::Close => {
                target.close(client);
                continue;
            }
            Action::Protocol(version) => {
                target.protocol(client, *version).map_err(failed)?;
                continue;
            }
            Action::Advance(ms) => {
                target.advance(*ms);
                continue;
            }
            _ => exchange(step, client, target).map_err(failed)?,
        };
        let Some(got) = got else { continue };
        seen(step, &got);
        if step.oracle_skip && kind == Kind::Oracle {
            continue;
        }
        if kind == Kind::Uncached && tells_of_memory(&script.lines[step.line]) {
            continue;
        }
        if matches!(kind, Kind::Cluster | Kind::Forwarding)
            && is_unlike(&script.lines[step.line], &got)
        {
            continue;
        }
        if let Some(Expected::Reply(pattern)) = &step.expected
            && !pattern.matches(&got)
        {
            let difference = at(format!(
                "  expected:\n{}\n  got:\n{}",
                margin(&script.lines[step.expected_lines.clone()]),
                margin(&notation::render(&got))
            ));
            differences.push(difference);
        }
        if step.expected.is_none() && kind != Kind::Oracle {
            differences.push(at("  no reply is written down: record it (README)".into()));
        }
    }
    match differences.is_empty() {
        true => Ok(()),
        false => Err(differences.join("\n")),
    }
}

/// Transcripts that are not run on a cluster, and why.
const NOT_ON_A_CLUSTER: &[(&str, &str)] = &[
    ("blocking_expired.txt", "SWAPDB"),
    ("connection.txt", "other databases, addresses, HELLO's mode"),
    ("databases.txt", "other databases"),
    ("generic.txt", "MOVE and COPY … DB leave other keys behind"),
    ("server.txt", "other databases"),
    ("sort.txt", "BY and GET patterns name keys of any slot"),
];

/// Transcripts that are about the node a client is connected to, which is not the one that has the keys.
const NOT_FORWARDED: &[(&str, &str)] = &[
    ("auth.txt", "a password that the other nodes do not have"),
    ("stale.txt", "DEBUG SET-ACTIVE-EXPIRE"),
    ("unchanged.txt", "INFO stats"),
];

/// Whether a cluster answers differently by design, or the answer tells how long the keys are.
fn is_unlike(line: &str, got: &Value) -> bool {
    let Value::Error(text) = got else {
        return tells_of_memory(line);
    };
    let text = String::from_utf8_lossy(text);
    text.contains("not allowed in cluster mode") || text.contains("denied in Cluster mode")
}

/// Whether a command asks how a value lies in memory, or since when.
fn tells_of_memory(line: &str) -> bool {
    let line = line.to_ascii_uppercase();
    line.starts_with("> OBJECT ") || line.starts_with("> MEMORY ")
}

/// Sends and receives, once or until it is as expected; `None` if no reply is to be read now.
fn exchange(step: &Step, client: usize, target: &mut dyn Target) -> io::Result<Option<Value>> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if matches!(step.expected, Some(Expected::Blocked)) {
            target.before_block(client)?;
        }
        match &step.action {
            Action::Send(argv) => target.send(client, Request::Command(argv))?,
            Action::SendRaw(bytes) => target.send(client, Request::Raw(bytes))?,
            _ => {}
        }
        match &step.expected {
            Some(Expected::Blocked) => {
                target.await_blocked(client)?;
                return Ok(None);
            }
            Some(Expected::NoReply) => return Ok(None),
            Some(Expected::Reply(pattern)) => {
                let got = target.receive(client)?;
                if !step.eventually || pattern.matches(&got) || Instant::now() > deadline {
                    return Ok(Some(got));
                }
                target.advance(10);
            }
            None => return target.receive(client).map(Some),
        }
    }
}

fn margin(lines: &[String]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

/// Runs a transcript on a real Redis and writes the replies into the file wherever none is written
/// down or another one is. Expectations that hold (with their wildcards) stay as they are.
pub fn record(path: &Path, target: &mut dyn Target) -> Result<usize, String> {
    let mut script = Script::read(path)?;
    let mut changes = Vec::new();
    target.reset().map_err(|err| err.to_string())?;
    for step in &mut script.steps {
        step.oracle_skip |= !matches!(
            step.expected,
            Some(Expected::Blocked) | Some(Expected::NoReply)
        ) && !step.eventually;
    }
    let original = Script::read(path)?;
    run(&script, target, Kind::Oracle, &mut |step, got| {
        let before = original.steps.iter().find(|other| other.line == step.line);
        let skipped = before.is_some_and(|before| before.oracle_skip);
        let holds = match &step.expected {
            Some(Expected::Reply(pattern)) => skipped || pattern.matches(got),
            _ => false,
        };
        if !holds {
            changes.push((step.expected_lines.clone(), notation::render(got)));
        }
    })
    .map_err(|why| format!("{}:{why}", path.display()))?;
    let count = changes.len();
    for (range, lines) in changes.into_iter().rev() {
        script.lines.splice(range, lines);
    }
    let text = script.lines.join("\n") + "\n";
    std::fs::write(path, text).map_err(|err| err.to_string())?;
    Script::read(path).map(|_| count)
}
