//! Stopping the node: SHUTDOWN, SIGTERM, SIGINT.
//!
//! Whoever asks notes it here; the thread that started the server sees it, saves if it should,
//! tells every core to stop and waits for their threads.

use std::sync::{Condvar, Mutex, PoisonError};

/// Why and how to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Write the data to disk first.
    pub save: bool,
}

#[derive(Default)]
pub struct Shutdown {
    asked: Mutex<Option<Stop>>,
    changed: Condvar,
}

impl Shutdown {
    /// Asks the node to stop. The first one to ask decides how.
    pub fn ask(&self, stop: Stop) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.get_or_insert(stop);
        self.changed.notify_all();
    }

    pub fn is_asked(&self) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_some()
    }

    /// Blocks the calling thread until somebody asks.
    pub fn wait(&self) -> Stop {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(stop) = *asked {
                return stop;
            }
            asked = self
                .changed
                .wait(asked)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
