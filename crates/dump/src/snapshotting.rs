//! Saves of the whole node: who may begin one, its moment, and how it ends.
//!
//! ```text
//!   claim      one save at a time (SaveStatus::running_since_ms)
//!   moment     all regions are held, Keyspace::begin_snapshot in each (O(1)), regions go back
//!   walk       every core encodes its own regions in slices      walk
//!   write      the saver thread joins the chunks into the file   saving
//!   end        the last one to drop the Run notes the outcome
//! ```
//!
//! Because the moment is one hold over all regions, it cuts no command and no EXEC in two, over
//! any number of cores: the dump is the state between two commands. Traffic stops for the time of
//! one round of lending only.
//!
//! SHUTDOWN and DEBUG RELOAD keep the regions held while they write ([`save_held`]), so nothing
//! that was acknowledged is missing in the dump they leave behind.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::DbIndex;
use keyspace::rows::RowSource;
use keyspace::{Keyspace, ValueRef};
use runtime::Shared;
use runtime::cores::{Core, Held, Place};
use runtime::durable;
use runtime::now_ms;
use settings::Settings;
use tokio::sync::oneshot;

use crate::saving::{self, Part, Plan, SaveError};
use crate::walk::start_walk;
use crate::writer::{Encoder, Header};

/// Keys and elements encoded between two looks at the clock.
const STEP: usize = 64;
/// Encoded bytes sent at once.
const CHUNK_BYTES: usize = 128 * 1024;
/// After a failed save the save points wait so long before they try again.
const RETRY_SECONDS: u64 = 5;

/// How a save ended: bytes of the dump, or why there is none.
pub type Outcome = Result<u64, SaveError>;
/// Tells how a save ended; it ends without a word if it never began.
pub type Ended = oneshot::Receiver<Outcome>;

/// The save that is under way. All who take part share it; the last one to drop it ends it.
pub struct Run {
    shared: Arc<Shared>,
    began: Instant,
    background: bool,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// Sum of `Keyspace::changes` at the moment of the save.
    changes: u64,
    outcome: Option<Outcome>,
    ended: Option<oneshot::Sender<Outcome>>,
}

impl Run {
    /// Begins a save unless one is under way.
    fn claim(shared: &Arc<Shared>, background: bool) -> Option<(Arc<Run>, Ended)> {
        let status = &shared.saving;
        let now_ms = now_ms().max(1);
        status
            .running_since_ms
            .compare_exchange(0, now_ms, Ordering::AcqRel, Ordering::Acquire)
            .ok()?;
        status.give_up.store(false, Ordering::Relaxed);
        status.in_background.store(background, Ordering::Relaxed);
        status
            .last_try_seconds
            .store(now_ms / 1000, Ordering::Relaxed);
        status.keys_done.store(0, Ordering::Relaxed);
        status.keys_total.store(0, Ordering::Relaxed);
        let (sender, ended) = oneshot::channel();
        let run = Run {
            shared: shared.clone(),
            began: Instant::now(),
            background,
            taken: Mutex::new(Taken {
                ended: Some(sender),
                ..Taken::default()
            }),
        };
        Some((Arc::new(run), ended))
    }

    /// As [`Run::claim`], waiting for the save that is under way, or ending it (`at_once`).
    async fn wait_to_claim(shared: &Arc<Shared>, at_once: bool) -> (Arc<Run>, Ended) {
        loop {
            if at_once {
                shared.saving.give_up.store(true, Ordering::Relaxed);
            }
            if let Some(claimed) = Run::claim(shared, false) {
                return claimed;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Starts the saver thread.
    fn open(self: &Arc<Self>, parts: usize) -> Option<Vec<Part>> {
        let settings = self.shared.settings.current();
        let plan = Plan {
            path: settings.dir.join(&settings.dbfilename),
            header: Header {
                created_s: now_ms() / 1000,
                used_memory_bytes: stats::memory::used_memory() as u64,
            },
            checksum: settings.rdbchecksum,
        };
        let run = self.clone();
        match saving::start(plan, parts, move |outcome| run.set_outcome(outcome)) {
            Ok(parts) => Some(parts),
            Err(error) => {
                self.set_outcome(Err(SaveError::Io(error)));
                None
            }
        }
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_outcome(&self, outcome: Outcome) {
        self.taken().outcome = Some(outcome);
    }

    /// The moment of the save: all regions are held.
    fn take(&self, held: &mut Held) {
        let (mut changes, mut keys) = (0, 0);
        let durable = self.shared.durable.is_some();
        for space in held.spaces() {
            if !durable {
                space.begin_snapshot();
            }
            changes += space.changes();
            keys += keys_of(space);
        }
        self.taken().changes = changes;
        let status = &self.shared.saving;
        status.keys_total.store(keys, Ordering::Relaxed);
    }

    /// Whether those who walk should stop.
    pub fn is_given_up(&self) -> bool {
        self.shared.saving.give_up.load(Ordering::Relaxed)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut *self.taken());
        let status = &self.shared.saving;
        if let Some(outcome) = &taken.outcome {
            let settings = self.shared.settings.current();
            let given_up = self.is_given_up();
            if self.background {
                // One given up on purpose says nothing about the disk.
                let ok = outcome.is_ok() || given_up;
                status.last_bgsave_ok.store(ok, Ordering::Relaxed);
                let seconds = self.began.elapsed().as_secs() as i64;
                status.last_bgsave_seconds.store(seconds, Ordering::Relaxed);
            }
            match outcome {
                Ok(size_bytes) => {
                    let now_s = now_ms() / 1000;
                    status.last_save_seconds.store(now_s, Ordering::Relaxed);
                    let changes = &status.changes_at_last_save;
                    changes.store(taken.changes, Ordering::Relaxed);
                    status.saves.fetch_add(1, Ordering::Relaxed);
                    status.last_bgsave_ok.store(true, Ordering::Relaxed);
                    tracing::info!(
                        "saved {} keys, {size_bytes} bytes, in {:.3} s",
                        status.keys_done.load(Ordering::Relaxed),
                        self.began.elapsed().as_secs_f64()
                    );
                }
                Err(error) if given_up => {
                    tracing::info!("save: {error}");
                }
                Err(error) => tracing::warn!(
                    "save to {} failed: {error}",
                    settings.dir.join(&settings.dbfilename).display()
                ),
            }
        }
        status.running_since_ms.store(0, Ordering::Release);
        if let (Some(outcome), Some(ended)) = (taken.outcome, taken.ended) {
            // Nobody waits for a background save.
            let _ = ended.send(outcome);
        }
    }
}

/// What one core has to do for a save.
pub struct Walk {
    pub chunks: Chunks,
    pub run: Arc<Run>,
}

/// A save is under way already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InProgress;

/// Begins a save of this moment; it goes on while commands run.
pub async fn begin(core: &Rc<Core>, background: bool) -> Result<Ended, InProgress> {
    let shared = &core.shared;
    let (run, ended) = Run::claim(shared, background).ok_or(InProgress)?;
    let mut held = core.hold(&all_regions(shared)).await;
    let parts = match &shared.durable {
        Some(_) => 1,
        None => shared.map.cores(),
    };
    let Some(parts) = run.open(parts) else {
        return Ok(ended);
    };
    run.take(&mut held);
    if let Some(durable) = &shared.durable {
        let rows = durable.stores.rows.snapshot();
        drop(held);
        walk_rows(&run, rows, parts);
        return Ok(ended);
    }
    // The regions are here before their cores are told to walk them: same queue, in this order.
    drop(held);
    let compress = shared.settings.current().rdbcompression;
    for (id, part) in parts.into_iter().enumerate() {
        let walk = Walk {
            chunks: Chunks::new(part, compress),
            run: run.clone(),
        };
        core.call_on(id, Box::new(move |core| start_walk(core, walk)));
    }
    Ok(ended)
}

/// SAVE: as a background save, but whoever asked waits for the end.
pub async fn save(core: &Rc<Core>) -> Result<Outcome, InProgress> {
    loop {
        match begin(core, false).await {
            Ok(ended) => return Ok(ended.await.unwrap_or(Err(SaveError::Abandoned))),
            Err(InProgress) if core.shared.saving.in_background.load(Ordering::Relaxed) => {
                return Err(InProgress);
            }
            // Another SAVE: in Redis this one would have to wait for its turn, too.
            Err(InProgress) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

fn all_regions(shared: &Shared) -> Vec<Place> {
    (0..shared.map.regions()).collect()
}

fn keys_of(space: &Keyspace) -> u64 {
    (0..base::limits::DATABASES)
        .map(|db| space.db_stats(db).0 as u64)
        .sum()
}

/// Saves while all regions stay held.
pub async fn save_held(core: &Rc<Core>, held: &mut Held, run: Arc<Run>, ended: Ended) -> Outcome {
    let shared = &core.shared;
    if let Some(durable) = &shared.durable {
        if let Some(parts) = run.open(1) {
            run.take(held);
            walk_rows(&run, durable.stores.rows.snapshot(), parts);
        }
    } else if let Some(part) = run.open(1).and_then(|mut parts| parts.pop()) {
        run.take(held);
        let mut chunks = Chunks::new(part, shared.settings.current().rdbcompression);
        for space in held.spaces() {
            let mut began = Instant::now();
            while !chunks.step(space) {
                while !chunks.has_room() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                if began.elapsed() > Duration::from_millis(1) {
                    core.poke_inbox();
                    tokio::task::yield_now().await;
                    began = Instant::now();
                }
            }
        }
        shared
            .saving
            .keys_done
            .fetch_add(chunks.take_keys(), Ordering::Relaxed);
        chunks.finish();
    }
    drop(run);
    ended.await.unwrap_or(Err(SaveError::Abandoned))
}

/// The walk of a durable node: a thread goes through the rows of one moment.
fn walk_rows(run: &Arc<Run>, rows: Arc<dyn RowSource>, parts: Vec<Part>) {
    let compress = run.shared.settings.current().rdbcompression;
    for part in parts {
        let (run, rows) = (run.clone(), rows.clone());
        let walk = move || {
            let mut chunks = Chunks::new(part, compress);
            for region in 0..run.shared.map.regions() {
                let home = durable::log_id(region);
                let walked = durable::for_each_value(&*rows, home, &mut |db, key, value, at_ms| {
                    if run.is_given_up() {
                        return;
                    }
                    chunks.add(db, key, value, at_ms);
                    while !chunks.has_room() && !run.is_given_up() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                let done = &run.shared.saving.keys_done;
                done.fetch_add(chunks.take_keys(), Ordering::Relaxed);
                if walked.is_err() || run.is_given_up() {
                    chunks.give_up();
                }
            }
            chunks.finish();
        };
        if let Err(error) = std::thread::Builder::new()
            .name("save-walk".into())
            .spawn(walk)
        {
            tracing::warn!("cannot start a thread to save: {error}");
        }
    }
}

/// Holds everything and begins a save that [`save_held`] makes. Ends the save that is under way,
/// if `at_once`, or waits for it.
pub async fn claim_held(core: &Rc<Core>, at_once: bool) -> (Held, Arc<Run>, Ended) {
    let (run, ended) = Run::wait_to_claim(&core.shared, at_once).await;
    let held = core.hold(&all_regions(&core.shared)).await;
    (held, run, ended)
}

/// The right to save if nobody else has it now.
pub fn try_claim(shared: &Arc<Shared>) -> Option<(Arc<Run>, Ended)> {
    Run::claim(shared, false)
}

/// Stops the node, saving first if asked to. From the moment of the save on no command runs, so
/// nothing acknowledged is lost. Returns only if the save failed and `force` is not given.
pub async fn shut_down(core: &Rc<Core>, save: bool, force: bool) -> SaveError {
    let mut kept = None;
    if save {
        let (mut held, run, ended) = claim_held(core, true).await;
        if let Err(error) = save_held(core, &mut held, run, ended).await
            && !force
        {
            return error;
        }
        kept = Some(held);
    }
    core.shared.saving.give_up.store(true, Ordering::Relaxed);
    core.shared.shutdown.ask();
    std::future::pending::<()>().await;
    drop(kept);
    SaveError::Abandoned
}

/// Begins the saves that the save points, or BGSAVE inside EXEC, ask for. One core runs this.
pub async fn run_save_points(core: Rc<Core>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !core.is_stopping() {
        ticks.tick().await;
        let status = &core.shared.saving;
        if status.is_running() {
            continue;
        }
        let settings = core.shared.settings.current();
        if status.scheduled.swap(false, Ordering::Relaxed) || is_due(&core.shared, &settings) {
            // Somebody else may have been first; then theirs will do.
            let _ = begin(&core, true).await;
        }
    }
}

/// Whether a save point is reached.
fn is_due(shared: &Shared, settings: &Settings) -> bool {
    let status = &shared.saving;
    let changes = status.changes_since();
    if changes == 0 {
        return false;
    }
    let now_s = now_ms() / 1000;
    let since = now_s.saturating_sub(status.last_save_seconds.load(Ordering::Relaxed));
    let tried = now_s.saturating_sub(status.last_try_seconds.load(Ordering::Relaxed));
    (status.last_bgsave_ok.load(Ordering::Relaxed) || tried > RETRY_SECONDS)
        && settings
            .save
            .iter()
            .any(|point| changes >= point.changes && since > point.seconds)
}

/// Entries of snapshots on their way to the saver thread.
pub struct Chunks {
    /// `None` once the save has failed: what is left is walked for nothing, because only a walk
    /// to the end makes a region ready for the next snapshot.
    part: Option<Part>,
    encoder: Encoder,
    out: Vec<u8>,
    keys: u64,
}

impl Chunks {
    pub fn new(part: Part, compress: bool) -> Self {
        Chunks {
            part: Some(part),
            encoder: Encoder::new(compress),
            out: Vec::new(),
            keys: 0,
        }
    }

    /// Encodes a little more of a region's snapshot; true when all of it is done.
    pub fn step(&mut self, space: &mut Keyspace) -> bool {
        if self.part.is_none() {
            space.cancel_snapshot();
            return space.snapshot_step(STEP, &mut |_, _, _, _| {});
        }
        let Chunks {
            encoder, out, keys, ..
        } = self;
        let done = space.snapshot_step(STEP, &mut |db, key, value, deadline_ms| {
            encoder.append(db, key, value, deadline_ms, out);
            *keys += 1;
        });
        if self.out.len() >= CHUNK_BYTES {
            self.send();
        }
        done
    }

    /// Encodes one value.
    pub fn add(&mut self, db: DbIndex, key: &[u8], value: ValueRef<'_>, deadline_ms: Option<u64>) {
        let Chunks { encoder, out, .. } = self;
        encoder.append(db, key, value, deadline_ms, out);
        self.keys += 1;
        if self.out.len() >= CHUNK_BYTES {
            self.send();
        }
    }

    fn send(&mut self) {
        self.encoder.begin_chunk();
        let chunk = std::mem::take(&mut self.out);
        if let Some(part) = &self.part
            && !part.send(chunk)
        {
            self.part = None;
        }
        if self.part.is_some() {
            self.out.reserve(CHUNK_BYTES + CHUNK_BYTES / 8);
        }
    }

    /// Whether the disk keeps up.
    pub fn has_room(&self) -> bool {
        self.part.as_ref().is_none_or(Part::has_room)
    }

    /// The save is not wanted any more.
    pub fn give_up(&mut self) {
        self.part = None;
        self.out = Vec::new();
    }

    /// Keys encoded since last asked.
    pub fn take_keys(&mut self) -> u64 {
        std::mem::take(&mut self.keys)
    }

    /// All regions are done.
    pub fn finish(mut self) {
        if !self.out.is_empty() {
            self.send();
        }
        if let Some(part) = self.part.take() {
            part.finish();
        }
    }
}
