//! Rows of SQL tables on the running binary: through Redis commands, over real databases.
//!
//! `node.rs` starts a server with a backend and looks into the database behind its back; the tests are one file per subject.

#[path = "../dice/mod.rs"]
#[allow(dead_code)] // shared with other tests, which use the rest
mod dice;
#[path = "../node/mod.rs"]
#[allow(dead_code)]
mod node;

mod behind;
mod commands;
mod dropped;
mod durable;
mod kick;
mod limits;
mod outage;
mod remade;
mod sparing;
mod sql;
mod undone;
mod written;
