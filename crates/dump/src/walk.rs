//! A core's part of a save: walks the snapshots of its regions in slices, between the turns of its
//! sessions.
//!
//! A slice takes half a millisecond. While sessions run commands, a pause of a millisecond or two
//! follows each slice; a core that is idle otherwise saves at full speed. A region that is lent is
//! left for later. When the disk does not keep up, the walk waits.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use runtime::cores::{Core, Place};

use crate::snapshotting::{Chunks, Walk};

const SLICE: Duration = Duration::from_micros(500);
const PAUSE: Duration = Duration::from_millis(1);
/// A wait is cut into such pieces to notice that the save is given up.
const TIMEOUT: Duration = Duration::from_millis(10);

/// Starts the walk of a core. One save at a time.
pub fn start_walk(core: &Rc<Core>, walk: Walk) {
    tokio::task::spawn_local(run(core.clone(), walk));
}

async fn run(core: Rc<Core>, walk: Walk) {
    let Walk { mut chunks, run } = walk;
    let mut left: Vec<Place> = core.regions.borrow().places().collect();
    while !left.is_empty() {
        if run.is_given_up() {
            chunks.give_up();
        }
        let tick = core.last_command_at();
        let delay_us = core.settings().rdb_key_save_delay_us;
        let stuck = !slice(&core, &mut chunks, &mut left, delay_us != 0);
        let keys = chunks.take_keys();
        let done = &core.shared.saving.keys_done;
        done.fetch_add(keys, Ordering::Relaxed);
        core.poke_inbox();
        if stuck {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        tokio::task::yield_now().await;
        let delay = save_delay(keys, delay_us);
        if !delay.is_zero() {
            let until = Instant::now() + delay;
            while !run.is_given_up() && Instant::now() < until {
                let rest = until.saturating_duration_since(Instant::now());
                tokio::time::sleep(rest.min(TIMEOUT)).await;
            }
        } else if core.last_command_at() != tick {
            tokio::time::sleep(PAUSE).await;
        }
    }
    chunks.finish();
}

/// Encodes for the time of a slice; false if nothing could be done.
fn slice(core: &Core, chunks: &mut Chunks, left: &mut Vec<Place>, one_step: bool) -> bool {
    let began = Instant::now();
    let (mut at, mut worked) = (0, false);
    let mut owned = core.regions.borrow_mut();
    while let Some(&region) = left.get(at) {
        if !chunks.has_room() || (worked && (one_step || began.elapsed() > SLICE)) {
            break;
        }
        let Some(region) = owned.region_mut(region) else {
            at += 1;
            continue;
        };
        worked = true;
        if chunks.step(&mut region.space) {
            left.swap_remove(at);
        }
    }
    worked
}

/// `rdb-key-save-delay`: microseconds per key; if negative, keys per microsecond.
fn save_delay(keys: u64, delay_us: i64) -> Duration {
    let us = match u64::try_from(delay_us) {
        Ok(per_key) => keys.saturating_mul(per_key),
        Err(_) => keys / delay_us.unsigned_abs(),
    };
    Duration::from_micros(us)
}
