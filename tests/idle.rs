//! Three nodes, 1000 regions on each, nobody uses them: once they are quiet, each process takes less than 5 % of a CPU.
//! `make idle` runs it, and `make bench` has it as a row; it takes about a minute.

#[allow(dead_code)] // shared with other tests, which use the rest
mod node;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use node::{Folder, Node, call, free_port};

const REGIONS: usize = 1000;
/// Percent of one CPU; without optimization everything takes several times as much.
const LIMIT: f64 = if cfg!(debug_assertions) { 25.0 } else { 5.0 };
const MEASURED: Duration = Duration::from_secs(10);

/// A port whose peer port, 10000 above, is free as well.
fn port() -> u16 {
    loop {
        let port = free_port();
        if let Some(peer) = port.checked_add(10_000)
            && std::net::TcpListener::bind(("127.0.0.1", peer)).is_ok()
        {
            return port;
        }
    }
}

fn start(folder: &Folder, n: usize, port: u16, first: u16) -> Node {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .args(["server", "--bind", "127.0.0.1", "--num-shards", "1"])
        .args(["--redis-port", &port.to_string(), "--http-port", "0"])
        .arg("--data-dir")
        .arg(folder.0.join(n.to_string()));
    if port == first {
        command.args(["--cluster-init", "yes", "--replicas", "3"]);
        command.args(["--regions", &REGIONS.to_string()]);
    } else {
        command.args(["--join", &format!("127.0.0.1:{}", first + 10_000)]);
    }
    let secret = folder.0.join("secret");
    fs::write(&secret, format!("{:064x}\n", std::process::id())).unwrap();
    command.arg("--cluster-secret-file").arg(secret);
    Node::of(command, port)
}

/// User and system time of a process so far, in hundredths of a second.
fn ticks_of(node: &Node) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", node.child.id())).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let fields = rest.split_ascii_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}

fn percent_of(nodes: &[Node], time: Duration) -> Vec<f64> {
    let before: Vec<u64> = nodes.iter().map(ticks_of).collect();
    let begin = Instant::now();
    thread::sleep(time);
    let seconds = begin.elapsed().as_secs_f64();
    let spent = nodes.iter().zip(before);
    spent
        .map(|(node, before)| (ticks_of(node) - before) as f64 / seconds)
        .collect()
}

#[test]
#[ignore = "a minute; `make idle`"]
fn a_thousand_quiet_regions_take_next_to_nothing() {
    let folder = Folder::new();
    let first = port();
    let mut nodes = vec![start(&folder, 0, first, first)];
    for n in 1..3 {
        nodes.push(start(&folder, n, port(), first));
    }
    let deadline = Instant::now() + Duration::from_secs(300);
    for node in &nodes {
        let mut client = node.client();
        while !call::<String>(&mut client, "CLUSTER INFO").contains("cluster_state:ok") {
            assert!(Instant::now() < deadline, "the regions do not come up");
            thread::sleep(Duration::from_millis(200));
        }
    }
    // Quiet comes some seconds after the last election and the last transfer of a leader.
    let deadline = Instant::now() + Duration::from_secs(90);
    let is_low = |percent: &Vec<f64>| percent.iter().all(|percent| *percent < LIMIT);
    while Instant::now() < deadline && !is_low(&percent_of(&nodes, Duration::from_secs(3))) {}

    let percent = percent_of(&nodes, MEASURED);
    println!("{REGIONS} regions on each of three nodes, idle: {percent:.2?} % of one CPU");
    assert!(is_low(&percent), "{percent:.2?} %, {LIMIT} % at most");
}
