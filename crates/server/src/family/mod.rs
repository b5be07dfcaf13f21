//! Commands about the session or the server: one file per family, each with its `ROWS`.

use crate::SessionCommand;

mod connection;
mod transactions;

/// The rows of all families of this crate.
pub const ALL: &[&[SessionCommand]] = &[connection::ROWS, transactions::ROWS];
