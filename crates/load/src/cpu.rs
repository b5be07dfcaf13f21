//! What processes spent: user and system time of all their threads, as the kernel counts it.
//!
//! By the clock that the kernel has for every process, in nanoseconds: `/proc` shows hundredths of a second, which is too
//! coarse for a window of one.

/// Seconds that a process has used so far; none if it is gone.
pub fn seconds_of(pid: u32) -> Option<f64> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both calls write to one value each, of the type they expect, and keep no pointer to it.
    let read = unsafe {
        libc::clock_getcpuclockid(pid, &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    read.then_some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn counts_what_is_used_and_knows_who_is_gone() {
        let own = || seconds_of(std::process::id()).expect("this process");
        let (before, begin) = (own(), Instant::now());
        while begin.elapsed() < Duration::from_millis(20) {}
        assert!(own() > before);
        assert_eq!(seconds_of(999_999_999), None);
    }
}
