//! What Redis clients did.

use std::sync::atomic::Ordering;

use runtime::Shared;
use stats::{CoreStats, RegionStats};

use super::text::{Page, Type};

pub fn add(page: &mut Page, shared: &Shared) {
    clients(page, shared);
    keys(page, shared);
    commands(page, shared);
}

fn clients(page: &mut Page, shared: &Shared) {
    let total = |counter: fn(&CoreStats) -> u64| shared.total(counter);
    page.gauge(
        "neokv_clients",
        "Clients connected.",
        shared.clients.count(),
    );
    page.gauge(
        "neokv_clients_max",
        "`maxclients`.",
        shared.settings.current().maxclients,
    );
    page.gauge(
        "neokv_clients_blocked",
        "Clients in a command that waits.",
        total(|core| core.blocked_clients.get()),
    );
    page.count(
        "neokv_connections_total",
        "Connections accepted.",
        total(|core| core.connections.get()),
    );
    page.count(
        "neokv_connections_rejected_total",
        "Connections turned away.",
        total(|core| core.rejected_connections.get()),
    );
    page.count(
        "neokv_network_received_bytes_total",
        "Bytes of commands.",
        total(|core| core.net_input_bytes.get()),
    );
    page.count(
        "neokv_network_sent_bytes_total",
        "Bytes of replies.",
        total(|core| core.net_output_bytes.get()),
    );
    page.count(
        "neokv_core_batches_total",
        "Messages with commands from one core to another.",
        total(|core| core.batches_sent.get()),
    );
    page.gauge(
        "neokv_last_save_time_seconds",
        "Unix time of the last RDB file.",
        shared.saving.last_save_seconds.load(Ordering::Relaxed),
    );
}

fn keys(page: &mut Page, shared: &Shared) {
    let sum = |count: fn(&RegionStats) -> u64| -> u64 {
        shared.stats.iter().map(|core| count(&core.regions)).sum()
    };
    page.count(
        "neokv_keyspace_hits_total",
        "Keys read that were there.",
        sum(|it| it.hits.get()),
    );
    page.count(
        "neokv_keyspace_misses_total",
        "Keys read that were not.",
        sum(|it| it.misses.get()),
    );
    page.count(
        "neokv_expired_keys_total",
        "Keys whose time had come.",
        sum(|it| it.expired.get()),
    );
    page.count(
        "neokv_evicted_keys_total",
        "Keys removed because memory was short.",
        sum(|it| it.evicted.get()),
    );
    page.count(
        "neokv_changes_total",
        "Changes of keys.",
        sum(|it| it.changes.get()),
    );
    let databases = |of: fn(&RegionStats) -> &[stats::Counter]| -> Vec<u64> {
        let mut sums = vec![0; usize::from(base::limits::DATABASES)];
        for core in &shared.stats {
            for (sum, gauge) in sums.iter_mut().zip(of(&core.regions)) {
                *sum += gauge.get();
            }
        }
        sums
    };
    let (keys, expires) = (databases(|it| &it.keys), databases(|it| &it.expires));
    for (name, help, sums) in [
        ("neokv_keys", "Keys, by database.", &keys),
        (
            "neokv_keys_expiring",
            "Keys with a deadline, by database.",
            &expires,
        ),
    ] {
        page.family(name, Type::Gauge, help);
        for (db, (sum, keys)) in sums.iter().zip(&keys).enumerate() {
            // The first is always there, so that a graph has something to show.
            if *keys > 0 || db == 0 {
                page.line(name, &[("db", &db.to_string())], sum);
            }
        }
    }
}

/// Upper bounds of the buckets of latencies, in seconds.
const BOUNDS: [f64; 11] = [
    1e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 1.0,
];

struct Command {
    name: &'static str,
    number: usize,
    calls: u64,
    rejected: u64,
    failed: u64,
    seconds: f64,
}

fn commands(page: &mut Page, shared: &Shared) {
    let mut all = Vec::new();
    for (number, row) in shared.commands.each_row() {
        let mut sums = [0u64; 4];
        for stats in shared
            .stats
            .iter()
            .filter_map(|core| core.commands.get(number))
        {
            let counters = [&stats.calls, &stats.ticks, &stats.rejected, &stats.failed];
            for (sum, counter) in sums.iter_mut().zip(counters) {
                *sum += counter.get();
            }
        }
        let [calls, ticks, rejected, failed] = sums;
        if calls + rejected + failed > 0 {
            all.push(Command {
                name: row.name,
                number,
                calls,
                rejected,
                failed,
                seconds: shared.clock.delta_as_nanos(0, ticks) as f64 / 1e9,
            });
        }
    }
    let mut family = |name: &str, help: &str, value: fn(&Command) -> f64| {
        page.family(name, Type::Counter, help);
        for command in &all {
            page.line(name, &[("command", command.name)], value(command));
        }
    };
    family("neokv_commands_total", "Commands run.", |it| {
        it.calls as f64
    });
    family(
        "neokv_commands_failed_total",
        "Commands that ran and answered with an error.",
        |it| it.failed as f64,
    );
    family(
        "neokv_commands_rejected_total",
        "Commands turned away before they ran.",
        |it| it.rejected as f64,
    );
    latencies(page, shared, &all);
    errors(page, shared);
}

fn latencies(page: &mut Page, shared: &Shared, commands: &[Command]) {
    let name = "neokv_command_duration_seconds";
    page.family(name, Type::Histogram, "How long commands ran.");
    for command in commands.iter().filter(|it| it.calls > 0) {
        let mut buckets = BOUNDS.map(|bound| (bound, 0));
        for (nanos, count) in shared.histogram_of(command.number) {
            let seconds = nanos as f64 / 1e9;
            if let Some(bucket) = buckets.iter_mut().find(|(bound, _)| seconds <= *bound) {
                bucket.1 += count;
            }
        }
        let labels = [("command", command.name)];
        page.histogram(name, &labels, &buckets, command.seconds, command.calls);
    }
}

fn errors(page: &mut Page, shared: &Shared) {
    let name = "neokv_errors_total";
    page.family(name, Type::Counter, "Error replies, by their first word.");
    let mut errors = std::collections::BTreeMap::<String, u64>::new();
    for core in &shared.stats {
        for (code, count) in core.errors() {
            *errors.entry(code).or_default() += count;
        }
    }
    for (code, count) in errors {
        page.line(name, &[("code", &code)], count);
    }
}
