//! redis-rs' cluster client while nodes die. The other two clients are scripts in `tests/clients`.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use redis::cluster::{ClusterClient, ClusterClientBuilder, ClusterConnection};
use redis::{RedisError, RedisResult};
use serde_json::{Value as Json, json};

use super::lines;
use crate::Dice;

const REST: Duration = Duration::from_millis(6);
/// A node that stands still is given up after this.
const TIMEOUT: Duration = Duration::from_secs(1);

pub struct Work {
    pub nodes: Vec<String>,
    pub groups: Vec<String>,
    pub session: u32,
    pub file: File,
    pub stopped: Arc<AtomicBool>,
}

impl Work {
    pub fn start(self) -> JoinHandle<()> {
        std::thread::spawn(move || {
            std::thread::scope(|scope| {
                scope.spawn(|| self.strict());
                scope.spawn(|| self.as_it_comes());
            });
        })
    }

    fn client(&self, retries: u32) -> ClusterClient {
        let nodes = self.nodes.iter().map(|node| format!("redis://{node}/"));
        ClusterClientBuilder::new(nodes)
            .connection_timeout(TIMEOUT)
            .response_timeout(TIMEOUT)
            .retries(retries)
            .build()
            .expect("a client")
    }

    /// Nothing is sent twice, so each call happens once or not at all. This client counts redirects as repetitions:
    /// without them it learns where a slot has gone by connecting anew.
    fn strict(&self) {
        let mut session = Session::new(self, self.session, self.client(0));
        let mut dice = Dice::new(lines::now());
        while !self.stopped.load(Ordering::Relaxed) {
            let group = &self.groups[session.calls as usize % self.groups.len()];
            let (op, kind) = match dice.roll(17) {
                0..5 => ("GET", "r"),
                5..8 => ("SET", "r"),
                8..10 => ("SWAP", "r"),
                10 => ("GETDEL", "r"),
                11..13 => ("GET", "l"),
                13..15 => ("APPEND", "l"),
                15 => ("INCR", "n"),
                _ => ("GET", "n"),
            };
            let comma = if op == "APPEND" { "," } else { "" };
            let value = format!("{}-{}{comma}", self.session, session.calls + 1);
            session.call(op, &format!("{group}{kind}"), &value);
        }
    }

    /// As the client comes: it may repeat what it does not know, so its writes are such that this is the same.
    fn as_it_comes(&self) {
        // It asks a node that stands still again and again: a call would last as long as that does.
        let mut session = Session::new(self, self.session + 1, self.client(3));
        while !self.stopped.load(Ordering::Relaxed) {
            let group = &self.groups[session.calls as usize / 2 % self.groups.len()];
            let value = format!("{}-{}", session.number, session.calls + 1);
            match session.calls % 2 {
                0 => session.call("SADD", &format!("{group}s"), &value),
                _ => session.call("GET", &format!("{group}r"), ""),
            }
        }
    }
}

struct Session<'a> {
    work: &'a Work,
    number: u32,
    calls: u32,
    client: ClusterClient,
    connection: Option<ClusterConnection>,
}

impl<'a> Session<'a> {
    fn new(work: &'a Work, number: u32, client: ClusterClient) -> Session<'a> {
        Session {
            work,
            number,
            calls: 0,
            client,
            connection: None,
        }
    }

    fn call(&mut self, op: &str, key: &str, value: &str) {
        self.calls += 1;
        self.write(json!({ "op": op, "key": key, "value": value }));
        match self.send(op, key, value) {
            Ok(seen) => self.write(json!({ "fate": "done", "seen": seen })),
            Err((error, was_sent)) => {
                self.connection = None;
                let fate = if was_sent { fate(&error) } else { "refused" };
                self.write(json!({ "fate": fate, "why": error.to_string() }));
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        std::thread::sleep(REST);
    }

    /// What was seen; or why not, and whether it had been sent.
    fn send(&mut self, op: &str, key: &str, value: &str) -> Result<Json, (RedisError, bool)> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let connection = self.client.get_connection();
                let connection = connection.map_err(|error| (error, false))?;
                self.connection.insert(connection)
            }
        };
        ask(connection, op, key, value).map_err(|error| (error, true))
    }

    fn write(&self, mut line: Json) {
        line["at"] = lines::now().into();
        line["session"] = self.number.into();
        line["call"] = self.calls.into();
        // One write per line: threads do not mix within one.
        let line = format!("{line}\n");
        (&self.work.file)
            .write_all(line.as_bytes())
            .expect("a file");
    }
}

fn ask(connection: &mut ClusterConnection, op: &str, key: &str, value: &str) -> RedisResult<Json> {
    let words: &[&str] = match op {
        "SET" => &["SET", key, value],
        "SWAP" => &["SET", key, value, "GET"],
        "APPEND" | "SADD" => &[op, key, value],
        _ => &[op, key],
    };
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    Ok(match op {
        "SET" => {
            let () = command.query(connection)?;
            Json::Null
        }
        "APPEND" | "INCR" | "SADD" => command.query::<i64>(connection)?.into(),
        "GET" if key.ends_with('n') => command.query::<Option<i64>>(connection)?.into(),
        _ => command.query::<Option<String>>(connection)?.into(),
    })
}

fn fate(error: &RedisError) -> &'static str {
    if error.is_connection_refusal() {
        return "refused";
    }
    match error.code() {
        Some("MOVED" | "TRYAGAIN" | "CLUSTERDOWN" | "LOADING") => "refused",
        None | Some("INDOUBT") => "unknown",
        // What else a server says in plain words is not expected.
        Some(_) => "surprise",
    }
}
