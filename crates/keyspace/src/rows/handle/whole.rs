//! A big collection that is used a lot is read whole by a reader thread, to be one in memory.
//!
//! ```text
//!   many uses ─► the core asks: a moment of the store, and what is not in it yet
//!                reader: makes the value, then adds what came meanwhile until little is left
//!   the core  ─► adds that little, and puts the value where the handle was
//! ```
//!
//! Commands go on all the while, on rows. Changes made since the core asked are noted as rows of
//! `data`, the last word on an element counting. Which kinds can do this, [`crate::kind::InRows::COMES_WHOLE`]
//! says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Handle, Place, Unwritten};
use crate::rows::shared::Shared;
use crate::rows::{Family, Tier};
use crate::{Kind, Tuning, Value};

/// A collection is wanted whole when it was used once for so many of its elements,
const USES_PER_ELEMENT: u32 = 8;
/// and not less often than this,
const USES_LEAST: u32 = 512;
/// in this time.
const WINDOW_SECONDS: u64 = 60;
/// What is left for the core to add at most.
const LEFT_MOST: usize = 128;
/// How often the reader adds what came meanwhile; if that does not end it is given up.
const ROUNDS: usize = 64;
/// What an element takes beside its bytes, roughly.
const ELEMENT_BYTES: usize = 48;

/// How often a collection was used, and since when.
#[derive(Default)]
pub(super) struct Uses {
    count: u32,
    since_seconds: u64,
    /// It was tried and is too big: not again before this many uses.
    not_before: u32,
}

impl Uses {
    pub fn from(since_seconds: u64) -> Self {
        Uses {
            since_seconds,
            ..Uses::default()
        }
    }
}

/// A collection being made whole.
pub struct WholeJob {
    /// One moment of the store.
    place: Place,
    /// Where the handle's rows begin, and where failures are told.
    pub(crate) base: Box<[u8]>,
    shared: Arc<Shared>,
    kind: Kind,
    generation: u64,
    len: usize,
    tuning: Arc<Tuning>,
    /// No more is read.
    most_bytes: usize,
    /// What the moment of the store does not have.
    unwritten: Mutex<Unwritten>,
    progress: Mutex<Progress>,
}

/// A sub key and its value, or that it went.
type Row = (Box<[u8]>, Option<Box<[u8]>>);

#[derive(Default)]
struct Progress {
    /// Rows of `data` that changed since it was asked for and are not in the value.
    since: Vec<Row>,
    made: Made,
}

#[derive(Default)]
enum Made {
    #[default]
    NotYet,
    Whole(Value),
    /// Too big, changed too fast, or unreadable.
    Nothing,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WholeJob {
    /// Reads the collection, waiting for the disk.
    pub fn run(&self) {
        let mut made = self.make();
        for round in 0..=ROUNDS {
            let mut progress = lock(&self.progress);
            if made.is_none() || round == ROUNDS {
                progress.made = Made::Nothing;
                progress.since = Vec::new();
                break;
            }
            if progress.since.len() <= LEFT_MOST
                && let Some(value) = made.take()
            {
                progress.made = Made::Whole(value);
                break;
            }
            let since = std::mem::take(&mut progress.since);
            drop(progress);
            if let Some(made) = &mut made {
                since.iter().for_each(|(sub, value)| {
                    made.change_row(sub, value.as_deref(), &self.tuning);
                });
            }
        }
        self.shared.note_whole();
    }

    fn make(&self) -> Option<Value> {
        // Entries that begin meanwhile are not its business: it counts none of its own.
        let shared = Arc::new(Shared::new(0));
        let place = Place {
            shared: shared.clone(),
            ..self.place.clone()
        };
        let mut handle = Handle::new(place, self.len, Family::Data, 0);
        let epoch = shared.epoch();
        let unwritten = std::mem::take(&mut *lock(&self.unwritten));
        *handle.unwritten.get_mut() = Unwritten { epoch, ..unwritten };
        let mut made = Value::of_metadata(self.kind, self.generation, &[]);
        let (mut bytes, mut count, mut sound) = (0, 0, true);
        let each = &mut |sub: &[u8], value: &[u8]| {
            bytes += sub.len() + value.len() + ELEMENT_BYTES;
            count += 1;
            sound = made.add_row(sub, value, &self.tuning);
            sound && bytes <= self.most_bytes
        };
        handle.between_in(Tier::All, Family::Data, (b"", None), false, each);
        // Nobody waits for it: rows that cannot be read are reported to whoever needs them.
        let is_made = shared.take_failure().is_none() && sound && count == self.len;
        (is_made && bytes <= self.most_bytes).then_some(made)
    }

    /// Whether it is over.
    pub(crate) fn is_done(&self) -> bool {
        !matches!(lock(&self.progress).made, Made::NotYet)
    }

    /// The value, if there is one, with all that has come since.
    pub(crate) fn take(&self) -> Option<Value> {
        let mut progress = lock(&self.progress);
        let Made::Whole(mut made) = std::mem::replace(&mut progress.made, Made::Nothing) else {
            return None;
        };
        for (sub, value) in std::mem::take(&mut progress.since) {
            made.change_row(&sub, value.as_deref(), &self.tuning);
        }
        Some(made)
    }

    fn note(&self, sub: &[u8], value: Option<&[u8]>) {
        let mut progress = lock(&self.progress);
        if !matches!(progress.made, Made::Nothing) {
            let row = (sub.into(), value.map(Into::into));
            progress.since.push(row);
        }
    }
}

impl Handle {
    /// Counts a use.
    #[inline]
    pub(super) fn note_use(&self) {
        if self.is_echo {
            return;
        }
        let mut uses = self.uses.borrow_mut();
        uses.count = uses.count.saturating_add(1);
        let wanted = u32::try_from(self.len).unwrap_or(u32::MAX) / USES_PER_ELEMENT;
        if uses.count < wanted.max(USES_LEAST).max(uses.not_before) {
            return;
        }
        uses.count = 0;
        let now = self.home.shared.seconds();
        let since = std::mem::replace(&mut uses.since_seconds, now);
        if now.saturating_sub(since) <= WINDOW_SECONDS && self.becoming.is_none() {
            self.home.shared.want_whole(&self.home.base);
        }
    }

    /// Notes a change for the value that is being made.
    #[inline]
    pub(super) fn note_for_whole(&mut self, sub: &[u8], value: Option<&[u8]>) {
        if let Some(job) = &self.becoming {
            job.note(sub, value);
        }
    }

    /// Begins to make the collection whole; `None` if that is not possible now.
    pub fn become_whole(
        &mut self,
        (kind, generation): (Kind, u64),
        tuning: &Arc<Tuning>,
        most_bytes: usize,
    ) -> Option<Arc<WholeJob>> {
        self.refresh();
        if self.is_echo || self.becoming.is_some() || self.len * ELEMENT_BYTES > most_bytes {
            return None;
        }
        let unwritten = self.unwritten.get_mut();
        let place = unwritten.origin.as_ref().unwrap_or(&self.home);
        let job = Arc::new(WholeJob {
            place: Place {
                source: place.source.moment()?,
                ..place.clone()
            },
            base: self.home.base.clone(),
            shared: self.home.shared.clone(),
            kind,
            generation,
            len: self.len,
            tuning: tuning.clone(),
            most_bytes,
            unwritten: Mutex::new(Unwritten {
                epoch: 0,
                data: unwritten.data.clone(),
                ..Unwritten::default()
            }),
            progress: Mutex::default(),
        });
        self.becoming = Some(job.clone());
        Some(job)
    }

    /// Whether `job` is the one that makes this collection whole.
    pub fn is_becoming(&self, job: &Arc<WholeJob>) -> bool {
        let becoming = self.becoming.as_ref();
        becoming.is_some_and(|mine| Arc::ptr_eq(mine, job))
    }

    /// It stays on rows, and is not tried again soon.
    pub fn stay_on_rows(&mut self) {
        self.becoming = None;
        let wanted = u32::try_from(self.len).unwrap_or(u32::MAX);
        self.uses.get_mut().not_before = wanted.saturating_mul(16);
    }
}
