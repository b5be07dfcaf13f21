//! The writer thread: one fsync for everything that waits, of all regions of the node.
//!
//! Cores hand it jobs and go on. While one write is on its way to the disk the next jobs gather;
//! the slower the disk, the larger the groups. A failed write is final: nothing is known about
//! what is on disk, so every later job fails too (DESIGN §13).
//!
//! **Cores in step.** Whoever was told that a job is on disk is about to send the next. If another
//! core's job waits already and the writer took it at once, the two cores would take turns for
//! ever, each with a sync for half of the commands. So it first waits until all have listened
//! ([`LogWriter::heard`]), for a small part of the time that a sync takes ([`super::patience`]). A core that is alone has nobody to be
//! in step with.
//!
//! **Clients in company.** On a node alone it also waits until enough clients share a sync ([`super::company`]).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use replica::{LogStore, LogWrite};
use settings::LogSync;

use super::company::{Company, Writers};
use super::patience::{Awaited, Patience, to_be_heard};
use crate::cores::Mailbox;
use crate::shared::now_ms;

/// Jobs taken into one write at most; the rest waits for the next.
const GROUP_BYTES: usize = 16 * 1024 * 1024;

/// Told, with the writes, whether they are there. It may leave a message in a core's mailbox; the core is woken when
/// all jobs of a group have been told, once.
pub type Written =
    Box<dyn FnOnce(Vec<LogWrite>, Result<(), String>) -> Option<Arc<Mailbox>> + Send>;

/// Log writes of one core that are to be there together or not at all.
pub struct Job {
    pub writes: Vec<LogWrite>,
    /// Called on the writer's thread.
    pub done: Written,
    /// As [`LogWriter::heard`] of so many jobs: this is what follows them.
    pub heard: u64,
    /// Clients that wait for it, as far as they are among the [`Writers`].
    pub clients: u32,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    /// Jobs whose senders were told, and those of them who have done what follows from it.
    told: u64,
    heard: u64,
    /// Clients that wait for the jobs.
    clients: u32,
    sleeps: Sleeps,
    stopping: bool,
}

/// When the writer wants to be woken.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Sleeps {
    #[default]
    No,
    UntilJob,
    /// When there is a job and nothing is left to wait for.
    Until(Awaited),
}

impl Queue {
    /// What is still to be waited for.
    fn without(&self, awaited: Awaited) -> Awaited {
        Awaited {
            heard: awaited.heard && self.heard < self.told,
            clients: match self.clients < awaited.clients {
                true => awaited.clients,
                false => 0,
            },
        }
    }

    /// Whether the writer has to be woken; says so once.
    fn must_wake(&mut self) -> bool {
        let wake = match self.sleeps {
            Sleeps::No => false,
            Sleeps::UntilJob => !self.jobs.is_empty(),
            Sleeps::Until(awaited) => {
                !self.jobs.is_empty() && self.without(awaited) == Awaited::default()
            }
        };
        if wake {
            self.sleeps = Sleeps::No;
        }
        wake
    }
}

struct State {
    queue: Mutex<Queue>,
    filled: Condvar,
    sync: AtomicU8,
    /// There is more than one who sends jobs.
    has_several: bool,
    writers: Writers,
    writes: AtomicU64,
    syncs: AtomicU64,
    /// How many of `writes` are on disk.
    synced_writes: AtomicU64,
    /// A sync is to come without another write. Set before `writes` counts what it is for, unset after
    /// `synced_writes` does.
    is_sync_ahead: AtomicBool,
}

pub struct LogWriter {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl LogWriter {
    pub fn start(
        log: Arc<dyn LogStore>,
        sync: LogSync,
        has_several: bool,
    ) -> std::io::Result<LogWriter> {
        let state = Arc::new(State {
            queue: Mutex::default(),
            filled: Condvar::new(),
            sync: AtomicU8::new(sync as u8),
            has_several,
            writers: Writers::default(),
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            synced_writes: AtomicU64::new(0),
            is_sync_ahead: AtomicBool::new(false),
        });
        let shared = state.clone();
        let thread = std::thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || run(&*log, &shared))?;
        Ok(LogWriter {
            state,
            thread: Some(thread),
        })
    }

    pub fn set_sync(&self, sync: LogSync) {
        self.state.sync.store(sync as u8, Ordering::Relaxed);
    }

    /// Writes and syncs so far.
    pub fn counts(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.state.writes), read(&self.state.syncs))
    }

    /// A position behind everything that was told to be written so far, for [`LogWriter::is_synced`].
    pub fn position(&self) -> u64 {
        self.state.writes.load(Ordering::Acquire)
    }

    /// Whether all before a position is on disk; `None` if not, and nothing that is on its way will bring it there: with
    /// `log-sync no`, or because the log failed.
    pub fn is_synced(&self, position: u64) -> Option<bool> {
        // In this order: a sync that is not ahead any more is counted.
        let is_ahead = self.state.is_sync_ahead.load(Ordering::Acquire);
        let is_synced = self.state.synced_writes.load(Ordering::Acquire) >= position;
        (is_synced || is_ahead).then_some(is_synced)
    }

    /// The clients that write, to be counted.
    pub fn writers(&self) -> &Writers {
        &self.state.writers
    }

    pub fn send(&self, job: Job) {
        let mut queue = self.state.lock();
        queue.heard += job.heard;
        queue.clients += job.clients;
        queue.jobs.push(job);
        self.state.wake_writer(queue);
    }

    /// Whoever sent these jobs knows that they are on disk, and nothing follows them now. Every job
    /// counts once, here or in the job that follows it; what is never heard costs time only.
    pub fn heard(&self, jobs: u64) {
        let mut queue = self.state.lock();
        queue.heard += jobs;
        self.state.wake_writer(queue);
    }

    /// Writes what waits, syncs it and ends the thread.
    pub fn stop(&mut self) {
        self.state.lock().stopping = true;
        self.state.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.stop();
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync(&self) -> LogSync {
        match self.sync.load(Ordering::Relaxed) {
            0 => LogSync::Always,
            1 => LogSync::EverySecond,
            _ => LogSync::No,
        }
    }

    fn wake_writer(&self, mut queue: MutexGuard<'_, Queue>) {
        let wake = queue.must_wake();
        drop(queue);
        if wake {
            self.filled.notify_one();
        }
    }

    /// The jobs that wait; sleeps until there are some, or `until`, and while there is something to be patient for. `None` when it is
    /// over.
    fn take(&self, until: Option<Instant>, patience: &mut Patience) -> Option<Vec<Job>> {
        let mut queue = self.lock();
        loop {
            let is_due = until.is_some_and(|at| at <= Instant::now());
            if queue.stopping && queue.jobs.is_empty() {
                return None;
            }
            patience.awaited = match queue.stopping {
                true => Awaited::default(),
                false => queue.without(patience.awaited),
            };
            let wake_at = patience.end(Instant::now(), !queue.jobs.is_empty());
            if is_due || !queue.jobs.is_empty() && wake_at.is_none() {
                queue.clients = 0;
                return Some(std::mem::take(&mut queue.jobs));
            }
            queue.sleeps = match wake_at {
                Some(_) => Sleeps::Until(patience.awaited),
                None => Sleeps::UntilJob,
            };
            let wake_at = [wake_at, until].into_iter().flatten().min();
            queue = match wake_at {
                None => {
                    let waited = self.filled.wait(queue);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    let waited = self.filled.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            queue.sleeps = Sleeps::No;
        }
    }

    /// After a sync, which covers so many writes. Called by the writer only.
    fn on_synced(&self, writes: u64, ok: bool) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if ok {
            self.synced_writes.store(writes, Ordering::Release);
        }
    }

    /// Called by the writer only.
    fn set_sync_ahead(&self, is_ahead: bool) {
        self.is_sync_ahead.store(is_ahead, Ordering::Release);
    }

    fn tell(&self, jobs: usize) {
        let mut queue = self.lock();
        queue.told += jobs as u64;
    }
}

fn run(log: &dyn LogStore, state: &State) {
    let mut failed: Option<String> = None;
    // Set while something was told to be written that is to be on disk a second later, whatever is asked
    // for meanwhile.
    let mut sync_at: Option<Instant> = None;
    let (mut patience, mut company) = (Patience::default(), Company::default());
    let mut last_done = Instant::now();
    while let Some(jobs) = state.take(sync_at, &mut patience) {
        if let Some(came) = patience.came() {
            company.learn(came);
        }
        patience = Patience::default();
        let sync = state.sync();
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let mut writes: Vec<LogWrite> = Vec::new();
            let mut ends: Vec<(usize, _)> = Vec::new();
            let (mut bytes, mut clients) = (0, 0);
            while let Some(job) = jobs.next_if(|_| bytes < GROUP_BYTES) {
                clients += job.clients;
                bytes += job
                    .writes
                    .iter()
                    .map(node::outgoing::size_bytes)
                    .sum::<usize>();
                writes.extend(job.writes);
                ends.push((writes.len(), job.done));
            }
            let began = Instant::now();
            if failed.is_none()
                && let Err(error) = log.write(&writes, sync == LogSync::Always)
            {
                failed = Some(error.to_string());
            }
            let done = Instant::now();
            let took = done - began;
            company.note(clients, done - last_done, took);
            last_done = done;
            patience = Patience::default();
            if state.has_several
                && let Some(wait) = to_be_heard(took)
            {
                patience.wait_until_heard(wait);
            }
            if sync == LogSync::Always
                && let Some((clients, wait)) = company.wanted(state.writers.count(now_ms()), took)
            {
                patience.wait_for_clients(clients, wait);
            }
            match sync {
                LogSync::Always => sync_at = None, // it covers what was written before
                LogSync::EverySecond => {
                    sync_at.get_or_insert_with(|| Instant::now() + Duration::from_secs(1));
                }
                LogSync::No => {}
            }
            let written = state.writes.load(Ordering::Relaxed) + 1;
            if sync == LogSync::Always {
                state.on_synced(written, failed.is_none());
            }
            state.set_sync_ahead(sync_at.is_some() && failed.is_none());
            state.writes.store(written, Ordering::Release);
            state.tell(ends.len());
            let mut rest = writes.into_iter();
            let mut from = 0;
            let mut sleepers: Vec<Arc<Mailbox>> = Vec::new();
            for (end, done) in ends {
                let result = failed.clone().map_or(Ok(()), Err);
                let told = done(rest.by_ref().take(end - from).collect(), result);
                from = end;
                if let Some(mailbox) = told
                    && !sleepers.iter().any(|other| Arc::ptr_eq(other, &mailbox))
                {
                    sleepers.push(mailbox);
                }
            }
            sleepers.iter().for_each(|mailbox| mailbox.wake_sleeper());
        }
        if sync_at.is_some_and(|at| at <= Instant::now()) {
            sync_at = None;
            if failed.is_none()
                && let Err(error) = log.sync()
            {
                failed = Some(error.to_string());
            }
            state.on_synced(state.writes.load(Ordering::Relaxed), failed.is_none());
            state.set_sync_ahead(false);
        }
    }
    if failed.is_none() {
        let _ = log.sync();
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
