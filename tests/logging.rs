//! The log of the running binary: what a start says, how lines look, which are written, and that nothing that happens to
//! the log reaches clients.

#[allow(dead_code)] // shared with other tests, which use the rest
mod process;
mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use process::Server;
use serde_json::Value as Json;
use trio::{Link, Trio};

const TIMEOUT: Duration = Duration::from_secs(30);

fn link(port: u16) -> Link {
    Link::open(&format!("127.0.0.1:{port}")).unwrap()
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: never");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Every whole line of a log in JSON, each of which must be an object with the fields all events have.
fn events(log: &str) -> Vec<Json> {
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    let parse = |line: &str| {
        let event: Json =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "target", "message"] {
            assert!(event[field].is_string(), "no {field}: {line}");
        }
        event
    };
    whole.lines().map(parse).collect()
}

/// The first event with these words.
fn event(log: &str, words: &str) -> Option<Json> {
    let is_it = |event: &Json| event["message"].as_str().unwrap().contains(words);
    events(log).into_iter().find(is_it)
}

#[test]
fn json_lines_parse_and_have_fields() {
    let server = Server::durable_in(1, &[], &[("NEOKV_LOG_FORMAT", "json")]);
    let mut link = link(server.port);
    assert_eq!(link.say("CONFIG GET log-format"), "[log-format json]");
    assert_eq!(
        link.say("CONFIG SET log-format text").get(..4),
        Some("-ERR")
    );
    assert_eq!(link.say("DEBUG LOG hello"), "OK");
    let hello = until("the line", || event(&server.log(), "DEBUG LOG: hello"));
    assert_eq!(hello["level"], "WARN");
    assert_eq!(hello["target"], "admin::debug");
    let time = hello["timestamp"].as_str().unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");

    // The listener accepts before this line is written.
    let ready = until("ready", || event(&server.log(), "ready: connect with"));
    assert_eq!(ready["mode"], "standalone");
    assert_eq!(ready["address"], format!("127.0.0.1:{}", server.port));
    let log = server.log();
    let starts = event(&log, "NeoKV starts").unwrap();
    assert_eq!(starts["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(starts["engine"], "rocksdb");
    assert_eq!(starts["cores"], 1);
    let command = std::fs::read(format!("/proc/{}/cmdline", starts["pid"])).unwrap();
    assert!(String::from_utf8_lossy(&command).contains("neokv"));
}

/// Each of these words in a line of its own, in this order, and nothing to worry about.
fn says_in_order(log: &str, all: &[&str]) {
    let mut lines = log.lines();
    for words in all {
        assert!(lines.any(|line| line.contains(words)), "{words}:\n{log}");
    }
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[test]
fn a_start_tells_a_newcomer_what_to_do() {
    let http = free_port().to_string();
    let mut server = Server::durable(2, &["--http-port", &http]);
    let log = until("the last line", || {
        Some(server.log()).filter(|log| log.contains("to stop: Ctrl-C, or SHUTDOWN"))
    });
    let port = server.port;
    for words in [
        format!("version={}", env!("CARGO_PKG_VERSION")),
        "engine=rocksdb cores=2".into(),
        format!("`redis-cli -p {port}` or `neokv cli -p {port}`"),
        "mode=standalone".into(),
        format!("url=http://127.0.0.1:{http}/metrics"),
    ] {
        assert!(log.contains(&words), "{words}:\n{log}");
    }
    // The folder is the real one.
    let dir = log
        .split("dir=")
        .nth(1)
        .and_then(|it| it.split_whitespace().next());
    let dir = Path::new(dir.unwrap());
    assert!(dir.is_absolute() && dir.join("FORMAT").exists(), "{log}");
    // Nothing was replayed, and no peers are listened to.
    assert!(!log.contains("replay") && !log.contains("--join"), "{log}");
    says_in_order(
        &log,
        &[
            "NeoKV starts",
            "dir=",
            "ready: connect with",
            "/metrics",
            "to stop:",
        ],
    );

    // A start that found nothing in the log but elections does not speak of it either; one that found writes does.
    server.kill_and_restart();
    until("the next start", || {
        Some(()).filter(|()| server.log().matches("to stop: Ctrl-C").count() == 2)
    });
    assert!(!server.log().contains("replay"), "{}", server.log());
    assert_eq!(link(server.port).say("SET k v"), "OK");
    server.kill_and_restart();
    until("it replays", || {
        Some(()).filter(|()| {
            server
                .log()
                .contains("replayed the end of the log entries=1 ")
        })
    });
}

#[test]
fn only_ports_that_are_on_are_told() {
    let server = Server::neokv(1);
    let log = until("the last line", || {
        Some(server.log()).filter(|log| log.contains("to stop:"))
    });
    assert!(!log.contains("metrics"), "{log}");
    says_in_order(
        &log,
        &[
            "NeoKV starts",
            "the data is in memory only",
            "ready: connect with",
            "to stop:",
        ],
    );
}

/// Whether an event of `admin` with the level notice is written, by the line that follows it.
fn is_reload_written(server: &Server, link: &mut Link, marker: &str) -> bool {
    let before = server.log().matches("DEBUG RELOAD:").count();
    assert_eq!(link.say("DEBUG RELOAD"), "OK");
    assert_eq!(link.say(&format!("DEBUG LOG {marker}")), "OK");
    let marker = format!("DEBUG LOG: {marker}");
    let log = until("the marker", || {
        Some(server.log()).filter(|log| log.contains(&marker))
    });
    log.matches("DEBUG RELOAD:").count() > before
}

#[test]
fn levels_change_at_once_also_of_modules() {
    let server = Server::neokv_with(2, &["--bind", "127.0.0.1", "--loglevel", "warning"]);
    let mut link = link(server.port);
    for (at, (level, shown, is_written)) in [
        ("", "warning", false),
        ("notice", "notice", true),
        ("warning", "warning", false),
        ("WARNING,family=notice", "warning,family=notice", true),
        (
            "notice,server::family=warning",
            "notice,server::family=warning",
            false,
        ),
        ("transport=debug", "notice,transport=debug", true),
    ]
    .into_iter()
    .enumerate()
    {
        if !level.is_empty() {
            assert_eq!(link.say(&format!("CONFIG SET loglevel {level}")), "OK");
        }
        assert_eq!(
            link.say("CONFIG GET loglevel"),
            format!("[loglevel {shown}]")
        );
        let marker = format!("marker-{at}");
        assert_eq!(
            is_reload_written(&server, &mut link, &marker),
            is_written,
            "{level}"
        );
    }
    for bad in ["loud", "notice,", "notice,family=loud", "=notice"] {
        let refused = link.say(&format!("CONFIG SET loglevel {bad}"));
        assert!(refused.starts_with("-ERR CONFIG SET failed"), "{refused}");
    }
    assert_eq!(
        link.say("CONFIG GET loglevel"),
        "[loglevel notice,transport=debug]"
    );
    // No line per command, even if everything is written.
    assert_eq!(link.say("CONFIG SET loglevel debug"), "OK");
    for _ in 0..100 {
        assert_eq!(link.say("SET a-key v"), "OK");
    }
    assert!(is_reload_written(&server, &mut link, "the-end"));
    let log = server.log();
    let after = log.lines().skip_while(|line| !line.contains("marker-5"));
    assert!(after.count() < 20, "{log}");
}

#[test]
fn an_event_is_one_line() {
    let server = Server::neokv(1);
    let mut link = link(server.port);
    let text = "one\r\n2026-01-01T00:00:00.000000Z ERROR two";
    link.ask(&["DEBUG", "LOG", text]).unwrap();
    let log = until("the line", || {
        Some(server.log()).filter(|log| log.contains("DEBUG LOG"))
    });
    let line = log.lines().find(|line| line.contains("DEBUG LOG")).unwrap();
    assert!(line.contains("two"), "{log}");
}

/// A server in memory whose output goes where the test wants it; killed when dropped.
struct Bare {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Bare {
    fn start(flags: &[&str], out: impl Fn() -> Stdio) -> Bare {
        for _ in 0..5 {
            let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
            let child = Command::new(env!("CARGO_BIN_EXE_neokv"))
                .args([
                    "server",
                    "--engine",
                    "memory",
                    "--save",
                    "",
                    "--http-port",
                    "0",
                ])
                .args([
                    "--dir",
                    ".",
                    "--redis-port",
                    &port.to_string(),
                    "--num-shards",
                    "1",
                ])
                .args(["--enable-debug-command", "yes"])
                .args(flags)
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .stdout(out())
                .stderr(out())
                .spawn();
            let mut bare = Bare {
                child: child.unwrap(),
                port,
                folder,
            };
            // It ends if somebody else took the port meanwhile.
            while bare.child.try_wait().unwrap().is_none() {
                let answer = Link::open(&format!("127.0.0.1:{port}"))
                    .and_then(|mut link| link.ask(&["PING"]));
                if answer.is_ok() {
                    return bare;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("it does not start");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_closed_pipe_ends_nothing() {
    for format in ["text", "json"] {
        let mut server = Bare::start(&["--log-format", format], Stdio::piped);
        drop((server.child.stdout.take(), server.child.stderr.take()));
        let mut link = link(server.port);
        for _ in 0..100 {
            assert_eq!(link.say("DEBUG LOG nobody-reads-this"), "OK");
        }
        assert_eq!(link.say("SET k v"), "OK");
        link.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
        let status = until("its end", || server.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
}

/// More than a pipe and the queue take.
const TOO_MANY: u64 = 3000;

#[test]
fn a_pipe_that_nobody_empties_stops_nobody() {
    for format in ["text", "json"] {
        let mut server = Bare::start(&["--log-format", format], Stdio::piped);
        let mut link = link(server.port);
        let text = "x".repeat(1000);
        for _ in 0..TOO_MANY {
            assert_eq!(link.say(&format!("DEBUG LOG {text}")), "OK");
        }
        assert_eq!(link.say("GET k"), "nil");
        // Once somebody reads, it is told how many are missing.
        let out = BufReader::new(server.child.stdout.take().unwrap());
        let (send, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || out.lines().all(|line| send.send(line.unwrap()).is_ok()));
        let (mut written, mut left_out) = (0, 0);
        while written + left_out < TOO_MANY {
            let line = lines.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("{written} written, {left_out} left out"));
            written += u64::from(line.contains(&text));
            left_out += match line.contains("log lines were left out") {
                true => number(&line, "lines"),
                false => 0,
            };
        }
        assert!(left_out > 0, "a pipe that takes everything");
        // A line of the server itself may have been among them.
        assert!(written + left_out < TOO_MANY + 10, "{written} {left_out}");
        link.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
        let status = until("its end", || server.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
}

/// `name=7` of a line of text, `"name":7` of one in JSON.
fn number(line: &str, name: &str) -> u64 {
    let (text, json) = (format!(" {name}="), format!("\"{name}\":"));
    let after = line.split_once(&text).or(line.split_once(&json));
    let (_, after) = after.unwrap_or_else(|| panic!("no {name}: {line}"));
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits
        .parse()
        .unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_log_file_and_its_rotation() {
    let server = Bare::start(&["--logfile", "neokv.log"], Stdio::null);
    let (log, old) = (server.file("neokv.log"), server.file("neokv.log.1"));
    let mut link = link(server.port);
    let is_in = |file: &Path, words: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        Some(()).filter(|()| text.contains(words))
    };
    assert_eq!(link.say("CONFIG GET logfile"), "[logfile neokv.log]");
    assert_eq!(link.say("DEBUG LOG first"), "OK");
    until("it is in the file", || is_in(&log, "DEBUG LOG: first"));
    std::fs::rename(&log, &old).unwrap();
    assert_eq!(link.say("DEBUG LOG second"), "OK");
    until("it is in a new file", || is_in(&log, "DEBUG LOG: second"));
    assert!(is_in(&old, "second").is_none());

    let output = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["server", "--engine", "memory", "--dir", "."])
        .args(["--logfile", "no/such/folder/log"])
        .current_dir(server.folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        said.starts_with("neokv: --logfile no/such/folder/log: "),
        "{said}"
    );
}

#[test]
fn a_start_that_fails_is_in_the_log_too() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args([
            "server",
            "--engine",
            "memory",
            "--dir",
            ".",
            "--log-format",
            "json",
        ])
        .args(["--bind", "127.0.0.1", "--redis-port", &port])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let expected = format!("port {port} is in use");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(&expected), "{said}");
    let log = String::from_utf8(output.stdout).unwrap();
    assert_eq!(event(&log, &expected).unwrap()["level"], "ERROR");
}

#[test]
fn a_failover_is_visible() {
    let mut trio = Trio::start(&["--log-format", "json"]);
    let slot = 0;
    let leader = trio.leader_of(slot, 0).unwrap();
    let others: Vec<usize> = (0..3).filter(|&node| node != leader).collect();
    let log = trio.log(leader);
    let ready = event(&log, "ready: connect with").unwrap();
    assert_eq!(ready["mode"], "cluster");
    let flags = format!("`redis-cli -c -h {} -p {}`", trio.host(leader), trio::PORT);
    assert!(
        ready["message"].as_str().unwrap().contains(&flags),
        "{ready}"
    );
    let peers = event(&log, "other nodes connect here").unwrap();
    let address = format!("{}:{}", trio.host(leader), trio::PORT + 10_000);
    assert_eq!(peers["address"], address);

    // Regions that the node took over last, with their terms.
    let leads = |log: &str| -> Vec<(u64, u64, u64)> {
        let events = events(log).into_iter();
        let taken = events.filter(|event| event["message"] == "this node leads the region");
        let number = |event: &Json, name: &str| event[name].as_u64().expect(name);
        taken
            .map(|event| {
                let node = number(&event, "node");
                (node, number(&event, "region"), number(&event, "term"))
            })
            .collect()
    };
    let before = leads(&log);
    assert!(!before.is_empty(), "{log}");
    let earlier: Vec<usize> = others
        .iter()
        .map(|&node| leads(&trio.log(node)).len())
        .collect();
    trio.kill(leader);
    trio.until("another node leads", |trio| {
        let now = trio.leader_of(slot, others[0]);
        now.is_some_and(|now| now != leader)
    });
    trio.until("its log says so", |trio| {
        others.iter().zip(&earlier).any(|(&node, &earlier)| {
            let after = leads(&trio.log(node));
            after.iter().skip(earlier).any(|(node, region, term)| {
                let known = before.iter().filter(|it| it.1 == *region);
                known.into_iter().any(|it| it.2 < *term && it.0 != *node)
            })
        })
    });
    trio.until("somebody misses the node", |trio| {
        let missed = |&node: &usize| event(&trio.log(node), "cannot be heard");
        let event = others.iter().find_map(missed);
        event.is_some_and(|event| event["target"] == "transport" && event["peer"].is_u64())
    });
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}
