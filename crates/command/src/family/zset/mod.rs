//! (Family to come.)

use crate::Command;

pub const ROWS: &[Command] = &[];
