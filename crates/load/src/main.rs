//! `load`: the load generator of `make bench` for clusters: the same closed loop against neokv, Redis and etcd.
//!
//! N clients, each with one operation in flight, put or get random keys of a fixed set for some seconds. Only how one
//! operation is asked differs per target ([`resp`], [`cluster`], [`etcd`], [`rows`]); waiting, counting and timing are the same
//! code ([`phase`]), so that what the client costs compares too. How many clients share a connection can be set for every
//! target: a recv and a send may cost more than the operation itself, so stores compare only with as many per
//! connection ([`link`], [`shared`]). It also reads what given server processes spent in exactly the measured time ([`load::cpu`]).
//! The result is one JSON object on the standard output.
//!
//! For a plain server, asked as cheaply as can be, there is `bursts` (`src/bin/bursts`).
//!
//! It is a tool of the benchmark, not a part of the product: nothing depends on it.

mod cluster;
mod etcd;
mod link;
mod phase;
mod resp;
mod rows;
mod shared;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

/// What an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Op {
    Put,
    Get,
}

/// Whom to ask, and in which language.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Target {
    /// One Redis server: the first address.
    Resp,
    /// Redis Cluster: the slot map is asked of the first address, MOVED is followed.
    RespCluster,
    /// etcd over gRPC; clients are spread over all addresses.
    Etcd,
    /// Rows of a table `bench` of neokv with a field `n`, over gRPC: HTTP addresses.
    Rows,
}

/// A closed loop of clients against a key-value server; prints JSON.
#[derive(Parser, Clone, Debug)]
#[command(name = "load")]
pub struct Settings {
    #[arg(long, value_enum)]
    target: Target,
    /// host:port of the servers
    #[arg(long, required = true, value_delimiter = ',')]
    addresses: Vec<String>,
    #[arg(long, value_enum, default_value = "put")]
    op: Op,
    /// Clients, each with one operation in flight
    #[arg(long, default_value_t = 256)]
    clients: usize,
    /// Threads that the clients are divided over
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 64)]
    value: usize,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds of load before counting begins
    #[arg(long, default_value_t = 1.0)]
    warm: f64,
    /// Put every key once before
    #[arg(long)]
    fill: bool,
    /// resp: after each put wait in the same turn until so many replicas have it; it needs `--streams 1`
    #[arg(long, default_value_t = 0)]
    wait: u32,
    /// Clients that share one connection (resp-cluster: one per node) [default: 16; resp and resp-cluster: 1]
    #[arg(long)]
    streams: Option<usize>,
    /// Processes whose CPU is measured too
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
    /// resp: this command instead of SET or GET; `__key__` in it becomes the key
    #[arg(last = true)]
    command: Vec<String>,
}

impl Settings {
    /// gRPC clients share as etcd's own benchmark does; a plain Redis client has its connection for itself.
    pub fn streams(&self) -> usize {
        self.streams.unwrap_or(match self.target {
            Target::Resp | Target::RespCluster => 1,
            Target::Etcd | Target::Rows => 16,
        })
    }

    /// Why this cannot be run.
    fn refused(&self) -> Option<String> {
        let wrong = |why: &str| Some(why.to_string());
        if [self.clients, self.threads, self.streams()].contains(&0) || self.keys == 0 {
            return wrong("clients, keys, threads and streams are at least one");
        }
        if self.wait > 0 && self.streams.is_some_and(|streams| streams > 1) {
            return wrong(
                "--wait needs --streams 1: WAIT blocks its connection for all who share it",
            );
        }
        if !self.command.is_empty() && (self.target != Target::Resp || self.wait > 0) {
            return wrong("a command of your own needs --target resp, without --wait");
        }
        let gone = |pid: &&u32| !Path::new(&format!("/proc/{pid}")).exists();
        let gone = self.pids.iter().find(gone)?;
        Some(format!("no process {gone}"))
    }
}

fn main() -> ExitCode {
    let settings = Settings::parse();
    if let Some(why) = settings.refused() {
        eprintln!("load: {why}");
        return ExitCode::from(2);
    }
    let outcome = match settings.target {
        Target::Resp => phase::run::<resp::Single>(&settings),
        Target::RespCluster => phase::run::<cluster::SlotAware>(&settings),
        Target::Etcd => phase::run::<etcd::Caller>(&settings),
        Target::Rows => phase::run::<rows::Rows>(&settings),
    };
    match outcome {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(refused) => {
            eprintln!("load: {refused}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> Settings {
        Settings::parse_from(format!("load --addresses h:1 {line}").split_whitespace())
    }

    #[test]
    fn who_shares_a_connection() {
        for (line, streams) in [
            ("--target etcd", 16),
            ("--target rows", 16),
            ("--target resp --wait 1", 1),
            ("--target resp-cluster", 1),
            ("--target resp-cluster --streams 8", 8),
            ("--target resp --wait 1 --streams 1", 1),
        ] {
            let settings = settings(line);
            assert_eq!((settings.streams(), settings.refused()), (streams, None));
        }
    }

    #[test]
    fn what_cannot_be_run() {
        for (line, part) in [
            ("--target resp --wait 1 --streams 16", "--wait needs"),
            ("--target etcd --streams 0", "at least one"),
            ("--target resp-cluster -- PING", "--target resp"),
            ("--target resp --pids 999999999", "no process"),
        ] {
            let refused = settings(line).refused().unwrap_or_default();
            assert!(refused.contains(part), "{line}: {refused:?}");
        }
    }
}
