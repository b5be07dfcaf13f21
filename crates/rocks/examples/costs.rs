//! What a row write, a row read and a log write cost, in CPU time. `cargo run --release -p rocks
//! --example costs [rows|log]`

use std::sync::Arc;
use std::time::Instant;

use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier, WriteError};
use raft::eraftpb::Entry;
use replica::{LogStore, LogWrite};
use rocks::{DataDir, Log, LogSettings, Store, StoreSettings};

fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    if what != "log" {
        for (threads, rows) in [(1, 1), (1, 16), (2, 1), (2, 16)] {
            measure_rows(threads, rows);
        }
    }
    if what != "rows" {
        for (regions, entries, sync) in [(1, 1, true), (2, 1, true), (2, 16, true), (2, 1, false)] {
            measure_log(regions, entries, sync);
        }
    }
}

/// CPU microseconds of this thread, or of the whole process.
fn cpu_us(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn key(thread: u64, n: u64) -> Vec<u8> {
    let mut key = vec![
        0x80,
        0,
        0,
        0,
        0,
        0,
        0,
        thread as u8,
        0x80,
        0,
        0,
        0,
        0,
        0,
        0,
        1,
    ];
    key.extend_from_slice(&[1, 2, 0, 0, 0, 16]);
    // Spread over the key space as clients' keys are.
    key.extend_from_slice(
        format!("key:{:012}", n.wrapping_mul(0x9e37_79b9) % 1_000_000_007).as_bytes(),
    );
    key
}

fn measure_rows(threads: u64, rows: u64) {
    const ROWS: u64 = 1_000_000;
    let dir = tempfile::tempdir().expect("a directory");
    let data = DataDir::open(dir.path()).expect("a data directory");
    let settings = StoreSettings::for_machine(4 << 30, 2);
    let store = Store::open(&data.rows(), &settings).expect("a store");
    store.start_compaction();
    let per_thread = ROWS / threads;
    let process = cpu_us(libc::CLOCK_PROCESS_CPUTIME_ID);
    let started = Instant::now();
    let running: Vec<_> = (0..threads)
        .map(|thread| {
            let store = store.clone();
            std::thread::spawn(move || {
                let mut changes = Changes::new();
                let state = [&b"r"[..], &[0x80, 0, 0, 0, 0, 0, 0, thread as u8]].concat();
                let (mut busy, mut cpu, mut n) = (0u64, 0.0, 0);
                while n < per_thread {
                    changes.clear();
                    for _ in 0..rows {
                        changes.put(Family::Metadata, &key(thread, n), &[7; 100]);
                        n += 1;
                    }
                    changes.put(Family::Info, &state, &n.to_be_bytes());
                    let before = cpu_us(libc::CLOCK_THREAD_CPUTIME_ID);
                    while let Err(error) = store.write(&[&changes]) {
                        assert_eq!(error, WriteError::Busy);
                        busy += 1;
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    cpu += cpu_us(libc::CLOCK_THREAD_CPUTIME_ID) - before;
                }
                (cpu, busy)
            })
        })
        .collect();
    let (mut cpu, mut busy) = (0.0, 0);
    for thread in running {
        let (its_cpu, its_busy) = thread.join().expect("no panic");
        cpu += its_cpu;
        busy += its_busy;
    }
    let wall = started.elapsed();
    let total = cpu_us(libc::CLOCK_PROCESS_CPUTIME_ID) - process;
    let clock = clock_cost();
    println!(
        "rows: {threads} threads, {rows:2} rows + state per write: {:.2} us per write, {:.2} us per row; with flushes {:.2} us per row; {:.0} k rows/s; busy {busy}",
        cpu / (ROWS / rows) as f64 - clock,
        (cpu / (ROWS / rows) as f64 - clock) / rows as f64,
        total / ROWS as f64,
        ROWS as f64 / wall.as_secs_f64() / 1e3,
    );
    if rows == 16 && threads == 1 {
        store.checkpoint().expect("a checkpoint");
        measure_reads(&store);
        println!("      {:?}", store.stats());
    }
}

fn measure_reads(store: &Arc<Store>) {
    const READS: u64 = 200_000;
    for (name, tier, miss) in [
        ("first", Tier::All, 0),
        ("hit", Tier::Cache, 0),
        ("miss", Tier::Cache, 5_000_000),
    ] {
        let (mut found, mut cold) = (0, 0);
        let before = cpu_us(libc::CLOCK_THREAD_CPUTIME_ID);
        for n in 0..READS {
            let key = key(0, n + miss);
            match store.get(Family::Metadata, &key, tier, &mut |_| ()) {
                Ok(true) => found += 1,
                Ok(false) => {}
                Err(_) => cold += 1,
            }
        }
        let cpu = cpu_us(libc::CLOCK_THREAD_CPUTIME_ID) - before;
        println!(
            "      get, {name}: {:.2} us ({found} found, {cold} cold)",
            cpu / READS as f64
        );
    }
}

/// What asking for the time twice costs.
fn clock_cost() -> f64 {
    let before = cpu_us(libc::CLOCK_THREAD_CPUTIME_ID);
    for _ in 0..1000 {
        cpu_us(libc::CLOCK_THREAD_CPUTIME_ID);
    }
    (cpu_us(libc::CLOCK_THREAD_CPUTIME_ID) - before) / 1000.0
}

fn log_write(region: u64, first: u64, entries: u64) -> LogWrite {
    let entry = |index| Entry {
        term: 1,
        index,
        data: vec![7; 128].into(),
        ..Entry::default()
    };
    LogWrite {
        replica: 1,
        region,
        number: first,
        reset: None,
        entries: (first..first + entries).map(entry).collect(),
        hard_state: None,
    }
}

fn measure_log(regions: u64, entries: u64, sync: bool) {
    let rounds: u64 = if sync { 3_000 } else { 200_000 };
    let dir = tempfile::tempdir().expect("a directory");
    let data = DataDir::open(dir.path()).expect("a data directory");
    let log = Log::open(&data.log(), &LogSettings::default()).expect("a log");
    let started = Instant::now();
    let mut cpu = 0.0;
    for round in 0..rounds {
        let writes: Vec<_> = (0..regions)
            .map(|region| log_write(region, round * entries + 1, entries))
            .collect();
        let before = cpu_us(libc::CLOCK_THREAD_CPUTIME_ID);
        log.write(&writes, sync).expect("written");
        cpu += cpu_us(libc::CLOCK_THREAD_CPUTIME_ID) - before;
    }
    let wall = started.elapsed().as_secs_f64() * 1e6 / rounds as f64;
    println!(
        "log: {regions} regions x {entries:2} entries of 128 bytes, sync {sync}: {:.1} us CPU per write, {:.2} per entry; {wall:.1} us wall",
        cpu / rounds as f64 - clock_cost(),
        cpu / (rounds * regions * entries) as f64,
    );
}
