//! Stock cluster clients (redis-py, ioredis, redis-rs) that work while faults happen, each a process or thread of its own.
//!
//! ```text
//!   storm_py.py ──────┐  a file each: what was called and what came back,   lines.rs: one history,
//!   storm_ioredis.js ─┼─► JSON lines with the time of the one clock they ─► by that clock ─► verify.rs
//!   redis_rs.rs ──────┘  share (CLOCK_MONOTONIC)
//! ```
//!
//! Every client has two sessions. The *strict* one is set not to repeat what got no answer, so each of its calls
//! happens once or not at all: GET, SET, SET GET, GETDEL on `r`, APPEND and GET on `l`, INCR and GET on `n`, all judged.
//! The other is the client *as it comes*: it repeats what it does not know. No history could tell whether a server or
//! its client did something twice, so it reads `r`, which is judged, and adds members to a set `s`: all that were
//! acknowledged must be there, and nothing that nobody added.
//!
//! Traffic goes on: after a fault, every session must have a write in every region that began after it.

mod lines;
mod redis_rs;
mod storm;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client::{Fate, text};
use crate::installed::{cache, is_installed};
use crate::nodes::{Cluster, key_in};
use crate::verify;
use crate::wire::Value;
use lines::Tail;

/// A client at work.
struct Worker {
    name: &'static str,
    /// The number of its strict session; the next is the other's.
    session: u32,
    running: Running,
    lines: Tail,
}

enum Running {
    Process(Child),
    Thread(Arc<AtomicBool>, Option<JoinHandle<()>>),
}

pub struct Stock {
    workers: Vec<Worker>,
    groups: Vec<String>,
}

impl Stock {
    /// Starts the clients on one group of keys in every region; `name` makes the keys new ones.
    pub fn start(cluster: &Cluster, name: &str) -> Stock {
        let ranges = cluster.ranges(cluster.answering()[0]).expect("slots");
        let tags = ranges.iter().map(|it| key_in(it.first, it.last, name));
        let groups: Vec<String> = tags.collect();
        let nodes: Vec<String> = (1..=3).map(|it| cluster.address(it)).collect();
        let python = cache().join("python/bin/python");
        let ioredis = cache().join("node/node_modules/ioredis");
        let mut stock = Stock {
            workers: Vec::new(),
            groups,
        };
        let file = |client: &str| cluster.folder().join(format!("{name}-{client}.jsonl"));
        if is_installed(&python) {
            stock.process(&nodes, "storm_py.py", &python, 100, file("py"));
        }
        if is_installed(&ioredis) {
            let node = Path::new("node");
            stock.process(&nodes, "storm_ioredis.js", node, 200, file("ioredis"));
        }
        let stopped = Arc::new(AtomicBool::new(false));
        let path = file("redis-rs");
        let lines = Tail::open(&path);
        let work = redis_rs::Work {
            nodes,
            groups: stock.groups.clone(),
            session: 300,
            file: File::options().append(true).open(&path).expect("a file"),
            stopped: stopped.clone(),
        };
        stock.workers.push(Worker {
            name: "redis-rs",
            session: 300,
            running: Running::Thread(stopped, Some(work.start())),
            lines,
        });
        stock.until_written("the start", Duration::from_secs(60));
        stock
    }

    fn process(
        &mut self,
        nodes: &[String],
        script: &'static str,
        program: &Path,
        session: u32,
        path: PathBuf,
    ) {
        let folder = Path::new("../../tests/clients").canonicalize().unwrap();
        let lines = Tail::open(&path);
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .arg(folder.join(script))
            .args([nodes.join(","), self.groups.join(","), session.to_string()])
            .arg(&path)
            .env("NODE_PATH", cache().join("node/node_modules"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        self.workers.push(Worker {
            name: script,
            session,
            running: Running::Process(child),
            lines,
        });
    }

    /// Waits until every session has written to every group by a call that began after now; how long that took.
    pub fn until_written(&mut self, what: &str, limit: Duration) -> Duration {
        let (began, since) = (Instant::now(), lines::now());
        let mut slowest = (Duration::ZERO, String::new());
        for worker in &mut self.workers {
            for session in [worker.session, worker.session + 1] {
                for group in &self.groups {
                    while !worker.lines.has_written(session, group, since) {
                        if began.elapsed() >= limit {
                            worker.running.show();
                        }
                        assert!(
                            began.elapsed() < limit,
                            "{what}: {} (session {session}) has not written to {group} within {limit:?}\n{}",
                            worker.name,
                            worker.lines.last_lines(session)
                        );
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                let written = worker.lines.all_written(session, &self.groups, since);
                slowest = slowest.max((written, format!("{} {session}", worker.name)));
            }
        }
        let (time, who) = slowest;
        eprintln!("    {what}: all clients write everywhere after {time:?} ({who} was last)");
        time
    }

    /// All nodes run and reach each other: the clients end, everything is read once more, everything is checked.
    pub fn finish(mut self, cluster: &Cluster) {
        let mut all = Vec::new();
        for mut worker in std::mem::take(&mut self.workers) {
            worker.end();
            worker.lines.read();
            all.extend(worker.lines.events());
        }
        let found = lines::merge(all);
        let mut history = found.history;
        eprintln!(
            "    {}; {} members added; {:?}",
            verify::summary(&history),
            found.added.len(),
            found.reasons
        );
        assert!(found.surprises.is_empty(), "{:?}", found.surprises);
        let groups = self.groups.iter();
        let keys: Vec<String> = groups
            .flat_map(|group| ["r", "l", "n"].map(|kind| format!("{group}{kind}")))
            .collect();
        verify::all(cluster, &mut history, &keys);
        for group in &self.groups {
            let key = format!("{group}s");
            let members = members(cluster, &key);
            let of_key = |set: &BTreeSet<(String, String)>| -> BTreeSet<String> {
                let of_key = set.iter().filter(|(it, _)| *it == key);
                of_key.map(|(_, member)| member.clone()).collect()
            };
            let lost: Vec<_> = of_key(&found.added).difference(&members).cloned().collect();
            assert!(lost.is_empty(), "{key}: acknowledged and gone: {lost:?}");
            let strange: Vec<_> = members.difference(&of_key(&found.tried)).cloned().collect();
            assert!(strange.is_empty(), "{key}: nobody added {strange:?}");
        }
    }
}

impl Running {
    /// Where a client is that does not go on, if it can tell: redis-py's stacks, on stderr.
    fn show(&self) {
        if let Running::Process(child) = self {
            let _ = Command::new("kill")
                .args(["-USR1", &child.id().to_string()])
                .status();
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            match &mut worker.running {
                Running::Process(child) => {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                Running::Thread(stopped, _) => stopped.store(true, Ordering::Relaxed),
            }
        }
    }
}

impl Worker {
    /// Its input ends, so it does, after the call it is in.
    fn end(&mut self) {
        match &mut self.running {
            Running::Process(child) => {
                drop(child.stdin.take());
                let deadline = Instant::now() + Duration::from_secs(30);
                let status = loop {
                    if let Some(status) = child.try_wait().expect("a child") {
                        break status;
                    }
                    assert!(Instant::now() < deadline, "{} does not end", self.name);
                    std::thread::sleep(Duration::from_millis(10));
                };
                assert!(status.success(), "{}: {status}", self.name);
            }
            Running::Thread(stopped, thread) => {
                stopped.store(true, Ordering::Relaxed);
                let ended = thread.take().map(JoinHandle::join);
                assert!(ended.is_some_and(|it| it.is_ok()), "{} failed", self.name);
            }
        }
    }
}

fn members(cluster: &Cluster, key: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    cluster.until("a set is read", |cluster| {
        match cluster.client().ask(key, &["SMEMBERS", key]) {
            Fate::Done(replies) => {
                let Value::Array(members) = &replies[0] else {
                    return Err(format!("{replies:?}"));
                };
                found = members.iter().filter_map(text).collect();
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    });
    found
}
