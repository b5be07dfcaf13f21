//! Cores, sessions, and everything between a socket and a keyspace.

mod accept;
pub mod commands;
pub mod family;
pub mod http;
mod listener;
pub mod session;
mod signals;
mod start;

pub use commands::{Commands, Later, SessionCommand, SessionRun};
pub use runtime::cluster;
pub use runtime::cores::schedule_as_batch;
pub use runtime::{Shared, Stores};
pub use session::Session;
pub use settings::{self, Settings, log};
pub use signals::on_signals;
pub use start::{Server, StartError, commands, import, start, start_cluster, start_durable};
pub use stats::memory;
