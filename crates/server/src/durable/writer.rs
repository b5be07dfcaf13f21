//! The writer thread: one fsync for everything that waits, of all regions of the node.
//!
//! Cores hand it jobs and go on. While one write is on its way to the disk the next jobs gather;
//! the slower the disk, the larger the groups. A failed write is final: nothing is known about
//! what is on disk, so every later job fails too (DESIGN §13).
//!
//! **Cores in step.** Whoever was told that a job is on disk is about to send the next. If another
//! core's job waits already and the writer took it at once, the two cores would take turns for
//! ever, each with a sync for half of the commands. So it first waits until all have listened
//! ([`LogWriter::heard`]), for a small part of the time that a sync takes ([`patience`]). A core that is alone has nobody to be
//! in step with.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use replica::{LogStore, LogWrite};

use crate::cores::Mailbox;

/// Jobs taken into one write at most; the rest waits for the next.
const GROUP_BYTES: usize = 16 * 1024 * 1024;

/// How long a group may wait for those who were told last: this part of the time the last write took.
const PATIENCE_PART: u32 = 4;
/// A wait is not worth less than this (a timer is no more exact), and never takes more.
const PATIENCE: std::ops::Range<Duration> = Duration::from_micros(50)..Duration::from_micros(500);

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
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    /// Jobs whose senders were told, and those of them who have done what follows from it.
    told: u64,
    heard: u64,
    /// The writer sleeps and wants to be woken for a job, or only when all have heard.
    sleeps: Sleeps,
    stopping: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Sleeps {
    #[default]
    No,
    UntilJob,
    UntilHeard,
}

impl Queue {
    fn all_heard(&self) -> bool {
        self.heard >= self.told
    }

    /// Whether the writer has to be woken; says so once.
    fn must_wake(&mut self) -> bool {
        let wake = match self.sleeps {
            Sleeps::No => false,
            Sleeps::UntilJob => !self.jobs.is_empty(),
            Sleeps::UntilHeard => !self.jobs.is_empty() && self.all_heard(),
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
    writes: AtomicU64,
    syncs: AtomicU64,
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
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
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

    pub fn send(&self, job: Job) {
        let mut queue = self.state.lock();
        queue.heard += job.heard;
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

    /// The jobs that wait; sleeps until there are some, or `until`, and for at most `patience` until
    /// all have heard of the last ones. `None` when it is over.
    fn take(&self, until: Option<Instant>, patience: Option<Duration>) -> Option<Vec<Job>> {
        let mut patient_until = patience.map(|patience| Instant::now() + patience);
        let mut queue = self.lock();
        loop {
            if queue.all_heard() || queue.stopping {
                patient_until = None;
            }
            if !queue.jobs.is_empty() && patient_until.is_none() {
                return Some(std::mem::take(&mut queue.jobs));
            }
            if queue.stopping {
                return None;
            }
            let now = Instant::now();
            let wake_at = match (patient_until, until) {
                (Some(at), _) if at <= now => {
                    // Somebody is busy with other things: it is not waited for.
                    patient_until = None;
                    continue;
                }
                (_, Some(at)) if at <= now => return Some(std::mem::take(&mut queue.jobs)),
                (Some(at), Some(other)) => Some(at.min(other)),
                (at, other) => at.or(other),
            };
            queue.sleeps = match patient_until {
                Some(_) => Sleeps::UntilHeard,
                None => Sleeps::UntilJob,
            };
            queue = match wake_at {
                None => {
                    let waited = self.filled.wait(queue);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(at) => {
                    let waited = self.filled.wait_timeout(queue, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            queue.sleeps = Sleeps::No;
        }
    }

    fn tell(&self, jobs: usize) {
        let mut queue = self.lock();
        queue.told += jobs as u64;
    }
}

/// How long to wait for those who were told, after a write that took so long; `None`: not at all.
fn patience(took: Duration) -> Option<Duration> {
    let patience = took / PATIENCE_PART;
    (patience >= PATIENCE.start).then(|| patience.min(PATIENCE.end))
}

fn run(log: &dyn LogStore, state: &State) {
    let mut failed: Option<String> = None;
    // Set while something written is not synced.
    let mut sync_at: Option<Instant> = None;
    let mut patient = None;
    while let Some(jobs) = state.take(sync_at, patient) {
        let sync = state.sync();
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let mut writes: Vec<LogWrite> = Vec::new();
            let mut ends: Vec<(usize, _)> = Vec::new();
            let mut bytes = 0;
            while let Some(job) = jobs.next_if(|_| bytes < GROUP_BYTES) {
                bytes += job.writes.iter().map(size_bytes).sum::<usize>();
                writes.extend(job.writes);
                ends.push((writes.len(), job.done));
            }
            let began = Instant::now();
            if failed.is_none()
                && let Err(error) = log.write(&writes, sync == LogSync::Always)
            {
                failed = Some(error.to_string());
            }
            patient = patience(began.elapsed()).filter(|_| state.has_several);
            state.writes.fetch_add(1, Ordering::Relaxed);
            if sync == LogSync::Always {
                state.syncs.fetch_add(1, Ordering::Relaxed);
            }
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
            if sync != LogSync::Always {
                sync_at.get_or_insert_with(|| Instant::now() + Duration::from_secs(1));
            }
        }
        if sync_at.is_some_and(|at| at <= Instant::now()) {
            sync_at = None;
            state.syncs.fetch_add(1, Ordering::Relaxed);
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

/// Of the entries.
pub(super) fn size_bytes(write: &LogWrite) -> usize {
    write.entries.iter().map(|entry| entry.data.len()).sum()
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
            reset: None,
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
                None
            };
            writer.send(Job {
                writes: vec![write],
                done: Box::new(done),
                heard: 0,
            });
        }
        told.iter().take(count).collect()
    }

    #[test]
    fn what_is_told_is_on_disk_and_one_sync_serves_many() {
        let log = Arc::new(MapLog::new());
        let writer = LogWriter::start(log.clone(), LogSync::Always, true).expect("a thread");
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
        let mut writer =
            LogWriter::start(log.clone(), LogSync::EverySecond, true).expect("a thread");
        assert!(send(&writer, vec![write(1, 1)])[0].1.is_ok());
        writer.stop();
        log.crash();
        assert_eq!(log.span(1), Some((1, 1)));
    }

    fn waiting(told: u64) -> State {
        let job = Job {
            writes: vec![write(1, 1)],
            done: Box::new(|_, _| None),
            heard: 0,
        };
        let queue = Queue {
            jobs: vec![job],
            told,
            ..Queue::default()
        };
        State {
            queue: Mutex::new(queue),
            filled: Condvar::new(),
            sync: AtomicU8::new(0),
            has_several: true,
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        }
    }

    #[test]
    fn a_group_waits_for_those_who_were_told_but_not_for_long() {
        let (state, began) = (waiting(1), Instant::now());
        let patience = Duration::from_millis(20);
        let taken = state.take(None, Some(patience)).expect("not over");
        assert_eq!(taken.len(), 1);
        assert!(began.elapsed() >= patience);
        // Without patience, or if all have heard, it goes at once.
        assert_eq!(waiting(1).take(None, None).map(|jobs| jobs.len()), Some(1));
        let long = Some(Duration::from_secs(3600));
        assert_eq!(waiting(0).take(None, long).map(|jobs| jobs.len()), Some(1));
    }

    #[test]
    fn a_group_goes_when_the_last_has_heard() {
        let writer = LogWriter {
            state: Arc::new(waiting(2)),
            thread: None,
        };
        let state = writer.state.clone();
        let take = std::thread::spawn(move || {
            let taken = state.take(None, Some(Duration::from_secs(3600)));
            taken.map(|jobs| jobs.len())
        });
        writer.heard(1);
        writer.send(Job {
            writes: vec![write(2, 1)],
            done: Box::new(|_, _| None),
            heard: 1,
        });
        assert_eq!(take.join().expect("taken"), Some(2));
    }

    #[test]
    fn patience_is_a_part_of_a_sync() {
        let us = Duration::from_micros;
        assert_eq!(patience(us(30)), None);
        assert_eq!(patience(us(800)), Some(us(200)));
        assert_eq!(patience(us(50_000)), Some(us(500)));
    }

    #[test]
    fn a_failure_is_final() {
        let log = Arc::new(MapLog::new());
        let writer = LogWriter::start(log.clone(), LogSync::Always, true).expect("a thread");
        assert!(send(&writer, vec![write(1, 1)])[0].1.is_ok());
        log.break_with(LogError::Failed("no disk".into()));
        assert!(send(&writer, vec![write(1, 2)])[0].1.is_err());
        assert!(send(&writer, vec![write(1, 3)])[0].1.is_err());
    }
}
