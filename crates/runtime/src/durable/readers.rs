//! Reader threads: rows that are not in memory are fetched here, so that no core waits for a disk.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use keyspace::rows::RowSource;

/// What a reader is sent for; it brings back what it found by itself.
pub type Errand = Box<dyn FnOnce(&dyn RowSource) + Send>;

struct Queue {
    errands: VecDeque<Errand>,
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
                errands: VecDeque::new(),
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

    pub fn send(&self, errand: Errand) {
        self.state.lock().errands.push_back(errand);
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
            while queue.errands.is_empty() {
                if queue.stopping {
                    return;
                }
                let waited = self.filled.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
            }
            let Some(errand) = queue.errands.pop_front() else {
                continue;
            };
            drop(queue);
            errand(&*self.rows);
        }
    }
}
