//! Numbers of tables: rows cached in the regions this node leads, what SQL still lacks, and what the databases were asked.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use runtime::Shared;
use runtime::tables::status::count;
use sqldb::calls::{BOUNDS_US, Backend, Histogram};
use stats::{Counter, TableGauges};
use table::rows::Counts;

use super::text::{Page, Type};

// Rows: name, what it is, where the number comes from.
type OfCore = (&'static str, &'static str, fn(&TableGauges) -> &Counter);
type OfTable = (&'static str, &'static str, fn(Counts) -> usize);
type OfBackend = (&'static str, &'static str, fn(&Backend) -> u64);

/// Summed over the cores.
const GAUGES: [OfCore; 6] = [
    ("neokv_table_rows", "Rows in the cache.", |it| &it.rows),
    (
        "neokv_table_bytes",
        "What limits of the cache are compared with.",
        |it| &it.bytes,
    ),
    (
        "neokv_table_dirty_rows",
        "Rows whose last change SQL does not have yet.",
        |it| &it.dirty,
    ),
    (
        "neokv_table_flying_rows",
        "Rows of statements under way.",
        |it| &it.flying,
    ),
    (
        "neokv_table_dead_letters",
        "Rows that SQL does not take.",
        |it| &it.dead,
    ),
    (
        "neokv_table_waiting_clients",
        "Clients that wait for a row.",
        |it| &it.waiting,
    ),
];

const BY_TABLE: [OfTable; 3] = [
    (
        "neokv_rows_of_table",
        "Rows of a table in the cache.",
        |it| it.rows,
    ),
    (
        "neokv_dirty_rows_of_table",
        "Rows of a table whose last change SQL does not have yet, dead letters left out.",
        |it| it.dirty,
    ),
    (
        "neokv_dead_letters_of_table",
        "Rows of a table that SQL does not take.",
        |it| it.dead,
    ),
];

const BY_BACKEND: [OfBackend; 2] = [
    (
        "neokv_sql_faults_total",
        "Calls a database did not answer well.",
        |it| it.counters.faults(),
    ),
    (
        "neokv_sql_statements_total",
        "What a database was asked.",
        Backend::statements,
    ),
];

pub fn add(page: &mut Page, shared: &Shared) {
    if shared.catalogue_version() == 0 {
        return;
    }
    rows(page, shared);
    databases(page, shared);
}

/// The cache, and how far SQL is behind it.
fn rows(page: &mut Page, shared: &Shared) {
    let catalogue = shared.catalogue.load();
    page.gauge(
        "neokv_tables",
        "Tables that are declared.",
        catalogue.tables.len(),
    );
    let cores = || shared.stats.iter().map(|core| &core.regions.tables);
    for (name, help, of) in GAUGES {
        let sum: u64 = cores().map(|gauges| of(gauges).get()).sum();
        page.gauge(name, help, sum);
    }
    let lag_ms = cores().map(|gauges| gauges.lag_ms.get()).max();
    page.gauge(
        "neokv_table_lag_seconds",
        "Age of the oldest change that SQL lacks, dead letters left out.",
        lag_ms.unwrap_or(0) as f64 / 1000.0,
    );
    let mut counts: BTreeMap<u32, Counts> = BTreeMap::new();
    for gauges in cores() {
        let by_table = gauges.by_table.lock();
        for (table, one) in &*by_table.unwrap_or_else(PoisonError::into_inner) {
            count(counts.entry(*table).or_default(), *one);
        }
    }
    for (name, help, of) in BY_TABLE {
        page.family(name, Type::Gauge, help);
        for (id, table) in &catalogue.tables {
            let counts = counts.get(id).copied().unwrap_or_default();
            page.line(name, &[("table", &table.name)], of(counts));
        }
    }
}

/// What the databases were asked, and how they answered.
fn databases(page: &mut Page, shared: &Shared) {
    let backends = || shared.sql.backends().map(|it| (it.name(), it));
    for (name, help, of) in BY_BACKEND {
        page.family(name, Type::Counter, help);
        for (backend, it) in backends() {
            page.line(name, &[("backend", backend)], of(it));
        }
    }
    let rows = "neokv_sql_rows_total";
    page.family(
        rows,
        Type::Counter,
        "Rows read from and written to a database.",
    );
    for (name, backend) in backends() {
        let counters = &backend.counters;
        for (what, count) in [
            ("loaded", &counters.loaded_rows),
            ("flushed", &counters.flushed_rows),
            ("refused", &counters.refused_rows),
            ("conflicting", &counters.conflicting_rows),
        ] {
            let labels = [("backend", name), ("what", what)];
            page.line(rows, &labels, count.load(Relaxed));
        }
    }
    let seconds = "neokv_sql_seconds";
    page.family(seconds, Type::Histogram, "How long a database took.");
    for (name, backend) in backends() {
        let counters = &backend.counters;
        for (what, took) in [("load", &counters.loads), ("flush", &counters.flushes)] {
            histogram(page, seconds, &[("backend", name), ("call", what)], took);
        }
    }
}

fn histogram(page: &mut Page, name: &str, labels: &[(&str, &str)], took: &Histogram) {
    let counts = BOUNDS_US.into_iter().zip(took.buckets());
    let buckets: Vec<_> = counts.map(|(us, count)| (us as f64 / 1e6, count)).collect();
    let sum = took.sum_us() as f64 / 1e6;
    page.histogram(name, labels, &buckets, sum, took.count());
}
