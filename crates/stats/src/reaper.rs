//! One thread that frees what is too big to be freed between two commands.
//!
//! What waits for it is no data any more: `maxmemory` does not count it ([`pending_bytes`]). So that it
//! does not grow without bounds when values are replaced faster than one thread frees them, what comes
//! when more than [`MOST_BYTES`] wait is freed where it is.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use keyspace::Garbage;

/// Bytes that may wait.
const MOST_BYTES: usize = 64 << 20;

static REAPER: OnceLock<Sender<Vec<Garbage>>> = OnceLock::new();
static PENDING_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Values of unknown size that wait: flushed databases.
static PENDING_UNKNOWN: AtomicUsize = AtomicUsize::new(0);
/// What was used when the last of them came: all of it may be theirs.
static USED_BEFORE: AtomicUsize = AtomicUsize::new(0);

/// About how many bytes of [`crate::memory::used_memory`] wait to be freed.
#[inline]
pub fn pending_bytes() -> usize {
    PENDING_BYTES.load(Ordering::Relaxed)
}

/// If a whole database, or another value of unknown size, waits to be freed: what was used when it came.
#[inline]
pub fn used_before_unknown() -> Option<usize> {
    let waits = PENDING_UNKNOWN.load(Ordering::Relaxed) > 0;
    waits.then(|| USED_BEFORE.load(Ordering::Relaxed))
}

/// Hands over values to be dropped. If the thread cannot be started they are dropped here.
pub fn send(garbage: Vec<Garbage>) {
    if garbage.is_empty() {
        return;
    }
    let reaper = REAPER.get_or_init(|| {
        let (sender, receiver) = channel::<Vec<Garbage>>();
        let started = std::thread::Builder::new()
            .name("reaper".into())
            .spawn(move || {
                for garbage in receiver {
                    for value in garbage {
                        let bytes = value.bytes();
                        drop(value);
                        crate::memory::publish();
                        count_out(bytes);
                    }
                }
            });
        if let Err(error) = started {
            tracing::warn!("no reaper thread ({error}): big values are freed in place");
        }
        sender
    });
    let mut handed = Vec::with_capacity(garbage.len());
    for value in garbage {
        let bytes = value.bytes();
        if must_be_freed_here(bytes) {
            drop(value);
            continue;
        }
        count_in(bytes);
        handed.push(value);
    }
    if let Err(unsent) = reaper.send(handed) {
        for value in unsent.0 {
            let bytes = value.bytes();
            drop(value);
            count_out(bytes);
        }
    }
}

/// Whatever its size, one value is taken while those before it are few.
fn must_be_freed_here(bytes: usize) -> bool {
    bytes > 0 && pending_bytes() > MOST_BYTES
}

fn count_in(bytes: usize) {
    if bytes > 0 {
        PENDING_BYTES.fetch_add(bytes, Ordering::Relaxed);
        return;
    }
    crate::memory::publish();
    let used = crate::memory::used_memory();
    match PENDING_UNKNOWN.load(Ordering::Relaxed) {
        0 => USED_BEFORE.store(used, Ordering::Relaxed),
        _ => _ = USED_BEFORE.fetch_max(used, Ordering::Relaxed),
    }
    PENDING_UNKNOWN.fetch_add(1, Ordering::Relaxed);
}

fn count_out(bytes: usize) {
    match bytes {
        0 => PENDING_UNKNOWN.fetch_sub(1, Ordering::Relaxed),
        _ => PENDING_BYTES.fetch_sub(bytes, Ordering::Relaxed),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_big_value_is_handed_over_and_what_comes_behind_it_is_not() {
        assert!(!must_be_freed_here(10 * MOST_BYTES));
        count_in(10 * MOST_BYTES);
        assert!(must_be_freed_here(1));
        assert!(!must_be_freed_here(0), "nobody knows how long that takes");
        count_out(10 * MOST_BYTES);
        assert!(!must_be_freed_here(1));
        // While the size of something is not known, what comes behind it still counts.
        count_in(0);
        let before = used_before_unknown().unwrap();
        count_in(0);
        assert!(used_before_unknown().unwrap() >= before);
        count_out(0);
        assert!(used_before_unknown().is_some());
        count_out(0);
        assert_eq!(used_before_unknown(), None);
    }
}
