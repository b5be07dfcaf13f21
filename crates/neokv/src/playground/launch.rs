//! Nodes being started: their flags, their processes, and waiting for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use super::book::{Book, Node};
use super::process::{self, Process};
use super::{down, probe};

const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Without anything having changed.
const TIMEOUT: Duration = Duration::from_secs(60);
const LOG_LINES: usize = 12;

/// What every node gets unless `flags` say otherwise: several nodes share the machine.
const MODEST: [&str; 4] = ["--cache-size", "256mb", "--block-cache-size", "64mb"];

/// The processes started by this command.
pub struct Launch {
    program: PathBuf,
    children: BTreeMap<u32, Child>,
    began: Instant,
}

impl Launch {
    pub fn new() -> Result<Launch, String> {
        let program = std::env::current_exe();
        Ok(Launch {
            program: program.map_err(|error| format!("where is this program? {error}"))?,
            children: BTreeMap::new(),
            began: Instant::now(),
        })
    }

    /// Starts a node and writes it into the book.
    pub fn start(&mut self, book: &mut Book, number: u32) -> Result<(), String> {
        let node = book.node(number)?;
        let http = match probe::is_taken(node.http_port()) {
            true => {
                let port = node.http_port();
                self.say(&format!("node {number} has no HTTP port: {port} is in use"));
                0
            }
            false => node.http_port(),
        };
        let args = arguments(book, node, http);
        let log = book.log(number);
        let child = process::spawn(&self.program, &args, &log)
            .map_err(|error| format!("cannot start node {number}: {error}"))?;
        if let Some(node) = book.node_mut(number) {
            node.process = Some(Process::of(&child));
        }
        self.children.insert(number, child);
        book.save()
    }

    /// Waits until `done`, which says what is still missing; an error if a node ends meanwhile.
    /// What is missing is told whenever it changes.
    pub fn wait(
        &mut self,
        book: &Book,
        mut done: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        let mut told = String::new();
        let mut changed = Instant::now();
        loop {
            let Err(missing) = done() else {
                return Ok(());
            };
            self.look_for_ended(book)?;
            if missing != told {
                changed = Instant::now();
                self.say(&missing);
                told = missing;
            }
            if changed.elapsed() > TIMEOUT {
                return Err(format!("still {told} after {} s", TIMEOUT.as_secs()));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    pub fn say(&self, what: &str) {
        eprintln!("{:5.1} s  {what}", self.began.elapsed().as_secs_f64());
    }

    fn look_for_ended(&mut self, book: &Book) -> Result<(), String> {
        for (number, child) in &mut self.children {
            if let Ok(Some(status)) = child.try_wait() {
                let log = book.log(*number);
                let end = log_end(&log);
                return Err(format!("node {number} did not start ({status}). {end}"));
            }
        }
        Ok(())
    }

    /// Ends what this command has started.
    pub fn undo(&self, book: &Book) {
        let mine = |node: &&Node| self.children.contains_key(&node.number);
        let nodes: Vec<&Node> = book.nodes.iter().filter(mine).collect();
        down::end(book, &nodes);
    }
}

/// The flags of a node. Those given by the user come last, and win.
fn arguments(book: &Book, node: &Node, http: u16) -> Vec<String> {
    let mut args: Vec<String> = vec!["server".into()];
    let mut add = |name: &str, value: String| args.extend([name.to_owned(), value]);
    add("--redis-port", node.redis_port.to_string());
    add("--peer-port", node.peer_port.to_string());
    add("--http-port", http.to_string());
    add("--data-dir", book.data(node.number).display().to_string());
    add("--num-shards", book.shards.to_string());
    add("--cluster-secret-file", book.secret().display().to_string());
    let others = book.nodes.iter().filter(|it| it.number != node.number);
    // Also the first one joins, once there are others: its data may have been removed.
    let joined: Vec<String> = others.filter(|it| it.has_joined).map(Node::peer).collect();
    if !joined.is_empty() {
        add("--join", joined.join(","));
    } else if !book.is_founded() {
        add("--cluster-init", "yes".into());
        add("--replicas", book.replicas.to_string());
        add("--regions", book.regions.to_string());
    }
    args.extend(MODEST.map(String::from));
    args.extend(book.flags.iter().cloned());
    args
}

/// A node answers and has been given its number.
pub fn wait_for_join(launch: &mut Launch, book: &Book, number: u32) -> Result<(), String> {
    let port = book.node(number)?.peer_port;
    let line = probe::line(book)?;
    let waited = launch.wait(book, || {
        let view = probe::View::of(&line);
        let here = view.as_ref().and_then(|view| view.at(port));
        match here.is_some_and(|row| row.state == "up") {
            true => Ok(()),
            false => Err(format!(
                "waiting for node {number} to be part of the cluster"
            )),
        }
    });
    // A node that has ended has had its last words.
    let runs = book.running(book.node(number)?).is_some();
    waited.map_err(|why| match runs {
        true => format!("{why}. {}", log_end(&book.log(number))),
        false => why,
    })
}

/// Every node that should run answers, and every slot is served.
pub fn wait_for_service(launch: &mut Launch, book: &Book) -> Result<(), String> {
    let line = probe::line(book)?;
    let running: Vec<&Node> = book
        .nodes
        .iter()
        .filter(|node| book.running(node).is_some())
        .collect();
    let waited = launch.wait(book, || {
        let Some(view) = probe::View::of(&line) else {
            return Err("waiting for the meta service".into());
        };
        if !view.all_served() {
            let (led, all) = (view.led(), view.regions.len());
            let full = view.nodes.iter().filter(|row| row.disk_full).count();
            return Err(match all {
                // Nothing is placed on a full disk.
                0 if full > 0 => format!(
                    "waiting for the regions to be made: the disk is full, says meta of {full} nodes"
                ),
                0 => "waiting for the regions to be made".into(),
                _ => format!("waiting for leaders: {led} of {all} regions have one"),
            });
        }
        let heard = |node: &Node| view.at(node.peer_port).is_some_and(|row| row.state == "up");
        let ready = |node: &&&Node| heard(node) && probe::serves(node.redis_port);
        let gone = |node: &&&Node| view.was_removed(node.peer_port);
        let missing = running.iter().filter(|it| !gone(it) && !ready(it));
        let missing: Vec<String> = missing.map(|node| node.number.to_string()).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("waiting for node {}", missing.join(", "))),
        }
    });
    let hint = format!("see `neokv cluster status{}`", book.dir_flag());
    let logs = book.log(1).with_file_name("node-*.log");
    waited.map_err(|why| format!("{why}. The nodes go on; {hint} and {}", logs.display()))
}

fn log_end(log: &Path) -> String {
    format!("The end of {}:\n{}", log.display(), last_lines(log))
}

fn last_lines(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES);
    let shown = lines.iter().skip(from).map(|line| format!("    {line}"));
    match lines.is_empty() {
        true => "    (nothing)".into(),
        false => shown.collect::<Vec<_>>().join("\n"),
    }
}
