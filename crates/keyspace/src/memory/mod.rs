//! The memory engine. (Skeleton: the engine owner completes it.)

/// Something big that is to be dropped away from the command path.
pub struct Garbage(pub(crate) Box<dyn Send>);
