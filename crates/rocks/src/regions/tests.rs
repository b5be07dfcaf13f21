//! Regions that are copied, replaced and removed: content of all types, damage, and an end of the process
//! at every step.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use base::cluster::Segment;
use keyspace::rows::{
    Changes, Family, Redone, RegionError, RowSource, RowStore, State, Tier, digest, for_each_value,
    layout, regions, state_of, state_row,
};
use keyspace::{Expire, Keyspace, Tuning, Txn, ValueRef, View};
use tempfile::TempDir;

use crate::steps::STEPS;
use crate::{Limits, Store, StoreSettings, WriteBehind, read_manifest};

const REGION: u64 = 5;
/// Lies beside it in every family and must never change.
const OTHER: u64 = 6;

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

fn all(region: u64) -> [Segment; 1] {
    [Segment::new(region, 0..=16383)]
}

fn space(store: &Arc<Store>, region: u64) -> Keyspace {
    if state_of(&**store, region).unwrap().is_none() {
        store.create_regions(&[(region, State::default())]).unwrap();
    }
    let state = state_row(&**store, region).unwrap();
    Keyspace::durable(1, region, state.as_deref(), store.clone()).unwrap()
}

fn load(space: &mut Keyspace, store: &dyn RowSource, db: u8, key: &[u8]) {
    if !space.is_resident(db, key) {
        let request = space.load_request(db, key);
        let loaded = keyspace::rows::load(store, &request, Tier::All).unwrap();
        space.insert_loaded(request, loaded);
    }
}

/// Random entries of all types, with deadlines, deletions, flushed and swapped databases.
fn fill(space: &mut Keyspace, store: &dyn RowStore, dice: &mut fastrand::Rng, entries: u64) {
    let tuning = Tuning::default();
    for _ in 0..entries {
        let index = space.applied_index() + 1;
        space.begin_entry(index);
        space.note_term(1 + index / 16);
        for _ in 0..dice.usize(1..20) {
            let db = if dice.u8(0..8) == 0 { dice.u8(1..4) } else { 0 };
            let key = format!("key{}", dice.u16(0..300)).into_bytes();
            load(space, store, db, &key);
            let mut txn = Txn::new(View::one(space, db, 1, 1, &tuning));
            change(&mut txn, &key, dice);
        }
        let mut changes = Changes::new();
        space.end_entry(1, &mut changes);
        keyspace::rows::feed::note(&mut changes, space.home(), index, b"an entry");
        store.write(&[&changes]).unwrap();
        space.rows_written();
    }
}

fn change(txn: &mut Txn<'_>, key: &[u8], dice: &mut fastrand::Rng) {
    let bytes = vec![dice.u8(..); dice.usize(0..200)];
    match dice.u8(0..40) {
        0..6 => txn.put_string(key, &bytes, Expire::At(dice.u64(2..1 << 40))),
        6..9 => txn.put_int(key, dice.i64(..), Expire::Clear),
        9..14 => {
            if let Ok(mut it) = txn.hash_or_new(key) {
                (0..dice.u8(1..30)).for_each(|n| {
                    it.insert(&[n], &bytes);
                });
            }
        }
        14..19 => {
            if let Ok(mut it) = txn.set_or_new(key) {
                (0..dice.u8(1..30)).for_each(|n| {
                    it.insert(&[n, 1]);
                });
            }
        }
        19..24 => {
            if let Ok(mut it) = txn.list_or_new(key) {
                it.push_back(&bytes);
                it.push_front(b"first");
            }
        }
        24..30 => {
            if let Ok(mut it) = txn.zset_or_new(key) {
                let score = *dice.choice(&[0.0, -0.0, 1.5, -7.25]).unwrap();
                (0..dice.u8(1..9)).for_each(|n| {
                    it.insert(&[n], score * f64::from(n));
                });
            }
        }
        30..35 => {
            txn.remove(key);
        }
        35..38 => {
            txn.set_expire(key, Some(dice.u64(2..1 << 40)));
        }
        38 => {
            if dice.u8(0..10) == 0 {
                txn.flush_db();
            }
        }
        _ => txn.swap_db(1, 2),
    }
}

fn write_random(store: &Arc<Store>, region: u64, seed: u64, entries: u64) {
    let mut space = space(store, region);
    space.begin_entry(space.applied_index() + 1);
    space.set_descriptor(format!("members by {seed}").as_bytes());
    let mut changes = Changes::new();
    space.end_entry(1, &mut changes);
    store.write(&[&changes]).unwrap();
    fill(
        &mut space,
        &**store,
        &mut fastrand::Rng::with_seed(seed),
        entries,
    );
}

fn sum_of(source: &dyn RowSource, region: u64) -> [u8; 16] {
    digest(source, region, &all(region), &mut |_| true).unwrap()
}

/// Elements of a value, each with its parts, and the deadline.
type Contents = BTreeMap<(u8, Vec<u8>), (Vec<Vec<Vec<u8>>>, Option<u64>)>;

fn contents(source: &dyn RowSource, region: u64) -> Contents {
    let mut found = Contents::new();
    let Some(state) = state_row(source, region).unwrap() else {
        return found;
    };
    for_each_value(source, region, &state, &mut |db, key, value, deadline| {
        let mut parts: Vec<Vec<Vec<u8>>> = match &value {
            ValueRef::String(it) => vec![vec![it.to_vec()]],
            ValueRef::List(it) => it.iter().map(|it| vec![it.to_vec()]).collect(),
            ValueRef::Set(it) => it.iter().map(|it| vec![it.to_vec()]).collect(),
            ValueRef::Zset(it) => it
                .iter()
                .map(|(m, s)| vec![m.to_vec(), s.to_bits().to_be_bytes().to_vec()])
                .collect(),
            ValueRef::Hash(it) => it
                .iter()
                .map(|(f, v)| vec![f.to_vec(), v.to_vec()])
                .collect(),
            other => panic!("{:?} cannot be compared", other.kind()),
        };
        if matches!(value, ValueRef::Set(_) | ValueRef::Hash(_)) {
            parts.sort();
        }
        found.insert((db, key.to_vec()), (parts, deadline));
    })
    .unwrap();
    found
}

/// Rows of a home in a family, reachable or not.
fn rows_of(store: &Store, family: Family, home: u64) -> usize {
    let from = layout::i64_bytes(home as i64);
    let mut rows = 0;
    let mut each = |_: &[u8], _: &[u8]| {
        rows += 1;
        true
    };
    let to = layout::behind(&from);
    store
        .scan(family, &from, &to, false, Tier::All, &mut each)
        .unwrap();
    rows
}

fn export(store: &Arc<Store>, region: u64, dir: &Path) -> keyspace::rows::Manifest {
    let moment = store.snapshot();
    let made = store.export(&*moment, region, &all(region), dir, &mut |_| true);
    made.unwrap()
}

fn temp() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_copy_has_the_same_values_and_nothing_of_what_was_there_before() {
    for seed in 0..6 {
        let (here, there, files) = (temp(), temp(), temp());
        let from = open(here.path());
        write_random(&from, REGION, seed, 60);
        if seed % 2 == 0 {
            from.checkpoint().unwrap();
        }
        write_random(&from, REGION, seed + 50, 5 * seed);
        let dir = files.path().join("copy");
        let manifest = export(&from, REGION, &dir);
        assert_eq!(read_manifest(&dir).unwrap(), manifest);
        let state = state_of(&*from, REGION).unwrap().unwrap();
        assert_eq!(manifest.applied_index, state.applied_index);
        assert_eq!(manifest.applied_term, state.applied_term);
        assert!(manifest.rows > 100 && manifest.bytes > 1000);

        let to = open(there.path());
        write_random(&to, OTHER, 99, 20);
        if seed != 1 {
            write_random(&to, REGION, seed + 100, 80);
        }
        if seed == 3 {
            to.checkpoint().unwrap();
            to.compact();
        }
        let other = (sum_of(&*to, OTHER), contents(&*to, OTHER));
        to.install(REGION, &all(REGION), &manifest, &dir).unwrap();
        assert_eq!(to.unfinished_installs().unwrap(), []);
        let check = |to: &Store| {
            assert_eq!(sum_of(to, REGION), sum_of(&*from, REGION));
            assert_eq!(contents(to, REGION), contents(&*from, REGION));
            assert_eq!(state_row(to, REGION), state_row(&*from, REGION));
            assert_eq!(
                rows_of(to, Family::Feed, REGION),
                rows_of(&from, Family::Feed, REGION)
            );
            assert_eq!((sum_of(to, OTHER), contents(to, OTHER)), other);
        };
        check(&to);
        let sum = sum_of(&*to, REGION);
        to.compact();
        assert_eq!(sum_of(&*to, REGION), sum, "filters drop nothing of it");
        to.checkpoint().unwrap();
        drop(to);
        let to = open(there.path());
        assert_eq!(sum_of(&*to, REGION), sum);
        check(&to);
        // It goes on from there.
        write_random(&to, REGION, 7, 10);
        to.checkpoint().unwrap();
        let sum = sum_of(&*to, REGION);
        to.compact();
        assert_eq!(sum_of(&*to, REGION), sum);
    }
}

#[test]
fn digests_and_values_are_those_of_the_moment_while_others_write() {
    let (here, there, files) = (temp(), temp(), temp());
    let below = open(here.path());
    write_random(&below, REGION, 1, 30);
    let behind = WriteBehind::start(below.clone(), Limits::for_memtables(4 << 20)).unwrap();
    let state = state_row(&*behind, REGION).unwrap();
    let mut space = Keyspace::durable(1, REGION, state.as_deref(), behind.clone()).unwrap();
    let mut dice = fastrand::Rng::with_seed(4);
    fill(&mut space, &*behind, &mut dice, 20);
    // Rows still wait here.
    let moment = behind.snapshot();
    let wanted = (sum_of(&*moment, REGION), contents(&*moment, REGION));
    fill(&mut space, &*behind, &mut dice, 20);
    let dir = files.path().join("copy");
    let mut paced = 0;
    let manifest = behind
        .export(&*moment, REGION, &all(REGION), &dir, &mut |bytes| {
            paced += bytes;
            fill(&mut space, &*behind, &mut dice, 1);
            true
        })
        .unwrap();
    assert!(paced > 0);
    assert_ne!(sum_of(&*behind, REGION), wanted.0);
    let to = open(there.path());
    let to = WriteBehind::start(to, Limits::for_memtables(4 << 20)).unwrap();
    to.verify(&manifest, &dir).unwrap();
    to.install(REGION, &all(REGION), &manifest, &dir).unwrap();
    assert_eq!(sum_of(&*to, REGION), wanted.0);
    assert_eq!(contents(&*to, REGION), wanted.1);

    let stopped = behind.export(&*moment, REGION, &all(REGION), &dir, &mut |_| false);
    assert_eq!(stopped, Err(RegionError::Cancelled));
    assert!(!dir.exists());
    let absent = behind.export(&*moment, 77, &all(77), &dir, &mut |_| true);
    assert!(matches!(absent, Err(RegionError::Refused(_))));
}

#[test]
fn files_that_are_not_right_are_refused_and_nothing_changes() {
    let (here, there, files) = (temp(), temp(), temp());
    let from = open(here.path());
    write_random(&from, REGION, 1, 60);
    let dir = files.path().join("copy");
    let manifest = export(&from, REGION, &dir);
    let to = open(there.path());
    write_random(&to, REGION, 2, 20);
    let before = (sum_of(&*to, REGION), contents(&*to, REGION));
    let refused = |segments: &[Segment], manifest: &_, part: &str| {
        let error = to.install(REGION, segments, manifest, &dir).unwrap_err();
        assert!(matches!(error, RegionError::Refused(_)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(to.unfinished_installs().unwrap(), []);
        assert_eq!((sum_of(&*to, REGION), contents(&*to, REGION)), before);
    };
    let mut other = manifest.clone();
    other.region = OTHER;
    refused(&all(REGION), &other, "region 6");
    refused(&[Segment::new(REGION, 0..=7)], &manifest, "other slots");
    refused(&[], &manifest, "other slots");
    let path = dir.join(&manifest.files[1].name);
    let whole = fs::read(&path).unwrap();
    let mut wrong = whole.clone();
    wrong[whole.len() / 2] ^= 1;
    fs::write(&path, &wrong).unwrap();
    refused(&all(REGION), &manifest, "wrong checksum");
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    refused(&all(REGION), &manifest, "bytes instead of");
    fs::remove_file(&path).unwrap();
    refused(&all(REGION), &manifest, &manifest.files[1].name);
    fs::write(dir.join("MANIFEST"), b"half").unwrap();
    assert!(matches!(read_manifest(&dir), Err(RegionError::Refused(_))));
}

/// Runs `act` and lets the process end after each of its steps in turn, on a fresh copy of `of` each
/// time; `check` gets the store as the next process finds it, and whether `act` came to its end.
fn at_every_step(
    of: &Path,
    act: &dyn Fn(&Arc<Store>) -> Result<(), RegionError>,
    check: &dyn Fn(Arc<Store>, usize),
) -> usize {
    for step in 0.. {
        let copy = temp();
        for file in fs::read_dir(of).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        let store = open(copy.path());
        STEPS.set(step);
        let done = act(&store);
        STEPS.set(usize::MAX);
        drop(store);
        check(open(copy.path()), step);
        if done.is_ok() {
            return step;
        }
    }
    0
}

#[test]
fn an_install_that_ends_anywhere_is_begun_again() {
    let (here, there, files) = (temp(), temp(), temp());
    let from = open(here.path());
    write_random(&from, REGION, 1, 40);
    let dir = files.path().join("copy");
    let manifest = export(&from, REGION, &dir);
    let new = (sum_of(&*from, REGION), contents(&*from, REGION));
    let to = open(there.path());
    write_random(&to, OTHER, 3, 20);
    write_random(&to, REGION, 2, 40);
    to.checkpoint().unwrap();
    to.compact();
    let old = (sum_of(&*to, REGION), contents(&*to, REGION));
    let other = (sum_of(&*to, OTHER), contents(&*to, OTHER));
    drop(to);
    let install = |store: &Arc<Store>| store.install(REGION, &all(REGION), &manifest, &dir);
    let now = |store: &Store| (sum_of(store, REGION), contents(store, REGION));
    let ends = Cell::new([0; 3]);
    let count = |which: usize| {
        let mut counts = ends.get();
        counts[which] += 1;
        ends.set(counts);
    };
    let steps = at_every_step(there.path(), &install, &|store, step| {
        assert_eq!((sum_of(&*store, OTHER), contents(&*store, OTHER)), other);
        let unfinished = store.unfinished_installs().unwrap();
        match &unfinished[..] {
            [] if now(&store) == old => count(0),
            [] => {
                assert_eq!(now(&store), new, "step {step}");
                count(1);
            }
            [installing] => {
                count(2);
                assert_eq!(state_of(&*store, REGION), Ok(None), "step {step}");
                assert_eq!(installing.manifest, manifest);
                // It may end in the middle once more.
                STEPS.set(step * 7 % 13);
                let again = store.redo_install(installing);
                STEPS.set(usize::MAX);
                if again.is_err() {
                    let path = store.open.db.path().to_path_buf();
                    drop(store);
                    let store = open(&path);
                    let unfinished = store.unfinished_installs().unwrap();
                    if let [installing] = &unfinished[..] {
                        let done = store.redo_install(installing);
                        assert_eq!(done, Ok(Redone::Installed), "step {step}");
                    }
                    assert_eq!(now(&store), new, "step {step}");
                } else {
                    assert_eq!(again, Ok(Redone::Installed));
                    assert_eq!(now(&store), new, "step {step}");
                    store.compact();
                    assert_eq!(now(&store), new, "step {step}");
                    assert_eq!((sum_of(&*store, OTHER), contents(&*store, OTHER)), other);
                }
            }
            _ => panic!("{unfinished:?}"),
        }
    });
    assert!(steps > 15, "{steps}");
    let [old, new, unfinished] = ends.get();
    assert!(old >= 2 && new >= 1 && unfinished > 10, "{ends:?}");
}

#[test]
fn without_its_files_an_interrupted_install_leaves_an_empty_region_that_says_so() {
    let (here, there, files) = (temp(), temp(), temp());
    let from = open(here.path());
    write_random(&from, REGION, 1, 40);
    let dir = files.path().join("copy");
    let manifest = export(&from, REGION, &dir);
    let gone = files.path().join("gone");
    let to = open(there.path());
    write_random(&to, OTHER, 3, 20);
    write_random(&to, REGION, 2, 40);
    to.checkpoint().unwrap();
    let other = sum_of(&*to, OTHER);
    drop(to);
    let install = |store: &Arc<Store>| store.install(REGION, &all(REGION), &manifest, &dir);
    let wiped = Cell::new(0);
    at_every_step(there.path(), &install, &|store, step| {
        for installing in store.unfinished_installs().unwrap() {
            fs::rename(&dir, &gone).unwrap();
            STEPS.set(step % 5);
            let mut redone = store.redo_install(&installing);
            STEPS.set(usize::MAX);
            if redone.is_err() {
                redone = store.redo_install(&installing);
            }
            fs::rename(&gone, &dir).unwrap();
            assert!(matches!(redone, Ok(Redone::WantsSnapshot(_))), "{redone:?}");
            wiped.set(wiped.get() + 1);
            assert_eq!(store.unfinished_installs().unwrap(), []);
            {
                let state = state_of(&*store, REGION).unwrap().unwrap();
                assert_eq!(state.applied_index, 0);
                assert_eq!(*state.descriptor, *b"members by 1");
                for family in [
                    Family::Metadata,
                    Family::Data,
                    Family::Score,
                    Family::Expiry,
                ] {
                    assert_eq!(rows_of(&store, family, REGION), 0, "step {step}");
                }
                assert_eq!(sum_of(&*store, OTHER), other);
            }
            store
                .install(REGION, &all(REGION), &manifest, &dir)
                .unwrap();
            assert_eq!(sum_of(&*store, REGION), sum_of(&*from, REGION));
        }
    });
    assert!(wiped.get() > 10);
}

#[test]
fn a_region_that_is_removed_is_gone_or_whole_and_its_space_comes_back() {
    let there = temp();
    let to = open(there.path());
    write_random(&to, OTHER, 3, 20);
    write_random(&to, REGION, 2, 60);
    to.checkpoint().unwrap();
    to.compact();
    write_random(&to, REGION, 4, 10);
    to.checkpoint().unwrap();
    let old = sum_of(&*to, REGION);
    let other = (sum_of(&*to, OTHER), contents(&*to, OTHER));
    drop(to);
    let remove = |store: &Arc<Store>| store.remove_region(REGION, &all(REGION));
    let steps = at_every_step(there.path(), &remove, &|store, step| {
        match state_of(&*store, REGION).unwrap() {
            Some(_) => assert_eq!(sum_of(&*store, REGION), old, "step {step}"),
            None => assert_eq!(rows_of(&store, Family::Metadata, REGION), 0),
        }
        for _ in 0..2 {
            store.remove_region(REGION, &all(REGION)).unwrap();
            for family in Family::ALL {
                assert_eq!(rows_of(&store, family, REGION), 0, "step {step}");
            }
        }
        let here: Vec<u64> = regions(&*store).unwrap().iter().map(|it| it.0).collect();
        assert_eq!(here, [OTHER]);
        assert_eq!((sum_of(&*store, OTHER), contents(&*store, OTHER)), other);
        // One that comes again has nothing of the old one, whatever was said of it meanwhile.
        store.checkpoint().unwrap();
        write_random(&store, REGION, 8, 10);
        let again = sum_of(&*store, REGION);
        store.checkpoint().unwrap();
        let stale = state_of(&*store, OTHER).unwrap().unwrap();
        let stale: Vec<(u64, u64)> = stale.alive(OTHER).collect();
        store.set_alive(&stale);
        store.compact();
        assert_eq!(sum_of(&*store, REGION), again);
    });
    assert!(steps > 3, "{steps}");
}

/// Rows of half a home go and come, those of the other half stay.
#[test]
fn a_region_may_have_only_some_slots_of_a_home() {
    let (here, there, files) = (temp(), temp(), temp());
    let (from, to) = (open(here.path()), open(there.path()));
    for (store, seed) in [(&from, 1), (&to, 2)] {
        write_random(store, REGION, seed, 60);
        // The region of the lower half: as a split would leave it, with a state of its own.
        let mut changes = Changes::new();
        let state = state_row(&**store, REGION).unwrap().unwrap();
        changes.put(Family::Info, &layout::state_key(OTHER), &state);
        store.write(&[&changes]).unwrap();
    }
    let low = [
        Segment::new(REGION, 0..=4000),
        Segment::new(REGION, 6000..=8191),
    ];
    let high = [
        Segment::new(REGION, 4001..=5999),
        Segment::new(REGION, 8192..=16383),
    ];
    let sum = |store: &Arc<Store>, region, segments: &[Segment]| {
        digest(&**store, region, segments, &mut |_| true).unwrap()
    };
    let dir = files.path().join("copy");
    let moment = from.snapshot();
    let manifest = from.export(&*moment, OTHER, &low, &dir, &mut |_| true);
    let manifest = manifest.unwrap();
    drop(moment);
    let stays = sum(&to, REGION, &high);
    assert_ne!(sum(&to, OTHER, &low), sum(&from, OTHER, &low));
    to.install(OTHER, &low, &manifest, &dir).unwrap();
    assert_eq!(sum(&to, OTHER, &low), sum(&from, OTHER, &low));
    assert_eq!(sum(&to, REGION, &high), stays);
    to.remove_region(OTHER, &low).unwrap();
    assert_eq!(sum(&to, REGION, &high), stays);
    let empty = sum(&to, REGION, &low);
    to.remove_region(OTHER, &low).unwrap();
    assert_eq!(sum(&to, REGION, &low), empty);
    assert!(rows_of(&to, Family::Expiry, REGION) > 0);
}
