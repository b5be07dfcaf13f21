//! What the node asks of the system's scheduler. Failure costs speed only.
//!
//! **Batch scheduling.** A command of a client wakes the core, the core wakes the log writer, a
//! message wakes a core of another node, and so on. On busy CPUs the system by default lets whoever
//! is woken go first, so each of them runs for one small thing and is put aside for the next. As
//! `SCHED_BATCH` a thread that is woken waits until the running one sleeps or its time is over, and
//! finds more to do at once: larger entries, fewer syncs and messages (decision 20 has figures). An
//! idle CPU takes it at once either way.

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

/// Lets threads that are woken not preempt others: this one and all it starts from now on.
pub fn schedule_as_batch() {
    // SAFETY: the parameter is plain data that the call reads.
    unsafe {
        let parameter: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameter);
    }
}
