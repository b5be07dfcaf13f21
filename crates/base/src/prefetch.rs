//! Asking for memory before it is needed.

/// Asks the CPU to bring the line of its cache that `place` is in. A hint: any address will do, and nothing is read.
#[inline]
pub fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; any address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    let _ = place;
}
