//! A cluster of three nodes as child processes, with addresses of its own (127.x.y.n), so that nobody
//! takes their ports while one is down. They end with the test.
#![allow(dead_code)] // not every test file needs all of it

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::wire::{self, Value};

pub const PORT: u16 = 7000;
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Trio {
    folder: PathBuf,
    subnet: String,
    nodes: Vec<Option<Child>>,
    environment: Vec<(String, String)>,
}

impl Trio {
    /// Starts it and waits until every node leads something and all agree on that.
    pub fn start(settings: &[&str]) -> Trio {
        Trio::start_in(settings, &[])
    }

    /// As [`Trio::start`], with more environment variables.
    pub fn start_in(settings: &[&str], environment: &[(&str, &str)]) -> Trio {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, n) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("neokv-trio-{process}-{n}"));
        let place = process * 17 + n;
        let mut trio = Trio {
            folder,
            subnet: format!("127.{}.{}", 1 + place / 256 % 250, place % 256),
            nodes: Vec::new(),
            environment: environment
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        };
        std::fs::create_dir_all(&trio.folder).expect("a folder");
        std::fs::write(trio.secret(), format!("{:064x}\n", place)).expect("a file");
        for node in 0..3 {
            let child = trio.spawn(node, settings);
            trio.nodes.push(Some(child));
        }
        trio.until("the slots are shared out", |trio| trio.is_balanced());
        trio
    }

    fn spawn(&self, node: usize, settings: &[&str]) -> Child {
        let folder = self.folder.join(node.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.join("log"))
            .expect("a log");
        // Also if the test is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_neokv"), "server"]);
        match node {
            0 => command.args(["--cluster-init", "yes", "--replicas", "3", "--regions", "6"]),
            _ => command.args(["--join", &format!("{}:{}", self.host(0), PORT + 10_000)]),
        };
        command
            .args([
                "--bind",
                &self.host(node),
                "--redis-port",
                &PORT.to_string(),
            ])
            .args(["--data-dir", "data", "--num-shards", "2"])
            .args(["--block-cache-size", "32mb", "--protected-mode", "no"])
            .args(["--enable-debug-command", "yes", "--cluster-secret-file"])
            .arg(self.secret())
            .args(settings)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        command.spawn().expect("setpriv (util-linux) and neokv")
    }

    /// The file with the cluster secret.
    pub fn secret(&self) -> PathBuf {
        self.folder.join("secret")
    }

    pub fn host(&self, node: usize) -> String {
        format!("{}.{}", self.subnet, node + 1)
    }

    pub fn address(&self, node: usize) -> String {
        format!("{}:{PORT}", self.host(node))
    }

    pub fn link(&self, node: usize) -> Link {
        self.try_link(node)
            .unwrap_or_else(|error| panic!("node {node}: {error}"))
    }

    pub fn try_link(&self, node: usize) -> io::Result<Link> {
        Link::open(&self.address(node))
    }

    /// Which node a MOVED means.
    pub fn number(&self, address: &str) -> usize {
        (0..3)
            .find(|&node| self.address(node) == address)
            .unwrap_or_else(|| panic!("nobody has the address {address}"))
    }

    pub fn until(&self, what: &str, mut is_so: impl FnMut(&Trio) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}: never\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// All three say the same, and each leads its two regions.
    fn is_balanced(&self) -> bool {
        let views: Vec<_> = (0..3).map(|node| self.leaders(node)).collect();
        let Some(Some(first)) = views.first() else {
            return false;
        };
        let leads = |node| first.iter().filter(|(_, of)| *of == node).count();
        let covered: u32 = first.iter().map(|((a, b), _)| u32::from(b - a) + 1).sum();
        covered == 16384
            && views.iter().all(|view| view.as_ref() == Some(first))
            && (0..3).all(|node| leads(node) >= 1)
            && (0..3).all(|node| self.slots_led(first, node) >= 5_000)
    }

    fn slots_led(&self, leaders: &[((u16, u16), usize)], node: usize) -> u32 {
        let of_node = leaders.iter().filter(|(_, of)| *of == node);
        of_node.map(|((a, b), _)| u32::from(b - a) + 1).sum()
    }

    /// Who leads which slots, as a node sees it.
    pub fn leaders(&self, node: usize) -> Option<Vec<((u16, u16), usize)>> {
        let mut link = self.try_link(node).ok()?;
        let Value::Array(rows) = link.ask(&["CLUSTER", "SLOTS"]).ok()? else {
            return None;
        };
        rows.into_iter()
            .map(|row| match row {
                Value::Array(row) => match &row[..] {
                    [
                        Value::Int(first),
                        Value::Int(last),
                        Value::Array(leader),
                        ..,
                    ] => {
                        let Some(Value::Bulk(host)) = leader.first() else {
                            return None;
                        };
                        let host = String::from_utf8_lossy(host).into_owned();
                        let leader = self.number(&format!("{host}:{PORT}"));
                        Some(((*first as u16, *last as u16), leader))
                    }
                    _ => None,
                },
                _ => None,
            })
            .collect()
    }

    /// The node that leads a slot, as node `seen_by` says.
    pub fn leader_of(&self, slot: u16, seen_by: usize) -> Option<usize> {
        let leaders = self.leaders(seen_by)?;
        let found = leaders
            .iter()
            .find(|((first, last), _)| (*first..=*last).contains(&slot));
        found.map(|(_, node)| *node)
    }

    pub fn pid(&self, node: usize) -> u32 {
        self.nodes[node].as_ref().expect("it runs").id()
    }

    fn signal(&self, node: usize, signal: &str) {
        if let Some(child) = &self.nodes[node] {
            let sent = Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status();
            assert!(sent.expect("kill").success());
        }
    }

    pub fn pause(&self, node: usize) {
        self.signal(node, "-STOP");
    }

    pub fn resume(&self, node: usize) {
        self.signal(node, "-CONT");
    }

    pub fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn restart(&mut self, node: usize, settings: &[&str]) {
        let child = self.spawn(node, settings);
        self.nodes[node] = Some(child);
        self.until("it answers", |trio| trio.try_link(node).is_ok());
    }

    /// Waits for the end of a process that was asked to end.
    pub fn ended(&mut self, node: usize) -> bool {
        let mut child = self.nodes[node].take().expect("it runs");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = child.try_wait().expect("its status") {
                return status.success();
            }
            assert!(Instant::now() < deadline, "node {node} does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What a node has printed so far.
    pub fn log(&self, node: usize) -> String {
        std::fs::read_to_string(self.file(node, "log")).unwrap_or_default()
    }

    /// A file in the folder that a node runs in.
    pub fn file(&self, node: usize, name: &str) -> PathBuf {
        self.folder.join(node.to_string()).join(name)
    }

    fn logs(&self) -> String {
        let log = |node: usize| {
            let text = self.log(node);
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(20)..].join("\n");
            format!("--- node {node}\n{tail}\n")
        };
        (0..3).map(log).collect()
    }
}

impl Drop for Trio {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        for node in 0..self.nodes.len() {
            self.kill(node);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A connection to one node.
pub struct Link {
    stream: BufReader<TcpStream>,
}

impl Link {
    pub fn open(address: &str) -> io::Result<Link> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Link {
            stream: BufReader::new(stream),
        })
    }

    /// For how long an answer is waited for.
    pub fn set_timeout(&self, timeout: Duration) {
        let set = self.stream.get_ref().set_read_timeout(Some(timeout));
        set.expect("a time that is not zero");
    }

    pub fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.stream.get_mut().write_all(&wire::encode(&words))
    }

    pub fn receive(&mut self) -> io::Result<Value> {
        wire::decode(&mut self.stream)
    }

    pub fn ask(&mut self, words: &[&str]) -> io::Result<Value> {
        self.send(words)?;
        self.receive()
    }

    /// A line of words; the reply as text.
    pub fn say(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        match self.ask(&words) {
            Ok(value) => show(&value),
            Err(error) => panic!("{line}: {error}"),
        }
    }

    /// Several lines at once; their replies as text.
    pub fn pipeline(&mut self, lines: &[String]) -> Vec<String> {
        let mut bytes = Vec::new();
        for line in lines {
            let words: Vec<_> = line.split(' ').map(|it| it.as_bytes().to_vec()).collect();
            bytes.extend(wire::encode(&words));
        }
        self.stream.get_mut().write_all(&bytes).expect("written");
        let replies = lines.iter().map(|_| self.receive().expect("a reply"));
        replies.map(|value| show(&value)).collect()
    }
}

/// A reply in one line.
pub fn show(value: &Value) -> String {
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    match value {
        Value::Simple(bytes) | Value::Bulk(bytes) | Value::Verbatim(bytes) => text(bytes),
        Value::Error(bytes) => format!("-{}", text(bytes)),
        Value::Int(number) => number.to_string(),
        Value::Nil | Value::NilArray => "nil".into(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(show).collect();
            format!("[{}]", items.join(" "))
        }
        other => format!("{other:?}"),
    }
}
