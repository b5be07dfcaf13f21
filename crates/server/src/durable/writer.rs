//! The writer thread: one fsync for everything that waits, of all regions of the node.
//!
//! Cores hand it jobs and go on. While one write is on its way to the disk the next jobs gather;
//! the slower the disk, the larger the groups. A failed write is final: nothing is known about
//! what is on disk, so every later job fails too (DESIGN §13).

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use replica::{LogStore, LogWrite};

/// Jobs taken into one write at most; the rest waits for the next.
const GROUP_BYTES: usize = 16 * 1024 * 1024;

/// When an entry counts as kept (`log-sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSync {
    /// When it is on disk.
    Always,
    /// When it is written; it is on disk a second later.
    EverySecond,
    /// When it is written; the system decides when it is on disk.
    No,
}

/// Told, with the writes, whether they are there.
pub type Written = Box<dyn FnOnce(Vec<LogWrite>, Result<(), String>) + Send>;

/// Log writes of one core that are to be there together or not at all.
pub struct Job {
    pub writes: Vec<LogWrite>,
    /// Called on the writer's thread.
    pub done: Written,
}

struct Queue {
    jobs: Vec<Job>,
    stopping: bool,
}

struct State {
    queue: Mutex<Queue>,
    filled: Condvar,
    sync: AtomicU8,
}

pub struct LogWriter {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl LogWriter {
    pub fn start(log: Arc<dyn LogStore>, sync: LogSync) -> std::io::Result<LogWriter> {
        let state = Arc::new(State {
            queue: Mutex::new(Queue {
                jobs: Vec::new(),
                stopping: false,
            }),
            filled: Condvar::new(),
            sync: AtomicU8::new(sync as u8),
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

    pub fn send(&self, job: Job) {
        let mut queue = self.state.lock();
        queue.jobs.push(job);
        let first = queue.jobs.len() == 1;
        drop(queue);
        if first {
            self.state.filled.notify_one();
        }
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

    /// The jobs that wait; sleeps until there are some, or `until`. `None` when it is over.
    fn take(&self, until: Option<Instant>) -> Option<Vec<Job>> {
        let mut queue = self.lock();
        loop {
            if !queue.jobs.is_empty() {
                return Some(std::mem::take(&mut queue.jobs));
            }
            if queue.stopping {
                return None;
            }
            queue = match until {
                None => {
                    let waited = self.filled.wait(queue);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Some(Vec::new());
                    }
                    let waited = self.filled.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

fn run(log: &dyn LogStore, state: &State) {
    let mut failed: Option<String> = None;
    // Set while something written is not synced.
    let mut sync_at: Option<Instant> = None;
    while let Some(jobs) = state.take(sync_at) {
        let sync = state.sync();
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let mut writes: Vec<LogWrite> = Vec::new();
            let mut ends: Vec<(usize, _)> = Vec::new();
            let mut bytes = 0;
            while let Some(job) = jobs.next_if(|_| bytes < GROUP_BYTES) {
                bytes += size_of_writes(&job.writes);
                writes.extend(job.writes);
                ends.push((writes.len(), job.done));
            }
            if failed.is_none()
                && let Err(error) = log.write(&writes, sync == LogSync::Always)
            {
                failed = Some(error.to_string());
            }
            let mut rest = writes.into_iter();
            let mut from = 0;
            for (end, done) in ends {
                let result = failed.clone().map_or(Ok(()), Err);
                done(rest.by_ref().take(end - from).collect(), result);
                from = end;
            }
            if sync != LogSync::Always {
                sync_at.get_or_insert_with(|| Instant::now() + Duration::from_secs(1));
            }
        }
        if sync_at.is_some_and(|at| at <= Instant::now()) {
            sync_at = None;
            if sync == LogSync::EverySecond
                && failed.is_none()
                && let Err(error) = log.sync()
            {
                failed = Some(error.to_string());
            }
        }
    }
    if failed.is_none() && sync_at.is_some() {
        let _ = log.sync();
    }
}

fn size_of_writes(writes: &[LogWrite]) -> usize {
    let entries = writes.iter().flat_map(|write| &write.entries);
    entries.map(|entry| entry.data.len()).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use replica::{Entry, LogError, MapLog};

    use super::*;

    fn write(region: u64, index: u64) -> LogWrite {
        let entry = Entry {
            index,
            term: 1,
            ..Entry::default()
        };
        LogWrite {
            region,
            number: index,
            entries: vec![entry],
            hard_state: None,
        }
    }

    /// Sends one job per write; what each was told, in the order it was.
    fn send(writer: &LogWriter, writes: Vec<LogWrite>) -> Vec<(u64, Result<(), String>)> {
        let (tell, told) = mpsc::channel();
        let count = writes.len();
        for write in writes {
            let tell = tell.clone();
            let done = move |writes: Vec<LogWrite>, result| {
                tell.send((writes[0].number, result)).expect("heard");
            };
            writer.send(Job {
                writes: vec![write],
                done: Box::new(done),
            });
        }
        told.iter().take(count).collect()
    }

    #[test]
    fn what_is_told_is_on_disk_and_one_sync_serves_many() {
        let log = Arc::new(MapLog::new());
        let writer = LogWriter::start(log.clone(), LogSync::Always).expect("a thread");
        let told = send(&writer, (1..=1000).map(|index| write(1, index)).collect());
        assert!(told.iter().all(|(_, result)| result.is_ok()));
        assert!(told.iter().map(|(number, _)| *number).eq(1..=1000));
        assert!(log.syncs() <= 1000);
        log.crash();
        assert_eq!(log.span(1), Some((1, 1000)));
    }

    #[test]
    fn without_syncing_a_crash_loses_and_stopping_keeps() {
        let log = Arc::new(MapLog::new());
        let mut writer = LogWriter::start(log.clone(), LogSync::EverySecond).expect("a thread");
        assert!(send(&writer, vec![write(1, 1)])[0].1.is_ok());
        writer.stop();
        log.crash();
        assert_eq!(log.span(1), Some((1, 1)));
    }

    #[test]
    fn a_failure_is_final() {
        let log = Arc::new(MapLog::new());
        let writer = LogWriter::start(log.clone(), LogSync::Always).expect("a thread");
        assert!(send(&writer, vec![write(1, 1)])[0].1.is_ok());
        log.break_with(LogError::Failed("no disk".into()));
        assert!(send(&writer, vec![write(1, 2)])[0].1.is_err());
        assert!(send(&writer, vec![write(1, 3)])[0].1.is_err());
    }
}
