//! Commands about the session or the server: one file per family, each with its `ROWS`.

use crate::SessionCommand;

mod client;
mod config;
mod connection;
mod info;
mod monitor;
mod rows;
mod slowlog;
mod transactions;

/// The rows of all families of this crate.
pub const ALL: &[&[SessionCommand]] = &[
    client::ROWS,
    config::ROWS,
    connection::ROWS,
    info::ROWS,
    monitor::ROWS,
    slowlog::ROWS,
    transactions::ROWS,
];
