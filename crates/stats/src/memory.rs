//! How much memory the process has allocated, for `maxmemory` and `INFO memory`.
//!
//! [`Counting`] wraps the process' allocator and counts layout sizes. Each thread counts in a cell
//! of its own and adds to the total only when the difference passes a bound, so an allocation
//! costs a thread-local add, and the total is exact to `threads × PUBLISH_BYTES`.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// A thread publishes its count when it has moved by this much.
const PUBLISH_BYTES: isize = 64 * 1024;

static TOTAL: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static UNPUBLISHED: Cell<isize> = const { Cell::new(0) };
}

/// Bytes allocated now, summed over all threads.
#[inline]
pub fn used_memory() -> usize {
    TOTAL.load(Ordering::Relaxed).max(0) as usize
}

/// [`used_memory`] without what waits to be freed: what `maxmemory` limits. While nobody knows how much that is,
/// no more than what was allocated since.
#[inline]
pub fn live_memory() -> usize {
    let used = used_memory();
    match crate::reaper::used_before_unknown() {
        Some(before) => used.saturating_sub(before),
        None => used.saturating_sub(crate::reaper::pending_bytes()),
    }
}

/// The most [`used_memory`] has been (as far as threads published it).
pub fn peak_memory() -> usize {
    PEAK.load(Ordering::Relaxed).max(used_memory())
}

/// Adds what this thread has not published yet; after it [`used_memory`] knows all of it.
#[inline]
pub fn publish() {
    UNPUBLISHED.with(|count| publish_now(count.replace(0)));
}

#[cold]
fn publish_now(bytes: isize) {
    let total = TOTAL.fetch_add(bytes, Ordering::Relaxed) + bytes;
    let total = total.max(0) as usize;
    if total > PEAK.load(Ordering::Relaxed) {
        PEAK.store(total, Ordering::Relaxed);
    }
}

#[inline]
fn count(bytes: isize) {
    // A thread that is being torn down has no cell any more: its bytes go straight to the total.
    let published = UNPUBLISHED.try_with(|cell| {
        let sum = cell.get() + bytes;
        if sum.abs() < PUBLISH_BYTES {
            cell.set(sum);
        } else {
            cell.set(0);
            publish_now(sum);
        }
    });
    if published.is_err() {
        publish_now(bytes);
    }
}

/// The allocator `A`, counted.
pub struct Counting<A>(pub A);

// SAFETY: every call is passed on unchanged to `A`, which keeps the contract; counting neither
// allocates nor touches the memory.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is `A`'s.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { self.0.dealloc(ptr, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { self.0.realloc(ptr, layout, new_size) }
    }
}
