//! Stock clients against the running server: redis-py, ioredis, node-redis, redis-rs.
//!
//! Each session also runs on `redis-server`, which shows that the session itself is right.

#[path = "clients/installed.rs"]
mod installed;
mod process;
#[path = "clients/redis_rs.rs"]
mod redis_rs;
mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::path::Path;
use std::process::Command;

use installed::{cache, is_installed};
use process::Server;
use trio::Trio;

#[test]
fn redis_py() {
    let python = cache().join("python/bin/python");
    session("redis_py.py", &python, &python);
}

#[test]
fn ioredis() {
    let modules = cache().join("node/node_modules/ioredis");
    session("ioredis.js", Path::new("node"), &modules);
}

#[test]
fn node_redis() {
    let modules = cache().join("node/node_modules/redis");
    session("node_redis.js", Path::new("node"), &modules);
}

#[test]
fn redis_rs_sync() {
    for server in servers() {
        redis_rs::session(server.port);
    }
}

#[test]
fn redis_py_cluster() {
    let python = cache().join("python/bin/python");
    cluster_session("cluster_py.py", &python, &python);
}

#[test]
fn ioredis_cluster() {
    let modules = cache().join("node/node_modules/ioredis");
    cluster_session("cluster_ioredis.js", Path::new("node"), &modules);
}

#[test]
fn redis_rs_cluster() {
    let trio = Trio::start(&[]);
    redis_rs::cluster_session(&trio.address(1));
}

/// The plain sessions with a cluster that forwards; a session uses several slots in one command here
/// and there, so only those that do not.
#[test]
fn redis_rs_forwarded() {
    let trio = Trio::start(&["--redis-cluster-enabled", "no"]);
    redis_rs::forwarded_session(&trio.address(2));
}

fn servers() -> impl Iterator<Item = Server> {
    Server::redis()
        .into_iter()
        .chain(std::iter::once_with(|| Server::neokv(4)))
}

/// Runs `tests/clients/<script>`; `client` is a path that exists if the client is installed.
fn session(script: &str, program: &Path, client: &Path) {
    if is_installed(client) {
        for server in servers() {
            run(script, program, &[&server.port.to_string()]);
        }
    }
}

fn cluster_session(script: &str, program: &Path, client: &Path) {
    if is_installed(client) {
        let trio = Trio::start(&[]);
        run(script, program, &[&trio.host(1), &trio::PORT.to_string()]);
    }
}

fn run(script: &str, program: &Path, arguments: &[&str]) {
    let folder = Path::new("../../tests/clients").canonicalize().unwrap();
    let output = Command::new(program)
        .arg(folder.join(script))
        .args(arguments)
        .env("NODE_PATH", cache().join("node/node_modules"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap_or_else(|err| panic!("{}: {err}", program.display()));
    assert!(
        output.status.success(),
        "{script}:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
