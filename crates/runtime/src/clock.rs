//! The clocks of the process: one that never jumps, and the time of day made of it.
//!
//! ```text
//!   CLOCK_BOOTTIME ──────────────► clock_ms()   leases, timers
//!        + offset ◄── Timekeeper ─► now_ms()     stamps, deadlines of keys
//!                      ▲    ▲
//!       wall clock ────┘    └──── time of the cluster, with answers of meta
//! ```
//!
//! The wall clock is read by core 0, ten times a second ([`check`]); everybody else adds an offset to a clock that does
//! not jump. So a wall clock that is wrong for a moment is seen by nobody.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use base::clock::{self, ClockNotice, Timekeeper};

/// Not known yet.
const UNKNOWN: i64 = i64::MIN;
/// Two readings that belong together are not further apart.
const TOGETHER_MS: u64 = 20;

static OFFSET_MS: AtomicI64 = AtomicI64::new(UNKNOWN);
static KEEPER: Mutex<Option<Timekeeper>> = Mutex::new(None);

/// How the wall clock differs from the time this node goes by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockReport {
    pub ahead_ms: i64,
    pub jumps: u64,
}

/// The time, in Unix milliseconds.
#[inline]
pub fn now_ms() -> u64 {
    now_at_ms(clock_ms())
}

/// The time at a reading of [`clock_ms`].
#[inline]
pub fn now_at_ms(clock_ms: u64) -> u64 {
    clock::at(offset_ms(), clock_ms)
}

/// The time, in Unix microseconds.
pub fn now_us() -> u64 {
    let (seconds, nanos) = boot_time();
    let clock_us = seconds * 1_000_000 + nanos / 1000;
    clock_us.saturating_add_signed(offset_ms() * 1000)
}

/// The wall clock of this node alone, without jumps of a moment.
pub fn own_ms() -> u64 {
    let clock_ms = clock_ms();
    with_keeper(|keeper| clock::at(keeper.own_ms(), clock_ms))
}

/// A clock that never goes back or stands still while the machine sleeps: leases are judged by it.
pub fn clock_ms() -> u64 {
    let (seconds, nanos) = boot_time();
    seconds * 1000 + nanos / 1_000_000
}

fn boot_time() -> (u64, u64) {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the struct it is given, and fails for no clock Linux has had since 2011.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    (time.tv_sec as u64, time.tv_nsec as u64)
}

#[inline]
fn offset_ms() -> i64 {
    match OFFSET_MS.load(Ordering::Relaxed) {
        UNKNOWN => with_keeper(|keeper| keeper.offset_ms()),
        known => known,
    }
}

/// Runs `what` on the timekeeper; its offset counts from then on.
#[cold]
fn with_keeper<T>(what: impl FnOnce(&mut Timekeeper) -> T) -> T {
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    let keeper = keeper.get_or_insert_with(|| Timekeeper::new(wall_ms(), clock_ms()));
    let done = what(keeper);
    OFFSET_MS.store(keeper.offset_ms(), Ordering::Relaxed);
    done
}

/// Compares the wall clock with the time this node goes by.
pub(crate) fn check() {
    let before_ms = clock_ms();
    let wall_ms = wall_ms();
    let clock_ms = clock_ms();
    if clock_ms - before_ms > TOGETHER_MS {
        return; // this thread did not run in between
    }
    match with_keeper(|keeper| keeper.on_read(wall_ms, clock_ms)) {
        None => {}
        Some(ClockNotice::Jumped { by_ms }) => tracing::warn!(
            by_ms,
            "the clock of this machine jumped by {} s. Keys do not expire by it: time goes on as before, unless the clock \
             stays there for a minute",
            by_ms / 1000
        ),
        Some(ClockNotice::Returned) => {
            tracing::info!("the clock of this machine is right again");
        }
        Some(ClockNotice::Followed { by_ms }) => tracing::warn!(
            by_ms,
            "the clock of this machine was set by {} s and has stayed there: it is followed, in a cluster as far as most \
             other nodes agree",
            by_ms / 1000
        ),
    }
}

/// Meta told the time of the cluster.
pub(crate) fn on_cluster_time(low_ms: i64, high_ms: i64) {
    with_keeper(|keeper| keeper.on_cluster(low_ms, high_ms));
}

pub fn report() -> ClockReport {
    with_keeper(|keeper| ClockReport {
        ahead_ms: keeper.ahead_ms(),
        jumps: keeper.jumps(),
    })
}

fn wall_ms() -> u64 {
    let now_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64);
    match cfg!(debug_assertions) {
        true => now_ms.saturating_add_signed(skew_ms()),
        false => now_ms,
    }
}

/// `NEOKV_TEST_SKEW_MS`, in builds for tests: a clock that is wrong by so much.
fn skew_ms() -> i64 {
    static SKEW_MS: std::sync::LazyLock<i64> = std::sync::LazyLock::new(|| {
        let given = std::env::var("NEOKV_TEST_SKEW_MS").ok();
        given.and_then(|text| text.parse().ok()).unwrap_or(0)
    });
    *SKEW_MS
}
