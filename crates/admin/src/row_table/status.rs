//! How rows fare: STATUS, DRAIN, and ROW.INFO with the same as text.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use base::Refusal;
use resp::{Args, Reply};
use runtime::Shared;
use runtime::now_ms;
use runtime::tables::catalogue::Catalogue;
use runtime::tables::status::{self, Drained, Status};
use session::Later;
use session::Session;
use table::leader::Numbers;

use super::only_durable;

/// How long DRAIN waits unless told.
const DRAIN_MS: u64 = 60_000;

/// Of all regions, by name.
fn named(status: &Status) -> [(&'static str, u64); 18] {
    let Numbers {
        lag_ms,
        dirty,
        queued,
        flying,
        dead,
        rows,
        bytes,
        waiting,
        loads,
        loaded,
        flushes,
        flushed,
        kicked,
        faults,
    } = status.numbers;
    [
        ("regions", status.regions as u64),
        ("slots", status.slots as u64),
        ("leases", status.leases as u64),
        ("unsettled", status.unsettled as u64),
        ("rows", rows as u64),
        ("bytes", bytes as u64),
        ("dirty", dirty as u64),
        ("queued", queued as u64),
        ("flying", flying as u64),
        ("dead", dead as u64),
        ("lag_ms", lag_ms),
        ("waiting", waiting as u64),
        ("loads", loads),
        ("loaded", loaded),
        ("flushes", flushes),
        ("flushed", flushed),
        ("kicked", kicked),
        ("faults", faults),
    ]
}

pub fn status<'a>(session: &'a mut Session, _: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        only_durable(session.shared())?;
        let catalogue = session.shared().catalogue.load_full();
        let status = status_of(session, &catalogue).await;
        let numbers = named(&status);
        reply.map(numbers.len() + 5);
        reply.bulk(b"catalogue");
        reply.int(catalogue.version as i64);
        reply.bulk(b"tables");
        reply.int(catalogue.tables.len() as i64);
        for (name, number) in numbers {
            reply.bulk(name.as_bytes());
            reply.int(number as i64);
        }
        reply.bulk(b"per_table");
        reply.array(catalogue.tables.len());
        for (id, table) in &catalogue.tables {
            let counts = status.tables.get(id).copied().unwrap_or_default();
            reply.map(4);
            reply.bulk(b"table");
            reply.bulk(table.name.as_bytes());
            for (name, count) in [
                ("rows", counts.rows),
                ("dirty", counts.dirty),
                ("dead", counts.dead),
            ] {
                reply.bulk(name.as_bytes());
                reply.int(count as i64);
            }
        }
        reply.bulk(b"troubles");
        reply.array(status.troubles.len());
        for (table, (why, regions)) in &status.troubles {
            let table = catalogue.tables.get(table);
            let name = table.map_or("(dropped)", |table| &table.name);
            trouble(reply, "table", name, why, *regions);
        }
        reply.bulk(b"down");
        reply.array(status.down.len());
        for (backend, (why, regions)) in &status.down {
            trouble(reply, "backend", backend, why, *regions);
        }
        Ok(())
    })
}

fn trouble(reply: &mut Reply, what: &str, name: &str, why: &str, regions: usize) {
    reply.map(3);
    for (name, text) in [(what, name), ("why", why)] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"regions");
    reply.int(regions as i64);
}

async fn status_of(session: &Session, catalogue: &Catalogue) -> Status {
    match catalogue.version {
        0 => Status::default(),
        _ => status::status(&session.core).await,
    }
}

/// DRAIN [TABLE name] [TIMEOUT ms]
pub fn drain<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared();
        only_durable(shared)?;
        let (mut table, mut timeout_ms) = (None, DRAIN_MS);
        for at in (2..args.len()).step_by(2) {
            let value = args.get(at + 1).ok_or(Refusal::Syntax)?;
            if args.is(at, "TABLE") {
                table = Some(value);
            } else if args.is(at, "TIMEOUT") {
                timeout_ms = u64::try_from(args.int(at + 1)?).map_err(|_| Refusal::NotInteger)?;
            } else {
                return Err(Refusal::Syntax);
            }
        }
        let catalogue = shared.known_tables().await;
        let table = match table {
            Some(name) => {
                let found = catalogue.named_or_refuse(name);
                Some(found.map_err(|refusal| shared.unheard_or(refusal))?.id)
            }
            None => None,
        };
        let drained = match catalogue.version {
            0 => Drained {
                slots: usize::from(base::SLOT_COUNT),
                ..Drained::default()
            },
            _ => {
                let deadline_ms = now_ms().saturating_add(timeout_ms);
                status::drain(&session.core, table, deadline_ms).await?
            }
        };
        reply.map(4);
        for (name, number) in [
            ("catalogue", catalogue.version),
            ("slots", drained.slots as u64),
            ("dead", drained.dead as u64),
        ] {
            reply.bulk(name.as_bytes());
            reply.int(number as i64);
        }
        reply.bulk(b"letters");
        reply.array(drained.named.len());
        for id in &drained.named {
            reply.bulk(super::key_of(&catalogue, id).as_bytes());
        }
        Ok(())
    })
}

/// ROW.INFO [table]
pub fn info<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        only_durable(session.shared())?;
        if args.len() > 2 {
            return Err(Refusal::Syntax);
        }
        if let Some(name) = args.get(1) {
            let shared = session.shared();
            let known = shared.known_tables().await;
            let found = known.named_or_refuse(name);
            found.map_err(|refusal| shared.unheard_or(refusal))?;
        }
        let text = section(session, args.get(1)).await;
        reply.verbatim(&format!("# Tables\r\n{text}"));
        Ok(())
    })
}

/// The lines of INFO about tables, or about one of them and where it is.
pub async fn section(session: &Session, only: Option<&[u8]>) -> String {
    let shared = session.shared();
    let catalogue = shared.catalogue.load_full();
    let mut text = format!("tables:{}\r\n", catalogue.tables.len());
    // EXEC holds the regions, which could not answer.
    if catalogue.version == 0 || session.in_exec() {
        return text;
    }
    let status = status_of(session, &catalogue).await;
    for (name, number) in named(&status) {
        let _ = write!(text, "table_{name}:{number}\r\n");
    }
    let chosen = |name: &str| only.is_none_or(|only| only == name.as_bytes());
    let mut backends = Vec::new();
    for table in catalogue.tables.values().filter(|it| chosen(&it.name)) {
        let trouble = status.troubles.get(&table.id);
        let backend = shared.sql.backend(&table.backend);
        let of = backend.map(|it| it.counters.of_table(table.id));
        let of = of.unwrap_or_default();
        let counts = status.tables.get(&table.id).copied().unwrap_or_default();
        let _ = write!(
            text,
            "table:name={},backend={},sqlname={},epoch={},fields={},rows={},dirty={},dead={},loads={},loaded={},flushes={},flushed={},refused={},conflicts={},faults={},in_trouble={}\r\n",
            table.name,
            table.backend,
            table.sql_name,
            table.epoch,
            table.fields.len(),
            counts.rows,
            counts.dirty,
            counts.dead,
            of.loads,
            of.loaded_rows,
            of.flushes,
            of.flushed_rows,
            of.refused_rows,
            of.conflicting_rows,
            of.faults,
            trouble.map_or(0, |(_, regions)| *regions),
        );
        if let Some((why, _)) = trouble {
            let _ = write!(text, "table_trouble_{}:{}\r\n", table.name, line(why));
        }
        backends.push(table.backend.as_str());
    }
    told_of_backends(&mut text, shared, &status, |name| {
        only.is_none() || backends.contains(&name)
    });
    text
}

fn told_of_backends(
    text: &mut String,
    shared: &Shared,
    status: &Status,
    chosen: impl Fn(&str) -> bool,
) {
    for backend in shared.sql.backends().filter(|it| chosen(it.name())) {
        let counters = &backend.counters;
        let down = status.down.get(backend.name());
        let _ = write!(
            text,
            "table_backend:name={},down={},open={},statements={},loads={},loaded={},load_p99_us={},flushes={},flushed={},flush_p99_us={},refused={},conflicts={},faults={}\r\n",
            backend.name(),
            down.map_or(0, |(_, regions)| *regions),
            counters.open.load(Ordering::Relaxed),
            backend.statements(),
            counters.loads.count(),
            counters.loaded_rows.load(Ordering::Relaxed),
            counters.loads.percentile_us(0.99),
            counters.flushes.count(),
            counters.flushed_rows.load(Ordering::Relaxed),
            counters.flushes.percentile_us(0.99),
            counters.refused_rows.load(Ordering::Relaxed),
            counters.conflicting_rows.load(Ordering::Relaxed),
            counters.faults(),
        );
        if let Some(last) = counters.last_fault() {
            let (name, why) = (backend.name(), line(&last.why));
            let _ = write!(text, "table_backend_last_fault_{name}:{why}\r\n");
        }
    }
}

/// As one line.
fn line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
