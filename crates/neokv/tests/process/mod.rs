//! Servers as child processes: on a free port, in a folder of their own, gone when dropped.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A running server; dropping it kills the process and removes its folder.
pub struct Server {
    child: Child,
    folder: PathBuf,
    pub port: u16,
}

impl Server {
    /// The binary of this workspace, in memory, on `shards` cores.
    pub fn neokv(shards: usize) -> Server {
        Server::neokv_with(shards, &["--bind", "127.0.0.1"])
    }

    /// As [`Server::neokv`], with other settings.
    pub fn neokv_with(shards: usize, settings: &[&str]) -> Server {
        Server::start(Path::new(env!("CARGO_BIN_EXE_neokv")), |command, port| {
            command
                .args(["server", "--engine", "memory"])
                .args(["--redis-port", &port.to_string()])
                .args(["--save", "", "--dir", ".", "--enable-debug-command", "yes"])
                .args(["--num-shards", &shards.to_string()])
                .args(settings);
        })
    }

    /// The binary of this workspace with the engine rocksdb.
    #[allow(dead_code)] // not every test file needs it
    pub fn durable(shards: usize, settings: &[&str]) -> Server {
        Server::start(Path::new(env!("CARGO_BIN_EXE_neokv")), |command, port| {
            command
                .args(["server", "--engine", "rocksdb", "--data-dir", "data"])
                .args(["--redis-port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--enable-debug-command", "yes"])
                .args(["--block-cache-size", "64mb"])
                .args(["--num-shards", &shards.to_string()])
                .args(settings);
        })
    }

    /// Debian's redis-server, the oracle. `None` if it is not installed, which CI does not accept.
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
        Some(Server::start(Path::new("redis-server"), |command, port| {
            command
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--enable-debug-command", "yes"]);
        }))
    }

    fn start(program: &Path, arguments: impl Fn(&mut Command, u16)) -> Server {
        // Between choosing a free port and the server taking it, somebody else may: try again.
        for _ in 0..5 {
            let port = free_port();
            let folder = folder(port);
            let log = folder.join("log");
            let mut command = Command::new(program);
            command.current_dir(&folder).stdin(Stdio::null());
            command.stdout(File::create(&log).expect("log"));
            command.stderr(File::options().append(true).open(&log).expect("log"));
            arguments(&mut command, port);
            let child = command
                .spawn()
                .unwrap_or_else(|err| panic!("{}: {err}", program.display()));
            let mut server = Server {
                child,
                folder,
                port,
            };
            if server.answers() {
                return server;
            }
            eprintln!("{}:\n{}", program.display(), server.log());
        }
        panic!("{} does not start", program.display());
    }

    /// Waits until the port is open; false if the process ended instead.
    fn answers(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
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

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn folder(port: u16) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("neokv-test-{}-{port}-{n}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder for the server");
    folder
}
