//! The process, its log and its regions.

use std::sync::atomic::{AtomicU64, Ordering};

use runtime::Shared;
use runtime::durable::Durable;
use stats::memory;
use stats::process::{cpu_seconds, resident_bytes};

use super::text::{Page, Type};

pub fn add(page: &mut Page, shared: &Shared) {
    let settings = shared.settings.current();
    let mode = match &shared.cluster {
        Some(_) => "cluster",
        None => "standalone",
    };
    page.family("neokv_build_info", Type::Gauge, "What runs.");
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("engine", settings.engine.name()),
        ("mode", mode),
    ];
    page.line("neokv_build_info", &labels, 1);
    page.gauge(
        "neokv_start_time_seconds",
        "Unix time at which it started.",
        shared.started_at_ms as f64 / 1000.0,
    );
    let clock = runtime::clock::report();
    page.gauge(
        "neokv_clock_ahead_seconds",
        "How far the clock of the machine is ahead of the time the node goes by.",
        clock.ahead_ms as f64 / 1000.0,
    );
    let jumps = "neokv_clock_jumps_total";
    page.family(jumps, Type::Counter, "Jumps of the clock of the machine.");
    page.line(jumps, &[], clock.jumps);
    page.gauge(
        "neokv_cores",
        "Threads that run commands.",
        shared.stats.len(),
    );
    let (user, system) = cpu_seconds();
    let cpu = "neokv_cpu_seconds_total";
    page.family(cpu, Type::Counter, "CPU time of the process.");
    page.line(cpu, &[("mode", "user")], user);
    page.line(cpu, &[("mode", "system")], system);

    page.gauge(
        "neokv_memory_used_bytes",
        "Memory allocated.",
        memory::used_memory(),
    );
    page.gauge(
        "neokv_memory_peak_bytes",
        "The most memory that was allocated.",
        memory::peak_memory(),
    );
    page.gauge(
        "neokv_memory_resident_bytes",
        "Memory of the process, as the system counts it.",
        resident_bytes(),
    );
    page.gauge(
        "neokv_memory_max_bytes",
        "`maxmemory`; 0: no limit.",
        settings.maxmemory,
    );

    let regions = |count: fn(&stats::RegionStats) -> u64| -> u64 {
        shared.stats.iter().map(|core| count(&core.regions)).sum()
    };
    page.gauge(
        "neokv_regions",
        "Regions this node has a replica of.",
        regions(|it| it.count.get()),
    );
    page.gauge(
        "neokv_regions_led",
        "Regions this node leads.",
        regions(|it| it.led.get()),
    );
    page.gauge(
        "neokv_regions_quiet",
        "Regions whose replica here needs no time: nobody uses them, and its peers have everything.",
        regions(|it| it.quiet.get()),
    );
    if let Some(durable) = &shared.durable {
        log_and_rows(page, durable);
    }
}

fn log_and_rows(page: &mut Page, durable: &Durable) {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    page.gauge(
        "neokv_writes_stopped",
        "1 if the log could not be written: the node refuses writes until it is started again.",
        u8::from(durable.is_failed()),
    );
    page.gauge(
        "neokv_disk_full",
        "1 while writes are refused because the disk is full.",
        u8::from(durable.is_full()),
    );
    page.count(
        "neokv_log_entries_total",
        "Entries given to the log.",
        read(&durable.entries),
    );
    page.count(
        "neokv_log_commands_total",
        "Commands in these entries.",
        read(&durable.commands_logged),
    );
    let (writes, syncs) = durable.writer.counts();
    page.count(
        "neokv_log_writes_total",
        "Groups of entries written to the log.",
        writes,
    );
    page.count("neokv_log_syncs_total", "Syncs of the log to disk.", syncs);
    let disk = durable.writer.disk();
    page.gauge(
        "neokv_log_stalled",
        "1 if the disk of the log does not answer (log-stall-timeout): others lead.",
        u8::from(disk.stalled_ms().is_some()),
    );
    page.gauge(
        "neokv_log_write_waiting_seconds",
        "How long the write of the log under way has been so; 0 if there is none.",
        disk.waited().as_secs_f64(),
    );
    page.gauge(
        "neokv_log_write_p99_seconds",
        "Time that 99 of 100 of the last 1024 writes of the log did not exceed, sync included.",
        disk.percentile(99).as_secs_f64(),
    );
    page.count(
        "neokv_log_checkpoints_total",
        "Times the log was cut.",
        read(&durable.checkpoints),
    );
    page.gauge(
        "neokv_log_bytes_since_checkpoint",
        "Bytes of log that a start would replay.",
        read(&durable.logged_bytes),
    );
    page.count(
        "neokv_rows_fetched_total",
        "Keys that were not in memory, fetched by reader threads.",
        read(&durable.loads),
    );
    let stats = durable.stores.rows.stats();
    page.gauge("neokv_store_disk_bytes", "Data on disk.", stats.disk_bytes);
    page.gauge(
        "neokv_store_block_cache_bytes",
        "Blocks of the store in memory.",
        stats.block_cache_bytes,
    );
    page.gauge(
        "neokv_store_waiting_bytes",
        "Rows that are to be written to the store.",
        stats.waiting_bytes,
    );
    page.gauge(
        "neokv_store_memtable_bytes",
        "Rows in memory that are not in files yet.",
        stats.memtable_bytes,
    );
    page.count(
        "neokv_store_written_bytes_total",
        "Bytes of rows written.",
        stats.written_bytes,
    );
    page.count(
        "neokv_store_flushed_bytes_total",
        "Bytes of new files.",
        stats.flushed_bytes,
    );
    page.count(
        "neokv_store_compacted_bytes_total",
        "Bytes of files made from others.",
        stats.compacted_bytes,
    );
}
