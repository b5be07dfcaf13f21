//! Large writes and small ones in turns; an end of the process at every step; what RocksDB is to say when it is behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use keyspace::Kind;
use keyspace::rows::layout::{self, Body, Metadata};
use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier, WriteError, feed};
use tempfile::TempDir;

use super::FOLDER;
use crate::steps::STEPS;
use crate::{Store, StoreSettings};

/// A write of so many bytes becomes files.
const LARGE: usize = 16 << 10;
const APPLIED: &[u8] = b"applied";

fn open(path: &Path) -> Arc<Store> {
    let settings = StoreSettings {
        direct_bytes: LARGE,
        ..StoreSettings::default()
    };
    Store::open(path, &settings).unwrap()
}

fn key(home: u64, name: &str) -> Vec<u8> {
    layout::metadata_key(home, 1, name.as_bytes())
}

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

fn all(source: &dyn RowSource) -> Rows {
    let mut rows = Rows::new();
    for family in Family::ALL {
        let mut each = |key: &[u8], value: &[u8]| {
            rows.insert((family as u8, key.to_vec()), value.to_vec());
            true
        };
        let scanned = source.scan(family, &[], &[0xff; 20], false, Tier::All, &mut each);
        scanned.unwrap();
    }
    rows
}

/// Of files of rows; none if there is no such folder.
fn names(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<_> = names
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".sst"))
        .collect();
    names.sort();
    names
}

/// Changes of all families, some of them deletions, with their applied index.
fn changes(dice: &mut fastrand::Rng, index: u64, is_large: bool) -> Changes {
    let mut changes = Changes::new();
    let rows = if is_large { LARGE / 100 } else { 10 };
    for _ in 0..rows {
        let family = Family::ALL[dice.usize(0..Family::ALL.len())];
        let key = key(1, &format!("{:04}", dice.u32(0..1500)));
        match dice.u8(0..4) {
            0 => changes.delete(family, &key),
            _ => changes.put(family, &key, &[dice.u8(..); 120]),
        }
    }
    changes.put(Family::Info, APPLIED, &index.to_be_bytes());
    assert_eq!(changes.size_bytes() >= LARGE, is_large);
    changes
}

fn apply(model: &mut Rows, changes: &Changes) {
    for change in changes.iter() {
        let key = (change.family as u8, change.key.to_vec());
        match change.value {
            Some(value) => model.insert(key, value.to_vec()),
            None => model.remove(&key),
        };
    }
}

#[test]
fn large_and_small_writes_in_turns_are_what_a_map_makes_of_them() {
    let mut dice = fastrand::Rng::with_seed(1);
    for _ in 0..5 {
        let dir = TempDir::new().unwrap();
        let mut store = open(dir.path());
        store.start_compaction();
        let mut model = Rows::new();
        let mut on_disk = Rows::new();
        for index in 1..60 {
            let is_large = dice.bool();
            let changes = changes(&mut dice, index, is_large);
            let before = (dice.u8(0..5) == 0).then(|| (store.snapshot(), model.clone()));
            store.write(&[&changes]).unwrap();
            apply(&mut model, &changes);
            assert_eq!(store.has_rows_in_memory(), !is_large);
            if is_large {
                on_disk = model.clone();
            }
            if let Some((snapshot, before)) = before {
                assert_eq!(all(&*snapshot), before, "what came later is not in it");
            }
            assert_eq!(all(&*store), model);
            if dice.u8(0..6) == 0 {
                // As after a crash: what is in memtables is lost, and nothing else.
                drop(store);
                store = open(dir.path());
                store.start_compaction();
                assert_eq!(all(&*store), on_disk);
                model = on_disk.clone();
            }
        }
        assert_eq!(names(&dir.path().join(FOLDER)), [""; 0]);
    }
}

#[test]
fn large_writes_of_several_threads_do_not_mix() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    std::thread::scope(|scope| {
        for home in 1..5 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..20 {
                    let mut changes = Changes::new();
                    for part in 0..40 {
                        let key = key(home, &format!("{n}-{part}"));
                        changes.put(Family::Data, &key, &[home as u8; LARGE / 40]);
                    }
                    store.write(&[&changes]).unwrap();
                }
            });
        }
    });
    let rows = all(&*store);
    assert_eq!(rows.len(), 4 * 20 * 40);
    for ((_, key), value) in &rows {
        let home = layout::i64_bytes(i64::from(value[0]));
        assert_eq!(key[..8], home);
    }
}

#[test]
fn an_earlier_write_is_not_lost_behind_a_later_one() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let mut small = Changes::new();
    small.put(Family::Score, &key(1, "a"), b"earlier");
    store.write(&[&small]).unwrap();
    // In another family, so nothing of it is where the first one's row is.
    let mut large = Changes::new();
    large.put(Family::Data, &key(1, "b"), &[1; LARGE]);
    store.write(&[&large]).unwrap();
    drop(store);
    assert_eq!(all(&*open(dir.path())).len(), 2);
}

#[test]
fn a_process_that_ends_at_any_step_has_written_all_or_nothing() {
    let mut dice = fastrand::Rng::with_seed(2);
    let dir = TempDir::new().unwrap();
    let mut model = Rows::new();
    let mut ended = 0;
    for step in 0.. {
        let store = open(dir.path());
        assert_eq!(all(&*store), model, "step {step}");
        assert_eq!(
            names(&dir.path().join(FOLDER)),
            [""; 0],
            "removed by an open"
        );
        let live = store.open.db.live_files().unwrap();
        let mut live: Vec<_> = live
            .iter()
            .map(|it| it.name.trim_start_matches('/').to_string())
            .collect();
        live.sort();
        assert_eq!(names(dir.path()), live, "no file that belongs to nothing");

        let small = changes(&mut dice, step as u64 * 2, false);
        store.write(&[&small]).unwrap();
        let large = changes(&mut dice, step as u64 * 2 + 1, true);
        STEPS.set(step);
        let written = store.write(&[&large]);
        STEPS.set(usize::MAX);
        let mut after = model.clone();
        apply(&mut after, &small);
        if written.is_ok() {
            apply(&mut after, &large);
        } else {
            ended += 1;
        }
        assert_eq!(all(&*store), after, "step {step}");
        drop(store);
        let found = all(&*open(dir.path()));
        // Before the earlier rows were flushed these are lost with it.
        assert!(
            found == after || written.is_err() && found == model,
            "step {step}"
        );
        model = found;
        if written.is_ok() {
            break;
        }
    }
    assert!(ended > Family::ALL.len(), "{ended}");
}

#[test]
fn files_that_belong_to_nothing_are_removed() {
    let dir = TempDir::new().unwrap();
    let left = dir.path().join(FOLDER).join("data.sst");
    fs::create_dir(dir.path().join(FOLDER)).unwrap();
    fs::write(&left, "torn").unwrap();
    drop(open(dir.path()));
    assert!(!left.exists());
}

#[test]
fn a_file_that_is_part_of_the_database_is_not_written_over() {
    let mut dice = fastrand::Rng::with_seed(7);
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let mut model = Rows::new();
    for index in 1..4 {
        let large = changes(&mut dice, index, true);
        store.write(&[&large]).unwrap();
        apply(&mut model, &large);
        // As if they could not be removed where they came from.
        for file in store.open.db.live_files().unwrap() {
            let here = dir.path().join(FOLDER);
            let here = here.join(format!("{}.sst", file.column_family_name));
            let _ = fs::hard_link(dir.path().join(file.name.trim_start_matches('/')), here);
        }
    }
    drop(store);
    assert_eq!(all(&*open(dir.path())), model);
}

#[test]
fn a_store_that_is_behind_says_busy_and_writes_nothing() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let db = &store.open.db;
    let options = [
        ("level0_file_num_compaction_trigger", "1000"),
        ("level0_slowdown_writes_trigger", "3"),
        ("level0_stop_writes_trigger", "100"),
        ("disable_auto_compactions", "false"),
    ];
    let family = db.family(Family::Metadata);
    db.set_options_cf(&family, &options).unwrap();
    let mut dice = fastrand::Rng::with_seed(3);
    let mut model = Rows::new();
    for index in 1..20 {
        let large = changes(&mut dice, index, true);
        match store.write(&[&large]) {
            Ok(()) => apply(&mut model, &large),
            Err(error) => {
                assert_eq!(error, WriteError::Busy);
                assert_eq!(all(&*store), model);
                assert_eq!(names(&dir.path().join(FOLDER)), [""; 0]);
                // Level 0 has been cleared: it goes on.
                store.compact();
                store.write(&[&large]).unwrap();
                return;
            }
        }
    }
    panic!("never busy");
}

#[test]
fn what_cannot_be_written_fails_and_leaves_nothing() {
    let mut dice = fastrand::Rng::with_seed(4);
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let large = changes(&mut dice, 1, true);
    store.write(&[&large]).unwrap();
    let before = all(&*store);
    let folder = dir.path().join(FOLDER);
    fs::remove_dir(&folder).unwrap();
    fs::write(&folder, "in its place").unwrap();
    let failed = store.write(&[&changes(&mut dice, 2, true)]);
    assert!(matches!(failed, Err(WriteError::Failed(_))), "{failed:?}");
    fs::remove_file(&folder).unwrap();
    // The last family's file cannot be made: those before it go again.
    let last = folder.join(format!("{}.sst", Family::Tables.name()));
    fs::create_dir_all(&last).unwrap();
    let failed = store.write(&[&changes(&mut dice, 3, true)]);
    assert!(matches!(failed, Err(WriteError::Failed(_))), "{failed:?}");
    fs::remove_dir(&last).unwrap();
    assert_eq!(names(&folder), [""; 0]);
    assert_eq!(all(&*store), before);
    store.write(&[&large]).unwrap();
    drop(store);
    assert_eq!(all(&*open(dir.path())), before);
}

fn collection(generation: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let body = Body::Collection {
        generation,
        size: 1,
        extra: b"",
    };
    let row = Metadata {
        kind: Kind::Hash,
        expire_at_ms: None,
        body,
    };
    row.push(&mut bytes);
    bytes
}

/// Heads and elements come in together: elements are never taken for orphans, and are orphans once the head has gone.
#[test]
fn filters_see_heads_and_elements_of_one_write_together() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    store.set_alive(&[(1, 1)]);
    store.start_compaction();
    let count = |family| {
        let rows = all(&*store);
        rows.keys().filter(|(of, _)| *of == family as u8).count()
    };
    let mut heads = Changes::new();
    for n in 0..300u64 {
        let mut changes = Changes::new();
        let name = format!("k{n:03}");
        changes.put(Family::Metadata, &key(1, &name), &collection(n + 1));
        heads.delete(Family::Metadata, &key(1, &name));
        for element in 0..4u8 {
            let mut row = Vec::new();
            layout::push_base(&mut row, 1, 1, name.as_bytes(), n + 1);
            row.push(element);
            changes.put(Family::Data, &row, &[element; LARGE / 4]);
        }
        while store.write(&[&changes]) == Err(WriteError::Busy) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    store.compact();
    assert_eq!(count(Family::Data), 1200);
    heads.put(Family::Info, APPLIED, &[0; LARGE]);
    store.write(&[&heads]).unwrap();
    store.compact();
    assert_eq!(count(Family::Data), 0, "on disk without a checkpoint");
}

#[test]
fn the_feed_is_in_order_and_its_oldest_part_goes() {
    let dir = TempDir::new().unwrap();
    let settings = StoreSettings {
        direct_bytes: LARGE,
        binlog_bytes: 1 << 20,
        ..StoreSettings::default()
    };
    let store = Store::open(dir.path(), &settings).unwrap();
    let mut dice = fastrand::Rng::with_seed(5);
    let last = 400;
    for index in 1..=last {
        let mut changes = Changes::new();
        // Noise, or it would be compressed.
        let payload: Vec<u8> = (0..LARGE).map(|_| dice.u8(..)).collect();
        feed::note(&mut changes, 9, index, &payload);
        store.write(&[&changes]).unwrap();
    }
    let read = || {
        let mut found = Vec::new();
        let each = &mut |index, _: &[u8]| {
            found.push(index);
            true
        };
        feed::read(&*store, 9, 0, each).unwrap();
        found
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while read()[0] == 1 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let kept = read();
    assert!(kept[0] > 1, "nothing was dropped");
    assert_eq!(kept, (kept[0]..=last).collect::<Vec<_>>(), "holes");
}

#[test]
fn figures_count_rows_and_files() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let mut changes = Changes::new();
    let mut dice = fastrand::Rng::with_seed(6);
    for n in 0..1000 {
        let value: Vec<u8> = (0..100).map(|_| dice.u8(..)).collect();
        changes.put(Family::Data, &key(1, &format!("{n:04}")), &value);
    }
    let before = store.stats();
    store.write(&[&changes]).unwrap();
    let after = store.stats();
    let rows = after.written_bytes - before.written_bytes;
    let files = after.flushed_bytes - before.flushed_bytes;
    assert!((100_000..150_000).contains(&rows), "{rows}");
    assert!((100_000..150_000).contains(&files), "{files}");
}
