//! The HTTP port of the running binary: numbers that Prometheus can read and that move, health, and what happens when the port is
//! taken.

#[allow(dead_code)] // shared with other tests, which use the rest
mod node;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use node::{Folder, Node, call, free_port};

fn command(folder: &Folder, port: u16, settings: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .args(["server", "--bind", "127.0.0.1", "--num-shards", "2"])
        .args([
            "--redis-port",
            &port.to_string(),
            "--block-cache-size",
            "32mb",
        ])
        .arg("--data-dir")
        .arg(folder.0.join("data"))
        .args(settings)
        .env_remove("NEOKV_HTTP_PORT");
    command
}

fn start(folder: &Folder, http: u16, settings: &[&str]) -> Node {
    let port = free_port();
    let mut command = command(folder, port, settings);
    command.args(["--http-port", &http.to_string()]);
    Node::of(command, port)
}

/// Status, head and body.
fn get(port: u16, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let request = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect(&text);
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    (status.expect(head), head.to_owned(), body.to_owned())
}

/// Every line of the page with its value; what is not Prometheus' text format panics.
fn parse(page: &str) -> BTreeMap<String, f64> {
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = "";
    let mut lines = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            (helped, _) = rest.split_once(' ').expect(line);
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert_eq!(name, helped, "help comes first");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name, kind).is_none(), "{name} comes twice");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        let value: f64 = value.parse().expect(line);
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect(line)),
            None => (series, ""),
        };
        let is_name = |text: &str| {
            let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            !text.is_empty() && text.chars().all(fits)
        };
        assert!(is_name(name), "{line}");
        for label in labels.split_terminator("\",") {
            let (name, _) = label.split_once("=\"").expect(line);
            assert!(is_name(name), "{line}");
        }
        let (family, kind) = types.last_key_value_of(helped);
        let fits = match kind {
            "counter" => name == family && name.ends_with("_total"),
            "gauge" => name == family,
            _ => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|end| name.strip_suffix(end) == Some(family)),
        };
        assert!(fits, "{line} in the family {family}, a {kind}");
        assert!(
            lines.insert(series.to_owned(), value).is_none(),
            "{line} twice"
        );
    }
    lines
}

/// The family that was announced last.
trait Announced {
    fn last_key_value_of<'a>(&'a self, name: &'a str) -> (&'a str, &'a str);
}

impl Announced for BTreeMap<&str, &str> {
    fn last_key_value_of<'a>(&'a self, name: &'a str) -> (&'a str, &'a str) {
        let found = self.get_key_value(name);
        found.map(|(name, kind)| (*name, *kind)).expect(name)
    }
}

fn metrics(port: u16) -> BTreeMap<String, f64> {
    let (status, head, body) = get(port, "GET /metrics");
    assert_eq!(status, 200);
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    parse(&body)
}

fn until(what: &str, mut found: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !found() {
        assert!(Instant::now() < deadline, "{what} does not come");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn numbers_are_shown_and_move() {
    let (folder, http) = (Folder::new(), free_port());
    let node = start(&folder, http, &[]);
    let mut client = node.client();
    let before = metrics(http);
    assert_eq!(before["neokv_clients"], 1.0);
    let build = before.keys().find(|it| it.starts_with("neokv_build_info{"));
    assert!(
        build.is_some_and(|it| it.contains("engine=\"rocksdb\"")),
        "{build:?}"
    );

    for n in 0..10 {
        call::<()>(&mut client, &format!("SET key:{n} x"));
    }
    call::<()>(&mut client, "SET soon x PX 50");
    call::<Option<String>>(&mut client, "GET key:1");
    call::<Option<String>>(&mut client, "GET missing");
    node::try_call::<i64>(&mut client, "INCR key:1").unwrap_err();
    let after = metrics(http);
    let set = "neokv_commands_total{command=\"set\"}";
    assert_eq!(after[set] - before.get(set).unwrap_or(&0.0), 11.0);
    assert_eq!(after["neokv_commands_failed_total{command=\"incr\"}"], 1.0);
    let errors = "neokv_errors_total{code=\"ERR\"}";
    assert_eq!(after[errors] - before.get(errors).unwrap_or(&0.0), 1.0);
    assert!(after["neokv_log_entries_total"] > before["neokv_log_entries_total"]);
    assert!(after["neokv_log_syncs_total"] > before["neokv_log_syncs_total"]);
    let duration = "neokv_command_duration_seconds";
    let all = format!("{duration}_bucket{{command=\"set\",le=\"+Inf\"}}");
    assert_eq!(after[&all], after[set]);
    // What regions count is at most a second old.
    until("the count of keys", || {
        let now = metrics(http);
        now["neokv_keys{db=\"0\"}"] == 10.0
            && now["neokv_expired_keys_total"] == 1.0
            && now["neokv_keyspace_hits_total"] >= 1.0
            && now["neokv_keyspace_misses_total"] >= 1.0
            && now["neokv_regions_led"] == now["neokv_regions"]
    });
    assert!(metrics(http)["neokv_changes_total"] >= 11.0);
    let said: String = call(&mut client, "INFO server");
    assert!(said.contains(&format!("http_port:{http}\r\n")), "{said}");
    assert!(node.terminate());
}

#[test]
fn pages_and_what_is_none() {
    let (folder, http) = (Folder::new(), free_port());
    let node = start(&folder, http, &[]);
    for (request, status, part) in [
        ("GET /healthz", 200, "ok\n"),
        ("GET /", 200, "/metrics"),
        ("GET /nope", 404, "not found"),
        ("GET /../etc/passwd", 404, "not found"),
        ("POST /metrics", 405, "GET or HEAD"),
        ("HEAD /healthz", 200, ""),
    ] {
        let (found, head, body) = get(http, request);
        assert_eq!(found, status, "{request}: {head}");
        assert!(body.contains(part), "{request}: {body}");
    }
    // A call about rows that is no gRPC call, and has no password.
    let mut client = node.client();
    call::<()>(&mut client, "CONFIG SET requirepass secret");
    assert_eq!(get(http, "GET /healthz").0, 401);
    call::<()>(&mut client, "CONFIG SET http-open-pages yes");
    let (_, head, _) = get(http, "POST /neokv.table.v1.Table/Get");
    assert!(head.contains("grpc-status: 16"), "unauthenticated: {head}");
    // Noise ends the connection, nothing else.
    let mut stream = TcpStream::connect(("127.0.0.1", http)).unwrap();
    stream.write_all(&[0xff; 4096]).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(get(http, "GET /healthz").0, 200);
    // A connection that says nothing does not hold up the end.
    let _idle = TcpStream::connect(("127.0.0.1", http)).unwrap();
    let begin = Instant::now();
    assert!(node.terminate());
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn clients_that_say_nothing_do_not_keep_others_out() {
    let (folder, http) = (Folder::new(), free_port());
    let node = start(&folder, http, &[]);
    // More than there is room for, and some have begun a word.
    let script = "import resource, socket, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
idle = [socket.create_connection(('127.0.0.1', int(sys.argv[1])), 30) for _ in range(1100)]
[it.send(b'PRI') for it in idle[::3]]
print('open', flush=True)
time.sleep(600)";
    let mut idle = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "python3", "-c", script])
        .arg(http.to_string())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 5];
    idle.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"open\n");
    let mut stream = TcpStream::connect(("127.0.0.1", http)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let _ = idle.kill();
    let _ = idle.wait();
    assert!(node.terminate());
}

#[test]
fn a_port_that_is_taken() {
    let folder = Folder::new();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = command(&folder, free_port(), &["--http-port", &port])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!("port {port} is in use; choose another with --http-port, or 0 for none");
    assert!(said.contains(&expected), "{said}");
    // The default, if somebody has it, is done without. Somebody has it: this test, or who was first.
    let _taken = TcpListener::bind(("127.0.0.1", 8379));
    let redis = free_port();
    let node = Node::of(command(&folder, redis, &[]), redis);
    let said: String = call(&mut node.client(), "INFO server");
    assert!(said.contains("http_port:0\r\n"), "{said}");
    assert!(node.terminate());
}

#[test]
fn numbers_of_tables_move() {
    let folder = Folder::new();
    let http = free_port();
    let node = start(&folder, http, &[]);
    let client = &mut node.client();
    assert!(!metrics(http).contains_key("neokv_tables"), "none yet");
    call::<()>(client, "ROW.TABLE CREATE users FIELDS age:int64");
    call::<()>(client, "ROW.TABLE CREATE games FIELDS age:int64");
    for n in 0..7 {
        call::<i64>(client, &format!("HSET users:{n} age 1"));
    }
    for n in 0..3 {
        call::<i64>(client, &format!("HSET games:{n} age 1"));
    }
    call::<redis::Value>(client, "ROW.TABLE DRAIN");
    until("ten rows, all in SQL", || {
        let page = metrics(http);
        page["neokv_table_rows"] == 10.0 && page["neokv_table_dirty_rows"] == 0.0
    });
    let page = metrics(http);
    let of = |name: &str| page[name];
    assert_eq!(of("neokv_tables"), 2.0);
    for (table, rows) in [("users", 7.0), ("games", 3.0)] {
        let of = |name: &str| of(&format!("{name}{{table=\"{table}\"}}"));
        assert_eq!(of("neokv_rows_of_table"), rows);
        assert_eq!(of("neokv_dirty_rows_of_table"), 0.0);
        assert_eq!(of("neokv_dead_letters_of_table"), 0.0);
    }
    assert_eq!(of("neokv_table_dead_letters"), 0.0);
    let flushed = "neokv_sql_rows_total{backend=\"main\",what=\"flushed\"}";
    assert!(of(flushed) >= 10.0, "{}", of(flushed));
    let flushes = "neokv_sql_seconds_count{backend=\"main\",call=\"flush\"}";
    assert!(of(flushes) >= 1.0 && of("neokv_sql_statements_total{backend=\"main\"}") >= 1.0);
}
