//! In the middle of installing and removing a region: what the next process finds must be the old region, the
//! new one, or a note to begin again; another region must not notice.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::cluster::Segment;
use keyspace::rows::{
    Changes, Redone, RowSource, RowStore, State, digest, regions, state_of, state_row,
};
use keyspace::{Expire, Keyspace, Tuning, Txn, View};
use rocks::{Store, StoreSettings, read_manifest};

use crate::power::{Power, SYNCS, WRITES, cuts, seed};

const REGION: u64 = 5;
const OTHER: u64 = 6;

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
#[ignore = "run by the test below"]
fn child_removes() {
    let place = PathBuf::from(std::env::var("NEOKV_PLACE").unwrap());
    let store = open(&place.join("rows"));
    store.remove_region(REGION, &all(REGION)).unwrap();
}

/// The process that is cut: ends an install that was begun, or begins one.
#[test]
#[ignore = "run by the test below"]
fn child_installs() {
    let place = PathBuf::from(std::env::var("NEOKV_PLACE").unwrap());
    let store = open(&place.join("rows"));
    let dir = place.join("copy");
    match &store.unfinished_installs().unwrap()[..] {
        [] => {
            let manifest = read_manifest(&dir).unwrap();
            store
                .install(REGION, &all(REGION), &manifest, &dir)
                .unwrap();
        }
        [begun] => assert_eq!(store.redo_install(begun), Ok(Redone::Installed)),
        more => panic!("{more:?}"),
    }
}

fn run(
    power: &Power,
    place: &Path,
    remove: bool,
    cut: Option<(u64, u64)>,
    dice: &mut fastrand::Rng,
) -> bool {
    let child = match remove {
        true => "regions::child_removes",
        false => "regions::child_installs",
    };
    power.run(child, place, cut, dice)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn a_power_cut_leaves_the_old_region_the_new_one_or_a_note() {
    let temp = tempfile::tempdir().unwrap();
    let from = open(&temp.path().join("from"));
    fill(&from, REGION, 1);
    let files = temp.path().join("files");
    let moment = from.snapshot();
    from.export(&*moment, REGION, &all(REGION), &files, &mut |_| true)
        .unwrap();
    drop(moment);
    let new = sum(&*from, REGION);
    let before = temp.path().join("before");
    let to = open(&before);
    fill(&to, OTHER, 3);
    fill(&to, REGION, 2);
    let (old, other) = (sum(&*to, REGION), sum(&*to, OTHER));
    drop((from, to));

    let power = Power::new();
    let seed = seed();
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut ends = [0; 4];
    let mut whole = [(0, 0); 2];
    for round in 0..cuts() {
        let remove = round % 4 == 1;
        let place = tempfile::tempdir().unwrap();
        let rows = place.path().join("rows");
        copy(&before, &rows);
        copy(&files, &place.path().join("copy"));
        if whole[usize::from(remove)] == (0, 0) {
            // The first is not cut: it tells how much there is to cut.
            assert!(!run(&power, place.path(), remove, None, &mut dice));
            whole[usize::from(remove)] = (power.get(WRITES), power.get(SYNCS));
            continue;
        }
        let whole = whole[usize::from(remove)];
        let at = power.somewhere(whole, &mut dice);
        run(&power, place.path(), remove, at, &mut dice);
        if dice.bool() {
            let at = power.somewhere(whole, &mut dice);
            run(&power, place.path(), remove, at, &mut dice);
        }
        let why = format!("seed {seed}, round {round}");
        let store = open(&rows);
        assert_eq!(sum(&*store, OTHER), other, "{why}");
        let is_here = state_of(&*store, REGION).unwrap().is_some();
        match &store.unfinished_installs().unwrap()[..] {
            [] if remove => {
                ends[3] += 1;
                if is_here {
                    assert_eq!(sum(&*store, REGION), old, "{why}");
                }
                store.remove_region(REGION, &all(REGION)).unwrap();
                assert_eq!(state_of(&*store, REGION), Ok(None));
            }
            [] if is_here && sum(&*store, REGION) == old => ends[0] += 1,
            [] => {
                assert_eq!(sum(&*store, REGION), new, "{why}");
                ends[1] += 1;
            }
            [begun] => {
                assert!(!is_here, "{why}");
                assert_eq!(store.redo_install(begun), Ok(Redone::Installed), "{why}");
                assert_eq!(sum(&*store, REGION), new, "{why}");
                ends[2] += 1;
            }
            more => panic!("{more:?}"),
        }
        assert_eq!(sum(&*store, OTHER), other, "{why}");
    }
    println!("writes and syncs of a whole run {whole:?}; old, new, begun, removals {ends:?}");
}
