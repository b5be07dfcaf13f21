//! The lines of each section of INFO.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

use runtime::cores::Totals;
use runtime::durable::Durable;
use runtime::{Shared, now_ms};
use stats::RegionStats;
use stats::memory;
use stats::process::{cpu_seconds, resident_bytes};

use crate::connection::REDIS_VERSION;

/// `name:value` lines.
pub struct Lines<'a>(pub &'a mut String);

impl Lines<'_> {
    pub fn add(&mut self, name: &str, value: impl Display) {
        use std::fmt::Write;
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    /// Bytes, and the same for people.
    fn bytes(&mut self, name: &str, value: u64) {
        self.add(name, value);
        self.add(&format!("{name}_human"), human(value));
    }
}

/// `1.50M` as Redis writes sizes.
pub fn human(bytes: u64) -> String {
    let value = bytes as f64;
    for (unit, name) in [
        (1u64 << 40, "T"),
        (1 << 30, "G"),
        (1 << 20, "M"),
        (1 << 10, "K"),
    ] {
        if bytes >= unit {
            return format!("{:.2}{name}", value / unit as f64);
        }
    }
    format!("{bytes}B")
}

pub fn server(lines: &mut Lines<'_>, shared: &Shared) {
    let settings = shared.settings.current();
    let uptime = shared.started.elapsed().as_secs();
    lines.add("redis_version", REDIS_VERSION);
    lines.add("neokv_version", env!("CARGO_PKG_VERSION"));
    lines.add("redis_git_sha1", "00000000");
    lines.add("redis_git_dirty", 0);
    lines.add("redis_build_id", "0");
    lines.add("redis_mode", "standalone");
    lines.add("os", os_name());
    lines.add("arch_bits", usize::BITS);
    lines.add("multiplexing_api", "epoll");
    lines.add("process_id", std::process::id());
    lines.add("process_supervised", "no");
    lines.add("run_id", &shared.run_id);
    // As Redis: the port for TLS, if there is no other.
    let port = match settings.redis_port {
        0 => settings.tls.port,
        plain => plain,
    };
    lines.add("tcp_port", port);
    lines.add("http_port", shared.http_port.load(Ordering::Relaxed));
    lines.add("num_shards", shared.stats.len());
    lines.add("engine", settings.engine.name());
    lines.add("server_time_usec", now_ms() * 1000);
    let clock = runtime::clock::report();
    lines.add("clock_ahead_ms", clock.ahead_ms);
    lines.add("clock_jumps", clock.jumps);
    lines.add("uptime_in_seconds", uptime);
    lines.add("uptime_in_days", uptime / 86400);
    lines.add("hz", settings.hz);
    lines.add("configured_hz", settings.hz);
    lines.add("lru_clock", (now_ms() / 1000) & 0xff_ffff);
    let executable = std::env::current_exe().unwrap_or_default();
    lines.add("executable", executable.display());
    let file = settings.config_file.clone().unwrap_or_default();
    lines.add("config_file", file.display());
    lines.add("io_threads_active", 0);
}

fn os_name() -> String {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/kernel/{name}"))
            .map(|text| text.trim().to_string())
            .unwrap_or_default()
    };
    format!(
        "{} {} {}",
        read("ostype"),
        read("osrelease"),
        std::env::consts::ARCH
    )
}

pub fn clients(lines: &mut Lines<'_>, shared: &Shared) {
    let (mut input, mut output) = (0, 0);
    for client in shared.clients.all().values() {
        input = input.max(client.input_bytes.load(Ordering::Relaxed));
        output = output.max(client.output_bytes.load(Ordering::Relaxed));
    }
    lines.add("connected_clients", shared.clients.count());
    lines.add("cluster_connections", 0);
    lines.add("maxclients", shared.settings.current().maxclients);
    lines.add("client_recent_max_input_buffer", input);
    lines.add("client_recent_max_output_buffer", output);
    lines.add("blocked_clients", blocked(shared));
    lines.add("tracking_clients", 0);
    lines.add("clients_in_timeout_table", 0);
}

fn blocked(shared: &Shared) -> usize {
    let all = shared.clients.all();
    all.values()
        .filter(|client| {
            client.blocked.load(Ordering::Relaxed) || client.paused.load(Ordering::Relaxed)
        })
        .count()
}

/// Memory of the machine.
fn system_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kb| kb.trim().parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

pub fn memory(lines: &mut Lines<'_>, shared: &Shared) {
    memory::publish();
    let settings = shared.settings.current();
    let used = memory::used_memory() as u64;
    let peak = memory::peak_memory() as u64;
    let resident = resident_bytes();
    let startup = shared.memory_at_start.load(Ordering::Relaxed).min(used);
    let clients: usize = shared
        .clients
        .all()
        .values()
        .map(|client| {
            client.input_bytes.load(Ordering::Relaxed) + client.output_bytes.load(Ordering::Relaxed)
        })
        .sum();
    let overhead = (startup + clients as u64).min(used);
    let percent =
        |part: u64, whole: u64| format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64);
    lines.bytes("used_memory", used);
    lines.bytes("used_memory_rss", resident);
    lines.bytes("used_memory_peak", peak);
    lines.add("used_memory_peak_perc", percent(used, peak));
    lines.add("used_memory_overhead", overhead);
    lines.add("used_memory_startup", startup);
    lines.add("used_memory_dataset", used - overhead);
    lines.add(
        "used_memory_dataset_perc",
        percent(used - overhead, used.saturating_sub(startup)),
    );
    lines.add("allocator_allocated", used);
    lines.add("allocator_active", resident.max(used));
    lines.add("allocator_resident", resident.max(used));
    lines.bytes("total_system_memory", system_bytes());
    lines.bytes("used_memory_lua", 0);
    lines.bytes("used_memory_scripts", 0);
    lines.add("number_of_cached_scripts", 0);
    lines.add("number_of_functions", 0);
    lines.add("number_of_libraries", 0);
    lines.bytes("maxmemory", settings.maxmemory as u64);
    let policy = shared.settings.get(&["maxmemory-policy"]);
    let policy = policy.first().map_or("", |(_, text)| text.as_str());
    lines.add("maxmemory_policy", policy);
    if shared.durable.is_some() {
        lines.add("data_set_bytes", shared.data_set.bytes());
    }
    let ratio = resident as f64 / used.max(1) as f64;
    let difference = resident as i64 - used as i64;
    lines.add("allocator_frag_ratio", "1.00");
    lines.add("allocator_frag_bytes", 0);
    lines.add("allocator_rss_ratio", format!("{ratio:.2}"));
    lines.add("allocator_rss_bytes", difference);
    lines.add("rss_overhead_ratio", "1.00");
    lines.add("rss_overhead_bytes", 0);
    lines.add("mem_fragmentation_ratio", format!("{ratio:.2}"));
    lines.add("mem_fragmentation_bytes", difference);
    lines.add("mem_not_counted_for_evict", stats::reaper::pending_bytes());
    lines.add("mem_replication_backlog", 0);
    lines.add("mem_total_replication_buffers", 0);
    lines.add("mem_clients_slaves", 0);
    lines.add("mem_clients_normal", clients);
    lines.add("mem_cluster_links", 0);
    lines.add("mem_aof_buffer", 0);
    lines.add("mem_allocator", "mimalloc");
    lines.add("active_defrag_running", 0);
    lines.add("lazyfree_pending_objects", 0);
    lines.add("lazyfreed_objects", 0);
}

/// The log and the store of a durable node.
fn log_and_store(lines: &mut Lines<'_>, durable: &Durable) {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    lines.add("log_writes_stopped", u8::from(durable.is_failed()));
    lines.add("disk_full", u8::from(durable.is_full()));
    let disk = durable.writer.disk();
    let state = match (durable.is_failed(), disk.stalled_ms()) {
        (true, _) => "failed",
        (false, Some(_)) => "stalled",
        (false, None) => "ok",
    };
    lines.add("log_disk", state);
    lines.add("log_disk_waiting_ms", disk.waited().as_millis());
    lines.add("log_disk_p50_us", disk.percentile(50).as_micros());
    lines.add("log_disk_p99_us", disk.percentile(99).as_micros());
    lines.add("log_entries", count(&durable.entries));
    lines.add("log_commands", count(&durable.commands_logged));
    lines.add("log_bytes_since_checkpoint", count(&durable.logged_bytes));
    lines.add("log_checkpoints", count(&durable.checkpoints));
    lines.add("rows_fetched_by_readers", count(&durable.loads));
    lines.add("rows_warmed_by_readers", count(&durable.warmed));
    lines.add("big_collections_read_whole", count(&durable.wholes));
    let stats = durable.stores.rows.stats();
    lines.add("rows_disk_bytes", stats.disk_bytes);
    lines.add("rows_waiting_bytes", stats.waiting_bytes);
    lines.add("rows_written_bytes", stats.written_bytes);
    lines.add("rows_flushed_bytes", stats.flushed_bytes);
    lines.add("rows_compacted_bytes", stats.compacted_bytes);
    lines.add("rows_block_cache_bytes", stats.block_cache_bytes);
    lines.add("rows_memtable_bytes", stats.memtable_bytes);
}

pub fn persistence(lines: &mut Lines<'_>, shared: &Shared, totals: &Totals) {
    let status = &shared.saving;
    let since = status.running_since_ms.load(Ordering::Relaxed);
    let running_seconds = match since {
        0 => -1,
        since => (now_ms().saturating_sub(since) / 1000) as i64,
    };
    let saved = status.changes_at_last_save.load(Ordering::Relaxed);
    let ok = |fine: bool| if fine { "ok" } else { "err" };
    lines.add("loading", u8::from(status.loading.load(Ordering::Relaxed)));
    lines.add("async_loading", 0);
    lines.add("current_cow_peak", 0);
    lines.add("current_cow_size", 0);
    lines.add("current_cow_size_age", 0);
    lines.add("current_fork_perc", "0.00");
    let (mut done, mut total) = (0, 0);
    if since != 0 {
        done = status.keys_done.load(Ordering::Relaxed);
        total = status.keys_total.load(Ordering::Relaxed);
    }
    lines.add("current_save_keys_processed", done);
    lines.add("current_save_keys_total", total);
    lines.add(
        "rdb_changes_since_last_save",
        totals.changes.saturating_sub(saved),
    );
    lines.add("rdb_bgsave_in_progress", u8::from(since != 0));
    lines.add(
        "rdb_last_save_time",
        status.last_save_seconds.load(Ordering::Relaxed),
    );
    lines.add(
        "rdb_last_bgsave_status",
        ok(status.last_bgsave_ok.load(Ordering::Relaxed)),
    );
    lines.add(
        "rdb_last_bgsave_time_sec",
        status.last_bgsave_seconds.load(Ordering::Relaxed),
    );
    lines.add("rdb_current_bgsave_time_sec", running_seconds);
    lines.add("rdb_saves", status.saves.load(Ordering::Relaxed));
    lines.add("rdb_last_cow_size", 0);
    lines.add(
        "rdb_last_load_keys_expired",
        status.loaded_expired.load(Ordering::Relaxed),
    );
    lines.add(
        "rdb_last_load_keys_loaded",
        status.loaded_keys.load(Ordering::Relaxed),
    );
    if let Some(durable) = &shared.durable {
        log_and_store(lines, durable);
    }
    for name in [
        "aof_enabled",
        "aof_rewrite_in_progress",
        "aof_rewrite_scheduled",
    ] {
        lines.add(name, 0);
    }
    lines.add("aof_last_rewrite_time_sec", -1);
    lines.add("aof_current_rewrite_time_sec", -1);
    lines.add("aof_last_bgrewrite_status", "ok");
    lines.add("aof_rewrites", 0);
    lines.add("aof_rewrites_consecutive_failures", 0);
    lines.add("aof_last_write_status", "ok");
    lines.add("aof_last_cow_size", 0);
    lines.add("module_fork_in_progress", 0);
    lines.add("module_fork_last_cow_size", 0);
}

pub fn stats(lines: &mut Lines<'_>, shared: &Shared, totals: &Totals) {
    let [commands, input, output] = shared.rates.per_second();
    let kilobytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    let errors: u64 = shared.total(|core| core.errors().values().sum());
    let total = |counter: fn(&stats::CoreStats) -> u64| shared.total(counter);
    lines.add(
        "total_connections_received",
        total(|core| core.connections.get()),
    );
    lines.add("total_commands_processed", shared.commands_run());
    lines.add("instantaneous_ops_per_sec", commands);
    lines.add(
        "total_net_input_bytes",
        total(|core| core.net_input_bytes.get()),
    );
    lines.add(
        "total_net_output_bytes",
        total(|core| core.net_output_bytes.get()),
    );
    lines.add("total_net_repl_input_bytes", 0);
    lines.add("total_net_repl_output_bytes", 0);
    lines.add("instantaneous_input_kbps", kilobytes(input));
    lines.add("instantaneous_output_kbps", kilobytes(output));
    lines.add("instantaneous_input_repl_kbps", "0.00");
    lines.add("instantaneous_output_repl_kbps", "0.00");
    lines.add(
        "rejected_connections",
        total(|core| core.rejected_connections.get()),
    );
    for name in ["sync_full", "sync_partial_ok", "sync_partial_err"] {
        lines.add(name, 0);
    }
    lines.add("expired_keys", totals.expired);
    lines.add("expired_stale_perc", "0.00");
    lines.add("expired_time_cap_reached_count", 0);
    lines.add("expire_cycle_cpu_milliseconds", 0);
    lines.add("evicted_keys", totals.evicted);
    lines.add("evicted_clients", 0);
    lines.add("total_eviction_exceeded_time", 0);
    lines.add("current_eviction_exceeded_time", 0);
    lines.add("keyspace_hits", totals.hits);
    lines.add("keyspace_misses", totals.misses);
    for name in ["pubsub_channels", "pubsub_patterns", "pubsubshard_channels"] {
        lines.add(name, 0);
    }
    for name in ["latest_fork_usec", "total_forks", "migrate_cached_sockets"] {
        lines.add(name, 0);
    }
    for name in [
        "slave_expires_tracked_keys",
        "active_defrag_hits",
        "active_defrag_misses",
    ] {
        lines.add(name, 0);
    }
    for name in [
        "active_defrag_key_hits",
        "active_defrag_key_misses",
        "tracking_total_keys",
    ] {
        lines.add(name, 0);
    }
    for name in ["tracking_total_items", "tracking_total_prefixes"] {
        lines.add(name, 0);
    }
    lines.add(
        "unexpected_error_replies",
        total(|core| core.unexpected_errors.get()),
    );
    lines.add("total_error_replies", errors);
    lines.add("dump_payload_sanitizations", 0);
    lines.add("batches_sent", total(|core| core.batches_sent.get()));
    lines.add("region_holds", total(|core| core.holds.get()));
}

pub fn replication(lines: &mut Lines<'_>, shared: &Shared) {
    lines.add("role", "master");
    lines.add("connected_slaves", 0);
    lines.add("master_failover_state", "no-failover");
    lines.add("master_replid", shared.replication_id());
    lines.add("master_replid2", "0".repeat(40));
    lines.add("master_repl_offset", 0);
    lines.add("second_repl_offset", -1);
    lines.add("repl_backlog_active", 0);
    lines.add("repl_backlog_size", 0);
    lines.add("repl_backlog_first_byte_offset", 0);
    lines.add("repl_backlog_histlen", 0);
}

pub fn cpu(lines: &mut Lines<'_>) {
    let (user, system) = cpu_seconds();
    lines.add("used_cpu_sys", format!("{system:.6}"));
    lines.add("used_cpu_user", format!("{user:.6}"));
    lines.add("used_cpu_sys_children", "0.000000");
    lines.add("used_cpu_user_children", "0.000000");
}

pub fn commandstats(lines: &mut Lines<'_>, shared: &Shared) {
    for (number, row) in shared.commands.each_row() {
        let mut sums = [0u64; 4];
        for core in &shared.stats {
            let Some(stats) = core.commands.get(number) else {
                continue;
            };
            for (sum, counter) in
                sums.iter_mut()
                    .zip([&stats.calls, &stats.ticks, &stats.rejected, &stats.failed])
            {
                *sum += counter.get();
            }
        }
        let [calls, ticks, rejected, failed] = sums;
        if calls + rejected + failed == 0 {
            continue;
        }
        let usec = shared.clock.delta_as_nanos(0, ticks) / 1000;
        let each = usec as f64 / calls.max(1) as f64;
        lines.add(
            &format!("cmdstat_{}", row.name),
            format!(
                "calls={calls},usec={usec},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}"
            ),
        );
    }
}

pub fn errorstats(lines: &mut Lines<'_>, shared: &Shared) {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for core in &shared.stats {
        for (code, count) in core.errors() {
            *sums.entry(code).or_default() += count;
        }
    }
    for (code, count) in sums {
        lines.add(&format!("errorstat_{code}"), format!("count={count}"));
    }
}

pub fn latencystats(lines: &mut Lines<'_>, shared: &Shared) {
    let settings = shared.settings.current();
    if !settings.latency_tracking || settings.latency_percentiles.is_empty() {
        return;
    }
    for (number, row) in shared.commands.each_row() {
        let buckets = shared.histogram_of(number);
        let total: u64 = buckets.iter().map(|(_, count)| count).sum();
        if total == 0 {
            continue;
        }
        let parts: Vec<String> = settings
            .latency_percentiles
            .iter()
            .map(|percent| {
                let usec = percentile(&buckets, total, *percent) as f64 / 1000.0;
                format!("p{percent}={usec:.3}")
            })
            .collect();
        lines.add(
            &format!("latency_percentiles_usec_{}", row.name),
            parts.join(","),
        );
    }
}

/// The value below which `percent` of the counts lie.
fn percentile(buckets: &[(u64, u64)], total: u64, percent: f64) -> u64 {
    let wanted = ((percent / 100.0) * total as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (value, count) in buckets {
        seen += count;
        if seen >= wanted {
            return *value;
        }
    }
    buckets.last().map_or(0, |(value, _)| *value)
}

/// At most a second old.
pub fn regions(lines: &mut Lines<'_>, shared: &Shared) {
    let sum = |count: fn(&RegionStats) -> u64| -> u64 {
        shared.stats.iter().map(|core| count(&core.regions)).sum()
    };
    lines.add("regions", sum(|it| it.count.get()));
    lines.add("regions_led", sum(|it| it.led.get()));
    lines.add("regions_quiet", sum(|it| it.quiet.get()));
}

pub fn keyspace(lines: &mut Lines<'_>, totals: &Totals) {
    for (db, sums) in totals.databases() {
        let (keys, expires, mean_ms) = (sums.keys, sums.expires, sums.mean_ms());
        if keys > 0 {
            lines.add(
                &format!("db{db}"),
                format!("keys={keys},expires={expires},avg_ttl={mean_ms}"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        assert_eq!(human(0), "0B");
        assert_eq!(human(1023), "1023B");
        assert_eq!(human(916_240), "894.77K");
        assert_eq!(human(25_274_793_984), "23.54G");
    }

    #[test]
    fn percentiles_of_a_histogram() {
        let buckets = [(10, 50), (20, 49), (30, 1)];
        assert_eq!(percentile(&buckets, 100, 50.0), 10);
        assert_eq!(percentile(&buckets, 100, 99.0), 20);
        assert_eq!(percentile(&buckets, 100, 100.0), 30);
        assert_eq!(percentile(&buckets, 100, 0.0), 10);
    }

    #[test]
    fn the_process_uses_memory_and_time() {
        assert!(resident_bytes() > 0);
        assert!(system_bytes() > 0);
    }
}
