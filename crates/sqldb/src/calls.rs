//! The databases behind tables, off the cores.
//!
//! ```text
//!   core ── load, flush, scan, shape ──► Sql ──► thread `sql`, one event loop ──► Database ──► PostgreSQL, MySQL, SQLite
//!     ▲                                                      │
//!     └───────────────── done(answer), on that thread ◄──────┘
//! ```
//!
//! The one idea: cores never wait for SQL. A call returns at once; its answer is a callback, which runs on the thread `sql`
//! and should only pass the answer on.
//!
//! **Invariants.** Every call is answered exactly once: by the database, by the time limit ([`Fault::Transient`]), because too many
//! wait, or because the node stops ([`Answer`] answers when it is dropped). The thread begins with the first call: a node without
//! tables has none. Write-back never takes the last connections: a miss has a client who waits.
//!
//! It decides nothing: no retries, no back-off. That is the leader's (`table::leader`).

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use settings::SqlConfig;
use table::leader::{Fault, Flush, Read, Wrote};
use table::{Field, Table};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

mod backend;
mod counters;

pub use backend::Backend;
pub use counters::{BOUNDS_US, Counters, Histogram, Last, OfTable};

/// Calls that may be under way or wait, over all backends. Leaders ask for a few statements each; this is for what they are not expected to do.
const CALLS_MAX: usize = 16 * 1024;

pub type Done<T> = Box<dyn FnOnce(Result<T, Fault>) + Send>;
/// Whether the table in SQL is still the one that is meant; see [`crate::Meant`].
pub type IsMeant = Box<dyn Fn(&Table) -> bool + Send + Sync>;

/// Rows of a scan, deleted ones included, with their negative version.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scan {
    /// As many as asked for, unless they are large or there are no more.
    pub rows: Vec<table::scan::Scanned>,
    /// Behind the last of these.
    pub more: bool,
    /// Rows on the way that no client can name or that hold what no table of ours holds: put there by somebody else, and left out.
    pub skipped: usize,
}

/// A change of an SQL table, or a question about it. All may be asked twice.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Makes it, or finds one that fits.
    Create,
    /// Whether it is there and fits.
    Check,
    AddField(Field),
    DropField(String),
    /// With all its rows.
    Drop,
}

pub struct Sql {
    backends: BTreeMap<String, Arc<Backend>>,
    calls: Arc<AtomicUsize>,
    stopped: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

struct Thread {
    handle: Handle,
    /// Dropped, it ends the loop.
    end: oneshot::Sender<()>,
    join: JoinHandle<()>,
}

impl Sql {
    pub fn new(config: &SqlConfig) -> Sql {
        let backends = config.backends.iter().map(|(name, url)| {
            let backend = Backend::new(name, url, config);
            (name.clone(), Arc::new(backend))
        });
        Sql {
            backends: backends.collect(),
            calls: Arc::default(),
            stopped: AtomicBool::new(false),
            thread: Mutex::new(None),
        }
    }

    pub fn backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        self.backends.values()
    }

    pub fn backend(&self, name: &str) -> Option<&Arc<Backend>> {
        self.backends.get(name)
    }

    /// Calls under way or waiting.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// What SQL has of `keys`, in their order.
    pub fn load(&self, table: Arc<Table>, keys: Vec<Arc<str>>, done: Done<Vec<Read>>) {
        self.call(table, done, |backend, table| async move {
            backend.load(&table, &keys).await
        });
    }

    /// What became of each row, in their order.
    pub fn flush(
        &self,
        table: Arc<Table>,
        rows: Vec<Flush>,
        is_meant: IsMeant,
        done: Done<Vec<Wrote>>,
    ) {
        self.call(table, done, |backend, table| async move {
            backend.flush(&table, rows, &|| is_meant(&table)).await
        });
    }

    /// `limit` rows of `slots` behind `after`, in the order of their keys' bytes; fewer at the end, or if they are large.
    pub fn scan(
        &self,
        table: Arc<Table>,
        after: Option<Arc<str>>,
        limit: usize,
        slots: RangeInclusive<u16>,
        done: Done<Scan>,
    ) {
        self.call(table, done, move |backend, table| async move {
            backend.scan(&table, after, limit, slots).await
        });
    }

    pub fn shape(&self, table: Arc<Table>, shape: Shape, done: Done<()>) {
        self.call(table, done, |backend, table| async move {
            backend.shape(&table, &shape).await
        });
    }

    /// [`Sql::shape`] for a session.
    pub async fn reshape(&self, table: Arc<Table>, shape: Shape) -> Result<(), Fault> {
        let (done, answer) = answer();
        self.shape(table, shape, done);
        answer.await
    }

    /// Whether the database answers. Asked at once, answered when it is awaited.
    pub fn ping(&self, backend: &Arc<Backend>) -> impl Future<Output = Result<(), Fault>> + use<> {
        let (done, answer) = answer();
        let backend = backend.clone();
        self.spawn(Answer::new(done), async move { backend.ping().await });
        answer
    }

    /// Ends the thread. What is under way is answered: what became of it is not known.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let thread = self.lock().take();
        if let Some(thread) = thread {
            drop(thread.end);
            let _ = thread.join.join();
        }
    }

    fn call<T: Send + 'static, W>(
        &self,
        table: Arc<Table>,
        done: Done<T>,
        work: impl FnOnce(Arc<Backend>, Arc<Table>) -> W,
    ) where
        W: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let done = Answer::new(done);
        match self.backends.get(&table.backend) {
            Some(backend) => self.spawn(done, work(backend.clone(), table)),
            None => done.give(Err(unknown(&table.backend))),
        }
    }

    fn spawn<T: Send + 'static>(
        &self,
        done: Answer<T>,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) {
        let Some(place) = Place::take(&self.calls) else {
            let why = "too many statements wait for the database";
            return done.give(Err(Fault::Transient(why.into())));
        };
        let handle = match self.handle() {
            Ok(handle) => handle,
            Err(why) => return done.give(Err(Fault::Transient(why.into()))),
        };
        handle.spawn(async move {
            let result = work.await;
            drop(place);
            done.give(result);
        });
    }

    /// The loop of the thread, which is started now if it was not yet.
    fn handle(&self) -> Result<Handle, String> {
        let mut thread = self.lock();
        if self.stopped.load(Ordering::Acquire) {
            return Err(STOPS.into());
        }
        if let Some(thread) = &*thread {
            return Ok(thread.handle.clone());
        }
        let failed = |error: std::io::Error| format!("the thread for SQL cannot start: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let join = std::thread::Builder::new()
            .name("sql".into())
            .spawn(move || {
                let _ = runtime.block_on(ended);
                // Tasks are dropped here, and with them their answers are given.
                runtime.shutdown_timeout(Duration::from_secs(1));
            })
            .map_err(failed)?;
        *thread = Some(Thread {
            handle: handle.clone(),
            end,
            join,
        });
        Ok(handle)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sql {
    fn drop(&mut self) {
        // On the thread itself, whose last call held the last reference, there is nobody to wait for.
        if let Some(thread) = self.lock().take() {
            drop(thread.end);
        }
    }
}

/// What is said of a table whose backend this node does not have.
fn unknown(name: &str) -> Fault {
    Fault::Unfit(no_backend(name).into())
}

pub fn no_backend(name: &str) -> String {
    format!(
        "this node knows no backend '{name}'; start it with --table-backend '{name}=postgres://user@host/database' (or mysql://, sqlite://)"
    )
}

const STOPS: &str = "the node stops";

/// A callback that is called exactly once, at the latest when it is dropped.
struct Answer<T>(Option<Done<T>>);

impl<T> Answer<T> {
    fn new(done: Done<T>) -> Answer<T> {
        Answer(Some(done))
    }

    fn give(mut self, result: Result<T, Fault>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Fault::Transient(STOPS.into())));
        }
    }
}

/// A callback for a call, and the future of its answer.
pub fn answer<T: Send + 'static>() -> (Done<T>, impl Future<Output = Result<T, Fault>>) {
    let (to, from) = oneshot::channel();
    let done: Done<T> = Box::new(move |result| {
        let _ = to.send(result); // nobody waits any more
    });
    let gone = || Err(Fault::Transient(STOPS.into()));
    (done, async move { from.await.unwrap_or_else(|_| gone()) })
}

/// One of [`CALLS_MAX`].
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(calls: &Arc<AtomicUsize>) -> Option<Place> {
        let place = Place(calls.clone());
        let before = calls.fetch_add(1, Ordering::Relaxed);
        (before < CALLS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
