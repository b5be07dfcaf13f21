//! `neokv cluster` and `neokv ctl` as people use them: real processes, a stock cluster client.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis::cluster::{ClusterClient, ClusterConnection};
use serde_json::Value;
use tempfile::TempDir;

/// A folder and ports of its own. Whatever happens, nothing runs afterwards.
struct Playground {
    folder: TempDir,
    port: u16,
}

impl Playground {
    fn new(nodes: u16) -> Playground {
        Playground {
            folder: TempDir::new().unwrap(),
            port: free_ports(nodes),
        }
    }

    fn dir(&self) -> String {
        self.folder.path().join("here").to_str().unwrap().to_owned()
    }

    /// `neokv cluster WORDS --dir …`
    fn secret(&self) -> String {
        format!("{}/cluster-secret", self.dir())
    }

    fn cluster(&self, words: &str) -> Output {
        let (before, after) = words.split_once(" -- ").unwrap_or((words, ""));
        let mut line: Vec<&str> = before.split(' ').collect();
        let dir = self.dir();
        line.extend(["--dir", &dir]);
        if !after.is_empty() {
            line.push("--");
            line.extend(after.split(' '));
        }
        neokv(&[&["cluster"], &line[..]].concat())
    }

    fn up(&self, words: &str) -> Output {
        self.cluster(&format!("up --port {} {words}", self.port))
    }

    fn status(&self) -> Value {
        json(&self.cluster("status --json"))
    }

    /// `neokv ctl WORDS`, to all nodes in turn.
    fn ctl(&self, words: &str) -> Output {
        let peers = (0..3).map(|above| format!("127.0.0.1:{}", self.port + 10_000 + above));
        let peers = peers.collect::<Vec<_>>().join(",");
        let words: Vec<&str> = words.split(' ').collect();
        let secret = self.secret();
        let access = ["ctl", "--peer", &peers, "--cluster-secret-file", &secret];
        neokv(&[&access[..], &words[..]].concat())
    }

    fn client(&self) -> Option<ClusterConnection> {
        let nodes = (0..3).map(|above| format!("redis://127.0.0.1:{}/", self.port + above));
        let client = ClusterClient::builder(nodes.collect::<Vec<_>>())
            .retries(3)
            .connection_timeout(Duration::from_secs(2))
            .response_timeout(Duration::from_secs(5))
            .build();
        client.unwrap().get_connection().ok()
    }

    /// A command to whoever leads the slot, until it is answered. When a node is gone, this client
    /// (redis-rs without async) has to be made anew to look for another one, with any server.
    #[track_caller]
    fn ask(&self, client: &mut Option<ClusterConnection>, line: &str) -> String {
        let mut words = line.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        eventually(line, || {
            let connection = client.take().or_else(|| self.client());
            *client = connection;
            match command.query(client.as_mut()?) {
                Ok(answer) => Some(answer),
                Err(error) => {
                    eprintln!("{line}: {error}");
                    *client = None;
                    None
                }
            }
        })
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        let output = self.cluster("down --wipe");
        if std::thread::panicking() {
            eprintln!("{}", text(&output));
        }
    }
}

fn neokv(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NEOKV_") {
            command.env_remove(name);
        }
    }
    command.args(args).output().unwrap()
}

/// All that was said.
fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn refused(output: &Output) -> String {
    let said = text(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

#[track_caller]
fn json(output: &Output) -> Value {
    serde_json::from_str(&good(output)).unwrap()
}

/// The first of as many ports in a row, which are free as are those 10000 above. Below the range
/// the system takes the ports of outgoing connections from.
fn free_ports(count: u16) -> u16 {
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Tests of one process must not choose the same.
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let mut seed = (std::process::id() ^ call << 24).wrapping_mul(2_654_435_761);
    loop {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let first = 11_000 + (seed >> 16) as u16 % 10_000;
        if (0..count).all(|above| free(first + above) && free(first + above + 10_000)) {
            return first;
        }
    }
}

#[track_caller]
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_running(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn a_cluster_comes_up_survives_a_death_and_goes() {
    let here = Playground::new(3);
    let said = good(&here.up("--nodes 3 --regions 4"));
    assert!(said.contains("16384 of 16384 slots served"), "{said}");
    assert!(
        said.contains(&format!("neokv cli -c -p {}", here.port)),
        "{said}"
    );

    // Stock clients use it.
    let mut client = here.client();
    for number in 0..50 {
        here.ask(&mut client, &format!("SET key:{number} {number}"));
    }
    for number in 0..50 {
        let found = here.ask(&mut client, &format!("GET key:{number}"));
        assert_eq!(found, number.to_string());
    }

    // Both views show it.
    let status = here.status();
    let nodes = status["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3, "{status}");
    let pids: Vec<u64> = nodes.iter().map(|it| it["pid"].as_u64().unwrap()).collect();
    assert!(pids.iter().all(|&pid| is_running(pid)));
    for (at, it) in nodes.iter().enumerate() {
        assert_eq!(it["node"], it["id"], "{status}");
        assert_eq!(it["state"], "up", "{status}");
        assert_eq!(it["redis"], format!("127.0.0.1:{}", here.port + at as u16));
    }
    let rows = json(&here.ctl("nodes --json"));
    assert_eq!(rows["nodes"].as_array().unwrap().len(), 3, "{rows}");
    let rows = json(&here.ctl("regions --json"));
    let regions = rows["regions"].as_array().unwrap();
    assert_eq!(regions.len(), 5, "meta and four: {rows}");
    let table = good(&here.ctl("regions"));
    assert!(table.starts_with("region  slots"), "{table}");
    assert!(table.contains("12288-16383"), "{table}");
    let table = good(&here.ctl("region 2"));
    assert!(table.starts_with("region 2 · slots 4096-8191"), "{table}");

    // Orders are obeyed, or refused.
    let leader = |region: u64| {
        let row = json(&here.ctl(&format!("region {region} --json")));
        row["leader_node"].as_u64()
    };
    let old = eventually("a leader", || leader(1));
    let next = old % 3 + 1;
    eventually("a transfer", || {
        let output = here.ctl(&format!("transfer-leader 1 {next}"));
        output.status.success().then_some(())
    });
    eventually("another leader", || (leader(1) != Some(old)).then_some(()));
    let said = refused(&here.ctl("region 77"));
    assert!(said.contains("there is no region 77"), "{said}");
    let said = refused(&here.ctl("remove-node 1"));
    assert!(said.contains("node 1 is alive"), "{said}");

    // One dies: the others go on.
    good(&here.cluster("kill 1"));
    assert!(!is_running(pids[0]));
    refused(&here.cluster("kill 1"));
    for number in 0..50 {
        here.ask(&mut client, &format!("SET key:{number} again"));
    }
    let status = here.status();
    assert_eq!(status["nodes"][0]["state"], "stopped", "{status}");
    assert_eq!(status["nodes"][0]["pid"], Value::Null, "{status}");

    // It comes back with its data, and everything stops and starts.
    good(&here.cluster("start 1"));
    eventually("all replicas", || {
        let rows = json(&here.ctl("regions --json"));
        let mut regions = rows["regions"].as_array().unwrap().iter();
        regions.all(|it| it["health"] == "ok").then_some(())
    });
    let first = here.status()["nodes"][0]["pid"].as_u64().unwrap();
    good(&here.cluster("down"));
    assert!(![first, pids[1], pids[2]].into_iter().any(is_running));
    let said = good(&here.cluster("status"));
    assert!(said.contains("nothing runs"), "{said}");
    good(&here.cluster("up"));
    let found = here.ask(&mut here.client(), "GET key:7");
    assert_eq!(found, "again");
    // Nothing differs after all of that.
    let said = good(&here.ctl("digest"));
    assert_eq!(said.matches("equal").count(), 4, "{said}");
    let said = good(&here.cluster("down --wipe"));
    assert!(said.starts_with("3 nodes ended\n"), "{said}");
    assert!(!std::path::Path::new(&here.dir()).exists());
}

#[test]
fn what_cannot_work_is_said_and_leaves_nothing() {
    let here = Playground::new(2);
    // A node that ends at once: its last words are shown, and other flags may be tried.
    let said = refused(&here.up("--nodes 1 -- --bind 203.0.113.77"));
    assert!(
        said.contains("node 1 did not start (exit status: 1)"),
        "{said}"
    );
    assert!(said.contains("203.0.113.77"), "{said}");
    let said = refused(&here.cluster("status"));
    assert!(said.contains("there is no playground in"), "{said}");

    // Somebody has the port.
    let taken = std::net::TcpListener::bind(("127.0.0.1", here.port + 10_001)).unwrap();
    let said = refused(&here.up("--nodes 2"));
    let port = here.port + 10_001;
    assert!(
        said.contains(&format!("port {port} is in use by another program")),
        "{said}"
    );
    drop(taken);

    for (words, expected) in [
        (
            "--nodes 2 --replicas 3",
            "--replicas 3: every replica needs a node of its own",
        ),
        ("--nodes 0", "invalid value '0' for '--nodes <N>'"),
        (
            "--nodes 1 -- --redis-port 7",
            "--redis-port: each node has its own",
        ),
        ("--nodes 1 -- --nope", "unexpected argument '--nope' found"),
        (
            "--nodes 1 -- --engine memory",
            "a cluster has the engine rocksdb",
        ),
        ("--nodes 1 -- --hz often", "--hz: 'often': "),
    ] {
        let said = refused(&here.up(words));
        assert!(said.contains(expected), "{words}: {said}");
    }
    let said = refused(&here.cluster("up --nodes 3 --port 65000"));
    assert!(said.contains("the highest that works is 55533"), "{said}");

    // Somebody else's folder.
    let other = here.folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("thesis.txt"), "x").unwrap();
    let dir = other.to_str().unwrap();
    let said = refused(&neokv(&["cluster", "up", "--dir", dir]));
    assert!(said.contains("it has 'thesis.txt'"), "{said}");

    // One node alone is a cluster too; the folder is locked while a command is at work.
    let said = good(&here.up("--nodes 1 --regions 1"));
    assert!(said.contains("16384 of 16384 slots served"), "{said}");
    let said = refused(&here.up("--nodes 1 --regions 2"));
    assert!(said.contains("was made with 1, which stays"), "{said}");
    let lock = std::fs::File::open(here.folder.path().join("here/lock")).unwrap();
    lock.lock().unwrap();
    let said = refused(&here.cluster("kill 1"));
    assert!(
        said.contains("another `neokv cluster` command is at work"),
        "{said}"
    );
}
