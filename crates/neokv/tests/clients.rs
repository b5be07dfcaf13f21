//! Stock clients against the running server: redis-py, ioredis, node-redis, redis-rs.
//!
//! Each session also runs on `redis-server`, which shows that the session itself is right.

mod process;
#[path = "clients/redis_rs.rs"]
mod redis_rs;

use std::path::{Path, PathBuf};
use std::process::Command;

use process::Server;

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

fn servers() -> impl Iterator<Item = Server> {
    Server::redis()
        .into_iter()
        .chain(std::iter::once_with(|| Server::neokv(4)))
}

/// Runs `tests/clients/<script>`; `client` is a path that exists if the client is installed.
fn session(script: &str, program: &Path, client: &Path) {
    if !client.exists() {
        assert!(
            std::env::var_os("CI").is_none(),
            "{} is missing and CI is set: `make test` installs it",
            client.display()
        );
        eprintln!(
            "SKIPPED: {} is missing; `make test` installs it",
            client.display()
        );
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients");
    for server in servers() {
        let output = Command::new(program)
            .arg(folder.join(script))
            .arg(server.port.to_string())
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
}

/// Where `scripts/install` puts the clients.
fn cache() -> PathBuf {
    if let Some(cache) = std::env::var_os("NEOKV_CACHE") {
        return cache.into();
    }
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    base.unwrap_or_else(home).join("neokv")
}
