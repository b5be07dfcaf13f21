//! The index of a big collection, made by a reader thread: that takes a walk over all its rows.
//!
//! ```text
//!   a command wants ranks ─► the core asks: a moment of the store, and what is not in it yet
//!                            reader: walks, makes the index       core: notes what comes and goes
//!   the command again     ─► what came and went is counted in: that is the index of now
//! ```

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::index::Index;
use super::{Handle, Place, Unwritten};
use crate::rows::shared::Shared;

/// An index being made.
pub(crate) struct Job {
    /// One moment of the store.
    place: Place,
    /// Where failures are told.
    len: usize,
    order: crate::rows::Family,
    chunk: usize,
    stage: Mutex<Stage>,
    done: Condvar,
}

enum Stage {
    /// With what the moment of the store does not have.
    Asked(Box<Unwritten>),
    Running,
    Done(Option<Index>),
}

/// What a handle knows of it.
pub(super) struct Building {
    job: Arc<Job>,
    /// Keys that came (true) or went since it was asked for.
    since: Vec<(bool, Box<[u8]>)>,
}

impl Building {
    pub fn note(&mut self, came: bool, key: &[u8]) {
        self.since.push((came, key.into()));
    }
}

impl Job {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the rows of its collection begin.
    pub fn base(&self) -> &[u8] {
        &self.place.base
    }

    /// Makes the index, or waits for whoever does. An error is why the rows cannot be read.
    pub fn run(&self) -> Result<(), String> {
        let mut stage = self.stage();
        while matches!(*stage, Stage::Running) {
            let waited = self.done.wait(stage);
            stage = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let unwritten = match std::mem::replace(&mut *stage, Stage::Running) {
            Stage::Asked(unwritten) => unwritten,
            done => {
                *stage = done;
                return Ok(());
            }
        };
        drop(stage);
        let (index, failure) = match self.make(*unwritten) {
            Ok(index) => (Some(index), Ok(())),
            Err(why) => (None, Err(why)),
        };
        *self.stage() = Stage::Done(index);
        self.done.notify_all();
        failure
    }

    fn make(&self, unwritten: Unwritten) -> Result<Index, String> {
        // Entries that begin meanwhile are not its business: it counts none of its own.
        let shared = Arc::new(Shared::new(0));
        let place = Place {
            shared: shared.clone(),
            ..self.place.clone()
        };
        let mut handle = Handle::new(place, self.len, self.order, 0);
        handle.chunk = self.chunk;
        let epoch = shared.epoch();
        *handle.unwritten.get_mut() = Unwritten { epoch, ..unwritten };
        let index = handle.make_index();
        match shared.take_failure() {
            Some(what) => Err(what),
            None => Ok(index),
        }
    }
}

impl Handle {
    /// Asks for the index, or for the one that is being made; `None` if the store cannot tell one moment.
    pub fn ask_for_index(&mut self) -> Option<Arc<Job>> {
        self.take_built();
        self.refresh();
        if let Some(building) = self.building.get_mut() {
            return Some(building.job.clone());
        }
        let unwritten = self.unwritten.get_mut();
        let place = unwritten.origin.as_ref().unwrap_or(&self.home);
        let job = Arc::new(Job {
            place: Place {
                source: place.source.moment()?,
                ..place.clone()
            },
            len: self.len,
            order: self.order,
            chunk: self.chunk,
            stage: Mutex::new(Stage::Asked(Box::new(Unwritten {
                origin: None,
                ..unwritten.clone()
            }))),
            done: Condvar::new(),
        });
        *self.building.get_mut() = Some(Building {
            job: job.clone(),
            since: Vec::new(),
        });
        Some(job)
    }

    /// Takes over an index that is made.
    pub(super) fn take_built(&self) {
        let mut building = self.building.borrow_mut();
        let Some(it) = &*building else {
            return;
        };
        let built = match &mut *it.job.stage() {
            Stage::Done(built) => built.take(),
            Stage::Asked(_) | Stage::Running => return,
        };
        if let Some(mut index) = built {
            for (came, key) in &it.since {
                match came {
                    true => index.add(key),
                    false => index.remove(key),
                }
            }
            *self.index.borrow_mut() = Some(Arc::new(index));
        }
        *building = None;
    }
}
