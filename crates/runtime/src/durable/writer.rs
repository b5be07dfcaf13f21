//! The writer thread: one fsync for everything that waits, of all regions of the node.
//!
//! Cores hand it jobs and go on. While one write is on its way to the disk the next jobs gather;
//! the slower the disk, the larger the groups. A failed write is final: nothing is known about
//! what is on disk, so every later job fails too (DESIGN §13).
//!
//! On a standalone node it may wait until more clients share a sync ([`super::group_commit`]).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::milestone;
use replica::{LogError, LogStore, LogWrite};
use settings::LogSync;

use super::group_commit::{GroupCommit, Wait, WritingClients};
use super::log_disk::LogDisk;
use crate::clock::now_ms;
use crate::cores::Mailbox;

/// Jobs taken into one write at most; the rest waits for the next.
const GROUP_BYTES: usize = 16 * 1024 * 1024;
/// How soon a disk without room is tried again.
const NO_ROOM: Duration = Duration::from_millis(50);

/// Told, with the writes, whether they are there. It may leave a message in a core's mailbox; the core is woken when
/// all jobs of a group have been told, once.
pub type Written =
    Box<dyn FnOnce(Vec<LogWrite>, Result<(), String>) -> Option<Arc<Mailbox>> + Send>;

/// Log writes of one core that are to be there together or not at all.
pub struct Job {
    pub writes: Vec<LogWrite>,
    /// Called on the writer's thread.
    pub done: Written,
    /// Clients of a standalone node that wait for it.
    pub clients: u32,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    /// Clients that wait for the jobs.
    clients: u32,
    /// Set while the writer sleeps: it is to be woken when there is a job and so many clients wait.
    wake_at_clients: Option<u32>,
    stopping: bool,
}

impl Queue {
    /// Whether the writer has to be woken; says so once.
    fn must_wake(&mut self) -> bool {
        let enough = |clients: &mut u32| *clients <= self.clients && !self.jobs.is_empty();
        self.wake_at_clients.take_if(enough).is_some()
    }
}

struct State {
    queue: Mutex<Queue>,
    filled: Condvar,
    sync: AtomicU8,
    /// `group-commit-delay`.
    delay_us: AtomicU64,
    writing: WritingClients,
    disk: LogDisk,
    writes: AtomicU64,
    syncs: AtomicU64,
    /// How many of `writes` are on disk.
    synced_writes: AtomicU64,
    /// A sync is to come without another write. Set before `writes` counts what it is for, unset after
    /// `synced_writes` does.
    is_sync_ahead: AtomicBool,
    /// The log waits for room on the disk.
    lacks_room: AtomicBool,
    /// How long a write waits for room before it fails, in milliseconds.
    room_timeout_ms: AtomicU64,
}

pub struct LogWriter {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl LogWriter {
    pub fn start(log: Arc<dyn LogStore>, sync: LogSync) -> std::io::Result<LogWriter> {
        let state = Arc::new(State {
            queue: Mutex::default(),
            filled: Condvar::new(),
            sync: AtomicU8::new(sync as u8),
            delay_us: AtomicU64::new(0),
            writing: WritingClients::default(),
            disk: LogDisk::default(),
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            synced_writes: AtomicU64::new(0),
            is_sync_ahead: AtomicBool::new(false),
            lacks_room: AtomicBool::new(false),
            room_timeout_ms: AtomicU64::new(u64::MAX),
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

    /// The longest wait for more clients; none if it is zero.
    pub fn set_group_commit_delay(&self, delay_us: u64) {
        self.state.delay_us.store(delay_us, Ordering::Relaxed);
    }

    /// The clients that are writing, to be counted.
    pub fn writing(&self) -> &WritingClients {
        &self.state.writing
    }

    /// What its disk does.
    pub fn disk(&self) -> &LogDisk {
        &self.state.disk
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

    /// A write that finds no room for longer than this fails, and with it the log.
    pub(super) fn set_room_timeout_ms(&self, timeout_ms: u64) {
        let timeout = &self.state.room_timeout_ms;
        timeout.store(timeout_ms, Ordering::Relaxed);
    }

    /// Whether it waits for room on the disk.
    pub fn lacks_room(&self) -> bool {
        self.state.lacks_room.load(Ordering::Acquire)
    }

    pub fn send(&self, job: Job) {
        milestone("the core sent the log job");
        let mut queue = self.state.lock();
        queue.clients += job.clients;
        queue.jobs.push(job);
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

    /// The jobs in the queue, and whether the wait timed out. Sleeps until there are some and the wait is over, or
    /// until `sync_at`. `None` when the writer is to stop.
    fn take(&self, sync_at: Option<Instant>, mut wait: Option<Wait>) -> Option<(Vec<Job>, bool)> {
        let mut queue = self.lock();
        let mut has_timed_out = false;
        loop {
            if queue.stopping && queue.jobs.is_empty() {
                return None;
            }
            let now = Instant::now();
            if let Some(it) = wait {
                let have_come = queue.stopping || queue.clients >= it.clients;
                if have_come || it.until <= now {
                    wait = None;
                    // Nobody was kept waiting where there is no job.
                    has_timed_out = !have_come && !queue.jobs.is_empty();
                }
            }
            let is_due = sync_at.is_some_and(|at| at <= now);
            if is_due || !queue.jobs.is_empty() && wait.is_none() {
                queue.clients = 0;
                return Some((std::mem::take(&mut queue.jobs), has_timed_out));
            }
            queue.wake_at_clients = Some(wait.map_or(0, |it| it.clients));
            let wake_at = [wait.map(|it| it.until), sync_at];
            queue = match wake_at.into_iter().flatten().min() {
                None => {
                    let waited = self.filled.wait(queue);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    let waited = self.filled.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            queue.wake_at_clients = None;
        }
    }

    /// Tries again as long as there is no room on the disk: nothing was written then. Called by the writer only.
    fn when_there_is_room(
        &self,
        mut write: impl FnMut() -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let began = Instant::now();
        loop {
            let result = write();
            let lacks_room = matches!(result, Err(LogError::Full(_)));
            self.lacks_room.store(lacks_room, Ordering::Release);
            let timeout_ms = self.room_timeout_ms.load(Ordering::Relaxed);
            let is_over = began.elapsed().as_millis() >= u128::from(timeout_ms);
            if !lacks_room || is_over || self.lock().stopping {
                return result;
            }
            std::thread::sleep(NO_ROOM);
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
}

fn run(log: &dyn LogStore, state: &State) {
    let mut failed: Option<String> = None;
    // Set while something was told to be written that is to be on disk a second later, whatever is asked
    // for meanwhile.
    let mut sync_at: Option<Instant> = None;
    let (mut group_commit, mut wait) = (GroupCommit::default(), None);
    while let Some((jobs, has_timed_out)) = state.take(sync_at, wait.take()) {
        if has_timed_out {
            group_commit.note_timeout();
        }
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
            if failed.is_none()
                // A log that waits for room counts as one that does not answer: nobody waits for it for ever.
                && let Err(error) = state.disk.during(|| {
                    let is_synced = sync == LogSync::Always;
                    state.when_there_is_room(|| log.write(&writes, is_synced))
                })
            {
                failed = Some(error.to_string());
            }
            milestone("the log writer wrote the entry");
            match sync {
                LogSync::Always => {
                    sync_at = None; // it covers what was written before
                    let delay = Duration::from_micros(state.delay_us.load(Ordering::Relaxed));
                    let writing = state.writing.count(now_ms());
                    wait = group_commit.after_sync(clients, writing, delay);
                }
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
                && let Err(error) = state
                    .disk
                    .during(|| state.when_there_is_room(|| log.sync()))
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
