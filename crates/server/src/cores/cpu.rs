//! Which CPU a core runs on.

/// Keeps the thread on one CPU of those the process may use. Failure costs speed only.
pub(super) fn pin_to_cpu(nth: usize) {
    // SAFETY: the set is plain data that the calls fill and read within its size; the macros of
    // libc index it below CPU_SETSIZE only.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if libc::sched_getaffinity(0, size, &mut allowed) != 0 {
            return;
        }
        let cpu = (0..libc::CPU_SETSIZE as usize)
            .filter(|&cpu| libc::CPU_ISSET(cpu, &allowed))
            .nth(nth);
        if let Some(cpu) = cpu {
            let mut only: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut only);
            libc::sched_setaffinity(0, size, &only);
        }
    }
}
