//! Tables: SQL rows as records of the regions, loaded on a miss and written back.
//!
//! | part | file |
//! |---|---|
//! | the databases, off the cores | `sql.rs` |
//!
//! What a row is and when it is written is the crate `table`'s; how SQL is spoken, the crate `sqldb`'s.

pub mod sql;
