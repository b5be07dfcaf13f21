//! The memory engine. (In work.)

mod segment;
#[allow(dead_code, reason = "collections use it next")]
pub(crate) mod table;

/// Something big that is to be dropped away from the command path.
pub struct Garbage(pub(crate) Box<dyn Send>);
