//! `neokv ctl`: looks at a running cluster, and gives it orders.
//!
//! ```text
//!   line     the way to any node, which asks meta's leader     flags    what may be asked
//!   tables   rows for people     json     rows for programs    digest   are all replicas equal?
//!   unsafe_recover   what is left of regions whose majority is lost; the only one that needs no running node
//!   access   what nodes ask for                                rotate   another cluster secret
//! ```
//!
//! What is refused, and replicas that are not equal, end with exit status 1.

pub mod access;
mod digest;
mod flags;
pub mod json;
mod line;
mod rotate;
mod tables;
mod unsafe_recover;

use std::path::PathBuf;
use std::time::Duration;

use meta::wire::{Ask, ReplicaMove};

pub use access::Access;
pub use flags::{command, options};
pub use line::{Line, Unanswered};

/// What is asked of which cluster.
pub struct Options {
    pub peers: Vec<String>,
    /// Certificate, key, authority.
    pub tls: Option<[String; 3]>,
    pub secret_file: Option<PathBuf>,
    /// Nodes ask for a secret.
    pub peer_auth: bool,
    pub json: bool,
    pub what: What,
}

pub enum What {
    Nodes,
    Regions,
    Region(u64),
    Operators,
    TransferLeader(ReplicaMove),
    AddReplica(ReplicaMove),
    RemoveReplica(ReplicaMove),
    Cancel(u64),
    RemoveNode(u64),
    /// Of one region, or of all.
    Digest(Option<u64>),
    /// Of the data directory of a node that does not run.
    UnsafeRecover(unsafe_recover::Options),
    RotateSecret,
}

/// A question goes through up to two nodes, each of which may have to connect.
pub const TIMEOUT: Duration = Duration::from_secs(8);

/// Asks, and prints the answer; in one line why there is none.
pub fn run(options: Options) -> Result<(), String> {
    if let What::UnsafeRecover(options) = &options.what {
        return unsafe_recover::run(options);
    }
    let files = match options.secret_file {
        Some(file) => vec![file],
        None => access::usual_files(),
    };
    if let What::RotateSecret = options.what {
        if options.tls.is_some() || !options.peer_auth {
            return Err("rotate-secret: this cluster is not under a cluster secret".into());
        }
        return rotate::run(&options.peers, &files);
    }
    let access = match options.tls {
        Some(tls) => Access::by_tls(tls),
        None if !options.peer_auth => Access::default(),
        None => Access::by_secrets(&files)?,
    };
    let line = Line::new(options.peers, access).map_err(|why| why.to_string())?;
    let told = |why: Unanswered| why.to_string();
    let rows = |ask| line.patient_tables(ask, TIMEOUT).map_err(told);
    let order = |ask| line.order(ask, TIMEOUT).map_err(told);
    let text = match options.what {
        What::Nodes => {
            let found = rows(Ask::Nodes(true))?;
            shown(
                options.json,
                || json::nodes(&found),
                || tables::nodes(&found),
            )
        }
        What::Regions => {
            let found = rows(Ask::Regions(true))?;
            shown(
                options.json,
                || json::regions(&found),
                || tables::regions(&found),
            )
        }
        What::Region(id) => {
            let found = rows(Ask::Region(id))?;
            shown(
                options.json,
                || json::region(&found),
                || tables::region(&found),
            )
        }
        What::Operators => {
            let found = rows(Ask::Operators(true))?;
            shown(
                options.json,
                || json::operators(&found),
                || tables::operators(&found),
            )
        }
        What::Digest(of) => return digest::run(&line, of, options.json),
        What::RotateSecret => return Ok(()), // done above: it makes its own connections
        What::TransferLeader(it) => done(options.json, order(Ask::TransferLeader(it))?),
        What::AddReplica(it) => done(options.json, order(Ask::AddReplica(it))?),
        What::RemoveReplica(it) => done(options.json, order(Ask::RemoveReplica(it))?),
        What::Cancel(region) => done(options.json, order(Ask::Cancel(region))?),
        What::RemoveNode(node) => done(options.json, order(Ask::RemoveNode(node))?),
        What::UnsafeRecover(_) => String::new(),
    };
    print!("{text}");
    Ok(())
}

fn shown(as_json: bool, json: impl Fn() -> serde_json::Value, text: impl Fn() -> String) -> String {
    match as_json {
        true => format!("{:#}\n", json()),
        false => text(),
    }
}

fn done(as_json: bool, text: String) -> String {
    match as_json {
        true => format!("{:#}\n", serde_json::json!({ "done": text })),
        false => format!("{text}\n"),
    }
}
