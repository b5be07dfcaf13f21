//! The command table: one specification and one function per command, one file per family.
//!
//! A specification ([`CommandSpec`]) drives everything that is not the command itself: dispatch, the arity
//! error, which keys route it, the read or the write path, ACL categories, `COMMAND`, the
//! generated `docs/commands.md`. A function sees its arguments, a [`keyspace::View`] or
//! [`keyspace::Txn`], and the reply it writes; never a connection, a clock or a core.
//!
//! Keys that name rows of SQL tables are told from others in one place, [`call`]; the commands on rows are
//! [`family::row`].
//!
//! Commands that are about the session or the server itself (`CLIENT`, `CONFIG`, `MULTI` …) have
//! their specifications and functions in the `server` crate, in the same shape.

mod category;
pub mod family;
mod flags;
mod key_use;
mod keys;
mod on_row;
mod spec;
mod specs;
pub mod syntax;
pub mod table;

pub use category::Categories;
pub use flags::{Flags, Group, Traits};
pub use key_use::{KeyUse, KeyUses};
pub use keys::{Keys, KeysError, OtherDatabase};
pub use on_row::{OnRow, RowGrowth, RowReadFn, RowValuesFn, RowWriteFn, call};
pub use spec::{Arity, Attempt, Block, CommandSpec, Merge, Nil, Run, Secrets, TimeoutAt, WaitOn};
pub use specs::Specs;
pub use table::{Table, wrong_arity};
