//! Servers as child processes: on a free port, in a folder of their own, gone when dropped.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A running server; dropping it kills the process and removes its folder.
pub struct Server {
    child: Child,
    folder: PathBuf,
    start: Start,
    pub port: u16,
}

/// How a server is started, now and again.
struct Start {
    program: PathBuf,
    arguments: Box<Arguments>,
}

/// Gives a command its arguments, for a port.
type Arguments = dyn Fn(&mut Command, u16) + Send + Sync;

impl Server {
    /// The binary of this workspace, in memory, on `shards` cores.
    #[allow(dead_code)] // not every test file needs it
    pub fn neokv(shards: usize) -> Server {
        Server::neokv_with(shards, &["--bind", "127.0.0.1"])
    }

    /// As [`Server::neokv`], with other settings.
    #[allow(dead_code)] // not every test file needs it
    pub fn neokv_with(shards: usize, settings: &[&str]) -> Server {
        let settings = owned(settings);
        Server::start(&binary(), move |command, port| {
            command
                .args(["server", "--engine", "memory"])
                .args(["--redis-port", &port.to_string(), "--http-port", "0"])
                .args(["--save", "", "--dir", ".", "--enable-debug-command", "yes"])
                .args(["--num-shards", &shards.to_string()])
                .args(&settings);
        })
    }

    /// The binary of this workspace with the engine rocksdb.
    #[allow(dead_code)] // not every test file needs it
    pub fn durable(shards: usize, settings: &[&str]) -> Server {
        Server::durable_in(shards, settings, &[])
    }

    /// As [`Server::durable`], with variables of the environment.
    #[allow(dead_code)] // not every test file needs it
    pub fn durable_in(shards: usize, settings: &[&str], environment: &[(&str, &str)]) -> Server {
        let settings = owned(settings);
        let environment: Vec<_> = environment
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Server::start(&binary(), move |command, port| {
            durable_arguments(command, port, shards, &settings);
            command.envs(environment.iter().cloned());
        })
    }

    /// As [`Server::durable`], in a shell that allows so many descriptors.
    #[allow(dead_code)] // not every test file needs it
    pub fn durable_with_descriptors(shards: usize, settings: &[&str], most: u32) -> Server {
        let settings = owned(settings);
        Server::start("sh", move |command, port| {
            let script = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
            command.args(["-c", &script, &binary()]);
            durable_arguments(command, port, shards, &settings);
        })
    }

    /// The process.
    #[allow(dead_code)] // not every test file needs it
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Debian's redis-server, the oracle. `None` if it is not installed, which CI does not accept.
    #[allow(dead_code)] // not every test file needs it
    pub fn redis() -> Option<Server> {
        let found = Command::new("redis-server").arg("--version").output();
        if found.is_err() {
            assert!(
                std::env::var_os("CI").is_none(),
                "redis-server is not installed and CI is set: `make test` installs it"
            );
            eprintln!("SKIPPED: redis-server is not installed; `make test` installs it");
            return None;
        }
        Some(Server::start("redis-server", |command, port| {
            command
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--enable-debug-command", "yes"]);
        }))
    }

    /// As [`Server::redis`], for tests of what another version does otherwise.
    #[allow(dead_code)] // not every test file needs it
    pub fn redis_7_0() -> Option<Server> {
        let server = Server::redis()?;
        is_7_0("redis-server").then_some(server)
    }

    fn start(
        program: &str,
        arguments: impl Fn(&mut Command, u16) + Send + Sync + 'static,
    ) -> Server {
        let start = Start {
            program: program.into(),
            arguments: Box::new(arguments),
        };
        let folder = folder();
        let (child, port) = start.spawn(&folder);
        let mut server = Server {
            child,
            folder,
            start,
            port,
        };
        server.until_it_answers();
        server
    }

    /// kill -9, and a new process on the same folder; the port is another.
    #[allow(dead_code)] // not every test file needs it
    pub fn kill_and_restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        (self.child, self.port) = self.start.spawn(&self.folder);
        self.until_it_answers();
    }

    fn until_it_answers(&mut self) {
        // Between choosing a free port and the server taking it, somebody else may: try again.
        for _ in 0..5 {
            if self.answers() {
                return;
            }
            eprintln!("{}:\n{}", self.start.program.display(), self.log());
            let _ = self.child.kill();
            let _ = self.child.wait();
            (self.child, self.port) = self.start.spawn(&self.folder);
        }
        panic!("{} does not start", self.start.program.display());
    }

    /// Waits until a PING is answered; false if the process ended instead. An open port says little: it may be
    /// somebody else's, who is choosing a free one.
    fn answers(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return false;
            }
            if ping(self.port).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// A file in the folder that it runs in.
    #[allow(dead_code)] // not every test file needs it
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Waits for the end of a process that should end; whether it ended well.
    #[allow(dead_code)] // not every test file needs it
    pub fn ended(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().expect("its status") {
                return status.success();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the server has printed so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the server's log ---\n{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Start {
    fn spawn(&self, folder: &Path) -> (Child, u16) {
        let port = free_port();
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.join("log"));
        let log = log.expect("log");
        let mut command = Command::new(&self.program);
        command.current_dir(folder).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("log")).stderr(log);
        (self.arguments)(&mut command, port);
        let child = command.spawn();
        let child = child.unwrap_or_else(|err| panic!("{}: {err}", self.program.display()));
        (child, port)
    }
}

/// Whether a program of Redis is of version 7.0, which this test needs. CI does not accept another.
#[allow(dead_code)] // not every test file needs it
pub fn is_7_0(program: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let said = said.unwrap_or_else(|error| error.to_string());
    // `Redis server v=7.0.15 …`, `redis-cli 7.0.15`
    let mut words = said.split([' ', '=']);
    let is_it = words.any(|word| word.starts_with("7.0."));
    if !is_it {
        let text = format!(
            "this test compares with {program} 7.0, here is: {}",
            said.trim()
        );
        assert!(std::env::var_os("CI").is_none(), "{text}");
        eprintln!("SKIPPED: {text}");
    }
    is_it
}

/// The binary of this workspace, or another to compare with.
fn binary() -> String {
    let other = std::env::var("NEOKV_TESTED_BINARY");
    other.unwrap_or_else(|_| env!("CARGO_BIN_EXE_neokv").into())
}

fn durable_arguments(command: &mut Command, port: u16, shards: usize, settings: &[String]) {
    command
        .args(["server", "--engine", "rocksdb", "--data-dir", "data"])
        .args(["--redis-port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--http-port", "0", "--enable-debug-command", "yes"])
        .args(["--block-cache-size", "64mb"])
        .args(["--num-shards", &shards.to_string()])
        .args(settings);
}

fn owned(settings: &[&str]) -> Vec<String> {
    settings.iter().map(|&word| word.to_owned()).collect()
}

/// `+PONG`, or an error that says who may ask.
fn ping(port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0];
    stream.read_exact(&mut reply)?;
    match &reply {
        b"+" | b"-" => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("neokv-test-{}-{n}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder for the server");
    folder
}
