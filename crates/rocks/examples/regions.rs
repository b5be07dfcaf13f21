//! How fast a region is exported, checked, installed and digested, in how much memory, and what another
//! region's writes feel of it. `cargo run --release -p rocks --example regions [megabytes]`

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::cluster::Segment;
use keyspace::Kind;
use keyspace::rows::layout::{self, Body, Metadata};
use keyspace::rows::{Changes, Family, Manifest, RowStore, State, WriteError, digest, regions};
use rocks::{Limits, Store, StoreSettings, WriteBehind};

const REGION: u64 = 5;
const OTHER: u64 = 6;

fn main() {
    let megabytes: u64 = std::env::args()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(1024);
    let temp = tempfile::tempdir().expect("a folder");
    let (here, there) = (open(&temp.path().join("a")), open(&temp.path().join("b")));
    let bytes = megabytes << 20;
    fill(&*here, REGION, bytes, 1);
    here.checkpoint().expect("a flush");
    let segments = [Segment::new(REGION, 0..=16383)];
    let dir = temp.path().join("copy");
    let mut manifest = None;
    measure("export", bytes, &here, || {
        let moment = here.snapshot();
        manifest = here
            .export(&*moment, REGION, &segments, &dir, &mut |_| true)
            .ok();
    });
    let manifest: Manifest = manifest.expect("an export");
    println!(
        "  {} files, {} rows, {} MB",
        manifest.files.len(),
        manifest.rows,
        manifest.bytes >> 20
    );
    measure("verify", bytes, &here, || {
        here.verify(&manifest, &dir).expect("whole");
    });
    let install = || {
        there
            .install(REGION, &segments, &manifest, &dir)
            .expect("an install");
    };
    measure("install, no such region before", bytes, &there, install);
    measure("install over the same", bytes, &there, install);
    fill(&*there, REGION, bytes / 8, 2);
    measure("install over a changed one", bytes, &there, install);
    let sum = |store: &WriteBehind| {
        let moment = store.snapshot();
        digest(&*moment, REGION, &segments, &mut |_| true).expect("a digest")
    };
    let mut sums = Vec::new();
    measure("digest", bytes, &there, || sums.push(sum(&there)));
    sums.push(sum(&here));
    assert_eq!(sums[0], sums[1], "the copy is another");
    measure("remove", bytes, &there, || {
        there.remove_region(REGION, &segments).expect("a removal");
    });
}

fn open(path: &Path) -> Arc<WriteBehind> {
    let store = Store::open(path, &StoreSettings::default()).expect("a store");
    let homes = [(REGION, State::default()), (OTHER, State::default())];
    store.create_regions(&homes).expect("regions");
    let all = regions(&*store).expect("regions");
    let alive: Vec<_> = all
        .iter()
        .flat_map(|(region, state)| state.alive(*region).collect::<Vec<_>>())
        .collect();
    store.set_alive(&alive);
    store.start_compaction();
    WriteBehind::start(store, Limits::for_memtables(64 << 20)).expect("a thread")
}

/// Strings of 1000 bytes that do not compress, and hashes of 16 fields of 50 bytes.
fn fill(store: &dyn RowStore, region: u64, bytes: u64, seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut changes = Changes::new();
    let mut written = 0;
    let mut value = [0; 1000];
    while written < bytes {
        let key = format!("key:{:016x}", dice.u64(..));
        let row = layout::metadata_key(region, 1, key.as_bytes());
        dice.fill(&mut value);
        let mut head = Vec::new();
        let is_hash = dice.bool();
        Metadata {
            kind: if is_hash { Kind::Hash } else { Kind::String },
            expire_at_ms: None,
            body: match is_hash {
                true => Body::Collection {
                    generation: 1 << 20,
                    size: 16,
                    extra: b"",
                },
                false => Body::String(&value),
            },
        }
        .push(&mut head);
        changes.put(Family::Metadata, &row, &head);
        for (field, value) in value.chunks(50).take(16).enumerate().filter(|_| is_hash) {
            let mut row = row.clone();
            row.extend_from_slice(&(1u64 << 20).to_be_bytes());
            row.extend_from_slice(format!("field{field}").as_bytes());
            changes.put(Family::Data, &row, value);
        }
        if changes.size_bytes() > 1 << 20 {
            written += changes.size_bytes() as u64;
            write(store, &changes);
            changes.clear();
        }
    }
}

fn write(store: &dyn RowStore, changes: &Changes) -> u64 {
    let mut refused = 0;
    loop {
        match store.write(&[changes]) {
            Ok(()) => return refused,
            Err(WriteError::Busy) => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(WriteError::Failed(reason)) => panic!("{reason}"),
        }
    }
}

/// Time and memory of `work`, while another region writes 5 MB/s to the same store.
fn measure(what: &str, bytes: u64, store: &Arc<WriteBehind>, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let (longest, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let before = memory_mb("VmRSS");
    // From here on the peak is that of the work.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let mut changes = Changes::new();
                for _ in 0..50 {
                    n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
                    let row = layout::metadata_key(OTHER, 1, &n.to_be_bytes());
                    changes.put(Family::Metadata, &row, &[b'x'; 1000]);
                }
                let begun = Instant::now();
                refused.fetch_add(write(&**store, &changes), Ordering::Relaxed);
                let took = begun.elapsed().as_micros() as u64;
                longest.fetch_max(took, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let begun = Instant::now();
        work();
        let took = begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        println!(
            "{what}: {took:.2} s, {:.0} MB/s; memory {before} MB, at most {} MB; another's write took {:.1} ms at most, {} times busy",
            (bytes >> 20) as f64 / took,
            memory_mb("VmHWM"),
            longest.load(Ordering::Relaxed) as f64 / 1000.0,
            refused.load(Ordering::Relaxed),
        );
    });
}

fn memory_mb(which: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(which));
    let kb = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kb.unwrap_or(0) >> 10
}
