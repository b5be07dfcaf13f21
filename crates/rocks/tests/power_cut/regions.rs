//! In the middle of installing and removing a region, or with a sync of an install that fails: what the next process
//! finds must be the old region, the new one, or a note to begin again; another region must not notice.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::cluster::Segment;
use keyspace::rows::{
    Changes, Redone, RegionError, RowSource, RowStore, State, digest, regions, state_of, state_row,
};
use keyspace::{Expire, Keyspace, Tuning, Txn, View};
use rocks::{Store, StoreSettings, read_manifest};

use crate::power::{CUT_AT_END, FAIL_AT_SYNC, FAILURES, Power, SYNCS, WRITES, cuts, seed};

const REGION: u64 = 5;
const OTHER: u64 = 6;
/// Syncs of an open, before anything else.
const OPENING: u64 = 10;

fn all(region: u64) -> [Segment; 1] {
    [Segment::new(region, 0..=16383)]
}

fn open(path: &Path) -> Arc<Store> {
    let store = Store::open(path, &StoreSettings::default()).unwrap();
    let mut alive = Vec::new();
    for (region, state) in regions(&*store).unwrap() {
        alive.extend(state.alive(region));
    }
    store.set_alive(&alive);
    store.start_compaction();
    store
}

fn fill(store: &Arc<Store>, region: u64, seed: u64) {
    store.create_regions(&[(region, State::default())]).unwrap();
    let state = state_row(&**store, region).unwrap();
    let mut space = Keyspace::durable(1, region, state.as_deref(), store.clone()).unwrap();
    let mut dice = fastrand::Rng::with_seed(seed);
    let tuning = Tuning::default();
    for index in 1..40 {
        space.begin_entry(index);
        for n in 0..40 {
            let mut txn = Txn::new(View::one(&mut space, 0, 1, 1, &tuning));
            let key = format!("{index}-{n}-{}", dice.u8(..));
            match n % 4 {
                0 => txn.put_string(key.as_bytes(), &[dice.u8(..); 100], Expire::At(1 << 40)),
                1 => {
                    let mut zset = txn.zset_or_new(key.as_bytes()).unwrap();
                    (0..9).for_each(|n| {
                        zset.insert(&[n], f64::from(dice.u8(..)));
                    });
                }
                _ => {
                    let mut hash = txn.hash_or_new(key.as_bytes()).unwrap();
                    (0..9).for_each(|n| {
                        hash.insert(&[n], &[dice.u8(..); 30]);
                    });
                }
            }
        }
        let mut changes = Changes::new();
        space.end_entry(1, &mut changes);
        store.write(&[&changes]).unwrap();
        space.rows_written();
    }
    store.checkpoint().unwrap();
}

fn sum(store: &dyn RowSource, region: u64) -> [u8; 16] {
    digest(store, region, &all(region), &mut |_| true).unwrap()
}

/// The process that is cut: removes the region.
#[test]
#[ignore = "run by a test below"]
fn child_removes() {
    let place = PathBuf::from(std::env::var("NEOKV_PLACE").unwrap());
    let store = open(&place.join("rows"));
    store.remove_region(REGION, &all(REGION)).unwrap();
}

/// Ends an install that was begun, or begins one.
fn install(store: &Store, dir: &Path) -> Result<(), RegionError> {
    match &store.unfinished_installs()?[..] {
        [] => store.install(REGION, &all(REGION), &read_manifest(dir)?, dir),
        [begun] => {
            assert_eq!(store.redo_install(begun)?, Redone::Installed);
            Ok(())
        }
        more => panic!("{more:?}"),
    }
}

/// The process that is cut: installs the region.
#[test]
#[ignore = "run by a test below"]
fn child_installs() {
    let place = PathBuf::from(std::env::var("NEOKV_PLACE").unwrap());
    let store = open(&place.join("rows"));
    install(&store, &place.join("copy")).unwrap();
}

/// The process whose disk refuses something: it gives up.
#[test]
#[ignore = "run by a test below"]
fn child_tries_to_install() {
    let place = PathBuf::from(std::env::var("NEOKV_PLACE").unwrap());
    let store = open(&place.join("rows"));
    let _ = install(&store, &place.join("copy"));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Before anything happens: a store, and beside it the files of the new region.
struct Scene {
    temp: tempfile::TempDir,
    /// What the region is and is to be, and what the other one always is.
    old: Option<[u8; 16]>,
    new: [u8; 16],
    other: [u8; 16],
}

/// How the next process may find it.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Old,
    New,
    Begun,
}

impl Scene {
    fn new(has_old: bool) -> Scene {
        let temp = tempfile::tempdir().unwrap();
        let from = open(&temp.path().join("from"));
        fill(&from, REGION, 1);
        let (moment, files) = (from.snapshot(), temp.path().join("files"));
        from.export(&*moment, REGION, &all(REGION), &files, &mut |_| true)
            .unwrap();
        let to = open(&temp.path().join("rows"));
        fill(&to, OTHER, 3);
        if has_old {
            fill(&to, REGION, 2);
        }
        Scene {
            temp,
            old: now(&to),
            new: sum(&*from, REGION),
            other: sum(&*to, OTHER),
        }
    }

    /// A place for a process to begin with it.
    fn place(&self) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        copy(&self.temp.path().join("rows"), &place.path().join("rows"));
        copy(&self.temp.path().join("files"), &place.path().join("copy"));
        place
    }

    /// After an install that did not come to its end, maybe.
    fn end(&self, store: &Store, why: &str) -> End {
        assert_eq!(sum(store, OTHER), self.other, "{why}");
        let end = match &store.unfinished_installs().unwrap()[..] {
            [] if now(store) == self.old => End::Old,
            [] => {
                assert_eq!(now(store), Some(self.new), "{why}");
                End::New
            }
            [begun] => {
                assert_eq!(now(store), None, "{why}");
                assert_eq!(store.redo_install(begun), Ok(Redone::Installed), "{why}");
                assert_eq!(now(store), Some(self.new), "{why}");
                End::Begun
            }
            more => panic!("{more:?}"),
        };
        assert_eq!(sum(store, OTHER), self.other, "{why}");
        end
    }
}

/// The region, if it has a state.
fn now(store: &Store) -> Option<[u8; 16]> {
    let state = state_of(store, REGION).unwrap();
    state.map(|_| sum(store, REGION))
}

#[test]
fn a_power_cut_leaves_the_old_region_the_new_one_or_a_note() {
    let scene = Scene::new(true);
    let power = Power::new();
    let seed = seed();
    let mut dice = fastrand::Rng::with_seed(seed);
    let (mut ends, mut removals) = (Vec::new(), 0);
    let mut whole = [(0, 0); 2];
    for round in 0..cuts() {
        let remove = round % 4 == 1;
        let child = match remove {
            true => "regions::child_removes",
            false => "regions::child_installs",
        };
        let place = scene.place();
        let whole = &mut whole[usize::from(remove)];
        if *whole == (0, 0) {
            // The first is not cut: it tells how much there is to cut.
            assert!(!power.run(child, place.path(), None, &mut dice));
            *whole = (power.get(WRITES), power.get(SYNCS));
            continue;
        }
        let at = power.somewhere(*whole, &mut dice);
        power.run(child, place.path(), at, &mut dice);
        if dice.bool() {
            let at = power.somewhere(*whole, &mut dice);
            power.run(child, place.path(), at, &mut dice);
        }
        let why = format!("seed {seed}, round {round}");
        let store = open(&place.path().join("rows"));
        if !remove {
            ends.push(scene.end(&store, &why));
            continue;
        }
        assert_eq!(store.unfinished_installs(), Ok(Vec::new()), "{why}");
        let is_old = now(&store).is_none_or(|sum| Some(sum) == scene.old);
        assert!(is_old, "{why}");
        store.remove_region(REGION, &all(REGION)).unwrap();
        assert_eq!(now(&store), None, "{why}");
        assert_eq!(sum(&*store, OTHER), scene.other, "{why}");
        removals += 1;
    }
    println!("writes and syncs of a whole run {whole:?}; {removals} removals, {ends:?}");
}

/// The disk refuses one sync of an install, each in turn, and the process gives up. Nobody knows whether what that sync
/// was for is on disk: without a power cut the next process sees it, with one it does not.
fn refuse_each_sync(is_cut: bool) {
    // Without old rows to compact: RocksDB waits a second for each compaction that fails.
    let scene = Scene::new(false);
    let power = Power::new();
    let mut dice = fastrand::Rng::with_seed(seed());
    let child = "regions::child_tries_to_install";
    let (mut ends, mut failures) = (Vec::new(), 0);
    let place = scene.place();
    power.run(child, place.path(), None, &mut dice);
    let syncs = power.get(SYNCS);
    for at in OPENING + 1..=syncs {
        let place = scene.place();
        let set = [(FAIL_AT_SYNC, at), (CUT_AT_END, u64::from(is_cut))];
        assert_eq!(power.run(child, place.path(), set, &mut dice), is_cut);
        let why = format!("sync {at} of {syncs} failed");
        failures += power.get(FAILURES);
        let store = open(&place.path().join("rows"));
        ends.push(scene.end(&store, &why));
    }
    // Something may be compacted in the background or not, so a run may have a sync less than another.
    assert!(failures >= 10, "{failures} of {syncs}");
    assert!(ends.contains(&End::Begun), "{ends:?}");
}

#[test]
fn a_sync_that_fails_leaves_no_region_the_new_one_or_a_note() {
    refuse_each_sync(false);
}

#[test]
fn a_sync_that_fails_before_a_power_cut_leaves_no_region_the_new_one_or_a_note() {
    refuse_each_sync(true);
}
