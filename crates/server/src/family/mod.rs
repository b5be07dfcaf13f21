//! Commands about the session or the server: one file per family, each with its `ROWS`.

use crate::SessionCommand;

mod client;
mod cluster;
mod command_info;
mod config;
mod connection;
mod debug;
pub(crate) mod info;
mod latency;
mod memory;
mod monitor;
mod persistence;
mod replication;
mod row_table;
mod rows;
mod server;
mod slowlog;
mod table_rows;
mod transactions;

/// The rows of all families of this crate.
pub const ALL: &[&[SessionCommand]] = &[
    client::ROWS,
    cluster::ROWS,
    command_info::ROWS,
    config::ROWS,
    connection::ROWS,
    debug::ROWS,
    info::ROWS,
    latency::ROWS,
    memory::ROWS,
    monitor::ROWS,
    persistence::ROWS,
    replication::ROWS,
    row_table::ROWS,
    server::ROWS,
    slowlog::ROWS,
    table_rows::ROWS,
    transactions::ROWS,
];
