//! Users and what they may do, as Redis 7.0 has them.
//!
//! ```text
//!   rules ("+@read", "%R~app:*", ">secret") ──► User ──► check(command) ──► may run, or which right it lacks
//!   Users: all of them, one immutable value with a version; a change makes the next one
//! ```
//!
//! - [`User`] has passwords (hashes only), flags and [`Selector`]s: the first one is its own, others are given in parentheses. A command
//!   may run if one selector allows all of it.
//! - A selector has a bit per command, indexed by the command's number in [`command::Specs`]: the question "may it run GET?" is
//!   one look at a bit.
//! - [`describe`] prints rules so that parsing them gives the same user; what is stored and what `ACL LIST` shows is this text.
//! - [`file`] reads a file of users, with the errors Redis gives.
//!
//! **Invariants.** A rule that is refused changes nothing. A password is never kept, only its SHA-256. Pure: no clock, no
//! I/O, no randomness; sessions, storage and the log of denials are above.

mod bits;
mod check;
mod describe;
pub mod file;
mod password;
mod rule;
mod selector;
mod user;
mod users;

pub use check::Denied;
pub use password::{Hash, hash_of};
pub use rule::RuleError;
pub use selector::{KeyPattern, Selector};
pub use user::User;
pub use users::{DEFAULT, Users};
