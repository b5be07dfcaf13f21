//! Threads whose work no client waits for step back behind those that serve.
//!
//! Rows on their way to RocksDB and flushes are long stretches of work; a core, or the log writer, that is woken
//! meanwhile on a machine with few CPUs would wait for milliseconds until its turn comes, and with it every client. With
//! a weight of a tenth such work still goes on beside programs that take all they can get: what must not happen is that
//! rows pile up because nobody writes them.

/// About a tenth of the weight of other threads.
const NICE: libc::c_int = 10;

/// Of the calling thread, and of those it starts. Failure costs speed only.
pub(crate) fn step_back() {
    // SAFETY: the call takes plain numbers; zero is the calling thread.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
}
