//! What a row costs on its way to RocksDB: CPU of this process per row, by how many keys there are.
//!
//! ```sh
//! cargo run --release -p rocks --example gather -- /path/on/a/disk
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use keyspace::rows::{Changes, Family, RowStore, WriteError};
use rocks::{Behind, Limits, Store, StoreSettings};

/// As in the server: what fresh memory costs is a part of it.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: usize = 3_000_000;
const OF_AN_ENTRY: usize = 500;

fn main() {
    let dir = std::env::args().nth(1).expect("a folder to write to");
    for keys in [1_000_000, 10_000] {
        let path = PathBuf::from(&dir).join(format!("gather-{keys}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        let settings = StoreSettings::for_machine(16 << 30, 2);
        let store = Store::open(&path, &settings).expect("a store");
        let limits = Limits::for_memtables(store.memtable_bytes());
        let behind = Behind::start(store, limits).expect("a thread");
        let (began, cpu) = (Instant::now(), cpu_seconds());
        fill(&behind, keys);
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let each = cpu / ROWS as f64 * 1e6;
        println!("{keys:>9} keys: {each:.2} µs of CPU per row, {seconds:.1} s");
        drop(behind);
        let _ = std::fs::remove_dir_all(&path);
    }
}

/// Entries of rows like those of SET, with a checkpoint where the log would be cut.
fn fill(behind: &Arc<Behind>, keys: usize) {
    let mut dice = fastrand::Rng::with_seed(1);
    let mut changes = Changes::new();
    for n in 0..ROWS / OF_AN_ENTRY {
        changes.clear();
        for _ in 0..OF_AN_ENTRY {
            let key = format!(
                "\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01key:{:012}",
                dice.usize(0..keys)
            );
            changes.put(Family::Metadata, key.as_bytes(), &[dice.u8(..); 80]);
        }
        changes.put(Family::Info, b"applied", &n.to_be_bytes());
        while let Err(WriteError::Busy) = behind.write(&[&changes]) {
            std::thread::yield_now();
        }
        if n % (500_000 / OF_AN_ENTRY) == 0 {
            behind.checkpoint().expect("a checkpoint");
        }
    }
    behind.checkpoint().expect("a checkpoint");
}

/// User and system time of all threads.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
    ticks
        .get(10..12)
        .map_or(0.0, |both| both.iter().sum::<f64>() / 100.0)
}
