//! Panics that harm nobody: those of code that changes nothing, or whose caller knows that it may panic.
//!
//! A panic of any other thread or task of a server ends the process ([`is_contained`] is what its panic hook asks): what
//! it was changing is half done, and a process that lacks a core or its log writer looks well and is not.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, a panic of this thread is contained. Whoever has it catches the panic further up, and keeps nothing
/// that it may have left half done.
pub struct Contained(());

impl Contained {
    #[inline]
    #[must_use]
    pub fn begin() -> Contained {
        DEPTH.set(DEPTH.get() + 1);
        Contained(())
    }
}

impl Drop for Contained {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Runs something that may panic.
pub fn contained<T>(run: impl FnOnce() -> T) -> std::thread::Result<T> {
    let _contained = Contained::begin();
    catch_unwind(AssertUnwindSafe(run))
}

/// Whether a panic at this moment would be contained.
pub fn is_contained() -> bool {
    DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_what_it_contains() {
        assert!(!is_contained());
        assert!(contained(is_contained).unwrap());
        assert!(contained(|| contained(|| panic!("inner")).is_err() && is_contained()).unwrap());
        assert!(contained(|| panic!("outer")).is_err());
        assert!(!is_contained());
    }
}
