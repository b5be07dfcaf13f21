//! Milestones of a request: places in the code that a write passes on its way from the socket to the disk and back.
//!
//! In a debug build an observer may be called at each of them, on the stack of calls that led there. A test makes one
//! and compares the files on these stacks with the walks in ARCHITECTURE.md. A release build has no trace of it.

use std::sync::OnceLock;

/// Is given the name of a milestone.
pub type Observer = fn(&'static str);

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// From now on this observer is called at every milestone. The first one stays.
pub fn observe_milestones(observer: Observer) {
    let _ = OBSERVER.set(observer);
}

/// A request has reached a milestone.
#[inline(always)]
pub fn milestone(name: &'static str) {
    if cfg!(debug_assertions)
        && let Some(observer) = OBSERVER.get()
    {
        observer(name);
    }
}
