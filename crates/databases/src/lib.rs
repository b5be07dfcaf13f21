//! Throw-away PostgreSQL and MariaDB servers for tests.
//!
//! Each [`Server`] has a data directory of its own that goes away with it, and listens on a unix socket in there: no
//! ports to collide, nothing reachable from outside. It can be killed, started again on the same data, and stopped
//! in mid-air (SIGSTOP) as a database that answers slowly or not at all.
//!
//! Both refuse to run as root, so then they run as `nobody`. They die with the thread that started them (`setpriv
//! --pdeathsig`), so a test that is killed leaves nothing behind. An empty data directory is made once
//! per version and kept in the cache; each server begins with a copy, which takes a tenth of the time.
//!
//! A server that cannot be had fails the test at one place ([`Server::start`], [`Server::restart`]) with the reason;
//! below it, what can fail says so.
//!
//! No part of the product. The servers are deliberately configured in ways that need care: PostgreSQL sorts texts by
//! English rules, MariaDB has latin1 and ignores case by default.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Postgres,
    Mariadb,
}

#[derive(Debug)]
pub struct Server {
    engine: Engine,
    program: PathBuf,
    home: tempfile::TempDir,
    running: Option<Child>,
}

/// How long a server may take to start; only a broken one takes so long.
const START_MAX: Duration = Duration::from_secs(60);

impl Server {
    /// A running server with an empty database. `None` if it is not installed, unless this is CI: then the test fails.
    pub fn start(engine: Engine) -> Option<Server> {
        let Some(program) = engine.program() else {
            assert!(
                std::env::var_os("CI").is_none(),
                "{engine:?} is not installed: scripts/install test"
            );
            eprintln!("{engine:?} is not installed: skipped (scripts/install test)");
            return None;
        };
        match Server::make(engine, program) {
            Ok(server) => Some(server),
            Err(error) => panic!("{engine:?} cannot be started: {error}"),
        }
    }

    fn make(engine: Engine, program: PathBuf) -> io::Result<Server> {
        let home = folder()?;
        let empty = template(engine, &program)?;
        copy(&empty, &home.path().join("data"))?;
        give_to_nobody(home.path())?;
        let mut server = Server {
            engine,
            program,
            home,
            running: None,
        };
        server.try_restart()?;
        Ok(server)
    }

    /// As `--table-backend` takes it.
    pub fn url(&self) -> String {
        let home = self.home.path().display();
        match self.engine {
            Engine::Postgres => format!("postgres://neokv@localhost/postgres?host={home}"),
            Engine::Mariadb => format!("mysql://root@localhost/test?socket={home}/socket"),
        }
    }

    /// kill -9, the whole of it.
    pub fn kill(&mut self) {
        let Some(mut child) = self.running.take() else {
            return;
        };
        // Held still first, so that no process is born while they are counted.
        signal("STOP", &[child.id()]);
        let mut all = children(child.id());
        all.push(child.id());
        signal("KILL", &all);
        let _ = child.wait();
        let end = Instant::now() + START_MAX;
        while all.iter().any(|pid| is_alive(*pid)) {
            assert!(Instant::now() < end, "killed processes stay");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts it on the data it had, after killing it if it runs; back when it takes connections.
    pub fn restart(&mut self) {
        if let Err(error) = self.try_restart() {
            panic!("{:?} cannot be started again: {error}", self.engine);
        }
    }

    fn try_restart(&mut self) -> io::Result<()> {
        self.kill();
        let home = self.home.path();
        let _ = std::fs::remove_file(home.join("socket"));
        let _ = std::fs::remove_file(home.join("data/postmaster.pid"));
        let log = std::fs::File::create(home.join("log"))?;
        let mut command = unprivileged(&self.program);
        match self.engine {
            Engine::Postgres => {
                command.arg("-D").arg(home.join("data")).arg("-k").arg(home);
                for setting in [
                    "listen_addresses=",
                    "fsync=off",
                    "shared_buffers=16MB",
                    "max_connections=50",
                    "max_prepared_transactions=0",
                ] {
                    command.args(["-c", setting]);
                }
            }
            Engine::Mariadb => {
                command
                    .arg("--no-defaults")
                    .arg(option("--datadir=", &home.join("data")))
                    .arg(option("--socket=", &home.join("socket")))
                    .arg(option("--pid-file=", &home.join("pid")))
                    .args(MARIADB_SMALL)
                    .args([
                        "--skip-networking",
                        "--innodb-flush-log-at-trx-commit=1",
                        "--character-set-server=latin1",
                        "--collation-server=latin1_swedish_ci",
                    ]);
            }
        }
        let child = command
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.running = Some(child);
        self.wait_until_ready()
    }

    /// Whether it was started, and not killed since.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Stops all of it in mid-air: connections stay open and nobody answers.
    pub fn pause(&self) {
        self.signal_all("STOP");
    }

    pub fn resume(&self) {
        self.signal_all("CONT");
    }

    fn signal_all(&self, name: &str) {
        if let Some(child) = &self.running {
            signal(name, &[child.id()]);
            signal(name, &children(child.id()));
        }
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let end = Instant::now() + START_MAX;
        loop {
            let gone = match &mut self.running {
                Some(child) => child.try_wait()?.is_some(),
                None => true,
            };
            if gone || Instant::now() > end {
                let log = std::fs::read_to_string(self.home.path().join("log"));
                return Err(io::Error::other(log.unwrap_or_default()));
            }
            if self.is_ready() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_ready(&self) -> bool {
        let home = self.home.path();
        match self.engine {
            // The last line of this file is the server's state.
            Engine::Postgres => std::fs::read_to_string(home.join("data/postmaster.pid"))
                .is_ok_and(|text| text.lines().last().unwrap_or_default().trim() == "ready"),
            // A server that takes connections greets.
            Engine::Mariadb => UnixStream::connect(home.join("socket")).is_ok_and(|mut stream| {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                stream.read_exact(&mut [0; 1]).is_ok()
            }),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

const MARIADB_SMALL: &[&str] = &[
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--skip-log-bin",
    "--performance-schema=OFF",
];

impl Engine {
    /// The server program; Debian keeps PostgreSQL's out of the PATH.
    fn program(self) -> Option<PathBuf> {
        match self {
            Engine::Postgres => {
                let versions = std::fs::read_dir("/usr/lib/postgresql")
                    .into_iter()
                    .flatten();
                let newest = versions
                    .flatten()
                    .map(|entry| entry.path().join("bin/postgres"))
                    .filter(|program| program.exists())
                    .max();
                newest.or_else(|| in_path("postgres"))
            }
            Engine::Mariadb => in_path("mariadbd"),
        }
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/bin")])
        .map(|folder| folder.join(name))
        .find(|program| program.exists())
}

/// An empty data directory of this version, made the first time it is wanted.
fn template(engine: Engine, program: &Path) -> io::Result<PathBuf> {
    let version = Command::new(program).arg("--version").output()?;
    let version: String = String::from_utf8_lossy(&version.stdout)
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
        .collect();
    let cache = cache().join("databases");
    std::fs::create_dir_all(&cache)?;
    let kept = cache.join(format!("2-{version}"));
    if kept.exists() {
        return Ok(kept);
    }
    let fresh = folder()?;
    give_to_nobody(fresh.path())?;
    let data = fresh.path().join("data");
    match engine {
        Engine::Postgres => {
            let initdb = program.with_file_name("initdb");
            let plain = ["-A", "trust", "-U", "neokv", "-E", "UTF8", "--no-sync"];
            let english = [
                "--locale-provider=icu",
                "--icu-locale=en",
                "--locale=C.UTF-8",
            ];
            let make = |options: &[&str]| {
                let mut command = unprivileged(&initdb);
                command.arg("-D").arg(&data).args(plain).args(options);
                run(command.current_dir(fresh.path()))
            };
            // Before version 15 there is no such option.
            make(&english).or_else(|_| make(&["--locale=C.UTF-8"]))?;
        }
        Engine::Mariadb => {
            let install = in_path("mariadb-install-db");
            let install = install.ok_or_else(|| io::Error::other("no mariadb-install-db"))?;
            let mut command = unprivileged(&install);
            command
                .args(["--no-defaults", "--auth-root-authentication-method=normal"])
                .arg("--skip-name-resolve")
                .arg(option("--datadir=", &data))
                .args(MARIADB_SMALL);
            run(command.current_dir(fresh.path()))?;
        }
    }
    // Two tests may do this at once: the copy appears whole, and who comes second takes the first's.
    let beside = cache.join(format!("fresh-{}-{version}", std::process::id()));
    copy(&data, &beside)?;
    if std::fs::rename(&beside, &kept).is_err() {
        let _ = std::fs::remove_dir_all(&beside);
    }
    Ok(kept)
}

fn folder() -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("neokv-db-").tempdir()
}

fn cache() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from);
    from("NEOKV_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("neokv")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/neokv")))
        .unwrap_or_else(|| std::env::temp_dir().join("neokv-cache"))
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The program as somebody who is not root, dying with this thread.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if is_root() {
        command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
    }
    command.arg(program);
    command
}

fn give_to_nobody(folder: &Path) -> io::Result<()> {
    if is_root() {
        run(Command::new("chown")
            .args(["-R", "nobody:nogroup"])
            .arg(folder))?;
    }
    run(Command::new("chmod").args(["-R", "u=rwX,go="]).arg(folder))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    run(Command::new("cp").arg("-r").arg(from).arg(to))
}

/// To its end; what it said if that is no good one.
fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{command:?}: {said}")))
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

fn signal(name: &str, pids: &[u32]) {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let line = format!("kill -{name} {} 2>/dev/null", pids.join(" "));
    // Some may be gone already.
    let _ = Command::new("sh").args(["-c", &line]).status();
}

/// State and parent, from /proc; the name before them may contain anything, so they are counted from its end.
fn stat(pid: u32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    let state = words.next()?.to_owned();
    Some((state, words.next()?.parse().ok()?))
}

fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// PostgreSQL serves each connection by a child.
fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| stat(*pid).is_some_and(|(_, from)| from == parent))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dies_and_comes_back(engine: Engine) {
        let Some(mut server) = Server::start(engine) else {
            return;
        };
        assert!(server.is_ready());
        server.kill();
        assert!(!is_alive(server.running.as_ref().map_or(0, Child::id)));
        server.restart();
        server.pause();
        server.resume();
        assert!(server.is_ready());
    }

    #[test]
    fn postgres() {
        dies_and_comes_back(Engine::Postgres);
    }

    #[test]
    fn mariadb() {
        dies_and_comes_back(Engine::Mariadb);
    }
}
