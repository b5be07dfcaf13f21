//! `neokv cluster`: a cluster on this machine, to try things with.
//!
//! ```text
//!   FOLDER/playground.toml   ports, flags and processes     book      what is remembered
//!   FOLDER/lock              one command at a time          process   nodes in the background
//!   FOLDER/node-1/           data of node 1                 probe     do they answer?
//!   FOLDER/node-1.log        what it printed                up, down, status: what is asked for
//! ```
//!
//! The nodes are ordinary ones (`neokv server`), only started and stopped from here.
//!
//! *Invariants*: a process is signalled only if it is the one that was started here (its start time
//! and its data folder say so); nothing is removed that was not made here.

mod book;
mod down;
mod flags;
mod launch;
mod probe;
mod process;
mod status;
mod up;

use std::path::PathBuf;

pub use flags::{command, options};

/// What is asked of which playground.
pub struct Options {
    pub dir: PathBuf,
    pub what: What,
}

pub enum What {
    Up(Shape),
    Down { wipe: bool },
    Status { json: bool },
    Kill(u32),
    Start(u32),
}

/// How a playground shall be; what is not given stays as it is, or is the default.
#[derive(Debug, Default, Clone)]
pub struct Shape {
    pub nodes: Option<u32>,
    pub port: Option<u16>,
    pub regions: Option<u32>,
    pub replicas: Option<u32>,
    pub shards: Option<u32>,
    /// Further flags of every node.
    pub flags: Option<Vec<String>>,
}

/// Does it; the error is for people, and may have several lines.
pub fn run(options: Options) -> Result<(), String> {
    match options.what {
        What::Up(shape) => up::up(&options.dir, shape),
        What::Down { wipe } => down::down(&options.dir, wipe),
        What::Status { json } => status::status(&options.dir, json),
        What::Kill(number) => down::kill(&options.dir, number),
        What::Start(number) => up::start(&options.dir, number),
    }
}
