//! In the middle of writes, large ones (files of their own) and small ones (memtables) in turns: what the next process
//! finds must be what the first so many writes made, with the index of the last of them; and all that was on disk when a
//! large write or a checkpoint returned.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier, WriteError, layout};
use rocks::{Store, StoreSettings};

use crate::power::{FAIL_AT_SYNC, FAILURES, Power, SYNCS, WRITES, cuts, seed};

const APPLIED: &[u8] = b"applied";
const LARGE: usize = 16 << 10;
const LAST: u64 = 40;

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

fn open(path: &Path) -> Arc<Store> {
    let settings = StoreSettings {
        direct_bytes: LARGE,
        ..StoreSettings::default()
    };
    let store = Store::open(path, &settings).unwrap();
    store.set_alive(&[(1, 1)]);
    store.start_compaction();
    store
}

/// The same whenever it is asked for, as if it came from a log.
fn changes(index: u64) -> Changes {
    let mut dice = fastrand::Rng::with_seed(index);
    let is_large = dice.u8(0..3) > 0;
    let mut changes = Changes::new();
    for _ in 0..if is_large { LARGE / 100 } else { 10 } {
        let family = *dice
            .choice(&[
                Family::Metadata,
                Family::Expiry,
                Family::Tables,
                Family::Info,
                Family::Feed,
            ])
            .unwrap();
        let key = layout::metadata_key(1, 1, format!("{:04}", dice.u32(0..1500)).as_bytes());
        match dice.u8(0..4) {
            0 => changes.delete(family, &key),
            _ => changes.put(family, &key, &[dice.u8(..); 120]),
        }
    }
    changes.put(Family::Info, APPLIED, &index.to_be_bytes());
    changes
}

/// What the writes up to this one make.
fn made(applied: u64) -> Rows {
    let mut rows = Rows::new();
    for index in 1..=applied {
        for change in changes(index).iter() {
            let key = (change.family as u8, change.key.to_vec());
            match change.value {
                Some(value) => rows.insert(key, value.to_vec()),
                None => rows.remove(&key),
            };
        }
    }
    rows
}

fn found(store: &Store) -> Rows {
    let mut rows = Rows::new();
    for family in Family::ALL {
        let mut each = |key: &[u8], value: &[u8]| {
            rows.insert((family as u8, key.to_vec()), value.to_vec());
            true
        };
        let scanned = store.scan(family, &[], &[0xff; 20], false, Tier::All, &mut each);
        scanned.unwrap();
    }
    rows
}

fn applied(rows: &Rows) -> u64 {
    let row = rows.get(&(Family::Info as u8, APPLIED.to_vec()));
    row.map_or(0, |row| u64::from_be_bytes(row[..].try_into().unwrap()))
}

/// Beside the rows, where the power is not cut: what must be there after it.
fn kept(place: &Path) -> PathBuf {
    place.join("kept")
}

/// The process that is cut: goes on where the rows are. It ends when a write or a checkpoint fails.
#[test]
#[ignore = "run by the tests below"]
fn child_writes() {
    let place = PathBuf::from(std::env::var("NEOKV_PLACE").unwrap());
    let store = open(&place.join("rows"));
    for index in applied(&found(&store)) + 1..=LAST {
        let changes = changes(index);
        let mut is_on_disk = changes.size_bytes() >= LARGE;
        loop {
            match store.write(&[&changes]) {
                Ok(()) => break,
                Err(WriteError::Busy) => std::thread::sleep(std::time::Duration::from_millis(1)),
                Err(WriteError::Failed(_)) => return,
            }
        }
        if index % 7 == 0 {
            if store.checkpoint().is_err() {
                return;
            }
            is_on_disk = true;
        }
        if is_on_disk {
            // By a rename: the process may be killed between any two calls, also of the write.
            let next = place.join("next");
            fs::write(&next, index.to_string()).unwrap();
            fs::rename(next, kept(&place)).unwrap();
        }
    }
}

fn check(place: &Path, why: &str) -> u64 {
    let kept = fs::read_to_string(kept(place)).map_or(0, |it| it.parse().unwrap());
    let rows = found(&open(&place.join("rows")));
    let applied = applied(&rows);
    assert!(
        rows == made(applied),
        "{why}: not what {applied} writes make"
    );
    assert!(
        applied >= kept,
        "{why}: {applied}, though {kept} was on disk"
    );
    applied
}

#[test]
fn a_power_cut_leaves_what_the_first_writes_made() {
    let power = Power::new();
    let (seed, mut ends) = (seed(), Vec::new());
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut whole = (0, 0);
    for round in 0..=cuts() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("rows")).unwrap();
        let at = (round > 0).then(|| power.somewhere(whole, &mut dice));
        let child = "rows::child_writes";
        power.run(child, place.path(), at.flatten(), &mut dice);
        if round == 0 {
            whole = (power.get(WRITES), power.get(SYNCS));
        } else if dice.bool() {
            let at = power.somewhere(whole, &mut dice);
            power.run(child, place.path(), at, &mut dice);
        }
        ends.push(check(place.path(), &format!("seed {seed}, round {round}")));
    }
    println!("writes and syncs of a whole run {whole:?}; ended at {ends:?}");
}

/// The disk refuses one sync, the process gives up, and the next one sees what the system has in memory: whether the
/// records of that sync are on disk nobody knows, so both must be right.
#[test]
fn a_sync_that_fails_leaves_what_the_first_writes_made() {
    let power = Power::new();
    let mut dice = fastrand::Rng::with_seed(seed());
    let mut failures = 0;
    let rounds = cuts();
    let mut syncs = 0;
    for round in 0..=rounds {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("rows")).unwrap();
        // All of them in turn, after the few that make an empty store.
        let at = (round > 0).then(|| (FAIL_AT_SYNC, 20 + (syncs - 20) * round / (rounds + 1)));
        power.run("rows::child_writes", place.path(), at, &mut dice);
        if round == 0 {
            syncs = power.get(SYNCS);
        }
        failures += power.get(FAILURES);
        check(place.path(), &format!("sync {at:?} failed"));
    }
    assert!(failures > 0);
}
