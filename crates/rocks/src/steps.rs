//! Where tests let a process end: between two steps of what must be whole after any crash, or not there at all.
//! In a process that is not a test nothing is left of it.

#[cfg(test)]
thread_local! {
    /// Until the process ends, of this thread.
    pub(crate) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

/// What is said where it ends.
pub(crate) const ENDED: &str = "the process has ended here";

/// Whether the process ends before the next step.
#[cfg(not(test))]
#[inline]
pub(crate) fn ends_here() -> bool {
    false
}

/// Whether the process has ended, as far as a test is concerned: nothing is tidied up then.
#[cfg(not(test))]
#[inline]
pub(crate) fn has_ended() -> bool {
    false
}

#[cfg(test)]
pub(crate) fn ends_here() -> bool {
    let left = STEPS.get();
    STEPS.set(left.saturating_sub(1));
    left == 0
}

#[cfg(test)]
pub(crate) fn has_ended() -> bool {
    STEPS.get() == 0
}
