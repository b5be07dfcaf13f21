//! `load`: the load generator of `make bench` for clusters: the same closed loop against neokv, Redis and etcd.
//!
//! N clients, each with one operation in flight, put or get random keys of a fixed set for some seconds. Only how one
//! operation is asked differs per target ([`resp`], [`cluster`], [`etcd`], [`rows`]); waiting, counting and timing are the same
//! code ([`phase`]), so that what the client costs compares too. It also reads what given server processes spent in
//! exactly the measured time ([`cpu`]). The result is one JSON object on the standard output.
//!
//! It is a tool of the benchmark, not a part of the product: nothing depends on it.

mod cluster;
mod cpu;
mod etcd;
mod phase;
mod resp;
mod rows;

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
    /// resp: after each put wait in the same turn until so many replicas have it
    #[arg(long, default_value_t = 0)]
    wait: u32,
    /// etcd: clients that share one HTTP/2 connection
    #[arg(long, default_value_t = 16)]
    streams: usize,
    /// Processes whose CPU is measured too
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
}

fn main() -> ExitCode {
    let settings = Settings::parse();
    if settings.clients == 0 || settings.keys == 0 || settings.threads == 0 {
        eprintln!("load: clients, keys and threads are at least one");
        return ExitCode::from(2);
    }
    if let Some(pid) = settings
        .pids
        .iter()
        .find(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    {
        eprintln!("load: no process {pid}");
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
