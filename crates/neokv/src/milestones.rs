//! Debug builds: what happens at the milestones of requests besides the requests themselves. The test of the walks in
//! ARCHITECTURE.md has the stacks of calls written, tests of panics make them fail points.
//!
//! Only the binary that tests start has fail points (a development dependency of this package turns them on).

use std::backtrace::Backtrace;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Names the file that the stacks are appended to.
const STACKS: &str = "NEOKV_MILESTONES";
/// Names a file with lines of `milestone=actions`, as the crate `fail` has them. When it appears it is read, and
/// removed.
const FAIL_POINTS: &str = "NEOKV_FAIL_POINTS";

static ORDERS: OnceLock<PathBuf> = OnceLock::new();

/// From now on, what was asked for happens at every milestone, if this is a debug build.
pub fn observe_if_asked() {
    if !cfg!(debug_assertions) {
        return;
    }
    if std::env::var_os(STACKS).is_some() {
        base::observe_milestones(write_stack);
    } else if let Some(path) = std::env::var_os(FAIL_POINTS)
        && let Ok(path) = std::path::absolute(path)
    {
        if !fail::has_failpoints() {
            tracing::warn!("{FAIL_POINTS}: this binary was built without fail points");
        }
        let _ = ORDERS.set(path);
        base::observe_milestones(reach_fail_point);
    }
}

fn reach_fail_point(name: &'static str) {
    take_orders();
    fail::fail_point!(name);
}

fn take_orders() {
    let Some(path) = ORDERS.get() else {
        return;
    };
    let Ok(text) = std::fs::read_to_string(path) else {
        return;
    };
    // Whoever removes it carries it out.
    if std::fs::remove_file(path).is_err() {
        return;
    }
    for (name, actions) in text.lines().filter_map(|line| line.split_once('=')) {
        if let Err(error) = fail::cfg(name, actions) {
            tracing::warn!("fail point {name}: {error}");
        }
    }
}

fn write_stack(name: &'static str) {
    let Some(path) = std::env::var_os(STACKS) else {
        return;
    };
    // One write per stack: threads do not mix theirs.
    let stack = format!("milestone: {name}\n{}\n", Backtrace::force_capture());
    let file = OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(stack.as_bytes())) {
        tracing::warn!("a milestone cannot be written: {error}");
    }
}
