//! What a row costs on its way to RocksDB: CPU of this process per row, files and compactions included.
//!
//! ```sh
//! cargo run --release -p rocks --example gather -- /path/on/a/disk
//! cargo run --release -p rocks --example gather -- /path/on/a/disk 2500000 256 memtables
//! ```
//!
//! Further words: how many rows there are between checkpoints, how many megabytes gather before they are written, and
//! `memtables` if all rows are to go there, however many they are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyspace::rows::{Changes, Family, RowStore, WriteError};
use rocks::{Limits, Store, StoreSettings, WriteBehind};

/// As in the server: what fresh memory costs is a part of it.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: usize = 5_000_000;
const OF_AN_ENTRY: usize = 500;
const PREFIX: &str = "\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01";

/// What the rows are like.
enum Load {
    /// Of SET: any of so many keys.
    Set(usize),
    /// Of LPUSH: always a new one, behind all others of its list, of which there are so many.
    Push(usize),
}

fn main() {
    let mut words = std::env::args().skip(1);
    let dir = words.next().expect("a folder to write to");
    let between = words.next().map(|it| it.parse().expect("rows"));
    let between = between.unwrap_or(500_000);
    let gathered = words
        .next()
        .map(|it| it.parse::<usize>().expect("megabytes"));
    let mut settings = StoreSettings::for_machine(16 << 30, 2);
    let gathered = gathered.map_or(settings.memtable_bytes, |it| it << 20);
    if words.next().is_some_and(|it| it == "memtables") {
        settings.direct_bytes = usize::MAX;
    }
    println!(
        "a checkpoint every {between} rows, {} MB gather, {}",
        gathered >> 20,
        match settings.direct_bytes {
            usize::MAX => "memtables",
            _ => "files",
        }
    );
    let loads = [
        ("set of 1,000,000 keys", Load::Set(1_000_000)),
        ("set of 10,000 keys", Load::Set(10_000)),
        ("push to one list", Load::Push(1)),
        ("push to 1,000 lists", Load::Push(1000)),
    ];
    for (name, load) in loads {
        let path = PathBuf::from(&dir).join("gather");
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        let store = Store::open(&path, &settings).expect("a store");
        store.set_alive(&[(1, 1)]);
        store.start_compaction();
        let limits = Limits::for_memtables(gathered);
        let behind = WriteBehind::start(store, limits).expect("a thread");
        let (began, cpu) = (Instant::now(), threads());
        let longest = fill(&behind, &load, between).as_millis();
        let seconds = began.elapsed().as_secs_f64();
        let mut spent = threads();
        for (name, seconds) in cpu {
            *spent.entry(name).or_default() -= seconds;
        }
        let each = |seconds: f64| seconds / ROWS as f64 * 1e6;
        let all = each(spent.values().sum());
        let parts: Vec<String> = spent
            .iter()
            .filter(|(_, seconds)| each(**seconds) > 0.005)
            .map(|(name, seconds)| format!("{name} {:.2}", each(*seconds)))
            .collect();
        let stats = behind.stats();
        let [written, files] = [
            stats.written_bytes,
            stats.flushed_bytes + stats.compacted_bytes,
        ]
        .map(|bytes| bytes >> 20);
        println!(
            "{name:>21}: {all:.2} µs of CPU per row, {seconds:.1} s; {}; {written} MB became {files} MB of files; the longest checkpoint {longest} ms; {} MB of memory",
            parts.join(", "),
            peak_bytes() >> 20
        );
        drop(behind);
        let _ = std::fs::remove_dir_all(&path);
    }
}

/// Entries of rows, with a checkpoint where the log would be cut; how long the longest took.
fn fill(behind: &Arc<WriteBehind>, load: &Load, between: usize) -> Duration {
    let mut longest = Duration::ZERO;
    let mut checkpoint = || {
        let began = Instant::now();
        behind.checkpoint().expect("a checkpoint");
        longest = longest.max(began.elapsed());
    };
    let mut dice = fastrand::Rng::with_seed(1);
    let mut changes = Changes::new();
    for n in 0..ROWS / OF_AN_ENTRY {
        changes.clear();
        for of_entry in 0..OF_AN_ENTRY {
            let value = [dice.u8(..); 80];
            match load {
                Load::Set(keys) => {
                    let key = format!("{PREFIX}key:{:012}", dice.usize(0..*keys));
                    changes.put(Family::Metadata, key.as_bytes(), &value);
                }
                Load::Push(lists) => {
                    let list = dice.usize(0..*lists);
                    let place = n * OF_AN_ENTRY + of_entry;
                    let key = format!("{PREFIX}list:{list:04}{place:016}");
                    changes.put(Family::Data, key.as_bytes(), &value);
                    if of_entry % 16 == 0 {
                        let head = format!("{PREFIX}list:{list:04}");
                        changes.put(Family::Metadata, head.as_bytes(), &value[..24]);
                    }
                }
            }
        }
        changes.put(Family::Info, b"applied", &n.to_be_bytes());
        while let Err(WriteError::Busy) = behind.write(&[&changes]) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if n % (between / OF_AN_ENTRY) == 0 {
            checkpoint();
        }
    }
    checkpoint();
    longest
}

/// The most memory this process has had since it was last asked.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|it| it.trim().trim_end_matches(" kB").parse().ok());
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    kilobytes.unwrap_or(0) << 10
}

/// User and system time by the names of threads, of those that are running. Names of RocksDB's say what they are for.
fn threads() -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    for task in tasks.flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat
            .split_once('(')
            .and_then(|(_, rest)| rest.rsplit_once(") "))
        else {
            continue;
        };
        let ticks = rest.split(' ').skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|it| it.parse::<f64>().ok()).sum();
        *sums.entry(name.to_string()).or_default() += ticks / 100.0;
    }
    sums
}
