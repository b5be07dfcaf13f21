//! One database: opened when it is first asked, its time limits, its counters, and the words of `sqldb` as those of `table::leader`.

use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use settings::SqlConfig;
use table::entry::Found;
use table::leader::{Fault, Flush, Read, Wrote};
use table::scan::PAGE_BYTES;
use table::{Image, Table, Value};
use tokio::sync::Semaphore;

use super::{Counters, Scan, Shape};
use crate::{Database, Error, Flushed, Limits, Loaded, Meant};

/// Statements of one call, at the most: a flush that finds a bad row halves its batch a few times.
const STATEMENTS_OF_A_CALL: u32 = 8;
/// Rows of the first SELECT of a page, and of any: what they hold is known afterwards only.
const SCAN_ROWS_FIRST: usize = 100;
const SCAN_ROWS: usize = 256;

pub struct Backend {
    name: String,
    url: String,
    limits: Limits,
    database: OnceLock<Result<Database, Error>>,
    /// For flushes: fewer than there are connections, so that a load finds one.
    flushes: Semaphore,
    pub counters: Counters,
}

impl Backend {
    pub(super) fn new(name: &str, url: &str, config: &SqlConfig) -> Backend {
        let limits = Limits {
            connections: config.connections.max(1),
            statement: config.statement.max(Duration::from_millis(10)),
            ..Limits::default()
        };
        let spare = (limits.connections / 4).max(1);
        Backend {
            name: name.into(),
            url: url.into(),
            flushes: Semaphore::new(limits.connections.saturating_sub(spare).max(1)),
            limits,
            database: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL without its password.
    pub fn shown_url(&self) -> String {
        hide_password(&self.url)
    }

    pub fn connections(&self) -> usize {
        self.limits.connections
    }

    /// Statements about rows that were sent.
    pub fn statements(&self) -> u64 {
        match self.database.get() {
            Some(Ok(database)) => database.statements(),
            _ => 0,
        }
    }

    /// Does not connect. On the thread `sql` only, where its connections live.
    fn database(&self) -> Result<&Database, Fault> {
        let opened = self
            .database
            .get_or_init(|| Database::open(&self.url, self.limits.clone()));
        opened.as_ref().map_err(|error| fault(error.clone()))
    }

    pub(super) async fn load(&self, table: &Table, keys: &[Arc<str>]) -> Result<Vec<Read>, Fault> {
        let began = Instant::now();
        let loaded = self.watched(self.timeout(), async {
            let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
            self.database()?.load(table, &keys).await.map_err(fault)
        });
        let loaded = self.faulty(table, loaded.await)?;
        self.counters.loads.note(began.elapsed());
        add(&self.counters.loaded_rows, loaded.len());
        self.counters.note(table.id, |of| {
            of.loads += 1;
            of.loaded_rows += loaded.len() as u64;
        });
        let read = |loaded| match read(table, loaded) {
            Read::Unreadable { why } => {
                add(&self.counters.unreadable_rows, 1);
                Read::Unreadable { why }
            }
            found => found,
        };
        Ok(loaded.into_iter().map(read).collect())
    }

    pub(super) async fn flush(
        &self,
        table: &Table,
        rows: Vec<Flush>,
        is_meant: Meant<'_>,
    ) -> Result<Vec<Wrote>, Fault> {
        let rows: Vec<crate::Flush> = rows.into_iter().map(outgoing).collect();
        // Waiting for others' flushes is no fault of the database: it has a time of its own.
        let written = self.watched(self.timeout() * 2, async {
            let _turn = self.flushes.acquire().await;
            let began = Instant::now();
            let written = self.database()?.flush_if(table, &rows, is_meant).await;
            written.map(|written| (written, began)).map_err(fault)
        });
        let (written, began) = self.faulty(table, written.await)?;
        self.counters.flushes.note(began.elapsed());
        let counters = &self.counters;
        counters.note(table.id, |of| {
            of.flushes += 1;
            for one in &written {
                match one {
                    Flushed::Written | Flushed::Already => of.flushed_rows += 1,
                    Flushed::Conflict { .. } => of.conflicting_rows += 1,
                    Flushed::Refused { .. } => of.refused_rows += 1,
                    Flushed::Busy => {}
                }
            }
        });
        let wrote = |flushed| {
            let (counter, wrote) = match flushed {
                Flushed::Busy => return Wrote::Busy,
                Flushed::Written => (&counters.flushed_rows, Wrote::Written),
                Flushed::Already => (&counters.flushed_rows, Wrote::Already),
                Flushed::Conflict { sql_version } => {
                    (&counters.conflicting_rows, Wrote::Conflict { sql_version })
                }
                Flushed::Refused { why } => {
                    let why = why.into();
                    (&counters.refused_rows, Wrote::Refused { why })
                }
            };
            add(counter, 1);
            wrote
        };
        Ok(written.into_iter().map(wrote).collect())
    }

    pub(super) async fn scan(
        &self,
        table: &Table,
        mut after: Option<Arc<str>>,
        limit: usize,
        slots: RangeInclusive<u16>,
    ) -> Result<Scan, Fault> {
        add(&self.counters.scans, 1);
        self.watched(self.timeout(), async {
            let database = self.database()?;
            let mut scan = Scan::default();
            let mut bytes = 0;
            loop {
                let some = scan_rows(limit - scan.rows.len(), scan.rows.len(), bytes);
                let slots = Some(slots.clone());
                let page = database.scan(table, after.as_deref(), some, slots).await;
                let page = page.map_err(fault)?;
                scan.skipped += page.skipped;
                scan.more = page.next.is_some();
                for row in page.rows {
                    if bytes >= PAGE_BYTES {
                        scan.more = true;
                        return Ok(scan);
                    }
                    match row.row {
                        Loaded::Found { version, values } => {
                            let size: usize = values.iter().map(Value::size).sum();
                            bytes += row.key.len() + size;
                            let key = row.key.into();
                            let row = table::scan::Scanned {
                                key,
                                version,
                                values,
                            };
                            scan.rows.push(row);
                        }
                        Loaded::Missing | Loaded::Unreadable { .. } => scan.skipped += 1,
                    }
                }
                let is_full = scan.rows.len() >= limit || bytes >= PAGE_BYTES;
                match page.next {
                    Some(next) if !is_full => after = Some(next.into()),
                    _ => break Ok(scan),
                }
            }
        })
        .await
    }

    pub(super) async fn shape(&self, table: &Table, shape: &Shape) -> Result<(), Fault> {
        add(&self.counters.shapes, 1);
        let timeout = self.timeout() + self.limits.shape;
        self.watched(timeout, async {
            let database = self.database()?;
            let shaped = match shape {
                Shape::Create => database.create_table(table).await,
                Shape::Check => database.check_table(table).await,
                Shape::AddField(field) => database.add_field(table, field).await,
                Shape::DropField(name) => database.drop_field(table, name).await,
                Shape::Drop => database.drop_table(table).await,
            };
            shaped.map_err(fault)
        })
        .await
    }

    pub(super) async fn ping(&self) -> Result<(), Fault> {
        self.watched(self.timeout(), async {
            self.database()?.ping().await.map_err(fault)
        })
        .await
    }

    /// Counts a fault for the table, too.
    fn faulty<T>(&self, table: &Table, result: Result<T, Fault>) -> Result<T, Fault> {
        result.inspect_err(|_| self.counters.note(table.id, |of| of.faults += 1))
    }

    /// For one call. A single statement has its own limit, which is shorter.
    fn timeout(&self) -> Duration {
        self.limits.connect + self.limits.statement * STATEMENTS_OF_A_CALL
    }

    /// Counts, and ends what takes too long: its connection is closed then.
    async fn watched<T>(
        &self,
        timeout: Duration,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let _open = Open::new(&self.counters.open);
        let result = match tokio::time::timeout(timeout, work).await {
            Ok(result) => result,
            Err(_) => {
                let seconds = timeout.as_secs();
                let why = format!("no answer within {seconds} s");
                Err(Fault::Transient(why.into()))
            }
        };
        result.inspect_err(|fault| self.counters.note_fault(fault, now_ms()))
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backend({} {})", self.name, self.shown_url())
    }
}

/// Counts a call while it is open, also if it is dropped half way.
struct Open<'a>(&'a AtomicU64);

impl Open<'_> {
    fn new(open: &AtomicU64) -> Open<'_> {
        open.fetch_add(1, Ordering::Relaxed);
        Open(open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

/// Rows of the next SELECT of a page, of which `left` are wanted: as many as fit if they are like the `had` before.
fn scan_rows(left: usize, had: usize, bytes: usize) -> usize {
    let fit = match had {
        0 => SCAN_ROWS_FIRST,
        had => PAGE_BYTES.saturating_sub(bytes) / (bytes / had).max(1) + 1,
    };
    left.min(fit).clamp(1, SCAN_ROWS)
}

fn fault(error: Error) -> Fault {
    match error {
        Error::Transient(why) => Fault::Transient(why.into()),
        Error::Unfit(why) => Fault::Unfit(why.into()),
    }
}

fn read(table: &Table, loaded: Loaded) -> Read {
    match loaded {
        Loaded::Missing => Read::Found(Found::Missing),
        Loaded::Found { version, values } => {
            Read::Found(Found::Row(Image::of_values(table, version, values)))
        }
        Loaded::Unreadable { why } => Read::Unreadable { why: why.into() },
    }
}

fn outgoing(row: Flush) -> crate::Flush {
    crate::Flush {
        key: row.key.as_ref().into(),
        slot: row.slot,
        version: row.version,
        low: row.low,
        high: row.high,
        values: row.values,
    }
}

/// `postgres://user:***@host/database`; passwords among the parameters as well.
fn hide_password(url: &str) -> String {
    let (rest, query) = match url.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (url, None),
    };
    let mut shown = match (rest.split_once("://"), rest.rfind('@')) {
        (Some((scheme, place)), Some(_)) => {
            let (user, host) = place.rsplit_once('@').unwrap_or(("", place));
            match user.split_once(':') {
                Some((user, _)) => format!("{scheme}://{user}:***@{host}"),
                None => rest.to_owned(),
            }
        }
        _ => rest.to_owned(),
    };
    if let Some(query) = query {
        let hidden = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, _)) if name.to_ascii_lowercase().contains("password") => {
                format!("{name}=***")
            }
            _ => pair.to_owned(),
        });
        let hidden: Vec<String> = hidden.collect();
        shown = format!("{shown}?{}", hidden.join("&"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("postgres://me:pa@ss@h/db", "postgres://me:***@h/db"),
            ("mysql://me@h:3306/db?x=1", "mysql://me@h:3306/db?x=1"),
            (
                "postgres://h/db?user=a&password=b",
                "postgres://h/db?user=a&password=***",
            ),
            ("sqlite:///a/b@c.db", "sqlite:///a/b@c.db"),
        ] {
            assert_eq!(hide_password(url), shown);
        }
    }
}
