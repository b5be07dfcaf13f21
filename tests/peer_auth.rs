//! The port for peers, as strangers meet it: who has not the cluster secret cannot join, read, order, send a Raft
//! message, nor take memory or places; and the secret itself can be replaced under load, and is shown nowhere.

mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use replica::{Message, MessageType, encode_message};
use tempfile::TempDir;
use transport::{
    Bytes, CallError, Config, Handler, RaftMessage, Refusal, Reply, Secret, Secrets, Transport,
    read_secrets, write_secrets,
};
use trio::Trio;

const LONG: Duration = Duration::from_secs(20);
const METHOD_ADMIN: u16 = 3;

fn peer(trio: &Trio, node: usize) -> String {
    format!("{}:{}", trio.host(node), trio::PORT + 10_000)
}

fn ctl(peers: &str, secret: Option<&Path>, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .arg("ctl")
        .args(words.split(' '))
        .args(["--peer", peers])
        .current_dir(std::env::temp_dir());
    if let Some(secret) = secret {
        command.arg("--cluster-secret-file").arg(secret);
    }
    command.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn nodes(trio: &Trio) -> serde_json::Value {
    let output = ctl(&peer(trio, 0), Some(&trio.secret()), "nodes --json");
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Of every region.
fn terms(trio: &Trio) -> BTreeMap<u64, u64> {
    let output = ctl(&peer(trio, 0), Some(&trio.secret()), "regions --json");
    assert!(output.status.success(), "{}", stderr(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = found["regions"].as_array().unwrap().iter();
    rows.map(|row| {
        let number = |name: &str| row[name].as_u64().unwrap();
        (number("region"), number("term"))
    })
    .collect()
}

/// Sets a key of every region, through any node.
fn write_everywhere(trio: &Trio, value: &str) {
    for n in 0..40 {
        until_written(trio, &format!("key:{n}"), value);
    }
}

fn until_written(trio: &Trio, key: &str, value: &str) {
    trio.until("written", |trio| {
        (0..3).any(|node| {
            let link = trio.try_link(node).ok();
            let said = link.and_then(|mut link| link.ask(&["SET", key, value]).ok());
            said.is_some_and(|said| trio::show(&said) == "OK")
        })
    });
}

/// What a stranger hears.
#[derive(Default)]
struct Ears(std::sync::Mutex<Vec<String>>);

impl Handler for Ears {
    fn on_raft(&self, _from: u64, _messages: Vec<RaftMessage>) {}

    fn on_call(&self, _from: u64, _method: u16, _body: Bytes, reply: Reply) {
        reply.reject("no");
    }

    fn on_refused(&self, _node: u64, refusal: &Refusal) {
        self.0.lock().unwrap().push(refusal.reason.clone());
    }

    fn on_notice(&self, _line: &str) {}
}

impl Ears {
    fn heard(&self, words: &str) -> bool {
        self.0.lock().unwrap().iter().any(|it| it.contains(words))
    }
}

fn stranger(node: u64, cluster: u64, secrets: Option<Secrets>) -> (Transport, Arc<Ears>) {
    let ears = Arc::new(Ears::default());
    let config = Config {
        node_id: node,
        cluster_id: cluster,
        secrets,
        ..Config::default()
    };
    (Transport::start(config, ears.clone()).unwrap(), ears)
}

/// A heartbeat of term 2^60 for whatever replica a region may have, as a leader would send it.
fn forged() -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    for region in 0..=8 {
        for to in 1..=40 {
            let mut message = Message::default();
            message.set_msg_type(MessageType::MsgHeartbeat);
            (message.from, message.to, message.term) = (to % 40 + 1, to, 1 << 60);
            let mut bytes = Vec::new();
            encode_message(&message, &mut bytes);
            all.push((region, bytes));
        }
    }
    all
}

/// The greeting of a node and a forged heartbeat, as nodes said it before there were secrets, or in the open now.
fn spoken(version: u8, cluster: u64) -> Vec<u8> {
    let mut hello = vec![0x09];
    hello.extend_from_slice(&cluster.to_le_bytes());
    hello.extend_from_slice(&[0x10, 2, 0x20, 1, 0x29]);
    hello.extend_from_slice(&77_u64.to_le_bytes());
    let mut bytes = b"NEOKVP\x00".to_vec();
    bytes.push(version);
    if version == 2 {
        bytes.push(0);
    }
    bytes.extend_from_slice(&(hello.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&hello);
    for (region, body) in forged() {
        let mut message = vec![0x08, region as u8, 0x12, body.len() as u8];
        message.extend_from_slice(&body);
        let mut frame = vec![0x0a, message.len() as u8];
        frame.extend_from_slice(&message);
        bytes.extend_from_slice(&(frame.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&frame);
    }
    bytes
}

fn talk(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    let _ = socket.write_all(bytes);
    let _ = socket.set_read_timeout(Some(LONG));
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

fn server(folder: &Path, settings: &[&str]) -> Child {
    let log = fs::File::create(folder.join("log")).unwrap();
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_neokv"), "server"])
        .args(["--data-dir", "data", "--num-shards", "1"])
        .args(["--block-cache-size", "16mb"])
        .args(settings)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn log_of(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// Waits for the end of a server that does not start; what it said.
fn complaint(folder: &Path, settings: &[&str]) -> String {
    let mut child = server(folder, settings);
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it runs:\n{}", log_of(folder));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    log_of(folder)
}

#[test]
fn who_has_no_secret_gets_nowhere() {
    let trio = Trio::start(&[]);
    write_everywhere(&trio, "before");
    let before = terms(&trio);
    let cluster = nodes(&trio)["cluster"].as_str().unwrap().to_owned();
    let cluster = u64::from_str_radix(&cluster, 16).unwrap();

    // Raft messages, in both versions of the protocol, to all nodes.
    for node in 0..3 {
        for version in [1, 2] {
            let answer = talk(&peer(&trio, node), &spoken(version, cluster));
            let words = String::from_utf8_lossy(&answer).into_owned();
            assert!(answer.starts_with(b"NEOKVP\x00\x02"), "{words}");
            match version {
                1 => assert!(words.contains("speaks version 2"), "{words}"),
                _ => assert_eq!(answer[8..], [1], "a secret is asked for"),
            }
        }
    }
    // Calls, without a secret and with another one; the words are clear on both sides.
    let other = Secrets::of(vec![Secret::generate().unwrap()]);
    for (secrets, there, here) in [
        (
            None,
            "it asks for the cluster secret",
            "it has no cluster secret",
        ),
        (
            Some(other),
            "does not accept the cluster secret",
            "it has another cluster secret",
        ),
    ] {
        let (transport, ears) = stranger(2, cluster, secrets);
        let call = transport.call_blocking(&peer(&trio, 0)[..], METHOD_ADMIN, "", LONG);
        let refused = matches!(&call, Err(CallError::Unreachable(why)) if why.contains(there));
        assert!(refused, "{call:?}");
        transport.set_peer(1, peer(&trio, 0));
        trio.until("it is refused as a peer", |_| ears.heard(there));
        trio.until("logged", |trio| trio.log(0).contains(here));
        transport.stop();
    }
    // ctl.
    let output = ctl(&peer(&trio, 0), None, "nodes");
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("give --cluster-secret-file"),
        "{}",
        stderr(&output)
    );
    let folder = TempDir::new().unwrap();
    let wrong = folder.path().join("wrong");
    write_secrets(&wrong, &[Secret::generate().unwrap()]).unwrap();
    let output = ctl(&peer(&trio, 0), Some(&wrong), "nodes");
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(
        said.contains("does not accept the cluster secret"),
        "{said}"
    );

    // A node that wants to join.
    let host = format!("{}.99", trio.host(0).rsplit_once('.').unwrap().0);
    let join = peer(&trio, 0);
    let settings = ["--bind", &host, "--redis-port", "7000", "--join", &join];
    let said = complaint(folder.path(), &settings);
    assert!(said.contains("--join needs the cluster secret"), "{said}");
    let wrong = wrong.to_string_lossy().into_owned();
    let with_wrong = [&settings[..], &["--cluster-secret-file", &wrong]].concat();
    let mut child = server(folder.path(), &with_wrong);
    trio.until("it is told why", |_| {
        log_of(folder.path()).contains("does not accept the cluster secret")
    });
    assert!(!folder.path().join("data/cluster-secret").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(nodes(&trio)["nodes"].as_array().unwrap().len(), 3);

    assert_eq!(terms(&trio), before, "no term has changed");
    write_everywhere(&trio, "after");
}

#[test]
fn a_forged_term_stops_nobody_even_with_the_secret() {
    let mut trio = Trio::start(&[]);
    write_everywhere(&trio, "before");
    let found = nodes(&trio);
    let cluster = u64::from_str_radix(found["cluster"].as_str().unwrap(), 16).unwrap();
    let secrets = || Some(Secrets::of(read_secrets(&trio.secret()).unwrap()));

    // An id that no node has.
    let (unknown, ears) = stranger(77, cluster, secrets());
    unknown.set_peer(1, peer(&trio, 0));
    trio.until("refused", |_| {
        ears.heard("node 77 is no node of this cluster")
    });
    unknown.stop();
    // The id of a node that is down: its messages are heard, and refused one by one.
    let rows = found["nodes"].as_array().unwrap();
    let id_of = |node: usize| {
        let row = rows.iter().find(|row| row["peer"] == peer(&trio, node));
        row.unwrap()["node"].as_u64().unwrap()
    };
    let (down, heard) = (id_of(2), [id_of(0), id_of(1)]);
    let (double, _ears) = stranger(down, cluster, secrets());
    trio.kill(2);
    for (node, id) in heard.into_iter().enumerate() {
        double.set_peer(id, peer(&trio, node));
        trio.until("connected", |_| double.is_up(id));
        for (region, body) in forged() {
            double.send(id, region, body);
        }
        trio.until("refused", |trio| {
            trio.log(node)
                .contains("a term far beyond that of this replica")
        });
    }
    double.stop();
    write_everywhere(&trio, "without node 3");
    assert!(terms(&trio).values().all(|&term| term < 1 << 32));
    trio.restart(2, &[]);
    trio.kill(1);
    write_everywhere(&trio, "without node 2");
    trio.restart(1, &[]);
    write_everywhere(&trio, "after");
}

fn rss_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kb = line.unwrap().trim().trim_end_matches(" kB");
    kb.parse::<u64>().unwrap() << 10
}

/// As many descriptors as the system lets this test have.
fn raise_limit() -> u64 {
    // SAFETY: plain data that the calls read and fill.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        limit.rlim_cur
    }
}

#[test]
fn a_crowd_shuts_nobody_out_and_takes_no_memory() {
    assert!(raise_limit() > 3000, "descriptors for the crowd");
    let mut trio = Trio::start(&[]);
    write_everywhere(&trio, "before");
    let pid = trio.pid(0);
    let before = rss_bytes(pid);
    let address = peer(&trio, 0);
    let mut crowd = Vec::new();
    for n in 0..2000 {
        let Ok(mut socket) = TcpStream::connect(&address) else {
            continue;
        };
        let said: &[u8] = match n % 5 {
            0 => b"",
            1 => b"NEOKVP",
            // Half of the first message.
            2 => b"NEOKVP\x00\x02\x01 and some more bytes",
            // A frame of 600 MB is announced.
            3 => b"NEOKVP\x00\x02\x00\x25\x80\x00\x00 and some bytes of it",
            _ => b"NEOKVP\x00\x01\x25\x80\x00\x00 and some bytes of it",
        };
        let _ = socket.write_all(said);
        crowd.push(socket);
    }
    assert!(crowd.len() > 1100, "{} are connected", crowd.len());
    // The operator, and a node that starts.
    let all_up = |trio: &Trio| {
        let output = ctl(&peer(trio, 0), Some(&trio.secret()), "nodes --json");
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let rows = found["nodes"].as_array();
        rows.is_some_and(|rows| rows.len() == 3 && rows.iter().all(|row| row["state"] == "up"))
    };
    trio.until("the operator gets an answer", all_up);
    trio.kill(1);
    trio.restart(1, &[]);
    trio.until("the other node is heard again", all_up);
    write_everywhere(&trio, "with a crowd");
    let grown = rss_bytes(pid).saturating_sub(before);
    assert!(grown < 200 << 20, "{} MB", grown >> 20);
    drop(crowd);
}

#[test]
fn the_secret_is_shown_nowhere() {
    let trio = Trio::start(&["--loglevel", "debug"]);
    let text = read_secrets(&trio.secret()).unwrap()[0].to_text();
    write_everywhere(&trio, "x");
    nodes(&trio);
    for node in 0..3 {
        let kept = trio.file(node, "data/cluster-secret");
        let mode = fs::metadata(&kept).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", kept.display());
        assert_eq!(read_secrets(&kept).unwrap()[0].to_text(), text);
        let mut link = trio.link(node);
        for line in [
            "INFO everything",
            "CONFIG GET *",
            "CLIENT LIST",
            "DEBUG OBJECT k",
        ] {
            assert!(!link.say(line).contains(&text), "{line}");
        }
        let command = fs::read(format!("/proc/{}/cmdline", trio.pid(node))).unwrap();
        assert!(!String::from_utf8_lossy(&command).contains(&text));
        assert!(!trio.log(node).contains(&text));
    }
}

/// Local addresses, in hexadecimal as the kernel shows them, of all sockets on which a process listens.
fn listening(pid: u32) -> Vec<String> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let fds = fs::read_dir(folder).unwrap().flatten();
    let targets = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
    let sockets: Vec<String> = targets
        .filter_map(|target| {
            let target = target.to_str()?;
            let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            if fields[3] == "0A" && sockets.iter().any(|it| it == fields[9]) {
                found.push(fields[1].split(':').next().unwrap().to_owned());
            }
        }
    }
    found
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn default_flags_answer_nothing_from_outside() {
    let folder = TempDir::new().unwrap();
    let ports = [free_port(), free_port(), free_port()].map(|it| it.to_string());
    let settings = [
        ["--redis-port", &ports[0]],
        ["--peer-port", &ports[1]],
        ["--http-port", &ports[2]],
        ["--cluster-init", "yes"],
        ["--replicas", "1"],
    ];
    let mut child = server(folder.path(), &settings.concat());
    let deadline = Instant::now() + Duration::from_secs(60);
    while ports
        .iter()
        .any(|port| TcpStream::connect(format!("127.0.0.1:{port}")).is_err())
    {
        let log = log_of(folder.path());
        assert!(Instant::now() < deadline, "it does not listen:\n{log}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let found = listening(child.id());
    assert!(found.len() >= 3, "{found:?}");
    // 127.0.0.1, ::1.
    let loopback = ["0100007F", "00000000000000000000000001000000"];
    for address in &found {
        assert!(loopback.contains(&address.as_str()), "{found:?}");
    }
    // And the founder has made the secret.
    let kept = folder.path().join("data/cluster-secret");
    assert_eq!(read_secrets(&kept).unwrap().len(), 1);
    let output = ctl(&format!("127.0.0.1:{}", ports[1]), Some(&kept), "nodes");
    assert!(output.status.success(), "{}", stderr(&output));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn without_authentication_only_on_loopback() {
    let folder = TempDir::new().unwrap();
    let (redis, peers) = (free_port().to_string(), free_port().to_string());
    let settings = |bind| {
        [
            ["--bind", bind],
            ["--redis-port", &redis],
            ["--peer-port", &peers],
            ["--cluster-init", "yes"],
            ["--peer-auth", "no"],
        ]
        .concat()
    };
    let said = complaint(folder.path(), &settings("0.0.0.0"));
    assert!(said.contains("--peer-auth no: whoever reaches"), "{said}");
    let mut child = server(folder.path(), &settings("127.0.0.1"));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let asked = ctl(&format!("127.0.0.1:{peers}"), None, "nodes --peer-auth no");
        if asked.status.success() {
            break;
        }
        let log = log_of(folder.path());
        assert!(Instant::now() < deadline, "{}\n{log}", stderr(&asked));
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Writes keys one after the other until it is stopped; those that were acknowledged.
fn write_until(trio: &Trio, name: usize, stopped: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let (mut node, mut link) = (0, None);
    for n in 0.. {
        if stopped.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("load:{name}:{n}");
        for _ in 0..200 {
            let open = link.take().or_else(|| trio.try_link(node).ok());
            let Some(mut open) = open else {
                node = (node + 1) % 3;
                continue;
            };
            match open.ask(&["SET", &key, &key]).map(|said| trio::show(&said)) {
                Ok(said) if said == "OK" => {
                    link = Some(open);
                    acknowledged.push(key);
                    break;
                }
                Ok(said) if said.starts_with("-MOVED") => {
                    node = trio.number(said.rsplit(' ').next().unwrap());
                }
                Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
    acknowledged
}

/// What the leader of its region says, once there is one.
fn read_back(trio: &Trio, key: &str) -> String {
    let mut said = String::new();
    trio.until("a leader answers", |trio| {
        let found = (0..3).find_map(|node| {
            let said = trio.try_link(node).ok()?.ask(&["GET", key]).ok()?;
            let said = trio::show(&said);
            (!said.starts_with('-')).then_some(said)
        });
        found.map(|it| said = it).is_some()
    });
    said
}

#[test]
fn the_secret_is_replaced_under_load() {
    let mut trio = Trio::start(&[]);
    let old = trio.file(0, "old");
    fs::copy(trio.secret(), &old).unwrap();
    let stopped = AtomicBool::new(false);
    let written: Vec<String> = std::thread::scope(|scope| {
        let writers = [0, 1, 2].map(|name| {
            let (trio, stopped) = (&trio, &stopped);
            scope.spawn(move || write_until(trio, name, stopped))
        });
        for _ in 0..2 {
            let output = ctl(&peer(&trio, 1), Some(&trio.secret()), "rotate-secret");
            assert!(output.status.success(), "{}", stderr(&output));
        }
        // Connections under the old ones have been closed: all are heard under the new one.
        trio.until("all nodes are heard", |trio| {
            let found = nodes(trio);
            let rows = found["nodes"].as_array().unwrap();
            rows.iter().all(|row| row["state"] == "up")
        });
        write_everywhere(&trio, "replaced");
        stopped.store(true, Ordering::Relaxed);
        let written = writers.map(|it| it.join().unwrap());
        written.concat()
    });
    assert!(written.len() > 100, "{} writes", written.len());
    let new = read_secrets(&trio.secret()).unwrap();
    assert_ne!(new, read_secrets(&old).unwrap());
    for node in 0..3 {
        let kept = read_secrets(&trio.file(node, "data/cluster-secret")).unwrap();
        assert_eq!(kept, new, "node {node}");
        assert!(!trio.log(node).contains(&new[0].to_text()));
    }
    let output = ctl(&peer(&trio, 0), Some(&old), "nodes");
    assert!(!output.status.success(), "the old one is worth nothing");
    // A node that starts with the file it was given long ago has its own copy.
    trio.kill(2);
    let output = ctl(&peer(&trio, 0), Some(&trio.secret()), "rotate-secret");
    let said = stderr(&output);
    assert!(!output.status.success(), "a node would be shut out");
    assert!(said.contains("node "), "{said}");
    trio.restart(2, &[]);
    trio.until("all nodes are heard", |trio| {
        let found = nodes(trio);
        let rows = found["nodes"].as_array().unwrap();
        rows.iter().all(|row| row["state"] == "up")
    });
    let output = ctl(&peer(&trio, 0), Some(&trio.secret()), "rotate-secret");
    assert!(output.status.success(), "{}", stderr(&output));
    for key in &written {
        assert_eq!(read_back(&trio, key), *key);
    }
}
