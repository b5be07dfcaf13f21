//! What a start tells: what runs, where the data is, how to connect, how to stop.
//!
//! A few log lines, the first two before anything is opened (which may take a while), the others when
//! the node serves. As JSON they are events with fields.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use server::Settings;
use server::settings::Engine;

/// The program, not one of its modules.
const TARGET: &str = "neokv";

/// Before the data is opened.
pub fn before(settings: &Settings) {
    tracing::info!(
        target: TARGET,
        version = %env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        engine = %settings.engine.name(),
        cores = settings.num_shards,
        "NeoKV starts"
    );
    let dir = settings.dir.display();
    match settings.engine {
        Engine::Rocksdb => tracing::info!(target: TARGET, %dir, "the data is in this folder"),
        Engine::Memory if settings.save.is_empty() => {
            tracing::info!(target: TARGET, %dir, "the data is in memory only; SAVE writes it to this folder");
        }
        Engine::Memory => {
            tracing::info!(target: TARGET, %dir, "the data is in memory, and saved to this folder (setting `save`)");
        }
    }
}

/// When it serves.
pub fn serving(server: &server::Server) {
    let shared = server.shared();
    let settings = shared.settings.current();
    let host = Host::of(&settings.bind);
    // The plain port if there is one.
    let (port, tls) = match (settings.redis_port, settings.tls.port) {
        (0, port) => (port, " --tls"),
        (port, _) => (port, ""),
    };
    let cluster = shared.cluster.as_deref();
    let flags = match (cluster.is_some(), &host.flag) {
        (true, Some(flag)) => format!("-c -h {flag} -p {port}"),
        (true, None) => format!("-c -p {port}"),
        (false, Some(flag)) => format!("-h {flag} -p {port}"),
        (false, None) => format!("-p {port}"),
    };
    let secret = match settings.requirepass.is_empty() {
        true => "",
        false => " (a password is set: AUTH first)",
    };
    tracing::info!(
        target: TARGET,
        address = %host.with(port),
        mode = %if cluster.is_some() { "cluster" } else { "standalone" },
        "ready: connect with `redis-cli{tls} {flags}` or `neokv cli{tls} {flags}`{secret}"
    );
    if settings.tls.port != 0 {
        tracing::info!(target: TARGET, address = %host.with(settings.tls.port), "clients with TLS connect here");
    }
    let http = shared.http_port.load(Ordering::Relaxed);
    if http != 0 {
        tracing::info!(target: TARGET, url = %format!("http://{}/metrics", host.with(http)), "metrics, health and gRPC are on the HTTP port");
    }
    if let Some(cluster) = cluster {
        let address = host.with(settings.cluster.peer_port);
        tracing::info!(target: TARGET, node = cluster.node, %address, "other nodes connect here (--join)");
    }
    tracing::info!(target: TARGET, "to stop: Ctrl-C, or SHUTDOWN from a client");
}

/// The address a client on this machine would use.
struct Host {
    name: String,
    /// Unless redis-cli finds it by itself.
    flag: Option<String>,
}

impl Host {
    fn of(bind: &[String]) -> Host {
        let names = bind.iter().map(|it| it.trim_start_matches('-'));
        let local = ["127.0.0.1", "localhost", "*", "0.0.0.0"];
        match names.clone().find(|it| local.contains(it)) {
            Some(_) => Host {
                name: "127.0.0.1".into(),
                flag: None,
            },
            None => {
                let first = names.clone().next().unwrap_or("127.0.0.1");
                let name = match first {
                    "::" | "::*" => "::1",
                    other => other,
                };
                Host {
                    name: name.into(),
                    flag: Some(name.into()),
                }
            }
        }
    }

    fn with(&self, port: u16) -> String {
        match self.name.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
            _ => format!("{}:{port}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (bind, address, flag) in [
            (&["127.0.0.1", "-::1"][..], "127.0.0.1:1", None),
            (&["*"], "127.0.0.1:1", None),
            (&["10.0.0.7"], "10.0.0.7:1", Some("10.0.0.7")),
            (&["::"], "[::1]:1", Some("::1")),
        ] {
            let bind: Vec<String> = bind.iter().map(|&it| it.into()).collect();
            let host = Host::of(&bind);
            assert_eq!(host.with(1), address);
            assert_eq!(host.flag.as_deref(), flag);
        }
    }
}
