//! After a restart: is what the server has what the clients were told, and nothing else?

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::client::{Client, Kind, SHARED, SHARED_START, shared};
use crate::model::{Effect, Outcome, State, candidates};
use crate::wire::{self, Value};

/// A connection that asks one thing after the other; the server must be well.
pub struct Questions {
    reader: BufReader<TcpStream>,
}

impl Questions {
    pub fn new(port: u16) -> io::Result<Questions> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Questions {
            reader: BufReader::new(stream),
        })
    }

    /// `Closed` is also what a server says that dies meanwhile.
    pub fn ask(&mut self, argv: &[&str]) -> Value {
        let argv: Vec<Vec<u8>> = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
        let sent = self.reader.get_mut().write_all(&wire::encode(&argv));
        let reply = sent.and_then(|()| wire::decode(&mut self.reader));
        reply.unwrap_or(Value::Closed)
    }

    fn number(&mut self, argv: &[&str]) -> Result<i64, String> {
        match self.ask(argv) {
            Value::Int(n) => Ok(n),
            Value::Bulk(digits) => parse(&digits, ""),
            other => Err(format!("{argv:?} was answered {other:?}")),
        }
    }

    pub fn numbers(&mut self, argv: &[&str]) -> Result<Vec<u64>, String> {
        texts(self.ask(argv))?
            .iter()
            .map(|text| parse(text, ""))
            .collect()
    }

    /// What a key holds; also that its count is that of its members.
    fn state(&mut self, key: &str, kind: Kind) -> Result<State, String> {
        let (count, members) = match kind {
            Kind::Number => {
                return match self.ask(&["GET", key]) {
                    Value::Nil => Ok(State::Missing),
                    Value::Bulk(digits) => Ok(State::Number(parse(&digits, "")?)),
                    other => Err(format!("GET {key}: {other:?}")),
                };
            }
            Kind::List => ("LLEN", self.numbers(&["LRANGE", key, "0", "-1"])?),
            Kind::Hash => ("HLEN", pairs(texts(self.ask(&["HGETALL", key]))?, "f", "")?),
            Kind::Zset => {
                let mut found = texts(self.ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"]))?;
                found.chunks_mut(2).for_each(|pair| pair.reverse());
                ("ZCARD", pairs(found, "", "m")?)
            }
            Kind::Set => {
                let found = texts(self.ask(&["SMEMBERS", key]))?;
                (
                    "SCARD",
                    found
                        .iter()
                        .map(|text| parse(text, "m"))
                        .collect::<Result<_, _>>()?,
                )
            }
        };
        let mut members = members;
        if matches!(kind, Kind::Hash | Kind::Set) {
            members.sort_unstable(); // these have no order
        }
        let counted = self.number(&[count, key])?;
        if counted != members.len() as i64 {
            return Err(format!(
                "{count} {key} says {counted}, but there are {}",
                members.len()
            ));
        }
        Ok(State::of_members(members))
    }
}

fn texts(value: Value) -> Result<Vec<Vec<u8>>, String> {
    let Value::Array(items) = value else {
        return Err(format!("{value:?} instead of an array"));
    };
    let texts = items.into_iter().map(|item| match item {
        Value::Bulk(text) => Ok(text),
        other => Err(format!("{other:?} instead of a text")),
    });
    texts.collect()
}

/// Both of a pair must be the same number.
fn pairs(found: Vec<Vec<u8>>, first: &str, second: &str) -> Result<Vec<u64>, String> {
    let numbers = found.chunks(2).map(|pair| {
        let (a, b): (u64, u64) = (parse(&pair[0], first)?, parse(&pair[1], second)?);
        match a == b {
            true => Ok(a),
            false => Err(format!("{a} has the value of {b}")),
        }
    });
    numbers.collect()
}

fn parse<T: std::str::FromStr>(text: &[u8], prefix: &str) -> Result<T, String> {
    let text = String::from_utf8_lossy(text);
    let number = text
        .strip_prefix(prefix)
        .and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| format!("{text} is not {prefix} and a number"))
}

/// Compares all keys of a client with its history, which then goes on from what is there. How many commands without
/// acknowledgement had happened.
pub fn verify(client: &mut Client, questions: &mut Questions) -> Result<usize, String> {
    let mut wrong = Vec::new();
    let mut found = Vec::new();
    // For each command without acknowledgement: may it have happened, may it not, as far as each of its keys tells.
    let mut happened: BTreeMap<usize, (bool, bool, String)> = BTreeMap::new();
    for (index, key) in client.keys.iter().enumerate() {
        let state = match questions.state(&key.name, key.kind) {
            Ok(state) => state,
            Err(error) => {
                wrong.push(error);
                continue;
            }
        };
        let touching: Vec<(usize, Vec<&Effect>, Outcome)> = client
            .doubtful
            .iter()
            .enumerate()
            .map(|(n, (sent, outcome))| {
                let effects = sent.effects.iter().filter(|(key, _)| *key == index);
                (n, effects.map(|(_, effect)| effect).collect(), *outcome)
            })
            .filter(|(_, effects, _): &(_, Vec<&Effect>, _)| !effects.is_empty())
            .collect();
        let commands = touching
            .iter()
            .map(|(_, effects, outcome)| (effects.clone(), *outcome));
        let all = candidates(&key.settled, commands, client.refused.is_none());
        let fitting: Vec<u64> = all
            .iter()
            .filter(|candidate| candidate.state == state)
            .map(|candidate| candidate.included)
            .collect();
        if fitting.is_empty() {
            let doubtful = touching
                .iter()
                .map(|(n, ..)| client.doubtful[*n].0.shown.as_str());
            wrong.push(format!(
                "{}: found {}, acknowledged {}, behind that {} in doubt: {}",
                key.name,
                shown(&state),
                shown(&key.settled),
                touching.len(),
                doubtful.take(8).collect::<String>(),
            ));
        }
        let unknown = touching
            .iter()
            .filter(|(_, _, outcome)| *outcome == Outcome::Unknown);
        for (bit, (n, ..)) in unknown.enumerate() {
            let yes = fitting.iter().any(|included| included & 1 << bit != 0);
            let no = fitting.iter().any(|included| included & 1 << bit == 0);
            let entry = happened.entry(*n).or_insert((true, true, String::new()));
            entry.0 &= yes;
            entry.1 &= no;
            let told = ["never", "must", "cannot", "may"][usize::from(yes) + 2 * usize::from(no)];
            entry.2 += &format!(" {}: {told};", key.name);
        }
        found.push(state);
    }
    if wrong.is_empty() {
        for (n, (yes, no, told)) in &happened {
            if !yes && !no {
                wrong.push(format!(
                    "{} happened in part:{told}",
                    client.doubtful[*n].0.shown
                ));
            }
        }
    }
    if !wrong.is_empty() {
        let refused = client.refused.as_deref().unwrap_or("none");
        return Err(format!(
            "client {} (first error: {refused})\n  {}",
            client.id,
            wrong.join("\n  ")
        ));
    }
    let kept = happened.values().filter(|(_, no, _)| !no).count();
    client.adopt(found);
    Ok(kept)
}

fn shown(state: &State) -> String {
    match state {
        State::Members(runs) => {
            format!("{} members {:?}", state.len(), &runs[..runs.len().min(20)])
        }
        other => format!("{other:?}"),
    }
}

/// The accounts that all clients share: money moves between them, none appears or disappears.
pub fn open_shared(questions: &mut Questions) {
    let mut argv = vec!["MSET".to_string()];
    for n in 0..SHARED {
        argv.extend([shared(n), SHARED_START.to_string()]);
    }
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    assert_eq!(questions.ask(&argv), Value::Simple(b"OK".to_vec()));
}

pub fn verify_shared(questions: &mut Questions) -> Result<(), String> {
    let mut sum = 0;
    for n in 0..SHARED {
        sum += questions.number(&["GET", &shared(n)])?;
    }
    match sum == SHARED_START * SHARED as i64 {
        true => Ok(()),
        false => Err(format!(
            "the shared accounts hold {sum} instead of {}",
            SHARED_START * SHARED as i64
        )),
    }
}
