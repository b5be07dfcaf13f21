//! Rows of tables beyond one region's log: ROW.SCAN walks through cache and SQL, ROW.WAITSQL waits for SQL.
//!
//! A walk goes region by region, in the order of slots, and inside a region in the order of keys; the cursor says where it is:
//! `first:last:key`, slots and the last key. So it can go on at any node, after any restart.

use std::ops::RangeInclusive;
use std::sync::Arc;

use base::{Refusal, SLOT_COUNT};
use command::{Arity, CommandSpec, Flags, Group, Keys, Run, Traits};
use resp::{Args, Reply};
use runtime::cores::NOWHERE;
use runtime::now_ms;
use runtime::tables::{Ask, TableAnswer};
use session::Later;
use session::Session;
use session::SessionCommand;
use session::SessionRun;
use sqldb::calls::answer;
use table::leader::Fault;
use table::scan::Page;
use table::{Field, Table};

const ROW: CommandSpec = CommandSpec {
    run: Run::Session,
    group: Group::Row,
    since: "1.0.0",
    ..CommandSpec::BASE
};

const COUNT: usize = 100;
const COUNT_MAX: usize = 10_000;
/// How long ROW.WAITSQL waits unless told.
const WAIT_MS: u64 = 10_000;
const LAST_SLOT: u16 = SLOT_COUNT - 1;

pub const SPECS: &[SessionCommand] = &[
    SessionCommand {
        spec: CommandSpec {
            name: "row.scan",
            syntax: "table cursor:string [COUNT count] [FIELDS <numfields field...>]",
            arity: Arity::AtLeast(3),
            flags: Flags::READONLY.union(Flags::NO_MULTI),
            traits: Traits::READS_TABLE,
            complexity: "O(N) for N rows returned; one SELECT",
            summary: "Walks through the rows of a table, cached or not, each exactly once.",
            ..ROW
        },
        run: SessionRun::Later(scan),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "row.waitsql",
            syntax: "key [VERSION version] [TIMEOUT milliseconds]",
            arity: Arity::AtLeast(2),
            keys: Keys::one(1),
            flags: Flags::READONLY.union(Flags::NO_MULTI),
            complexity: "O(1)",
            summary: "Waits until SQL has a version of a row, by default the one it has now.",
            ..ROW
        },
        run: SessionRun::Later(wait_sql),
    },
];

fn no_table(name: &[u8]) -> Refusal {
    Refusal::text_of(format!(
        "ERR no such table '{}'; declare it with ROW.TABLE CREATE or neokv table create",
        name.escape_ascii()
    ))
}

fn wait_sql<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let (mut version, mut timeout_ms) = (None, WAIT_MS);
        let mut at = 2;
        while at < args.len() {
            let value = args.get(at + 1).ok_or(Refusal::Syntax)?;
            let number = || {
                let text = std::str::from_utf8(value).ok();
                text.and_then(|text| text.parse::<i64>().ok())
                    .ok_or(Refusal::new("ERR value is not an integer or out of range"))
            };
            if args.is(at, "VERSION") {
                version = Some(number()?.unsigned_abs());
            } else if args.is(at, "TIMEOUT") {
                timeout_ms = number()?.unsigned_abs();
            } else {
                return Err(Refusal::Syntax);
            }
            at += 2;
        }
        let key = args.at(1);
        let catalogue = session.shared().known_tables().await;
        let Some(id) = catalogue.row_of(key) else {
            let name = key.split(|&byte| byte == b':').next().unwrap_or_default();
            return Err(session.shared().unheard_or(no_table(name)));
        };
        let region = session.shared().map.region_of(key);
        if region == NOWHERE {
            let slot = base::slot::slot_of(key);
            let why = runtime::cluster::Unserved::Elsewhere;
            return Err(session.core.unserved(slot, why));
        }
        let ask = Ask::WaitSql {
            id,
            version,
            deadline_ms: now_ms().saturating_add(timeout_ms),
        };
        match session.core.clone().ask_table(region, ask).await? {
            TableAnswer::Version(version) => reply.int(version as i64),
            _ => reply.int(0),
        }
        Ok(())
    })
}

/// Where a walk is.
struct Cursor {
    slots: RangeInclusive<u16>,
    after: Option<Box<str>>,
}

impl Cursor {
    /// `None` if it is no cursor of ours. The range of a new one ends where its region does.
    fn parse(text: &[u8]) -> Option<(u16, Option<Cursor>)> {
        let text = std::str::from_utf8(text).ok()?;
        if text == "0" {
            return Some((0, None));
        }
        let mut parts = text.splitn(3, ':');
        let first: u16 = parts.next()?.parse().ok()?;
        let last: u16 = parts.next()?.parse().ok()?;
        let after = parts.next()?;
        if first > last || last > LAST_SLOT {
            return None;
        }
        let cursor = Cursor {
            slots: first..=last,
            after: (!after.is_empty()).then(|| after.into()),
        };
        Some((first, Some(cursor)))
    }

    fn show(slots: &RangeInclusive<u16>, after: &str) -> String {
        format!("{}:{}:{after}", slots.start(), slots.end())
    }
}

struct Options {
    count: usize,
    /// `None`: all.
    fields: Option<Vec<Box<[u8]>>>,
}

fn options(args: &Args<'_>) -> Result<Options, Refusal> {
    let (mut count, mut fields) = (COUNT, None);
    let mut at = 3;
    while at < args.len() {
        let number = args.int(at + 1)?;
        let number = usize::try_from(number).map_err(|_| Refusal::Syntax)?;
        if args.is(at, "COUNT") && number > 0 {
            count = number.min(COUNT_MAX);
            at += 2;
        } else if args.is(at, "FIELDS") && at + 2 + number <= args.len() {
            let names = (at + 2..at + 2 + number).map(|at| args.at(at).into());
            fields = Some(names.collect());
            at += 2 + number;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    Ok(Options { count, fields })
}

fn scan<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let catalogue = session.shared().known_tables().await;
        let name = args.at(1);
        let unknown = || session.shared().unheard_or(no_table(name));
        let table = catalogue.named(name).ok_or_else(unknown)?.clone();
        let options = options(args)?;
        let shown = shown_fields(&table, options.fields.as_deref())?;
        let invalid = Refusal::new("ERR invalid cursor");
        let (first, cursor) = Cursor::parse(args.at(2)).ok_or(invalid)?;
        let slots = slots_of_region(session, first);
        let slots = match &cursor {
            Some(cursor) if *cursor.slots.end() > *slots.end() && cursor.after.is_some() => {
                return Err(Refusal::new(
                    "TRYAGAIN the slots of this walk are elsewhere by now; begin it again",
                ));
            }
            Some(cursor) => first..=*cursor.slots.end().min(slots.end()),
            None => slots,
        };
        let after = cursor.and_then(|cursor| cursor.after);
        let page = page(session, &table, slots.clone(), after, options.count).await?;
        let next = match &page.next {
            Some(key) => Cursor::show(&slots, key),
            None if *slots.end() == LAST_SLOT => "0".into(),
            None => {
                let next = slots.end() + 1;
                Cursor::show(&slots_of_region(session, next), "")
            }
        };
        show(reply, &next, &page, &shown);
        Ok(())
    })
}

/// Places of the fields asked for, among those of the table.
fn shown_fields<'t>(
    table: &'t Table,
    asked: Option<&[Box<[u8]>]>,
) -> Result<Vec<(usize, &'t Field)>, Refusal> {
    let all = table.fields.iter().enumerate();
    let Some(asked) = asked else {
        return Ok(all.collect());
    };
    let place = |name: &[u8]| {
        let field = table.field_or_refuse(name)?;
        let at = table.fields.iter().position(|it| it.id == field.id);
        Ok((at.unwrap_or_default(), field))
    };
    asked.iter().map(|name| place(name)).collect()
}

/// The slots from this one on that are in the same region of this node, or in none.
fn slots_of_region(session: &Session, first: u16) -> RangeInclusive<u16> {
    let map = &session.shared().map;
    let region = map.region_of_slot(first);
    let same = (first..=LAST_SLOT).take_while(|&slot| map.region_of_slot(slot) == region);
    first..=same.last().unwrap_or(first)
}

async fn page(
    session: &Session,
    table: &Arc<Table>,
    slots: RangeInclusive<u16>,
    after: Option<Box<str>>,
    count: usize,
) -> Result<Page, Refusal> {
    let core = session.core.clone();
    let first = *slots.start();
    let region = core.shared.map.region_of_slot(first);
    if region == NOWHERE {
        return Err(core.unserved(first, runtime::cluster::Unserved::Elsewhere));
    }
    let ask = Ask::Overlay {
        table: table.id,
        after: after.clone(),
        limit: count,
        slot: first,
    };
    // The cache first, then SQL: see `table::scan`.
    let TableAnswer::Overlay(Some(overlay)) = core.ask_table(region, ask).await? else {
        return Err(no_table(table.name.as_bytes()));
    };
    let (done, answered) = answer();
    let after = after.map(Arc::from);
    let sql = &core.shared.sql;
    sql.scan(table.clone(), after, overlay.limit(), slots, done);
    let found = answered.await.map_err(|fault| {
        Refusal::text_of(match fault {
            Fault::Transient(why) => format!("SQLDOWN the database does not answer: {why}"),
            Fault::Unfit(why) => format!("ERR the table in SQL cannot be used: {why}"),
        })
    })?;
    Ok(overlay.page(found.rows, found.more))
}

fn show(reply: &mut Reply, next: &str, page: &Page, shown: &[(usize, &Field)]) {
    reply.array(2);
    reply.bulk(next.as_bytes());
    reply.array(page.rows.len());
    let mut text = Vec::new();
    for row in &page.rows {
        reply.array(3);
        reply.bulk(row.key.as_bytes());
        reply.int(row.version);
        reply.array(shown.len() * 2);
        for (at, field) in shown {
            reply.bulk(field.name.as_bytes());
            text.clear();
            let value = row.values.get(*at).unwrap_or(&field.default);
            value.show(&mut text);
            reply.bulk(&text);
        }
    }
}
