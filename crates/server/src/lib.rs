//! Cores, sessions, and everything between a socket and a keyspace.
//!
//! ```text
//!   socket ─► session ─► commands (table) ─► route ─┬─► run here            (region of this core)
//!                 ▲                                 ├─► batch to one core   (cores::batch)
//!                 │                                 └─► hold regions, run   (cores::lend)
//!                 └──────────── replies in request order ◄───────┘
//! ```
//!
//! One pinned thread per core ([`cores`]), one task per connection ([`session`]). What a core owns,
//! only that core touches; cores talk by message. What all cores share ([`Shared`]) is either
//! read-mostly (settings, table) or off the hot path (client registry, slow log).
//!
//! Session commands (`CLIENT`, `CONFIG`, `MULTI` …) are rows and functions in [`family`], in the
//! shape [`SessionCommand`] gives them; all other commands come from the `command` crate.

pub mod clients;
pub mod cluster;
pub mod commands;
pub mod cores;
pub mod durable;
pub mod family;
pub mod http;
pub mod importing;
pub mod latency;
mod listener;
pub mod loading;
pub mod log;
pub mod memory;
pub mod reaper;
pub mod save_status;
pub mod saving;
pub mod session;
pub mod settings;
mod shared;
pub mod shutdown;
pub mod slowlog;
pub mod snapshotting;
pub mod stats;
pub mod tables;

pub use commands::{Commands, Later, SessionCommand, SessionRun};
pub use cores::{Core, Server, StartError, start, start_durable};
pub use durable::Stores;
pub use session::Session;
pub use settings::Settings;
pub use shared::Shared;
