//! What shows tables: LIST, SHOW, BACKENDS.

use std::sync::atomic::Ordering;

use resp::{Args, Reply};
use runtime::UNHEARD;
use session::Later;
use session::Session;
use sqldb::calls::Backend;
use table::leader::Fault;
use table::{Table, show_fields};

use super::only_durable;

pub fn list<'a>(session: &'a mut Session, _: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        only_durable(session.shared())?;
        let shared = session.shared();
        let catalogue = shared.known_tables().await;
        if catalogue.tables.is_empty() && !shared.has_heard_tables() {
            return Err(UNHEARD); // "none" would be a guess
        }
        let mut tables: Vec<&Table> = catalogue.tables.values().map(|table| &**table).collect();
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        reply.array(tables.len());
        for table in tables {
            describe(reply, table);
        }
        Ok(())
    })
}

pub fn show<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared();
        only_durable(shared)?;
        let catalogue = shared.known_tables().await;
        let table = catalogue.named_or_refuse(args.at(2));
        describe(reply, table.map_err(|refusal| shared.unheard_or(refusal))?);
        Ok(())
    })
}

fn describe(reply: &mut Reply, table: &Table) {
    reply.map(8);
    for (name, value) in [
        ("name", &table.name),
        ("backend", &table.backend),
        ("sqlname", &table.sql_name),
        ("declaration", &show_fields(&table.fields)),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"id");
    reply.int(i64::from(table.id));
    reply.bulk(b"epoch");
    reply.int(table.epoch as i64);
    reply.bulk(b"closed");
    reply.int(i64::from(table.closed));
    reply.bulk(b"fields");
    reply.array(table.fields.len());
    for field in &table.fields {
        reply.array(3);
        reply.bulk(field.name.as_bytes());
        reply.bulk(field.kind.name().as_bytes());
        reply.bulk(&field.default.shown());
    }
}

pub fn backends<'a>(session: &'a mut Session, _: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared().clone();
        only_durable(&shared)?;
        // All are asked before one is waited for.
        let asked: Vec<_> = shared
            .sql
            .backends()
            .map(|backend| (backend.clone(), shared.sql.ping(backend)))
            .collect();
        let catalogue = shared.catalogue.load_full();
        reply.array(asked.len());
        for (backend, answer) in asked {
            let tables = catalogue.tables.values();
            let tables = tables.filter(|table| table.backend == backend.name());
            let answer = answer.await;
            tell(reply, &backend, tables.count(), answer);
        }
        Ok(())
    })
}

fn tell(reply: &mut Reply, backend: &Backend, tables: usize, answer: Result<(), Fault>) {
    let counters = &backend.counters;
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (is_up, error) = match answer {
        Ok(()) => (1, String::new()),
        Err(Fault::Transient(why) | Fault::Unfit(why)) => (0, why.into()),
    };
    let last = counters.last_fault();
    let texts = [
        ("name", backend.name().to_owned()),
        ("url", backend.shown_url()),
        ("error", error),
        (
            "last_fault",
            last.as_ref().map_or(String::new(), |it| it.why.to_string()),
        ),
    ];
    let numbers = [
        ("up", is_up),
        ("tables", tables as u64),
        ("connections", backend.connections() as u64),
        ("open", read(&counters.open)),
        ("statements", backend.statements()),
        ("loads", counters.loads.count()),
        ("loaded_rows", read(&counters.loaded_rows)),
        ("load_p50_us", counters.loads.percentile_us(0.5)),
        ("load_p99_us", counters.loads.percentile_us(0.99)),
        ("flushes", counters.flushes.count()),
        ("flushed_rows", read(&counters.flushed_rows)),
        ("flush_p50_us", counters.flushes.percentile_us(0.5)),
        ("flush_p99_us", counters.flushes.percentile_us(0.99)),
        ("refused_rows", read(&counters.refused_rows)),
        ("conflicting_rows", read(&counters.conflicting_rows)),
        ("unreadable_rows", read(&counters.unreadable_rows)),
        ("scans", read(&counters.scans)),
        ("transient_faults", read(&counters.transient_faults)),
        ("unfit_faults", read(&counters.unfit_faults)),
        ("last_fault_at_ms", last.as_ref().map_or(0, |it| it.at_ms)),
    ];
    reply.map(texts.len() + numbers.len());
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.int(number as i64);
    }
}
