//! A script: what happens to the servers, step by step. Drawn from a seed before anything runs, so that it can be run
//! again with steps left out.

use std::collections::BTreeSet;
use std::fmt;

use crate::words::{Argv, DATABASES, Dice, Words, is_key};

#[derive(Clone)]
pub enum Step {
    /// One write of a client, replies read together.
    Send { client: usize, commands: Vec<Argv> },
    /// All clients at once, each on keys of its own: in whatever order they run, the replies are the same.
    Together(Vec<Vec<Argv>>),
    /// A random element is taken and put back: it must have been there.
    Draw { db: String, key: String },
    /// SCAN, HSCAN, SSCAN, ZSCAN from beginning to end.
    Walk { db: String, command: Argv },
    /// A key gets a deadline, which passes.
    Lapse { db: String, key: String },
    /// Durable servers die of kill -9 and come back; all clients connect anew.
    Kill,
    /// DEBUG RELOAD; all clients connect anew.
    Reload,
    /// All data is compared.
    Check,
}

/// Clients that send.
pub const CLIENTS: usize = 3;

pub fn draw(seed: u64) -> Vec<Step> {
    let mut dice = Dice::new(seed);
    // Large collections are slow to compare: now and then.
    let many = [12, 12, 300, 6000][dice.below(4)];
    let spoils = true;
    let mut words = Words { dice, many, spoils };
    let mut steps = Vec::new();
    for _ in 0..if many > 1000 { 60 } else { 150 } {
        let step = words.step();
        steps.push(step);
    }
    steps
}

impl Words {
    fn step(&mut self) -> Step {
        let db = self.dice.of(DATABASES).to_owned();
        let key = self.key();
        match self.dice.below(400) {
            0 => Step::Kill,
            1..3 => Step::Reload,
            3..12 => Step::Check,
            12..18 => {
                let key = self.fill("!T").remove(0);
                Step::Draw { db, key }
            }
            18..26 => {
                let patterns = ["!SCAN", "!HSCAN H", "!SSCAN T", "!ZSCAN {Z|X}"];
                let pattern = self.dice.of(&patterns);
                let command = self.fill(pattern);
                Step::Walk { db, command }
            }
            26..28 => Step::Lapse { db, key },
            28..50 => self.transaction(),
            50..90 => Step::Together((0..CLIENTS).map(|client| self.alone(client)).collect()),
            _ => {
                let count = match self.dice.below(4) {
                    0 => 1 + self.dice.below(8),
                    _ => 1,
                };
                Step::Send {
                    client: self.dice.below(CLIENTS),
                    commands: (0..count).map(|_| self.any_command()).collect(),
                }
            }
        }
    }

    /// Commands on keys that only this client uses.
    fn alone(&mut self, client: usize) -> Vec<Argv> {
        let mut commands = Vec::new();
        for _ in 0..1 + self.dice.below(8) {
            // A spoiled key would be everybody's.
            self.spoils = false;
            let mut command = self.command();
            self.spoils = true;
            if matches!(command[0].as_str(), "KEYS" | "RANDOMKEY") {
                continue;
            }
            for word in command.iter_mut().skip(1).filter(|word| is_key(word)) {
                *word = format!("c{client}{word}");
            }
            commands.push(command);
        }
        if self.dice.one_in(4) {
            commands.insert(0, vec!["MULTI".to_owned()]);
            commands.push(vec!["EXEC".to_owned()]);
        }
        commands
    }

    /// MULTI and EXEC at once; drawn one by one they rarely meet.
    fn transaction(&mut self) -> Step {
        let mut commands = vec![vec!["MULTI".to_owned()]];
        for _ in 0..1 + self.dice.below(6) {
            commands.push(self.any_command());
        }
        commands.push(vec!["EXEC".to_owned()]);
        Step::Send {
            client: self.dice.below(CLIENTS),
            commands,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Send { client, commands } => {
                let lines: Vec<String> = commands.iter().map(line).collect();
                write!(f, "client {client}: {}", lines.join(" ; "))
            }
            Step::Together(all) => {
                let commands = |commands: &Vec<Argv>| {
                    let lines: Vec<String> = commands.iter().map(line).collect();
                    lines.join(" ; ")
                };
                let clients: Vec<String> = all.iter().map(commands).collect();
                write!(f, "together: {}", clients.join(" | "))
            }
            Step::Draw { db, key } => write!(f, "db {db}: draw and return {key}"),
            Step::Walk { db, command } => write!(f, "db {db}: walk {}", line(command)),
            Step::Lapse { db, key } => write!(f, "db {db}: lapse {key}"),
            Step::Kill => write!(f, "kill"),
            Step::Reload => write!(f, "reload"),
            Step::Check => write!(f, "check"),
        }
    }
}

/// A command for the eye: many arguments are cut.
pub fn line(argv: &Argv) -> String {
    let quoted = |word: &String| match word.is_empty() || word.contains([' ', '\n']) {
        true => format!("{word:?}"),
        false => word.clone(),
    };
    let words: Vec<String> = argv.iter().take(12).map(quoted).collect();
    match argv.len() {
        ..=12 => words.join(" "),
        n => format!("{} … {} ({n} words)", words.join(" "), argv[n - 1]),
    }
}

/// Every command on keys comes up; those left out are what other steps are made of, and OBJECT (see `grammar.rs`).
#[test]
fn scripts_leave_no_command_out() {
    let elsewhere = [
        "SCAN", "HSCAN", "SSCAN", "ZSCAN", "FLUSHALL", "DBSIZE", "OBJECT",
    ];
    let mut seen: BTreeSet<String> = elsewhere.map(str::to_owned).into();
    for seed in 0..40 {
        for step in draw(seed) {
            if let Step::Send { commands, .. } = step {
                seen.extend(commands.into_iter().map(|argv| argv[0].clone()));
            }
        }
    }
    let table = command::Table::pure();
    // Redis has no rows of tables.
    let theirs = table
        .listed()
        .filter(|row| row.group != command::Group::Row);
    let names = theirs.map(|row| row.name.to_uppercase());
    let missing: Vec<String> = names.filter(|name| !seen.contains(name)).collect();
    assert!(missing.is_empty(), "not in the grammar: {missing:?}");
}
