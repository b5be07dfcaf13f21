//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use crate::SessionCommand;

pub const ROWS: &[SessionCommand] = &[];
