//! Reader threads: rows that are not in memory are fetched here, so that no core waits for a disk.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use keyspace::rows::{self, LoadRequest, Loaded, RowError, RowSource, Tier};

/// What a reader does with what it found.
pub type Found = Box<dyn FnOnce(LoadRequest, Result<Loaded, RowError>) + Send>;

struct Queue {
    wanted: VecDeque<(LoadRequest, Found)>,
    stopping: bool,
}

struct State {
    queue: Mutex<Queue>,
    filled: Condvar,
    rows: Arc<dyn RowSource>,
}

pub struct Readers {
    state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub fn start(rows: Arc<dyn RowSource>, count: usize) -> std::io::Result<Readers> {
        let state = Arc::new(State {
            queue: Mutex::new(Queue {
                wanted: VecDeque::new(),
                stopping: false,
            }),
            filled: Condvar::new(),
            rows,
        });
        let threads = (0..count)
            .map(|nth| {
                let state = state.clone();
                std::thread::Builder::new()
                    .name(format!("reader-{nth}"))
                    .spawn(move || state.run())
            })
            .collect::<Result<_, _>>()?;
        Ok(Readers { state, threads })
    }

    /// Fetches the rows of a key; `found` is called on a reader's thread.
    pub fn fetch(&self, request: LoadRequest, found: Found) {
        self.state.lock().wanted.push_back((request, found));
        self.state.filled.notify_one();
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.state.lock().stopping = true;
        self.state.filled.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let mut queue = self.lock();
            while queue.wanted.is_empty() {
                if queue.stopping {
                    return;
                }
                let waited = self.filled.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
            }
            let Some((request, found)) = queue.wanted.pop_front() else {
                continue;
            };
            drop(queue);
            let loaded = rows::load(&*self.rows, &request, Tier::All);
            found(request, loaded);
        }
    }
}
