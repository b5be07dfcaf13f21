//! Nodes of a cluster as processes, and everything that can happen to them.
//!
//! Every cluster has addresses of its own (127.x.y.n, or those of a [`Network`]), so ports are fixed and nobody takes
//! them while a node is down. Processes die with their test, also if that is killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, Session, text};
use crate::network::Network;
use crate::wire::Value;

pub const REDIS_PORT: u16 = 7000;
pub const PEER_PORT: u16 = 17000;
/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How the nodes of a cluster are started.
#[derive(Clone)]
pub struct Plan {
    pub nodes: usize,
    pub replicas: usize,
    pub regions: usize,
    /// For every node.
    pub settings: Vec<String>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            nodes: 3,
            replicas: 3,
            regions: 4,
            settings: Vec::new(),
        }
    }
}

impl Plan {
    pub fn with(mut self, settings: &[&str]) -> Plan {
        self.settings.extend(settings.iter().map(|&it| it.into()));
        self
    }
}

struct Node {
    data: PathBuf,
    /// None: it is down.
    child: Option<Child>,
    paused: bool,
    /// Beside those of all nodes, from now on.
    settings: Vec<String>,
    environment: Vec<(String, String)>,
    /// Started without a word of a cluster.
    is_alone: bool,
}

pub struct Cluster {
    plan: Plan,
    folder: PathBuf,
    nodes: BTreeMap<usize, Node>,
    pub network: Option<Network>,
    subnet: String,
}

/// A range of slots and who has it: the leader first.
#[derive(Debug, Clone)]
pub struct Range {
    pub first: u16,
    pub last: u16,
    pub nodes: Vec<String>,
}

impl Cluster {
    /// Starts the nodes; returns when every replica of every region answers.
    pub fn start(plan: Plan) -> Cluster {
        Cluster::start_on(None, plan)
    }

    pub fn start_on(network: Option<Network>, plan: Plan) -> Cluster {
        let mut cluster = Cluster::empty(network, plan);
        for number in 1..=cluster.plan.nodes {
            cluster.add(number);
        }
        cluster.until_healthy();
        cluster
    }

    /// No node yet.
    pub fn empty(network: Option<Network>, plan: Plan) -> Cluster {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = process * 31 + n;
        let folder = std::env::temp_dir().join(format!("neokv-cluster-{process}-{n}"));
        fs::create_dir_all(&folder).expect("a folder");
        // The same for all clusters of a test: it is by their ids that they refuse each other's nodes.
        fs::write(folder.join("secret"), format!("{process:064x}\n")).expect("a file");
        Cluster {
            plan,
            folder,
            nodes: BTreeMap::new(),
            network,
            subnet: format!("127.{}.{}", 1 + place / 256 % 250, place % 256),
        }
    }

    /// Another node, numbered from 1; the first founds the cluster, the others join.
    pub fn add(&mut self, number: usize) {
        self.add_down(number);
        self.restart(number);
    }

    /// Room for another node; it is not started.
    pub fn add_down(&mut self, number: usize) {
        if let Some(network) = &mut self.network {
            network.add(number);
        }
        let data = self.folder.join(format!("data{number}"));
        fs::create_dir_all(&data).expect("a folder");
        let node = Node {
            data,
            child: None,
            paused: false,
            settings: Vec::new(),
            environment: Vec::new(),
            is_alone: false,
        };
        self.nodes.insert(number, node);
    }

    pub fn host(&self, number: usize) -> String {
        match &self.network {
            Some(network) => network.address(number),
            None => format!("{}.{number}", self.subnet),
        }
    }

    pub fn address(&self, number: usize) -> String {
        format!("{}:{REDIS_PORT}", self.host(number))
    }

    pub fn peer_address(&self, number: usize) -> String {
        format!("{}:{PEER_PORT}", self.host(number))
    }

    pub fn number_of(&self, address: &str) -> usize {
        let found = self.nodes.keys().find(|&&it| self.address(it) == address);
        *found.unwrap_or_else(|| panic!("no node has the address {address}"))
    }

    pub fn data(&self, number: usize) -> &Path {
        &self.nodes[&number].data
    }

    /// From its next start on.
    pub fn set(&mut self, number: usize, settings: &[&str]) {
        let node = self.nodes.get_mut(&number).expect("a node");
        node.settings = settings.iter().map(|&it| it.into()).collect();
    }

    pub fn set_alone(&mut self, number: usize, is_alone: bool) {
        self.nodes.get_mut(&number).expect("a node").is_alone = is_alone;
    }

    pub fn set_environment(&mut self, number: usize, name: &str, value: &str) {
        let node = self.nodes.get_mut(&number).expect("a node");
        node.environment.push((name.into(), value.into()));
    }

    /// Puts its data elsewhere, from its next start on.
    pub fn set_data(&mut self, number: usize, data: PathBuf) {
        self.nodes.get_mut(&number).expect("a node").data = data;
    }

    pub fn regions(&self) -> usize {
        self.plan.regions
    }

    /// Of each region, while that many nodes run.
    pub fn replicas(&self) -> usize {
        self.plan.replicas.min(self.running().len())
    }

    /// What `neokv ctl` must know to be let in.
    pub fn ctl_settings(&self) -> Vec<String> {
        let first = self.nodes.first_key_value();
        let settings = first.map_or(&[][..], |(_, node)| &node.settings);
        let tls = settings
            .chunks(2)
            .filter(|pair| pair[0].starts_with("--peer-tls"));
        let secret = ["--cluster-secret-file".into(), self.secret()];
        tls.flatten().cloned().chain(secret).collect()
    }

    /// The file with the cluster secret.
    pub fn secret(&self) -> String {
        self.folder.join("secret").to_string_lossy().into_owned()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All nodes that run, paused ones too.
    pub fn running(&self) -> Vec<usize> {
        let running = self.nodes.iter().filter(|(_, it)| it.child.is_some());
        running.map(|(&number, _)| number).collect()
    }

    /// Starts a node that is down, and waits until it answers anything at all.
    pub fn restart(&mut self, number: usize) {
        self.spawn(number);
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.ended(number) {
                panic!("node {number} ended ({status})\n{}", self.log_tail(number));
            }
            // A node waits for its place in the cluster before it listens to clients.
            if let Ok(mut session) = self.session(number)
                && session.ask(&["PING"]).is_ok()
            {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "node {number} does not answer\n{}",
                self.log_tail(number)
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a node that is down, and waits for nothing.
    pub fn spawn(&mut self, number: usize) {
        let known = self.nodes.keys().filter(|&&it| it != number);
        let join: Vec<String> = known.map(|&it| self.peer_address(it)).collect();
        let join = join.join(",");
        let mut arguments: Vec<String> = Vec::new();
        if let Some(network) = &self.network {
            let words = ["ip", "netns", "exec", &network.namespace(number)];
            arguments.extend(words.map(str::to_owned));
        }
        let host = self.host(number);
        let node = &self.nodes[&number];
        arguments.extend(
            [
                "setpriv",
                "--pdeathsig",
                "KILL",
                env!("CARGO_BIN_EXE_neokv"),
            ]
            .map(str::to_owned),
        );
        arguments.extend(
            [
                "server",
                "--redis-port",
                &REDIS_PORT.to_string(),
                "--peer-port",
                &PEER_PORT.to_string(),
                "--bind",
                &host,
                "--data-dir",
                &node.data.to_string_lossy(),
                "--num-shards",
                "2",
                "--block-cache-size",
                "16mb",
                "--enable-follower-read",
                "yes",
                "--protected-mode",
                "no",
                "--cluster-secret-file",
                &self.secret(),
            ]
            .map(str::to_owned),
        );
        if node.is_alone {
        } else if number == 1 && self.nodes.len() == 1 {
            let (replicas, regions) = (self.plan.replicas, self.plan.regions);
            arguments.extend(["--cluster-init", "yes", "--replicas"].map(str::to_owned));
            arguments.extend([
                replicas.to_string(),
                "--regions".into(),
                regions.to_string(),
            ]);
        } else {
            arguments.extend(["--join".to_string(), join]);
        }
        arguments.extend(self.plan.settings.iter().chain(&node.settings).cloned());
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path(number))
            .expect("a log");
        let mut command = Command::new(&arguments[0]);
        command
            .args(&arguments[1..])
            .envs(node.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        let child = command.spawn().expect("the server starts");
        let node = self.nodes.get_mut(&number).expect("a node");
        assert!(node.child.is_none(), "node {number} runs already");
        node.child = Some(child);
    }

    /// Whether the process has ended by itself.
    pub fn ended(&mut self, number: usize) -> Option<ExitStatus> {
        let node = self.nodes.get_mut(&number).expect("a node");
        let ended = node.child.as_mut()?.try_wait().expect("a child");
        if ended.is_some() {
            node.child = None;
        }
        ended
    }

    /// kill -9.
    pub fn kill(&mut self, number: usize) {
        let node = self.nodes.get_mut(&number).expect("a node");
        node.paused = false;
        if let Some(mut child) = node.child.take() {
            child.kill().expect("a child");
            child.wait().expect("a child");
        }
    }

    /// SIGTERM, and waits for its end.
    pub fn stop(&mut self, number: usize) {
        self.signal(number, "TERM");
        let deadline = Instant::now() + TIMEOUT;
        while self.ended(number).is_none() {
            assert!(Instant::now() < deadline, "node {number} does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn pause(&mut self, number: usize) {
        self.signal(number, "STOP");
        self.nodes.get_mut(&number).expect("a node").paused = true;
    }

    pub fn resume(&mut self, number: usize) {
        self.signal(number, "CONT");
        self.nodes.get_mut(&number).expect("a node").paused = false;
    }

    fn signal(&self, number: usize, name: &str) {
        let child = self.nodes[&number].child.as_ref().expect("it runs");
        let (option, id) = (format!("-{name}"), child.id().to_string());
        let sent = Command::new("kill").args([option, id]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// Removes all data of a node that is down.
    pub fn wipe(&mut self, number: usize) {
        let node = &self.nodes[&number];
        assert!(node.child.is_none(), "node {number} runs");
        fs::remove_dir_all(&node.data).expect("its folder");
        fs::create_dir_all(&node.data).expect("its folder");
    }

    fn log_path(&self, number: usize) -> PathBuf {
        self.folder.join(format!("log{number}"))
    }

    /// What a node has printed so far.
    pub fn log(&self, number: usize) -> String {
        fs::read_to_string(self.log_path(number)).unwrap_or_default()
    }

    pub fn log_tail(&self, number: usize) -> String {
        let log = self.log(number);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    /// Waits until a node has printed this.
    pub fn until_logged(&self, number: usize, words: &str) {
        self.until(
            &format!("node {number} says {words:?}"),
            |cluster| match cluster.log(number).contains(words) {
                true => Ok(()),
                false => Err(cluster.log_tail(number)),
            },
        );
    }

    /// A connection to one node.
    pub fn session(&self, number: usize) -> std::io::Result<Session> {
        Session::open(&self.address(number), Duration::from_secs(5))
    }

    /// A client that finds its way.
    pub fn client(&self) -> Client {
        let addresses = self.nodes.keys().map(|&it| self.address(it));
        Client::new(addresses.collect())
    }

    /// Slots as a node sees them.
    pub fn ranges(&self, number: usize) -> Result<Vec<Range>, String> {
        let mut session = self.session(number).map_err(|error| error.to_string())?;
        let reply = session.ask(&["CLUSTER", "SLOTS"]);
        let Value::Array(ranges) = reply.map_err(|error| error.to_string())? else {
            return Err("no slots".into());
        };
        let range = |value: &Value| {
            let Value::Array(parts) = value else {
                return None;
            };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &parts[..] else {
                return None;
            };
            let address = |node: &Value| match node {
                Value::Array(parts) => match &parts[..] {
                    [host, Value::Int(port), ..] => Some(format!("{}:{port}", text(host)?)),
                    _ => None,
                },
                _ => None,
            };
            Some(Range {
                first: *first as u16,
                last: *last as u16,
                nodes: nodes.iter().filter_map(address).collect(),
            })
        };
        let found: Option<Vec<Range>> = ranges.iter().map(range).collect();
        found.ok_or_else(|| "slots that make no sense".into())
    }

    /// Who leads the slot of a key, as the nodes that answer see it.
    pub fn leader_of(&self, key: &str) -> usize {
        let slot = base::slot::slot_of(key.as_bytes());
        let mut leader = 0;
        self.until("somebody leads", |cluster| {
            let mut why = String::new();
            for number in cluster.answering() {
                match cluster.ranges(number) {
                    Ok(ranges) => {
                        let range = ranges
                            .iter()
                            .find(|it| (it.first..=it.last).contains(&slot));
                        let address = range.and_then(|it| it.nodes.first());
                        if let Some(address) = address {
                            leader = cluster.number_of(address);
                            return Ok(());
                        }
                    }
                    Err(error) => why = error,
                }
            }
            Err(why)
        });
        leader
    }

    /// Nodes that run and are not paused.
    pub fn answering(&self) -> Vec<usize> {
        let running = self.nodes.iter();
        let running = running.filter(|(_, it)| it.child.is_some() && !it.paused);
        running.map(|(&number, _)| number).collect()
    }

    /// Waits until every replica of every region is there and as far as its leader: each answers a read of its own.
    pub fn until_healthy(&self) {
        let replicas = self.replicas();
        self.until("all replicas answer", |cluster| {
            cluster.check_healthy(replicas)
        });
    }

    fn check_healthy(&self, replicas: usize) -> Result<(), String> {
        for number in self.answering() {
            let ranges = self.ranges(number)?;
            let slots: u32 = ranges
                .iter()
                .map(|it| u32::from(it.last) - u32::from(it.first) + 1)
                .sum();
            if slots != 16384 {
                return Err(format!("node {number} knows leaders for {slots} slots"));
            }
            let mut session = self.session(number).map_err(|e| e.to_string())?;
            session.ask(&["READONLY"]).map_err(|e| e.to_string())?;
            for range in ranges {
                let (first, last) = (range.first, range.last);
                if range.nodes.len() != replicas {
                    let count = range.nodes.len();
                    return Err(format!("{first}-{last} has {count} replicas, on {number}"));
                }
                if !range.nodes.contains(&self.address(number)) {
                    continue;
                }
                let key = key_in(first, last, "probe");
                match session.ask(&["GET", &key]).map_err(|e| e.to_string())? {
                    Value::Bulk(_) | Value::Nil => {}
                    Value::Error(error) => {
                        let error = String::from_utf8_lossy(&error);
                        return Err(format!("node {number} on {first}-{last}: {error}"));
                    }
                    other => panic!("GET answered {other:?}"),
                }
            }
        }
        Ok(())
    }

    /// Waits until something holds; panics with the last reason, and where the logs are.
    pub fn until(&self, what: &str, mut check: impl FnMut(&Cluster) -> Result<(), String>) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let Err(why) = check(self) else {
                return;
            };
            assert!(
                Instant::now() < deadline,
                "not within {TIMEOUT:?}: {what}; {why}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.nodes.values_mut() {
            if let Some(mut child) = node.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
            return;
        }
        eprintln!("data and logs are kept: {}", self.folder.display());
        for &number in self.nodes.keys() {
            eprintln!("--- node {number} ---\n{}", self.log_tail(number));
        }
    }
}

/// A key whose slot is in a range.
pub fn key_in(first: u16, last: u16, name: &str) -> String {
    let candidates = (0..).map(|n| format!("{{{name}{n}}}"));
    let mut fitting =
        candidates.filter(|key| (first..=last).contains(&base::slot::slot_of(key.as_bytes())));
    fitting.next().expect("there are many keys")
}
