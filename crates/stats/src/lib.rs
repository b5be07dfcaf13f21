//! What a node notes about itself and its clients while it works, for INFO, CLIENT, SLOWLOG, LATENCY and metrics.
//!
//! ```text
//!   counters     numbers of each core, durations of commands, rates
//!   clients      who is connected, and signals to their sessions      slowlog, latency   what took long
//!   memory       bytes that are allocated                             reaper             bytes that wait to be freed
//!   save_status  the last save and the one under way                  process            what the system knows of it
//! ```
//!
//! Those who work write here; commands about the server read. Nothing here decides anything.

pub mod acl_log;
pub mod clients;
mod counters;
pub mod latency;
pub mod memory;
pub mod process;
pub mod reaper;
pub mod save_status;
pub mod slowlog;

pub use counters::{CommandStats, CoreStats, Counter, Histogram, Rates, RegionStats, TableGauges};
