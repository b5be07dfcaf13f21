//! Random reads and writes against a model; what waits, what is bounded, what is broken.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use keyspace::rows::MapStore;

use super::*;

/// Takes nothing while it is told so.
#[derive(Default)]
struct Slow {
    rows: MapStore,
    busy: AtomicBool,
    broken: AtomicBool,
    writes: AtomicUsize,
}

impl RowSource for Slow {
    fn get(
        &self,
        family: Family,
        key: &[u8],
        tier: Tier,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, RowError> {
        self.rows.get(family, key, tier, found)
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        to: &[u8],
        descending: bool,
        tier: Tier,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), RowError> {
        self.rows.scan(family, from, to, descending, tier, each)
    }
}

impl RowStore for Slow {
    fn write(&self, changes: &[&Changes]) -> Result<(), WriteError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(WriteError::Failed("broken".into()));
        }
        if self.busy.load(Ordering::SeqCst) {
            return Err(WriteError::Busy);
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.rows.write(changes)
    }

    fn checkpoint(&self) -> Result<(), RowError> {
        self.rows.checkpoint()
    }

    fn snapshot(&self) -> Arc<dyn RowSource> {
        self.rows.snapshot()
    }

    fn set_alive(&self, alive: &[(u64, u64)]) {
        self.rows.set_alive(alive);
    }

    fn start_compaction(&self) {}

    fn tidy(&self, _: bool) {}

    fn stop_tidying(&self) {}

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
}

const MOST_BYTES: usize = 1 << 20;

/// As it is used, but small.
fn limits() -> Limits {
    Limits {
        most_bytes: MOST_BYTES,
        ..Limits::for_memtables(MOST_BYTES / 2)
    }
}

/// All that can be folded is, at once; below goes what is asked for.
fn folding() -> Limits {
    Limits {
        fold_bytes: 0,
        write_after: Duration::from_secs(3600),
        quiet_after: Duration::from_secs(3600),
        ..limits()
    }
}

fn get(rows: &dyn RowSource, family: Family, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = None;
    let found = rows.get(family, key, Tier::Cache, &mut |row| {
        value = Some(row.to_vec())
    });
    assert_eq!(found, Ok(value.is_some()));
    value
}

fn scan(
    rows: &dyn RowSource,
    family: Family,
    range: (&[u8], &[u8]),
    descending: bool,
    most: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let scanned = rows.scan(
        family,
        range.0,
        range.1,
        descending,
        Tier::Cache,
        &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            found.len() < most
        },
    );
    assert_eq!(scanned, Ok(()));
    found
}

/// Random writes, some below, some waiting: every read as if all were below.
#[test]
fn what_waits_is_seen_as_if_it_were_below() {
    let mut dice = fastrand::Rng::with_seed(7);
    for round in 0..30 {
        let slow = Arc::new(Slow::default());
        let limits = if round % 2 == 0 { limits() } else { folding() };
        let behind = WriteBehind::start(slow.clone(), limits).unwrap();
        let model = MapStore::new();
        slow.busy.store(round % 3 != 0, Ordering::SeqCst);
        for _ in 0..60 {
            let mut changes = Changes::new();
            for _ in 0..dice.usize(1..8) {
                let family = *dice.choice(&[Family::Metadata, Family::Data]).unwrap();
                let key = [b'k', dice.u8(0..24)];
                match dice.u8(0..3) {
                    0 => changes.delete(family, &key),
                    _ => changes.put(family, &key, &[dice.u8(..)]),
                }
            }
            model.write(&[&changes]).unwrap();
            behind.write(&[&changes]).unwrap();
            let moment = (dice.u8(0..4) == 0).then(|| (behind.snapshot(), model.snapshot()));
            if dice.u8(0..8) == 0 {
                // Some go below in the middle of it.
                slow.busy.store(false, Ordering::SeqCst);
                behind.line.drain().unwrap();
                slow.busy.store(round % 3 != 0, Ordering::SeqCst);
            }
            let family = *dice.choice(&[Family::Metadata, Family::Data]).unwrap();
            let key = [b'k', dice.u8(0..26)];
            assert_eq!(get(&*behind, family, &key), get(&model, family, &key));
            let range = ([b'k', dice.u8(0..26)], [b'k', dice.u8(0..26)]);
            let range = (&range.0[..], &range.1[..]);
            let (down, most) = (dice.bool(), dice.usize(1..30));
            assert_eq!(
                scan(&*behind, family, range, down, most),
                scan(&model, family, range, down, most),
            );
            if let Some((moment, then)) = moment {
                changes.put(family, &key, b"later");
                behind.write(&[&changes]).unwrap();
                assert_eq!(get(&*moment, family, &key), get(&*then, family, &key));
                assert_eq!(
                    scan(&*moment, family, range, down, most),
                    scan(&*then, family, range, down, most),
                );
                model.write(&[&changes]).unwrap();
            }
        }
        slow.busy.store(false, Ordering::SeqCst);
        behind.checkpoint().unwrap();
        for family in Family::ALL {
            assert_eq!(slow.rows.all(family), model.all(family));
        }
    }
}

#[test]
fn batches_gather_and_a_checkpoint_brings_all_of_them_below() {
    let slow = Arc::new(Slow::default());
    let behind = WriteBehind::start(slow.clone(), limits()).unwrap();
    let mut changes = Changes::new();
    changes.put(Family::Metadata, b"k", b"v");
    for _ in 0..10 {
        behind.write(&[&changes]).unwrap();
    }
    behind.checkpoint().unwrap();
    assert!(behind.line.batches().is_empty());
    assert!(slow.writes.load(Ordering::SeqCst) <= 2);
    assert_eq!(slow.rows.all(Family::Metadata).len(), 1);
    behind.write(&[&changes]).unwrap();
    drop(behind);
    assert!(slow.writes.load(Ordering::SeqCst) <= 3);
}

#[test]
fn what_waits_is_bounded() {
    let slow = Arc::new(Slow::default());
    slow.busy.store(true, Ordering::SeqCst);
    let behind = WriteBehind::start(slow.clone(), limits()).unwrap();
    let mut changes = Changes::new();
    changes.put(Family::Metadata, b"k", b"v");
    assert_eq!(behind.write(&[&changes]), Ok(()));
    changes.put(Family::Metadata, b"k", &vec![0; MOST_BYTES]);
    assert_eq!(
        behind.write(&[&changes]),
        Ok(()),
        "small ones do not stop a large one"
    );
    assert_eq!(behind.write(&[&changes]), Err(WriteError::Busy));
    slow.busy.store(false, Ordering::SeqCst);
    behind.checkpoint().unwrap();
    assert_eq!(behind.write(&[&changes]), Ok(()));
}

#[test]
fn a_broken_store_is_told_to_everyone_who_asks_later() {
    let slow = Arc::new(Slow::default());
    slow.broken.store(true, Ordering::SeqCst);
    let behind = WriteBehind::start(slow.clone(), limits()).unwrap();
    let mut changes = Changes::new();
    changes.put(Family::Metadata, b"k", b"v");
    assert_eq!(behind.write(&[&changes]), Ok(()));
    assert_eq!(
        behind.checkpoint(),
        Err(RowError::Failed("broken".into())),
        "the log must not be cut",
    );
    let broken = WriteError::Failed("broken".into());
    assert_eq!(behind.write(&[&changes]), Err(broken));
    assert_eq!(get(&*behind, Family::Metadata, b"k"), Some(b"v".to_vec()));
}

#[test]
fn a_row_written_often_is_written_below_once() {
    let slow = Arc::new(Slow::default());
    let behind = WriteBehind::start(slow.clone(), folding()).unwrap();
    for round in 0..1000u32 {
        let mut changes = Changes::new();
        changes.put(Family::Info, b"applied", &round.to_be_bytes());
        changes.put(Family::Metadata, &[(round % 7) as u8], &round.to_be_bytes());
        behind.write(&[&changes]).unwrap();
    }
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while behind.line.batches().len() > 8 {
        assert!(std::time::Instant::now() < until, "nothing folds them");
        std::thread::yield_now();
    }
    let last = 999u32.to_be_bytes().to_vec();
    assert_eq!(get(&*behind, Family::Info, b"applied"), Some(last));
    assert_eq!(slow.writes.load(Ordering::SeqCst), 0);
    behind.checkpoint().unwrap();
    assert_eq!(slow.writes.load(Ordering::SeqCst), 1);
    assert_eq!(slow.rows.all(Family::Metadata).len(), 7);
    assert_eq!(behind.stats().waiting_bytes, 0);
}

#[test]
fn what_waits_long_or_is_much_goes_below_unasked() {
    let wait = |writes: &AtomicUsize, wanted| {
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while writes.load(Ordering::SeqCst) < wanted {
            assert!(std::time::Instant::now() < until, "nothing writes them");
            std::thread::yield_now();
        }
    };
    let slow = Arc::new(Slow::default());
    let soon = Limits {
        write_after: Duration::from_millis(20),
        ..limits()
    };
    let behind = WriteBehind::start(slow.clone(), soon).unwrap();
    let mut changes = Changes::new();
    changes.put(Family::Metadata, b"k", b"v");
    behind.write(&[&changes]).unwrap();
    wait(&slow.writes, 1);

    let slow = Arc::new(Slow::default());
    let behind = WriteBehind::start(slow.clone(), folding()).unwrap();
    for part in 0..10u8 {
        let mut changes = Changes::new();
        changes.put(Family::Metadata, &[part], &vec![0; MOST_BYTES / 10]);
        behind.write(&[&changes]).unwrap();
    }
    wait(&slow.writes, 1);
}
