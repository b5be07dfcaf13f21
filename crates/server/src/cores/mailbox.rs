//! A core's inbox: what other cores send it. (Being written.)

#[derive(Default)]
pub struct Mailbox {}
