//! Stopping the node: SHUTDOWN, SIGTERM, SIGINT.
//!
//! Whoever wants it to stop saves first if that is wanted (`dump::shut_down`), then
//! notes it here; the thread that started the server sees it, tells every core to stop and waits
//! for their threads.

use std::sync::{Condvar, Mutex, PoisonError};

#[derive(Default)]
pub struct Shutdown {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Shutdown {
    /// Asks the node to stop.
    pub fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    pub fn is_asked(&self) -> bool {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks the calling thread until somebody asks.
    pub fn wait(&self) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        while !*asked {
            asked = self
                .changed
                .wait(asked)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
