//! A network of its own for a cluster: each node in a network namespace, all on one bridge, the test outside.
//!
//! ```text
//!   test ── 198.18.x.254 ──┬── bridge ──┬── 198.18.x.1  node 1
//!                          (namespace)  ├── 198.18.x.2  node 2
//!                                       └── 198.18.x.3  node 3
//! ```
//!
//! A direction between two nodes is cut by a blackhole route in the sender's namespace: packets vanish, connections
//! stay open and say nothing. Clients reach both sides of it. Needs root and `ip`; where that is missing
//! [`Network::new`] says so and its tests are skipped.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Network {
    name: String,
    subnet: String,
    nodes: Vec<usize>,
}

impl Network {
    /// `None`: not allowed here.
    pub fn new() -> Option<Network> {
        sweep();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = (process * 13 + n) % 512;
        let network = Network {
            name: format!("neokv-{process}-{n}"),
            subnet: format!("198.{}.{}", 18 + place / 256, place % 256),
            nodes: Vec::new(),
        };
        let link = format!("nkv{process}-{n}");
        let hub = network.hub();
        let made = [
            format!("netns add {hub}"),
            format!("-n {hub} link add bridge type bridge"),
            format!("-n {hub} link set bridge up"),
            format!("link add {link} type veth peer name test netns {hub}"),
            format!("-n {hub} link set test master bridge up"),
            format!("addr add {}.254/24 dev {link}", network.subnet),
            format!("link set {link} up"),
        ];
        for line in made {
            if let Err(why) = try_ip(&line) {
                assert!(
                    std::env::var_os("CI").is_none(),
                    "no network namespaces in CI: {why}"
                );
                eprintln!("SKIPPED: no network namespaces here: {why}");
                return None;
            }
        }
        Some(network)
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    pub fn namespace(&self, node: usize) -> String {
        format!("{}-{node}", self.name)
    }

    pub fn address(&self, node: usize) -> String {
        format!("{}.{node}", self.subnet)
    }

    /// Connects another node, numbered from 1.
    pub fn add(&mut self, node: usize) {
        let (hub, space) = (self.hub(), self.namespace(node));
        self.nodes.push(node);
        for line in [
            format!("netns add {space}"),
            format!("-n {space} link set lo up"),
            format!("link add port{node} netns {hub} type veth peer name eth0 netns {space}"),
            format!("-n {hub} link set port{node} master bridge up"),
            format!("-n {space} addr add {}/24 dev eth0", self.address(node)),
            format!("-n {space} link set eth0 up"),
        ] {
            ip(&line);
        }
    }

    /// Nothing from `from` arrives at `to` any more.
    pub fn cut(&self, from: usize, to: usize) {
        let (space, address) = (self.namespace(from), self.address(to));
        ip(&format!("-n {space} route replace blackhole {address}/32"));
    }

    /// No word between `node` and the other nodes.
    pub fn isolate(&self, node: usize) {
        for other in self.others(node) {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    /// Others are not heard by `node`, but hear it.
    pub fn deafen(&self, node: usize) {
        for other in self.others(node) {
            self.cut(other, node);
        }
    }

    /// `node` hears the others, but is not heard by them.
    pub fn mute(&self, node: usize) {
        for other in self.others(node) {
            self.cut(node, other);
        }
    }

    /// What `node` sends takes its time; false if there is no way to do that here.
    pub fn slow(&self, node: usize, rate: &str) -> bool {
        let space = self.namespace(node);
        let line =
            format!("-n {space} qdisc add dev eth0 root tbf rate {rate} burst 32k latency 50ms");
        let done = Command::new("tc").args(line.split(' ')).status();
        let is_done = done.is_ok_and(|status| status.success());
        if !is_done {
            eprintln!("SKIPPED: no slow lines here (tc)");
        }
        is_done
    }

    pub fn fast(&self, node: usize) {
        let space = self.namespace(node);
        let line = format!("-n {space} qdisc del dev eth0 root");
        let _ = Command::new("tc").args(line.split(' ')).status();
    }

    /// All is connected again.
    pub fn heal(&self) {
        for &node in &self.nodes {
            let space = self.namespace(node);
            ip(&format!("-n {space} route flush type blackhole"));
        }
    }

    fn others(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.nodes.iter().copied().filter(move |&it| it != node)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for &node in &self.nodes {
            let _ = try_ip(&format!("netns del {}", self.namespace(node)));
        }
        let _ = try_ip(&format!("netns del {}", self.hub()));
    }
}

fn ip(line: &str) {
    try_ip(line).unwrap_or_else(|why| panic!("ip {line}: {why}"));
}

fn try_ip(line: &str) -> Result<(), String> {
    let done = Command::new("ip").args(line.split(' ')).output();
    let done = done.map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().to_string()),
    }
}

/// Removes what tests have left that were killed themselves.
fn sweep() {
    let Ok(listed) = Command::new("ip").args(["netns", "list"]).output() else {
        return;
    };
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let Some(rest) = name.strip_prefix("neokv-") else {
            continue;
        };
        let process = rest.split('-').next().unwrap_or_default();
        if !std::path::Path::new("/proc").join(process).exists() {
            let _ = try_ip(&format!("netns del {name}"));
        }
    }
}
