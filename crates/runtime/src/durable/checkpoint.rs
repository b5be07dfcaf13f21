//! Cutting the log: a thread of its own lets the store flush what the log has, then forgets that
//! part of the log.
//!
//! The order is what makes it safe: the applied indices are read first, then the store is asked
//! to bring everything written so far to disk, and only when it has, the log is cut behind those
//! indices. A crash in between leaves too much log, never too little.
//!
//! Behind a checkpoint the store may drop what deleted collections have left; a second thread waits
//! for that, since it takes as long as it takes.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keyspace::rows::{Family, State, Tier, layout};

use super::{Durable, room};
use crate::Shared;
use crate::cores::Message;

const LOOK: Duration = Duration::from_millis(500);
/// A log that is not empty is cut after this time, however short it is.
const LATEST: Duration = Duration::from_secs(300);
/// How soon a checkpoint that found no room is tried again.
const NO_ROOM: Duration = Duration::from_secs(5);
const LEAST_KEPT_BYTES: u64 = 1 << 20;

/// The thread that cuts the log.
pub struct Checkpoints {
    state: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
    tidying: Option<JoinHandle<()>>,
    room: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Checkpoints {
    pub fn start(shared: Arc<Shared>) -> std::io::Result<Checkpoints> {
        let state = Arc::new((Mutex::new(false), Condvar::new()));
        let stop = state.clone();
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("checkpoint".into());
        let of_thread = shared.clone();
        let thread = thread.spawn(move || run(&of_thread, &stop, &sender))?;
        let tidying = std::thread::Builder::new().name("tidy".into());
        let of_thread = shared.clone();
        let tidying = tidying.spawn(move || tidy(&of_thread, &receiver))?;
        // Before the first client is served.
        room::look(&shared);
        let (of_thread, stop) = (shared.clone(), state.clone());
        let room = std::thread::Builder::new().name("disk-room".into());
        let room = room.spawn(move || room::run(&of_thread, &stop))?;
        Ok(Checkpoints {
            state,
            thread: Some(thread),
            tidying: Some(tidying),
            room: Some(room),
            shared,
        })
    }

    /// One last checkpoint, so that the next start has nothing to replay.
    pub fn stop(&mut self) {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.state.1.notify_all();
        if let Some(durable) = &self.shared.durable {
            durable.stores.rows.stop_tidying();
        }
        // The second one ends when the first hangs up.
        for thread in [self.thread.take(), self.tidying.take(), self.room.take()] {
            let _ = thread.map(JoinHandle::join);
        }
    }
}

/// Gives back space behind each checkpoint; receives how many compactions were asked for by then.
fn tidy(shared: &Shared, checkpoints: &Receiver<u64>) {
    let Some(durable) = &shared.durable else {
        return;
    };
    while let Ok(mut asked) = checkpoints.recv() {
        while let Ok(later) = checkpoints.try_recv() {
            asked = later;
        }
        let everything = asked > durable.compacted.load(Ordering::Acquire);
        durable.stores.rows.tidy(everything);
        durable.compacted.store(asked, Ordering::Release);
    }
}

fn run(shared: &Arc<Shared>, stop: &(Mutex<bool>, Condvar), tidying: &Sender<u64>) {
    let Some(durable) = &shared.durable else {
        return;
    };
    let mut last = Instant::now();
    let mut told = 0;
    let mut room_at = last;
    let mut cut_at = HashMap::new();
    loop {
        let stopping = {
            let stopping = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = stop
                .1
                .wait_timeout_while(stopping, LOOK, |stopping| !*stopping);
            *waited.unwrap_or_else(PoisonError::into_inner).0
        };
        let limit = shared.settings.current().log_bytes;
        let asked = durable.compactions.load(Ordering::Acquire);
        let compact = asked > told;
        let due = stopping
            || durable.logged_bytes.load(Ordering::Relaxed) > limit
            || last.elapsed() > LATEST;
        let moved = durable
            .progress
            .regions()
            .any(|(_, log, applied)| cut_at.get(&log).is_none_or(|&cut| applied > cut));
        let is_early = Instant::now() < room_at && !stopping;
        if (due && moved || compact) && !durable.is_failed() && !is_early {
            last = Instant::now();
            match cut(shared, durable, &mut cut_at) {
                // The log stays longer, and it is tried again.
                Err(reason) if room::lacks_room(&reason) && !compact && !stopping => {
                    tracing::warn!("no room for a checkpoint: {reason}");
                    room_at = Instant::now() + NO_ROOM;
                    continue;
                }
                Err(reason) if room::lacks_room(&reason) => {}
                Err(reason) => durable.fail(&reason),
                Ok(()) => {}
            }
            told = asked;
            // Nobody hears it when that thread has ended, which it has not.
            let _ = tidying.send(asked);
        }
        if stopping {
            return;
        }
    }
}

/// The databases in use, as the state rows have it: what is true when this is called is on disk
/// after the flush.
fn alive(durable: &Durable) -> Result<Vec<(u64, u64)>, String> {
    let mut alive = Vec::new();
    for (_, home, _) in durable.progress.regions() {
        let mut state = Some(State::default());
        let key = layout::state_key(home);
        let rows = &durable.stores.rows;
        let found = rows.get(Family::Info, &key, Tier::All, &mut |row| {
            state = State::parse(row);
        });
        found.map_err(|error| format!("the store cannot be read: {error:?}"))?;
        let state = state.ok_or_else(|| format!("the state of region {home} is damaged"))?;
        alive.extend(state.alive(home));
    }
    Ok(alive)
}

/// What one of so many regions may keep of its log for peers that lag. Those that are only a little behind must not
/// need a snapshot, however many there are.
fn share(keep_bytes: u64, regions: usize) -> u64 {
    let part = keep_bytes / regions.max(1) as u64;
    part.max(keep_bytes.min(LEAST_KEPT_BYTES))
}

/// `cut_at`: by log id, the applied index of the last time.
fn cut(shared: &Shared, durable: &Durable, cut_at: &mut HashMap<u64, u64>) -> Result<(), String> {
    let regions: Vec<_> = durable.progress.regions().collect();
    let keep_bytes = share(shared.settings.current().cluster.keep_bytes, regions.len());
    durable.logged_bytes.store(0, Ordering::Relaxed);
    let alive = alive(durable)?;
    let flushed = durable.stores.rows.checkpoint();
    flushed.map_err(|error| format!("the store cannot flush: {error:?}"))?;
    durable.stores.rows.set_alive(&alive);
    for (place, log, applied) in regions {
        if cut_at.get(&log).is_some_and(|&cut| applied <= cut) {
            continue;
        }
        // A replica with peers knows what they may still need; it says so until the next time.
        let unneeded = match shared.cluster {
            Some(_) => durable.progress.unneeded(place),
            // The last entry stays: its term is asked for when the log goes on behind it.
            None => applied,
        };
        if unneeded > 0 {
            let cut = durable.stores.log.truncate(log, unneeded);
            cut.map_err(|error| format!("the log cannot be cut: {error:?}"))?;
        }
        cut_at.insert(log, applied);
        let owner = shared.map.core_of(place);
        if let Some(mailbox) = shared.mailboxes.get(owner) {
            mailbox.send(Message::Cut {
                region: place,
                index: applied,
                keep_bytes,
            });
        }
    }
    let tidied = durable.stores.log.tidy();
    tidied.map_err(|error| format!("the log cannot be tidied: {error}"))?;
    durable.checkpoints.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
