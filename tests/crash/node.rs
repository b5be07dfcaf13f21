//! A durable server on data that outlives it, and how it dies.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::Dice;
use crate::verify::Questions;
use crate::wire::Value;

/// A folder that is gone when dropped, unless the test fails.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("neokv-crash-{}-{n}", std::process::id()));
        std::fs::create_dir_all(path.join("data")).expect("a folder");
        Folder(path)
    }

    /// The data: what survives, or not.
    pub fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the data is kept: {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// When the log goes to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    Always,
    EverySecond,
    Never,
}

impl Sync {
    /// As neokv and Redis both call it.
    fn word(self) -> &'static str {
        match self {
            Sync::Always => "always",
            Sync::EverySecond => "everysec",
            Sync::Never => "no",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub sync: Sync,
    pub shards: u64,
    pub cache_bytes: Option<u64>,
    /// The log is cut at this size, which means a flush of all rows.
    pub log_bytes: Option<u64>,
    /// Environment, for the library that cuts the power.
    pub environment: Vec<(String, String)>,
}

impl Settings {
    /// What may differ from one start to the next: the number of cores, the size of the cache (whether values leave it)
    /// and of the log (whether it is cut).
    pub fn vary(&mut self, dice: &mut Dice) {
        self.shards = 1 + dice.roll(4);
        self.cache_bytes = [None, Some(1 << 20)][dice.roll(2) as usize];
        self.log_bytes = [None, Some(1 << 20), Some(1 << 18)][dice.roll(3) as usize];
    }

    pub fn new(sync: Sync) -> Settings {
        Settings {
            sync,
            shards: 2,
            cache_bytes: None,
            log_bytes: None,
            environment: Vec::new(),
        }
    }
}

/// Is redis-server to be put in neokv's place?
pub fn is_redis() -> bool {
    std::env::var("NEOKV_CRASH_SERVER").is_ok_and(|name| name == "redis")
}

pub struct Node {
    child: Child,
    pub port: u16,
    log: PathBuf,
}

impl Node {
    /// Starts the process and does not wait until it answers.
    pub fn spawn(folder: &Folder, settings: &Settings) -> Node {
        let port = free_port();
        let log = folder.beside("log");
        let mut command = if is_redis() {
            redis(port, settings)
        } else {
            neokv(port, settings)
        };
        let data = folder.data();
        command
            .arg(if is_redis() { "--dir" } else { "--data-dir" })
            .arg(&data);
        command.envs(settings.environment.iter().cloned());
        command.current_dir(&data).stdin(Stdio::null());
        command.stdout(
            File::options()
                .create(true)
                .append(true)
                .open(&log)
                .expect("log"),
        );
        command.stderr(File::options().append(true).open(&log).expect("log"));
        let child = command.spawn().expect("the server starts");
        Node { child, port, log }
    }

    /// Starts it and waits until it has all its data. `Err`: it ended instead, or never answered.
    pub fn start(folder: &Folder, settings: &Settings) -> Result<Node, String> {
        Node::start_with(folder, settings, 3)
    }

    fn start_with(folder: &Folder, settings: &Settings, tries: u32) -> Result<Node, String> {
        let mut node = Node::spawn(folder, settings);
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Some(status) = node.ended() {
                // Between choosing a free port and the server taking it, somebody else may: try again.
                if node
                    .tail()
                    .to_lowercase()
                    .contains("address already in use")
                    && tries > 0
                {
                    return Node::start_with(folder, settings, tries - 1);
                }
                return Err(format!(
                    "the server ended at its start ({status})\n{}",
                    node.tail()
                ));
            }
            // While Redis loads it answers, with an error.
            let reply = Questions::new(node.port).map(|mut questions| questions.ask(&["PING"]));
            if matches!(reply, Ok(Value::Simple(_))) {
                return Ok(node);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!(
            "the server does not answer after a minute\n{}",
            node.tail()
        ))
    }

    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Waits until the process is gone; false if it is still there after `limit`.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.ended().is_none() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").arg(pid).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The last lines it printed, and those of the servers before it.
    pub fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(25);
        format!(
            "--- the end of the servers' log ---\n{}",
            lines[from..].join("\n")
        )
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn neokv(port: u16, settings: &Settings) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    let sync = settings.sync.word();
    command
        .args(["server", "--engine", "rocksdb", "--log-sync", sync])
        .args(["--redis-port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--http-port", "0"])
        .args(["--num-shards", &settings.shards.to_string()]);
    if let Some(bytes) = settings.cache_bytes {
        command.args(["--cache-size", &bytes.to_string()]);
    }
    if let Some(bytes) = settings.log_bytes {
        command.args(["--log-size", &bytes.to_string()]);
    }
    command
}

fn redis(port: u16, settings: &Settings) -> Command {
    let mut command = Command::new("redis-server");
    let sync = settings.sync.word();
    command
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ])
        .args(["--appendonly", "yes", "--appendfsync", sync])
        .args(["--auto-aof-rewrite-percentage", "0"]);
    command
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}
