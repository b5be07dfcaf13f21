//! Tables: SQL rows as records of the regions, loaded on a miss and written back.
//!
//! | part | file |
//! |---|---|
//! | which tables there are, and changing that | `catalogue.rs`, `catalogue_change.rs` |
//! | the databases, off the cores | `sql.rs` |
//!
//! What a row is and when it is written is the crate `table`'s; how SQL is spoken, the crate `sqldb`'s.

pub mod catalogue;
pub mod catalogue_change;
pub mod sql;
