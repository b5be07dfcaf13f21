//! TLS for clients, on the running binary: who is let in, what is replaced while clients go on, and what strangers at the
//! port can do.

#[allow(dead_code)] // shared with other tests, which use the rest
#[path = "../node/mod.rs"]
mod node;
mod papers;
#[path = "../trio/mod.rs"]
mod trio;
#[allow(dead_code)]
#[path = "../transcript/wire.rs"]
mod wire;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use node::{Folder, free_port};
use papers::{Authority, Papers};
use tls::client::Options;
use tls::rustls::{ClientConnection, StreamOwned};
use trio::Trio;

/// For what comes about by itself, on a machine that is busy.
const SOON: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
    port: u16,
    folder: Folder,
    authority: Authority,
    server: Papers,
    client: Papers,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn words(flag: &str, path: &Path) -> [String; 2] {
    [flag.into(), path.display().to_string()]
}

fn command(folder: &Folder, settings: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .args([
            "server",
            "--engine",
            "memory",
            "--save",
            "",
            "--bind",
            "127.0.0.1",
        ])
        .args(["--http-port", "0", "--redis-port", "0", "--num-shards", "1"])
        .arg("--dir")
        .arg(&folder.0)
        .arg("--logfile")
        .arg(folder.0.join("log"))
        .args(settings)
        .stdin(Stdio::null());
    command
}

impl Server {
    /// With TLS only, and what else is said.
    fn start(settings: &[&str]) -> Server {
        let folder = Folder::new();
        let authority = Authority::new(&folder.0, "ours");
        let server = authority.papers("server", "first");
        let client = authority.papers("client", "alice");
        let port = free_port();
        let mut all: Vec<String> = vec!["--tls-port".into(), port.to_string()];
        all.extend(words("--tls-cert-file", &server.certificate));
        all.extend(words("--tls-key-file", &server.key));
        all.extend(words("--tls-ca-cert-file", &authority.file));
        all.extend(settings.iter().map(|&it| it.into()));
        let child = command(&folder, &all).spawn().expect("the server");
        let mut started = Server {
            child,
            port,
            folder,
            authority,
            server,
            client,
        };
        eventually("the server answers", || {
            let ended = started.child.try_wait().expect("its state");
            assert!(ended.is_none(), "the server ended: {}", started.log());
            started.client().is_ok_and(|mut it| it.ask("PING").is_ok())
        });
        started
    }

    fn options(&self, papers: Option<&Papers>) -> Options {
        Options {
            authorities_file: Some(self.authority.file.clone()),
            certificate: papers.map(|it| it.certificate.clone()),
            key: papers.map(|it| it.key.clone()),
            ..Options::default()
        }
    }

    /// A client with a good certificate.
    fn client(&self) -> io::Result<Client> {
        Client::open(self.port, &self.options(Some(&self.client)))
    }

    /// PING by a client that shows these papers.
    fn ping(&self, papers: Option<&Papers>) -> io::Result<String> {
        Client::open(self.port, &self.options(papers))?.ask("PING")
    }

    /// CONFIG SET by a client with a good certificate.
    fn set(&self, name: &str, value: &str) -> String {
        let mut client = self.client().expect("a client");
        client
            .ask(&format!("CONFIG SET {name} \"{value}\""))
            .expect("an answer")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("log")).unwrap_or_default()
    }

    fn hang_up(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-HUP", &pid]).status();
        assert!(sent.expect("kill").success());
    }

    /// The certificate a new connection is shown, and that it works.
    fn shown(&self) -> Vec<u8> {
        let mut client = self.client().expect("a client");
        assert_eq!(client.ask("PING").expect("an answer"), "+PONG");
        let chain = client
            .stream
            .conn
            .peer_certificates()
            .expect("a certificate");
        chain.first().expect("the first").to_vec()
    }
}

fn der(papers: &Papers) -> Vec<u8> {
    use tls::rustls::pki_types::{CertificateDer, pem::PemObject};
    let file = CertificateDer::from_pem_file(&papers.certificate);
    file.expect("a certificate").to_vec()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "not in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl Client {
    fn open(port: u16, options: &Options) -> io::Result<Client> {
        Client::at(&format!("127.0.0.1:{port}"), options)
    }

    fn at(address: &str, options: &Options) -> io::Result<Client> {
        let tcp = TcpStream::connect(address)?;
        tcp.set_read_timeout(Some(SOON))?;
        let config = options
            .configuration()
            .map_err(|it| io::Error::other(it.to_string()))?;
        let name = options.server_name("localhost");
        let name = name.map_err(|it| io::Error::other(it.to_string()))?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, tcp);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Client { stream })
    }

    /// One line out, one line back.
    fn ask(&mut self, line: &str) -> io::Result<String> {
        self.stream.write_all(format!("{line}\r\n").as_bytes())?;
        self.stream.flush()?;
        self.line()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            answer.push(byte[0]);
        }
        answer.truncate(answer.len() - 2);
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

#[test]
fn who_has_no_good_certificate_is_not_let_in() {
    let node = Server::start(&[]);
    let stranger = Authority::new(&node.folder.0, "theirs").papers("stranger", "mallory");
    let known = Some(node.client.clone());
    let cases: [(&str, bool, bool); 3] = [
        // what is set; without a certificate; with one of another authority
        ("yes", false, false),
        ("optional", true, false),
        ("no", true, true),
    ];
    for (setting, without, strange) in cases {
        assert_eq!(node.set("tls-auth-clients", setting), "+OK");
        assert_eq!(node.ping(known.as_ref()).expect("good papers"), "+PONG");
        assert_eq!(node.ping(None).is_ok(), without, "{setting}");
        assert_eq!(node.ping(Some(&stranger)).is_ok(), strange, "{setting}");
    }
    // A client that trusts others only does not go on.
    let others = Options {
        authorities_file: Some(node.folder.0.join("theirs.crt")),
        ..node.options(None)
    };
    assert!(Client::open(node.port, &others).is_err());
    let anybody = Options {
        insecure: true,
        ..others
    };
    let mut client = Client::open(node.port, &anybody).expect("nothing is checked");
    assert_eq!(client.ask("PING").expect("an answer"), "+PONG");
    // The plain port is closed, and INFO names the one there is.
    assert_eq!(client.ask("CONFIG GET port").expect("an answer"), "*2");
    let named = Options {
        name: Some("elsewhere.example".into()),
        ..node.options(None)
    };
    assert!(Client::open(node.port, &named).is_err(), "another name");
}

#[test]
fn stock_clients_work_and_large_pipelines_come_whole() {
    let node = Server::start(&[]);
    let redis_cli = |words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command
            .args(["--tls", "-p", &node.port.to_string(), "--cacert"])
            .arg(&node.authority.file)
            .arg("--cert")
            .arg(&node.client.certificate)
            .arg("--key")
            .arg(&node.client.key)
            .args(words);
        command.output()
    };
    match redis_cli(&["set", "greeting", "hello"]) {
        Ok(done) => {
            assert_eq!(String::from_utf8_lossy(&done.stdout), "OK\n", "{done:?}");
            let done = redis_cli(&["get", "greeting"]).expect("redis-cli");
            assert_eq!(String::from_utf8_lossy(&done.stdout), "hello\n");
        }
        Err(_) => {
            assert!(std::env::var_os("CI").is_none(), "no redis-cli in CI");
            eprintln!("SKIPPED: redis-cli is not installed; `make test` installs it");
        }
    }
    let cache = std::env::var_os("NEOKV_CACHE").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = cache.or_else(|| home.map(|it| it.join(".cache/neokv")));
    let python = cache
        .map(|it| it.join("python/bin/python"))
        .filter(|it| it.exists());
    let Some(python) = python else {
        assert!(std::env::var_os("CI").is_none(), "no redis-py in CI");
        eprintln!("SKIPPED: redis-py is not installed; `make test` installs it");
        return;
    };
    let script = r#"
import redis, sys
port, ca, cert, key = sys.argv[1:]
r = redis.Redis(port=int(port), ssl=True, ssl_ca_certs=ca, ssl_certfile=cert, ssl_keyfile=key, ssl_check_hostname=False)
assert r.ping()
value = bytes(range(256)) * 20000
assert r.set("large", value)
assert r.get("large") == value
pipe = r.pipeline(transaction=False)
for n in range(20000):
    pipe.set(f"k{n}", f"v{n}")
for n in range(20000):
    pipe.get(f"k{n}")
for n in range(8):
    pipe.get("large")
answers = pipe.execute()
assert answers[20000:40000] == [f"v{n}".encode() for n in range(20000)]
assert all(it == value for it in answers[40000:])
print("well")
"#;
    let done = Command::new(python)
        .args(["-c", script, &node.port.to_string()])
        .args([
            &node.authority.file,
            &node.client.certificate,
            &node.client.key,
        ])
        .output()
        .expect("python");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "well\n", "{done:?}");
}

/// A client that reads late: everything it asked for is written, records in order, none lost.
#[test]
fn a_client_that_reads_late_gets_everything() {
    let node = Server::start(&[]);
    let mut client = node.client().expect("a client");
    assert_eq!(
        client.ask("SETRANGE k 1048575 x").expect("an answer"),
        ":1048576"
    );
    let count = 64;
    let requests = "GET k\r\n".repeat(count);
    client
        .stream
        .write_all(requests.as_bytes())
        .expect("requests");
    client.stream.flush().expect("requests");
    // By now the server has more to send than TCP takes.
    thread::sleep(Duration::from_millis(300));
    let mut expected = b"$1048576\r\n".to_vec();
    expected.resize(expected.len() + 1_048_575, 0);
    expected.extend_from_slice(b"x\r\n");
    let mut answer = vec![0; expected.len()];
    for _ in 0..count {
        client.stream.read_exact(&mut answer).expect("an answer");
        assert!(answer == expected, "another answer");
    }
    assert_eq!(client.ask("PING").expect("an answer"), "+PONG");
}

#[test]
fn certificates_are_replaced_while_clients_go_on() {
    let node = Server::start(&[]);
    let stop = Arc::new(AtomicBool::new(false));
    let mut client = node.client().expect("a client");
    let worker = {
        let stop = stop.clone();
        thread::spawn(move || {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                count += 1;
                let answer = client.ask("INCR n").expect("an answer");
                assert_eq!(answer, format!(":{count}"));
            }
            count
        })
    };
    assert_eq!(node.shown(), der(&node.server));
    // By a signal.
    let second = node.authority.papers("server", "second");
    node.hang_up();
    eventually("the second certificate is shown", || {
        node.shown() == der(&second)
    });
    // By itself.
    let third = node.authority.papers("server", "third");
    eventually("the third certificate is shown", || {
        node.shown() == der(&third)
    });
    // What cannot be used is told of, and the former stays.
    let good = der(&third);
    std::fs::write(&third.certificate, "no certificate").expect("a file");
    eventually("the broken file is told of", || {
        node.log().contains("the former stay")
    });
    node.hang_up();
    assert_eq!(node.shown(), good);
    let other = node.folder.0.join("client.crt");
    let refused = node.set("tls-cert-file", &other.display().to_string());
    assert!(
        refused.contains("Unable to update TLS configuration"),
        "{refused}"
    );
    assert_eq!(node.shown(), good);
    let fourth = node.authority.papers("server", "fourth");
    eventually("the fourth certificate is shown", || {
        node.shown() == der(&fourth)
    });
    stop.store(true, Ordering::Relaxed);
    assert!(worker.join().expect("no error") > 0);
}

#[test]
fn strangers_at_the_port_stop_nobody() {
    let node = Server::start(&[]);
    let mut steady = node.client().expect("a client");
    let open = || {
        let stream = TcpStream::connect(("127.0.0.1", node.port)).expect("a connection");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        stream
    };
    // What is no TLS is answered by the end of the connection.
    let garbage: [&[u8]; 4] = [
        b"PING\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        &[0x16, 0x03, 0x01, 0xff, 0xff, 1, 2, 3, 4, 5],
        &[0x80; 20_000],
    ];
    for bytes in garbage {
        let mut stream = open();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"", "what is no TLS gets no answer");
        assert_eq!(steady.ask("PING").expect("an answer"), "+PONG");
    }
    // More than may shake hands at a time: the oldest go, a client that means it is served.
    let mut silent: Vec<TcpStream> = (0..400).map(|_| open()).collect();
    assert_eq!(node.ping(Some(&node.client)).expect("a client"), "+PONG");
    assert_eq!(steady.ask("PING").expect("an answer"), "+PONG");
    // Nobody may take for ever.
    let mut last = silent.pop().expect("one");
    let mut byte = [0];
    assert_eq!(last.read(&mut byte).expect("the end"), 0);
}

#[test]
fn versions_and_ciphers_are_as_they_are_set() {
    let node = Server::start(&[]);
    let open = |flag: &str| {
        let mut command = Command::new("openssl");
        command
            .args([
                "s_client",
                "-brief",
                "-connect",
                &format!("127.0.0.1:{}", node.port),
            ])
            .arg("-cert")
            .arg(&node.client.certificate)
            .arg("-key")
            .arg(&node.client.key)
            .args(flag.split(' '))
            .stdin(Stdio::null());
        let done = command.output().expect("openssl");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let set = |name: &str, value: &str| assert_eq!(node.set(name, value), "+OK");
    assert!(open("-tls1_2").contains("Protocol version: TLSv1.2"));
    assert!(open("-tls1_3").contains("Protocol version: TLSv1.3"));
    set("tls-protocols", "TLSv1.3");
    assert!(!open("-tls1_2").contains("Protocol version"));
    assert!(open("-tls1_3").contains("Protocol version: TLSv1.3"));
    set("tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256");
    assert!(open("-tls1_3").contains("TLS_CHACHA20_POLY1305_SHA256"));
    set("tls-ciphersuites", "");
    set("tls-protocols", "");
    set(
        "tls-ciphers",
        "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384",
    );
    let order = "-tls1_2 -cipher ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256";
    assert!(open(order).contains("AES256"));
    set("tls-prefer-server-ciphers", "yes");
    assert!(open(order).contains("AES128"));
    for (name, value) in [
        ("tls-protocols", "TLSv1.1"),
        ("tls-ciphers", "AES128-SHA256"),
        ("tls-ciphersuites", "TLS_AES_128_CCM_SHA256"),
        ("tls-dh-params-file", "dh.pem"),
        ("tls-ca-cert-file", "/nowhere"),
    ] {
        assert!(node.set(name, value).starts_with("-ERR "), "{name}");
    }
}

#[test]
fn a_key_may_have_a_password() {
    let node = Server::start(&[]);
    let encrypted = node.folder.0.join("encrypted.key");
    let done = Command::new("openssl")
        .args(["pkcs8", "-topk8", "-passout", "pass:1234", "-in"])
        .arg(&node.server.key)
        .arg("-out")
        .arg(&encrypted)
        .output()
        .expect("openssl");
    assert!(done.status.success(), "{done:?}");
    let path = encrypted.display().to_string();
    let refused = node.set("tls-key-file", &path);
    assert!(refused.contains("tls-key-file-pass"), "{refused}");
    assert_eq!(node.set("tls-key-file-pass", "1234"), "+OK");
    assert_eq!(node.set("tls-key-file", &path), "+OK");
    assert_eq!(node.shown(), der(&node.server));
    let wrong = node.set("tls-key-file-pass", "12345");
    assert!(wrong.contains("password"), "{wrong}");
    assert_eq!(node.shown(), der(&node.server));
}

#[test]
fn what_is_wrong_is_told_at_the_start() {
    let folder = Folder::new();
    let authority = Authority::new(&folder.0, "ours");
    let (one, two) = (
        authority.papers("one", "one"),
        authority.papers("two", "two"),
    );
    let port = free_port().to_string();
    let text = |path: &Path| path.display().to_string();
    let (cert, key, ca) = (
        text(&one.certificate),
        text(&one.key),
        text(&authority.file),
    );
    let other = text(&two.key);
    let cases: [(&[&str], &str); 5] = [
        (&[], "--tls-port"),
        (&["--tls-port", &port], "tls-cert-file is missing"),
        (
            &[
                "--tls-port",
                &port,
                "--tls-cert-file",
                &cert,
                "--tls-key-file",
                &key,
            ],
            "tls-ca-cert-file",
        ),
        (
            &[
                "--tls-port",
                &port,
                "--tls-cert-file",
                &cert,
                "--tls-key-file",
                &other,
                "--tls-ca-cert-file",
                &ca,
            ],
            "tls-key-file",
        ),
        (
            &[
                "--tls-port",
                &port,
                "--tls-cert-file",
                "/nowhere.crt",
                "--tls-key-file",
                &key,
            ],
            "/nowhere.crt",
        ),
    ];
    for (settings, expected) in cases {
        let settings: Vec<String> = settings.iter().map(|&it| it.into()).collect();
        let done = command(&folder, &settings).output().expect("the program");
        let told = String::from_utf8_lossy(&done.stderr);
        let log = std::fs::read_to_string(folder.0.join("log")).unwrap_or_default();
        assert!(!done.status.success(), "{settings:?}");
        assert!(
            told.contains(expected) || log.contains(expected),
            "{settings:?}: {told} {log}"
        );
    }
}

#[test]
fn http_speaks_tls_too() {
    let http = free_port();
    let node = Server::start(&["--tls-auth-clients", "no", "--http-port", &http.to_string()]);
    let curl = |url: &str, flags: &[&str]| {
        let mut command = Command::new("curl");
        command
            .args(["-s", "--max-time", "30", "--cacert"])
            .arg(&node.authority.file);
        let done = command
            .args(flags)
            .arg(format!("{url}:{http}/healthz"))
            .output();
        String::from_utf8_lossy(&done.expect("curl").stdout).into_owned()
    };
    assert_eq!(curl("https://127.0.0.1", &[]), "ok\n");
    assert_eq!(curl("https://localhost", &["--http2"]), "ok\n");
    // There is no plain Redis port, so there is no plain HTTP either; with one there are both.
    assert_eq!(curl("http://127.0.0.1", &[]), "");
    let plain = free_port();
    assert_eq!(node.set("port", &plain.to_string()), "+OK");
    assert_eq!(curl("http://127.0.0.1", &[]), "ok\n");
    assert_eq!(curl("https://127.0.0.1", &[]), "ok\n");
    let refused = node.set("tls-auth-clients", "yes");
    assert_eq!(refused, "+OK");
    assert_eq!(
        curl("https://127.0.0.1", &[]),
        "",
        "no certificate is shown"
    );
    let cert = node.client.certificate.display().to_string();
    let key = node.client.key.display().to_string();
    assert_eq!(
        curl("https://127.0.0.1", &["--cert", &cert, "--key", &key]),
        "ok\n"
    );
}

#[test]
fn ports_move_while_the_node_runs() {
    let node = Server::start(&[]);
    let mut steady = node.client().expect("a client");
    let (plain, other) = (free_port(), free_port());
    assert_eq!(node.set("port", &plain.to_string()), "+OK");
    let mut stream = TcpStream::connect(("127.0.0.1", plain)).expect("the new port");
    stream.write_all(b"PING\r\n").expect("a request");
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"+PONG\r\n");
    // A port of somebody else changes nothing.
    let holder = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = holder.local_addr().expect("its address").port();
    let refused = node.set("port", &taken.to_string());
    assert!(
        refused.contains("Unable to listen on this port"),
        "{refused}"
    );
    drop(holder);
    assert!(TcpStream::connect(("127.0.0.1", plain)).is_ok());
    assert_eq!(node.set("port", "0"), "+OK");
    eventually("the plain port is closed", || {
        TcpStream::connect(("127.0.0.1", plain)).is_err()
    });
    assert_eq!(node.set("tls-port", &other.to_string()), "+OK");
    let options = node.options(Some(&node.client));
    let mut moved = Client::open(other, &options).expect("the new port for TLS");
    assert_eq!(moved.ask("PING").expect("an answer"), "+PONG");
    eventually("the old port is closed", || {
        TcpStream::connect(("127.0.0.1", node.port)).is_err()
    });
    // Who was there stays.
    assert_eq!(steady.ask("PING").expect("an answer"), "+PONG");
}

#[test]
fn the_console_speaks_tls() {
    let node = Server::start(&[]);
    let cli = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
        command
            .args(["cli", "-p", &node.port.to_string(), "--tls"])
            .args(flags);
        command.env_remove("NEOKV_PASSWORD").stdin(Stdio::null());
        let done = command.args(["set", "k", "v"]).output().expect("neokv");
        (
            done.status.success(),
            String::from_utf8_lossy(&done.stdout).into_owned(),
        )
    };
    let text = |path: &Path| path.display().to_string();
    let (ca, cert, key) = (
        text(&node.authority.file),
        text(&node.client.certificate),
        text(&node.client.key),
    );
    let papers = ["--cert", &cert, "--key", &key];
    let with = |more: &[&str]| cli(&[&papers[..], more].concat());
    assert_eq!(with(&["--cacert", &ca]), (true, "OK\n".into()));
    assert_eq!(
        with(&["--cacert", &ca, "--sni", "localhost"]),
        (true, "OK\n".into())
    );
    assert_eq!(with(&["--insecure"]), (true, "OK\n".into()));
    assert!(!with(&["--cacert", &ca, "--sni", "elsewhere.example"]).0);
    assert!(!with(&[]).0, "the system's authorities do not know ours");
    assert!(!cli(&["--cacert", &ca]).0, "no certificate is shown");
}

/// Settings of cluster nodes with TLS, and a client's.
fn cluster_settings(folder: &Folder, more: &[&str]) -> (Vec<String>, Options) {
    let authority = Authority::new(&folder.0, "ours");
    let papers = authority.papers("node", "node");
    let mut settings: Vec<String> = more.iter().map(|&it| it.into()).collect();
    settings.extend(["--tls-port".into(), TLS_PORT.to_string()]);
    settings.extend(words("--tls-cert-file", &papers.certificate));
    settings.extend(words("--tls-key-file", &papers.key));
    settings.extend(words("--tls-ca-cert-file", &authority.file));
    let options = Options {
        authorities_file: Some(authority.file.clone()),
        certificate: Some(papers.certificate),
        key: Some(papers.key),
        ..Options::default()
    };
    (settings, options)
}

const TLS_PORT: u16 = 7001;

#[test]
fn a_cluster_tells_clients_the_ports_they_speak() {
    let folder = Folder::new();
    let (settings, options) = cluster_settings(&folder, &[]);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let trio = Trio::start(&settings);
    let place = format!("{}:{TLS_PORT}", trio.host(0));
    let mut client = Client::at(&place, &options).expect("a client");
    let mut plain = trio.link(0);
    let mut is_moved = false;
    for n in 0..60 {
        let answer = client.ask(&format!("SET key:{n} v")).expect("an answer");
        let other = plain.say(&format!("SET key:{n} v"));
        match answer
            .strip_prefix("-MOVED ")
            .and_then(|it| it.split_once(' '))
        {
            Some((slot, address)) => {
                is_moved = true;
                assert!(address.ends_with(":7001"), "{answer}");
                let same = address.replace(":7001", ":7000");
                assert_eq!(other, format!("-MOVED {slot} {same}"));
                let mut there = Client::at(address, &options).expect("the other node");
                assert_eq!(
                    there.ask(&format!("SET key:{n} v")).expect("an answer"),
                    "+OK"
                );
            }
            None => assert_eq!((answer.as_str(), other.as_str()), ("+OK", "OK")),
        }
    }
    assert!(is_moved);
    // In a pipeline the replies between stay where they are.
    let lines: String = (0..60)
        .map(|n| format!("PING\r\nGET key:{n}\r\n"))
        .collect();
    client.stream.write_all(lines.as_bytes()).expect("requests");
    for _ in 0..60 {
        assert_eq!(client.line().expect("an answer"), "+PONG");
        match client.line().expect("an answer").as_str() {
            "$1" => assert_eq!(client.line().expect("a value"), "v"),
            other => assert!(
                other.starts_with("-MOVED ") && other.ends_with(":7001"),
                "{other}"
            ),
        }
    }
    let shown = |line: &str| {
        let mut client = Client::at(&place, &options).expect("a client");
        client
            .stream
            .write_all(format!("{line}\r\nPING\r\n").as_bytes())
            .expect("a request");
        let mut text = Vec::new();
        while !text.ends_with(b"+PONG\r\n") {
            let mut byte = [0];
            client.stream.read_exact(&mut byte).expect("an answer");
            text.push(byte[0]);
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    assert!(shown("CLUSTER SLOTS").contains(":7001\r\n"));
    assert!(!shown("CLUSTER SLOTS").contains(":7000\r\n"));
    assert!(shown("CLUSTER NODES").contains(":7001@"));
    let shards = shown("CLUSTER SHARDS");
    assert!(shards.contains("tls-port\r\n:7001") && shards.contains("port\r\n:7000"));
    assert!(plain.say("CLUSTER NODES").contains(":7000@"));
}

#[test]
fn commands_are_forwarded_by_tls() {
    let folder = Folder::new();
    let more = ["--redis-cluster-enabled", "no", "--tls-cluster", "yes"];
    let (settings, options) = cluster_settings(&folder, &more);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let trio = Trio::start(&settings);
    let mut client =
        Client::at(&format!("{}:{TLS_PORT}", trio.host(0)), &options).expect("a client");
    for n in 0..60 {
        assert_eq!(
            client.ask(&format!("SET key:{n} v{n}")).expect("an answer"),
            "+OK"
        );
        let length = format!("${}", format!("v{n}").len());
        assert_eq!(
            client.ask(&format!("GET key:{n}")).expect("an answer"),
            length
        );
        assert_eq!(client.line().expect("a value"), format!("v{n}"));
    }
    // Its sessions at the other nodes are at their ports for TLS.
    for node in [1, 2] {
        let clients = trio.link(node).say("CLIENT LIST");
        assert!(
            clients.contains(&format!("laddr={}:{TLS_PORT}", trio.host(node))),
            "{clients}"
        );
    }
}
