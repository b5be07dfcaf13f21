//! A server process on a folder that may outlive it, and a stock client to it.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, RedisResult};

/// A folder that is gone when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("neokv-node-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn dump(&self) -> PathBuf {
        self.0.join("dump.rdb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Killed when dropped.
pub struct Node {
    pub child: Child,
    pub port: u16,
}

impl Node {
    /// Starts the command and waits until it answers on the port.
    pub fn of(mut command: Command, port: u16) -> Node {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut node = Node {
            child: child.unwrap(),
            port,
        };
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let ended = node.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {ended:?}");
            assert!(Instant::now() < deadline, "the server does not answer");
            if TcpStream::connect(("127.0.0.1", port)).is_ok()
                && let Ok(mut client) = node.try_client()
                && redis::cmd("PING").query::<String>(&mut client).is_ok()
            {
                return node;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn try_client(&self) -> RedisResult<Connection> {
        redis::Client::open(format!("redis://127.0.0.1:{}/", self.port))?.get_connection()
    }

    pub fn client(&self) -> Connection {
        self.try_client().unwrap()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end of the process; whether it ended well.
    pub fn ended(mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    pub fn terminate(self) -> bool {
        let pid = self.child.id().to_string();
        Command::new("kill").arg(pid).status().unwrap();
        self.ended()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Debian's redis-server; without it the tests say so, and fail in CI.
pub fn has_redis() -> bool {
    let found = Command::new("redis-server").arg("--version").output();
    if found.is_err() {
        assert!(std::env::var_os("CI").is_none(), "no redis-server in CI");
        eprintln!("SKIPPED: redis-server is not installed; `make test` installs it");
    }
    found.is_ok()
}

pub fn call<T: FromRedisValue>(client: &mut Connection, line: &str) -> T {
    try_call(client, line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

pub fn try_call<T: FromRedisValue>(client: &mut Connection, line: &str) -> RedisResult<T> {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    command.query(client)
}
