//! The store on real files: what survives, what is dropped, what must not be.

use super::*;
use keyspace::Kind;
use keyspace::rows::layout::{Body, Metadata};
use tempfile::TempDir;

const SMALL: StoreSettings = StoreSettings {
    block_cache_bytes: 8 << 20,
    memtable_bytes: 4 << 20,
    memtables: 4,
    direct_bytes: usize::MAX,
    background_jobs: 2,
    subcompactions: 1,
    block_bytes: 4 << 10,
    bloom_bits: 10.0,
    file_bytes: 4 << 20,
    level_base_bytes: 16 << 20,
    zstd_bottom: false,
    binlog_bytes: 1 << 20,
};

fn open(dir: &TempDir) -> Arc<Store> {
    Store::open(dir.path(), &SMALL).unwrap()
}

fn prefix(home: u64, id: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    layout::push_prefix(&mut bytes, home, id);
    bytes
}

fn metadata_key(home: u64, id: u64, key: &str) -> Vec<u8> {
    layout::metadata_key(home, id, key.as_bytes())
}

fn sub_key(home: u64, id: u64, key: &str, generation: u64, sub: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    layout::push_base(&mut bytes, home, id, key.as_bytes(), generation);
    bytes.extend_from_slice(sub);
    bytes
}

fn metadata(kind: Kind, body: Body<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let row = Metadata {
        kind,
        expire_at_ms: None,
        body,
    };
    row.push(&mut bytes);
    bytes
}

fn collection(generation: u64) -> Vec<u8> {
    let body = Body::Collection {
        generation,
        size: 1,
        extra: b"",
    };
    metadata(Kind::Hash, body)
}

fn put(store: &Store, rows: &[(Family, Vec<u8>, Vec<u8>)]) {
    let mut changes = Changes::new();
    for (family, key, value) in rows {
        changes.put(*family, key, value);
    }
    store.write(&[&changes]).unwrap();
}

fn delete(store: &Store, family: Family, key: &[u8]) {
    let mut changes = Changes::new();
    changes.delete(family, key);
    store.write(&[&changes]).unwrap();
}

fn value(source: &dyn RowSource, family: Family, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = None;
    let found = source
        .get(family, key, Tier::All, &mut |bytes| {
            value = Some(bytes.to_vec())
        })
        .unwrap();
    assert_eq!(found, value.is_some());
    value
}

fn keys(
    source: &dyn RowSource,
    family: Family,
    from: &[u8],
    to: &[u8],
    down: bool,
) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    source
        .scan(family, from, to, down, Tier::All, &mut |key, _| {
            keys.push(key.to_vec());
            true
        })
        .unwrap();
    keys
}

fn count(source: &dyn RowSource, family: Family) -> usize {
    keys(source, family, &[0], &[0xff; 20], false).len()
}

#[test]
fn rows_are_read_back_in_order_and_ranges_end_where_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    for round in 0..3 {
        for home in 1..4 {
            for n in 0u8..10 {
                let mut key = prefix(home, 1);
                key.push(n);
                put(&store, &[(Family::Data, key, vec![round])]);
            }
        }
        // Memtable, then files, then both.
        if round < 2 {
            store.checkpoint().unwrap();
        }
        let from = [&prefix(2, 1)[..], &[3]].concat();
        let to = [&prefix(2, 1)[..], &[6]].concat();
        let up = keys(&*store, Family::Data, &from, &to, false);
        assert_eq!(up.len(), 3);
        assert_eq!(up.first(), Some(&from));
        let mut down = keys(&*store, Family::Data, &from, &to, true);
        down.reverse();
        assert_eq!(up, down);
        // Over the borders of databases.
        let over = keys(&*store, Family::Data, &prefix(1, 1), &prefix(3, 1), false);
        assert_eq!(over.len(), 20);
        let over = keys(&*store, Family::Data, &prefix(1, 1), &prefix(3, 1), true);
        assert_eq!(over.len(), 20);
        assert_eq!(count(&*store, Family::Data), 30);
        assert_eq!(keys(&*store, Family::Data, &to, &from, false).len(), 0);
        assert_eq!(value(&*store, Family::Data, &from), Some(vec![round]));
        assert_eq!(value(&*store, Family::Data, &to[..17]), Some(vec![round]));
        assert_eq!(value(&*store, Family::Data, &prefix(2, 1)), None);
        assert_eq!(value(&*store, Family::Score, &from), None);
    }
}

#[test]
fn what_was_not_flushed_is_gone_from_all_families_together() {
    let dir = tempfile::tempdir().unwrap();
    let state = prefix(1, 0);
    {
        let store = open(&dir);
        for n in 0u64..30_000 {
            let key = [&prefix(1, 1)[..], &n.to_be_bytes()].concat();
            put(
                &store,
                &[
                    (Family::Metadata, key.clone(), vec![1; 100]),
                    (Family::Data, key.clone(), vec![2; 100]),
                    (Family::Info, state.clone(), n.to_be_bytes().to_vec()),
                ],
            );
            if n == 1000 {
                store.checkpoint().unwrap();
            }
        }
    }
    let store = open(&dir);
    let applied = value(&*store, Family::Info, &state).unwrap();
    let applied = u64::from_be_bytes(applied.try_into().unwrap());
    assert!(applied >= 1000, "a checkpoint stays");
    assert!(
        applied < 29_999,
        "the last memtable is lost, as after a crash"
    );
    assert_eq!(count(&*store, Family::Metadata) as u64, applied + 1);
    assert_eq!(count(&*store, Family::Data) as u64, applied + 1);
}

#[test]
fn the_cache_tier_never_reads_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let key = [&prefix(1, 1)[..], b"k"].concat();
    let to = [&prefix(1, 1)[..], b"l"].concat();
    {
        let store = open(&dir);
        put(&store, &[(Family::Metadata, key.clone(), b"v".to_vec())]);
        let warm = store.get(Family::Metadata, &key, Tier::Cache, &mut |_| ());
        assert_eq!(warm, Ok(true), "in the memtable");
        store.checkpoint().unwrap();
    }
    let store = open(&dir);
    let cold = store.get(Family::Metadata, &key, Tier::Cache, &mut |_| ());
    assert_eq!(cold, Err(RowError::Cold));
    let cold = store.scan(
        Family::Metadata,
        &key,
        &to,
        false,
        Tier::Cache,
        &mut |_, _| true,
    );
    assert_eq!(cold, Err(RowError::Cold));
    let cold = store.scan(
        Family::Metadata,
        &key,
        &to,
        true,
        Tier::Cache,
        &mut |_, _| true,
    );
    assert_eq!(cold, Err(RowError::Cold));
    let mut other = key.clone();
    other.extend_from_slice(b"-not-there");
    let absent = store.get(Family::Metadata, &other, Tier::Cache, &mut |_| ());
    assert_eq!(absent, Ok(false), "the filter knows without a block");
    assert!(value(&*store, Family::Metadata, &key).is_some());
    let warm = store.get(Family::Metadata, &key, Tier::Cache, &mut |_| ());
    assert_eq!(warm, Ok(true));
    let warm = store.scan(
        Family::Metadata,
        &key,
        &to,
        false,
        Tier::Cache,
        &mut |_, _| true,
    );
    assert_eq!(warm, Ok(()));
}

#[test]
fn orphans_go_once_the_deletion_is_flushed_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    for n in 0u32..100 {
        put(
            &store,
            &[
                (Family::Metadata, metadata_key(1, 1, "a"), collection(5)),
                (
                    Family::Data,
                    sub_key(1, 1, "a", 5, &n.to_be_bytes()),
                    vec![1],
                ),
                (
                    Family::Score,
                    sub_key(1, 1, "a", 5, &n.to_be_bytes()),
                    vec![1],
                ),
                (Family::Metadata, metadata_key(1, 1, "b"), collection(6)),
                (
                    Family::Data,
                    sub_key(1, 1, "b", 6, &n.to_be_bytes()),
                    vec![1],
                ),
            ],
        );
    }
    store.checkpoint().unwrap();
    delete(&store, Family::Metadata, &metadata_key(1, 1, "a"));
    store.compact();
    assert_eq!(count(&*store, Family::Data), 200, "not told what is alive");
    // `compact` flushes what lies in its range: delete once more, in the memtable only.
    drop(store);
    let store = open(&dir);
    put(
        &store,
        &[(Family::Metadata, metadata_key(1, 1, "a"), collection(5))],
    );
    store.checkpoint().unwrap();
    store.set_alive(&[(1, 1)]);
    delete(&store, Family::Metadata, &metadata_key(1, 1, "a"));
    // With bounds: a compaction of everything would flush first.
    store.compact_range(Family::Data, Some(&[0]), Some(&[0xff; 20]));
    assert_eq!(
        count(&*store, Family::Data),
        200,
        "a crash now would bring the key back: its elements must be there"
    );
    let moment = store.snapshot();
    store.checkpoint().unwrap();
    store.compact();
    assert_eq!(count(&*store, Family::Data), 200, "a snapshot is held");
    assert_eq!(count(&*moment, Family::Data), 200);
    drop(moment);
    store.compact();
    assert_eq!(count(&*store, Family::Data), 100);
    assert_eq!(count(&*store, Family::Score), 0);
    // Created again with a later generation: elements of before go, the new ones stay.
    put(
        &store,
        &[
            (Family::Metadata, metadata_key(1, 1, "b"), collection(9)),
            (Family::Data, sub_key(1, 1, "b", 9, b"x"), vec![1]),
            (Family::Data, sub_key(1, 1, "b", 10, b"x"), vec![1]),
        ],
    );
    store.checkpoint().unwrap();
    store.compact();
    assert_eq!(count(&*store, Family::Data), 2, "only older generations go");
    // Overwritten by a string.
    let string = metadata(Kind::String, Body::String(b"a string of some length"));
    put(
        &store,
        &[(Family::Metadata, metadata_key(1, 1, "b"), string)],
    );
    store.checkpoint().unwrap();
    store.compact();
    assert_eq!(count(&*store, Family::Data), 0);
    let gone = Store::open(dir.path(), &SMALL);
    assert!(matches!(gone, Err(OpenError::InUse(_))), "{:?}", gone.err());
}

#[test]
fn a_flushed_database_gives_its_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store.start_compaction();
    store.set_alive(&[(1, 1), (1, 2)]);
    let fill = |id: u64| {
        for n in 0u32..2000 {
            let key = format!("k{n}");
            put(
                &store,
                &[
                    (Family::Metadata, metadata_key(1, id, &key), collection(1)),
                    (Family::Data, sub_key(1, id, &key, 1, b"f"), vec![7; 100]),
                    (Family::Expiry, metadata_key(1, id, &key), vec![]),
                ],
            );
        }
    };
    fill(1);
    fill(2);
    // FLUSHDB of the first database: 3 is its new id, and is used before the store is told.
    fill(3);
    store.checkpoint().unwrap();
    store.compact();
    assert_eq!(count(&*store, Family::Data), 6000, "id 3 is new, not dead");
    let full = store.stats().disk_bytes;
    store.set_alive(&[(1, 3), (1, 2)]);
    assert!(
        store.stats().disk_bytes < full * 3 / 4,
        "files of one database only are dropped at once: {full} {}",
        store.stats().disk_bytes
    );
    store.compact();
    for family in [Family::Metadata, Family::Data, Family::Expiry] {
        assert_eq!(count(&*store, family), 4000);
    }
    // A home nobody has any more.
    store.set_alive(&[(2, 1)]);
    store.compact();
    assert_eq!(count(&*store, Family::Metadata), 0);
}

#[test]
fn files_are_cut_where_databases_meet() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    for id in 1..=4 {
        for n in 0u32..500 {
            let key = format!("k{n}");
            put(
                &store,
                &[(Family::Metadata, metadata_key(1, id, &key), vec![1; 50])],
            );
        }
    }
    store.checkpoint().unwrap();
    store.compact();
    let files = store.open.db.live_files().unwrap();
    let mut seen = 0;
    for file in files {
        if file.column_family_name == Family::Metadata.name() {
            let (first, last) = (file.start_key.unwrap(), file.end_key.unwrap());
            assert_eq!(first[..16], last[..16]);
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn a_key_of_a_million_elements_is_reclaimed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store.start_compaction();
    store.set_alive(&[(1, 1)]);
    let head = metadata_key(1, 1, "big");
    put(&store, &[(Family::Metadata, head.clone(), collection(3))]);
    let mut changes = Changes::new();
    for n in 0u32..1_000_000 {
        changes.put(
            Family::Data,
            &sub_key(1, 1, "big", 3, &n.to_be_bytes()),
            b"value",
        );
        if changes.len() == 1000 {
            while store.write(&[&changes]) == Err(WriteError::Busy) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            changes.clear();
        }
    }
    store.checkpoint().unwrap();
    let full = store.stats().disk_bytes;
    let started = std::time::Instant::now();
    delete(&store, Family::Metadata, &head);
    assert!(started.elapsed().as_millis() < 20);
    store.checkpoint().unwrap();
    store.reclaim(&head);
    assert_eq!(count(&*store, Family::Data), 0);
    assert!(store.stats().disk_bytes < full / 20, "{full}");
}

#[test]
fn a_store_that_is_behind_says_busy_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // Level 0 may not grow at all: the second file stops writers.
    let store = Store::open(dir.path(), &SMALL).unwrap();
    let db = &store.open.db;
    let family = db.family(Family::Metadata);
    db.set_options_cf(
        &family,
        &[
            ("level0_file_num_compaction_trigger", "1000"),
            ("level0_slowdown_writes_trigger", "2"),
            ("level0_stop_writes_trigger", "2"),
            ("disable_auto_compactions", "false"),
        ],
    )
    .unwrap();
    let key = |n: u8| [&prefix(1, 1)[..], &[n]].concat();
    let mut busy = None;
    for n in 0..10 {
        let mut changes = Changes::new();
        changes.put(Family::Metadata, &key(n), b"v");
        match store.write(&[&changes]) {
            Ok(()) => store.checkpoint().unwrap(),
            Err(error) => {
                assert_eq!(error, WriteError::Busy);
                busy = Some(n);
                break;
            }
        }
    }
    let busy = busy.expect("never busy");
    assert_eq!(value(&*store, Family::Metadata, &key(busy)), None);
}

/// A small file system in a folder, which only root may make; gone when dropped. RocksDB goes on after a full
/// disk when some 70 MB are free.
struct SmallDisk(TempDir);

impl SmallDisk {
    const BYTES: usize = 128 << 20;

    fn new() -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        let size = format!("size={}", SmallDisk::BYTES);
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]);
        let mounted = mount.arg(dir.path()).status();
        mounted.ok()?.success().then(|| SmallDisk(dir))
    }

    fn fill(&self) {
        let ballast = vec![1; SmallDisk::BYTES];
        std::fs::write(self.0.path().join("ballast"), ballast).expect_err("it is full now");
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.path().join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut unmount = std::process::Command::new("umount");
        let _ = unmount.arg("-l").arg(self.0.path()).status();
    }
}

/// What a store says that makes writers wait, when its disk is full and when it is no more.
#[test]
fn a_disk_that_was_full_is_no_reason_to_fail_later() {
    let Some(disk) = SmallDisk::new() else {
        return eprintln!("not tried: a small file system needs root");
    };
    let store = Store::open(&disk.0.path().join("rows"), &SMALL).unwrap();
    // Writers wait then; nothing is given up.
    let is_full = || {
        assert_eq!(store.busy(), WriteError::Busy);
        store.lacks_room()
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut write = || {
        for n in 0..200u8 {
            let key = sub_key(1, 1, "k", 1, &[n, rng.u8(..)]);
            let value = std::iter::repeat_with(|| rng.u8(..)).take(10_000);
            put(&store, &[(Family::Data, key, value.collect())]);
        }
    };
    // Two files that overlap and do not get smaller: a compaction needs as much room again.
    for _ in 0..2 {
        write();
        store.checkpoint().unwrap();
    }
    assert!(!is_full());
    disk.fill();
    store.compact_range(Family::Data, None, None);
    assert!(is_full(), "a compaction failed");
    disk.empty();
    // RocksDB looks now and then whether there is room.
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !is_so() {
            assert!(began.elapsed().as_secs() < 60, "never: {what}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    until("there is room for a compaction", &|| {
        store.compact_range(Family::Data, None, None);
        !is_full()
    });

    write();
    disk.fill();
    store.checkpoint().expect_err("it cannot be written");
    assert!(is_full(), "a flush failed");
    disk.empty();
    until("there is room for a flush", &|| {
        !is_full() && store.checkpoint().is_ok()
    });
}

#[test]
fn damage_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    put(
        &store,
        &[(Family::Metadata, metadata_key(1, 1, "a"), vec![1])],
    );
    store.checkpoint().unwrap();
    drop(store);
    let find = |start: &str| {
        let mut files = std::fs::read_dir(dir.path()).unwrap().flatten();
        files
            .find(|f| f.file_name().to_string_lossy().starts_with(start))
            .unwrap()
            .path()
    };
    let manifest = find("MANIFEST");
    let good = std::fs::read(&manifest).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 0xff;
    std::fs::write(&manifest, &bad).unwrap();
    let refused = Store::open(dir.path(), &SMALL).err().unwrap();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
    std::fs::remove_file(&manifest).unwrap();
    let refused = Store::open(dir.path(), &SMALL).err().unwrap();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
    std::fs::write(&manifest, &good).unwrap();
    std::fs::rename(dir.path().join("CURRENT"), dir.path().join("X")).unwrap();
    let refused = Store::open(dir.path(), &SMALL).err().unwrap();
    assert!(refused.to_string().contains("CURRENT"), "{refused}");
    std::fs::rename(dir.path().join("X"), dir.path().join("CURRENT")).unwrap();
    drop(open(&dir));
}

#[test]
fn a_store_closes_while_it_compacts() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let store = open(&dir);
        store.start_compaction();
        store.set_alive(&[(1, 1)]);
        for n in 0u32..40_000 {
            let key = sub_key(1, 1, "gone", round, &n.to_be_bytes());
            let mut changes = Changes::new();
            changes.put(Family::Data, &key, &[1; 200]);
            let _ = store.write(&[&changes]);
        }
    }
}

#[test]
fn the_feed_is_in_order_and_its_oldest_part_goes() {
    use keyspace::rows::feed;

    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let note = |home, index, payload: &[u8]| {
        let mut changes = Changes::new();
        feed::note(&mut changes, home, index, payload);
        store.write(&[&changes]).unwrap();
    };
    let read = |home, from| {
        let mut found = Vec::new();
        feed::read(&*store, home, from, &mut |index, payload| {
            found.push((index, payload.to_vec()));
            true
        })
        .unwrap();
        found
    };
    assert_eq!(feed::regions(&*store).unwrap(), []);
    for index in [255, 256, 257, 1 << 32] {
        note(2, index, &index.to_be_bytes());
        note(3, index + 1, b"other");
    }
    // Run again after a crash: the same record.
    note(2, 256, &256u64.to_be_bytes());
    store.checkpoint().unwrap();
    assert_eq!(feed::regions(&*store).unwrap(), [(2, 255), (3, 256)]);
    let indices: Vec<u64> = read(2, 0).iter().map(|(index, _)| *index).collect();
    assert_eq!(indices, [255, 256, 257, 1 << 32]);
    assert_eq!(read(2, 257).len(), 2);
    assert_eq!(read(2, 256)[0].1, 256u64.to_be_bytes());
    assert_eq!(read(4, 0), []);

    // 1 MiB is kept. Noise, or it would be compressed.
    let (mut seed, last) = (1u64, 8000);
    for index in 1..=last {
        let mut payload = Vec::new();
        while payload.len() < 1000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            payload.extend_from_slice(&seed.to_be_bytes());
        }
        note(9, index, &payload);
        if index % 400 == 0 {
            store.checkpoint().unwrap();
        }
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let first = loop {
        let first = read(9, 0)[0].0;
        if first > 1 || std::time::Instant::now() > deadline {
            break first;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert!(first > 1, "nothing was dropped");
    let kept: Vec<u64> = read(9, 0).iter().map(|(index, _)| *index).collect();
    let expected: Vec<u64> = (kept[0]..=last).collect();
    assert_eq!(kept, expected, "holes");
}

#[test]
fn a_store_that_was_being_made_is_made_again() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("MANIFEST-000001"), "torn").unwrap();
    std::fs::write(dir.path().join("000001.dbtmp"), "MANI").unwrap();
    let store = open(&dir);
    put(&store, &[(Family::Info, b"k".to_vec(), b"v".to_vec())]);
    store.checkpoint().unwrap();
    drop(store);
    assert_eq!(value(&*open(&dir), Family::Info, b"k"), Some(b"v".to_vec()));
}

#[test]
fn sizes_are_about_right_and_of_each_home() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let fill = |home: u64, bytes: usize| {
        for n in 0..256_u32 {
            let key = sub_key(home, 1, "a", 1, &n.to_be_bytes());
            // Nothing that could be compressed.
            let mut rng = fastrand::Rng::with_seed(u64::from(n));
            let value: Vec<u8> = (0..bytes / 256).map(|_| rng.u8(..)).collect();
            put(&store, &[(Family::Data, key, value)]);
        }
    };
    assert_eq!(store.sizes(&[1, 2, 3]), [0, 0, 0]);
    store.set_alive(&[(1, 1), (3, 1)]);
    fill(1, 1 << 20);
    fill(3, 1 << 18);
    let is_about = |size: u64, wanted: u64| (wanted * 4 / 5..wanted * 5 / 4).contains(&size);
    // In memory RocksDB guesses by the heights of a skip list, which are drawn at random: never more than all there is, and never
    // something where nothing is. More is not promised.
    let sizes = store.sizes(&[1, 2, 3]);
    assert!(sizes[0].max(sizes[2]) < 2 << 20, "{sizes:?}");
    assert_eq!(sizes[1], 0);
    store.checkpoint().unwrap();
    let sizes = store.sizes(&[1, 2, 3]);
    assert!(is_about(sizes[0], 1 << 20), "{sizes:?}");
    assert!(is_about(sizes[2], 1 << 18), "{sizes:?}");
    assert!(sizes[1] < 1 << 14, "{sizes:?}");
}
