//! Debug builds: the stacks of calls at the milestones of requests, for the test of the walks in ARCHITECTURE.md.

use std::backtrace::Backtrace;
use std::fs::OpenOptions;
use std::io::Write;

/// Names the file that the stacks are appended to.
const VARIABLE: &str = "NEOKV_MILESTONES";

/// Writes a stack at every milestone from now on, if that was asked for and this is a debug build.
pub fn observe_if_asked() {
    if cfg!(debug_assertions) && std::env::var_os(VARIABLE).is_some() {
        base::observe_milestones(write_stack);
    }
}

fn write_stack(name: &'static str) {
    let Some(path) = std::env::var_os(VARIABLE) else {
        return;
    };
    // One write per stack: threads do not mix theirs.
    let stack = format!("milestone: {name}\n{}\n", Backtrace::force_capture());
    let file = OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(stack.as_bytes())) {
        tracing::warn!("a milestone cannot be written: {error}");
    }
}
