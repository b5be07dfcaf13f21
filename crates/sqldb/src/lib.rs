//! The SQL databases behind tables: PostgreSQL, MySQL or MariaDB, SQLite.
//!
//! ```text
//!   Sql           calls.rs: calls of cores, which never wait, on a thread of their own; counters
//!      |
//!   Database      load, flush, scan, create_table, check_table, add_field, drop_field, drop_table
//!      |          database.rs: one file per operation beside it (load, flush, scan, shape, adopt)
//!   statement     the SQL texts, for three dialects
//!      |
//!    Pool         a few connections; a connection comes back only after success
//!      |
//!    Conn         one connection, with a time limit: text and parameters in, cells out
//!      |
//!    Wire         the bare connection; faults sorted; what the three do alike   (postgres, mysql, sqlite: what not)
//! ```
//!
//! The one idea: *the database judges every write by the version it has.* A row is written only over a version its
//! writer has named, inside one transaction that holds the row; so a late statement of a deposed leader, a statement
//! sent twice and an edit by hand are all told apart, and none is ever overwritten by accident (docs/internals/sqldb.md).
//!
//! **Invariants.** Values and keys travel as parameters, never in the text. Names in the text are checked and quoted.
//! What is loaded is what was flushed, bit for bit, in all three. An error is one of two: [`Error::Transient`] (try again;
//! nothing is known to be lost) or [`Error::Unfit`] (an operator must act; rows wait). A row that the database will never take is not
//! an error of the batch: it is [`Flushed::Refused`], alone.
//!
//! No retries, no decisions: who calls (`runtime`) knows what a row is worth. All calls of a `Database` belong
//! on the runtime it was opened on.

mod adopt;
pub mod calls;
mod conn;
mod database;
mod error;
mod flush;
mod load;
mod mysql;
mod pool;
mod postgres;
mod scan;
mod shape;
mod sqlite;
mod statement;
mod wire;

pub use calls::Sql;
pub use database::{Database, Limits};
pub use error::Error;
pub use flush::{Flush, Flushed, Meant};
pub use load::Loaded;
pub use scan::{Page, Scanned};
