//! The thread that writes the log: group commit over all regions and cores of the node.
//!
//! ```text
//!   core 0 ──┐                       ┌── done(tokens) ──> cores
//!   core 1 ──┼─> queue ─> one write ─┤
//!   core 2 ──┘            one sync   └── while it syncs, the queue fills for the next round
//! ```
//!
//! Everything that waits goes into one record and one sync: the longer a sync takes, the more it
//! carries. A core never waits: a full queue gives the job back.
//!
//! Invariants
//! - Jobs are written, and told done, in the order they were submitted.
//! - The writes of one job are in one record: all there after a crash or none.
//! - With [`SyncMode::Always`] "done" means synced. Otherwise it means written, and the sync follows
//!   within a second, or when the system sees fit.
//! - After a failure nothing is written any more, and every job is told so.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use replica::{LogError, LogStore, LogWrite};

/// Jobs and bytes that may wait; beyond, cores keep theirs.
const QUEUE_JOBS: usize = 16_384;
const QUEUE_BYTES: usize = 256 << 20;
/// One record: large enough for any pipeline, small enough that nobody waits long behind it.
const RECORD_BYTES: usize = 16 << 20;
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// When the log is synced (`--log-sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SyncMode {
    /// Before a job is done: what every promise is made under.
    Always,
    /// Once a second.
    EverySecond,
    /// When the system does.
    No,
}

impl SyncMode {
    fn from_u8(byte: u8) -> SyncMode {
        match byte {
            1 => SyncMode::EverySecond,
            2 => SyncMode::No,
            _ => SyncMode::Always,
        }
    }
}

/// Writes that must be on disk together.
#[derive(Debug)]
pub struct Job {
    pub writes: Vec<LogWrite>,
    /// Given back when it is done.
    pub token: u64,
}

/// Jobs that were written together.
#[derive(Debug)]
pub struct Done {
    /// In the order they were submitted. Empty if a sync failed between jobs.
    pub tokens: Vec<u64>,
    /// The writes of all these jobs, in order: whose numbers are to be told to which region.
    pub writes: Vec<LogWrite>,
    pub result: Result<(), LogError>,
}

/// The handle cores submit to. Dropped, it writes what waits and ends the thread.
pub struct LogWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    mode: AtomicU8,
    failed: AtomicBool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Job, usize)>,
    bytes: usize,
    is_asleep: bool,
    is_ending: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogWriter {
    /// `done` is called on the writer's thread and must not block it.
    pub fn start(
        log: Arc<dyn LogStore>,
        mode: SyncMode,
        done: Box<dyn Fn(Done) + Send>,
    ) -> std::io::Result<LogWriter> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            mode: AtomicU8::new(mode as u8),
            failed: AtomicBool::new(false),
        });
        let writing = Writing {
            shared: shared.clone(),
            log,
            done,
            sync_at: None,
        };
        let thread = std::thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || writing.run())?;
        Ok(LogWriter {
            shared,
            thread: Some(thread),
        })
    }

    /// Hands a job over; gives it back if the queue is full (try again when something is done).
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        let bytes = size_of_job(&job);
        let mut queue = self.shared.queue();
        let is_full = queue.jobs.len() >= QUEUE_JOBS || queue.bytes + bytes > QUEUE_BYTES;
        if is_full && !queue.jobs.is_empty() {
            return Err(job);
        }
        queue.bytes += bytes;
        queue.jobs.push_back((job, bytes));
        // A wake-up costs a system call: only when the thread sleeps, and only once.
        let wake = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if wake {
            self.shared.wake.notify_one();
        }
        Ok(())
    }

    /// From the next write on.
    pub fn set_mode(&self, mode: SyncMode) {
        self.shared.mode.store(mode as u8, Ordering::Relaxed);
    }

    pub fn mode(&self) -> SyncMode {
        SyncMode::from_u8(self.shared.mode.load(Ordering::Relaxed))
    }

    /// Whether a write or sync has failed: nothing is written any more.
    pub fn failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.shared.queue().is_ending = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Writing {
    shared: Arc<Shared>,
    log: Arc<dyn LogStore>,
    done: Box<dyn Fn(Done) + Send>,
    /// When what was written must be synced; `None` if everything is, or nobody asks for it.
    sync_at: Option<Instant>,
}

impl Writing {
    fn run(mut self) {
        loop {
            let (tokens, writes) = match self.take_jobs() {
                Wait::Jobs(tokens, writes) => (tokens, writes),
                Wait::SyncDue => {
                    self.sync();
                    continue;
                }
                Wait::End => break,
            };
            let mode = SyncMode::from_u8(self.shared.mode.load(Ordering::Relaxed));
            let result = self.log.write(&writes, mode == SyncMode::Always);
            match mode {
                SyncMode::Always => self.sync_at = None,
                // `No` too: the mode may change, and the end of the thread asks.
                SyncMode::EverySecond | SyncMode::No => {
                    self.sync_at
                        .get_or_insert_with(|| Instant::now() + SYNC_EVERY);
                }
            }
            if result.is_err() {
                self.shared.failed.store(true, Ordering::Release);
            }
            (self.done)(Done {
                tokens,
                writes,
                result,
            });
            if self.mode_syncs() && self.sync_at.is_some_and(|at| at <= Instant::now()) {
                self.sync();
            }
        }
        if self.sync_at.is_some() {
            self.sync();
        }
    }

    fn mode_syncs(&self) -> bool {
        self.shared.mode.load(Ordering::Relaxed) != SyncMode::No as u8
    }

    fn sync(&mut self) {
        self.sync_at = None;
        if self.shared.failed.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = self.log.sync() {
            self.shared.failed.store(true, Ordering::Release);
            (self.done)(Done {
                tokens: Vec::new(),
                writes: Vec::new(),
                result: Err(error),
            });
        }
    }

    /// Waits for jobs and takes all that wait, up to the size of a record.
    fn take_jobs(&self) -> Wait {
        let mut queue = self.shared.queue();
        while queue.jobs.is_empty() {
            if queue.is_ending {
                return Wait::End;
            }
            let due = self.sync_at.filter(|_| self.mode_syncs());
            let wait = match due.map(|at| at.checked_duration_since(Instant::now())) {
                Some(None) => return Wait::SyncDue,
                Some(Some(left)) => Some(left),
                None => None,
            };
            queue.is_asleep = true;
            queue = match wait {
                Some(left) => {
                    let woken = self.shared.wake.wait_timeout(queue, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = self.shared.wake.wait(queue);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
            queue.is_asleep = false;
        }
        let (mut tokens, mut writes, mut taken) = (Vec::new(), Vec::new(), 0);
        while let Some((_, bytes)) = queue.jobs.front() {
            if taken > 0 && taken + bytes > RECORD_BYTES {
                break;
            }
            let Some((job, bytes)) = queue.jobs.pop_front() else {
                break;
            };
            queue.bytes -= bytes;
            taken += bytes;
            tokens.push(job.token);
            writes.extend(job.writes);
        }
        Wait::Jobs(tokens, writes)
    }
}

enum Wait {
    Jobs(Vec<u64>, Vec<LogWrite>),
    SyncDue,
    End,
}

fn size_of_job(job: &Job) -> usize {
    let writes = job.writes.iter();
    writes
        .flat_map(|write| &write.entries)
        .map(|entry| entry.data.len() + entry.context.len() + 32)
        .sum()
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
