//! The whole cluster in one thread, under one seed.
//!
//! The code that ships runs here: `node` decides, with `replica`, `keyspace`, `command`, `table` and `meta`
//! below it, on simulated clocks, disks and networks that do everything real ones do at their worst. Checkers
//! look on. The same seed gives the same run, event by event, so what goes wrong once can be looked
//! at for as long as it takes.
//!
//! ```text
//!   plan ─► world ─┬─ queue: (time, number) ─► event ─► machine ─► regions ─► crate node
//!   (seed)         ├─ network, clocks, disks                          │
//!                  ├─ nemesis ─► faults              facts ◄───────┴──────► messages, answers
//!                  └─ sessions ─► history               │
//!                                    │                  │
//!                        linear, kept ▼   agree, terms, ▼ serving
//! ```
//!
//! `regions` carries out what the node's own code asks for; `bugs` are what is planted to prove that the
//! checkers see. [`run`] runs one seed; `make sim` runs new ones for as long as it is told.
//!
//! Deliberately absent: clocks, threads, files, sockets, randomness that is not from the seed. What
//! is simulated here is not simulated twice: the transport's bytes, RocksDB and raft-engine have
//! their own tests with real processes.

mod bugs;
pub mod check;
mod client;
mod clock;
mod database;
mod disk;
mod effects;
mod event;
mod faults;
mod heartbeats;
pub mod history;
mod machine;
mod mail;
mod membership;
mod meta;
mod network;
mod placement;
mod plan;
mod process;
mod queue;
mod regions;
mod requests;
pub mod row_calls;
mod row_sessions;
mod rows;
mod run;
mod script;
mod sessions;
mod sql;
mod state;
mod store;
mod trace;
mod world;

pub use bugs::Bug;
pub use faults::Kind;
pub use plan::Plan;
pub use run::{Outcome, explain, explain_all, run};
pub use script::Script;
