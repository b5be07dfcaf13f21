//! SQL-backed rows: what a table is, what its values are, and how a row is written down.
//!
//! ```text
//!   --fields 'age:int64=0,name:string'        fields.rs   declaration, both ways
//!          |
//!       Table { id, epoch, fields: [Field { id, name, kind, default }] }          schema.rs
//!          |
//!   "42" <-> Value::Int(42)                   value.rs    text of HGET and HSET, both ways
//!   Value + Amount -> Value                   amount.rs   HINCRBY, IncrBy, DecrBy
//!          |
//!       Image { version, [(field id, Value)] }, Delta                             image.rs
//!          |
//!   Entry -> Rows -> Outcome                  entry.rs, rows/, outcome.rs    what every replica does
//!          |
//!   Leader -> Action                          leader/     what only the leader does: load, write back, evict
//!   Departing                                 departing.rs   rows not to be counted on meanwhile
//!   Overlay + what SQL has -> Page            scan.rs
//! ```
//!
//! The one idea: a value is known by the *id* of its field, never by its name or its place. Ids are not
//! used twice, so a row written before a field was added lacks it (its default is read), and one written
//! before a field was dropped has a value nobody asks for (it is skipped). No row is rewritten when a schema changes.
//!
//! **Invariants.** Every `Value` made from outside is clean: texts are utf-8 without NUL, floats are finite and never
//! `-0.0`; so every database can hold it and gives back the same. Decoding never panics and never trusts a length.
//! Equal images have equal bytes.
//!
//! Pure: no clock, no thread, no I/O.

mod amount;
mod departing;
pub mod entry;
mod fields;
mod image;
pub mod leader;
pub mod name;
mod outcome;
pub mod rows;
pub mod scan;
mod schema;
mod value;
mod wire;

pub use amount::Amount;
pub use departing::Departing;
pub use entry::{Entry, RowId};
pub use fields::{parse_fields, show_fields};
pub use image::{Delta, Image};
pub use outcome::{Cause, Outcome};
pub use rows::{REQUESTS_KEPT, Rows};
pub use schema::{FIELDS_MAX, Field, ROW_BYTES_MAX, Table};
pub use value::{Kind, Value};
pub use wire::Corrupt;
