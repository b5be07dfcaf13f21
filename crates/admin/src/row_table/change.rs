//! What changes a table: CREATE, ADDFIELD, DROPFIELD, DROP, OPEN.
//!
//! What goes and stays in SQL (`KEEPSQL`) is closed first: from then on nothing is changed, SQL gets what it lacks, and only then it goes.
//! If SQL is away the table is opened again. A node that dies in between leaves it closed: whoever drops it again, or opens it, goes on from there.
//!
//! ```text
//!   drained ──► closed in every log ──► drained ──► gone
//!                                          └─ SQL is away ──► open
//! ```
//!
//! One that goes with its SQL table is closed first, too: its name is nobody else's until SQL has let it go. Or somebody could make a table
//! over the SQL table that is about to go, and lose what he writes.

use std::cell::RefCell;
use std::sync::Arc;

use base::Refusal;
use resp::{Args, Reply};
use runtime::Shared;
use runtime::now_ms;
use runtime::tables::catalogue::{Catalogue, Wanted};
use runtime::tables::catalogue_change::change_catalogue;
use session::Later;
use session::Session;
use settings::tables::MAIN;
use sqldb::calls::{Shape, no_backend};
use table::leader::Fault;
use table::{Table, parse_fields};

use super::all_nodes::{drain_all, follow_all};
use super::{only_durable, text};

/// How long KEEPSQL waits for SQL before it gives up; once more when the table is closed.
const DRAIN_MS: u64 = 10_000;
/// How long a change waits for the logs of all regions.
const FOLLOW_MS: u64 = 15_000;

/// CREATE name FIELDS declaration [BACKEND name] [SQLNAME name] [ADOPT]
pub fn create<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared().clone();
        only_durable(&shared)?;
        let (wanted, adopt) = wanted(&shared, args)?;
        // Refused before SQL hears of it, if it can be.
        let known = shared.known_tables().await;
        let (_, table) = known.create(wanted.clone())?;
        if !known.dropped.is_empty() {
            // Who leads has heard what is gone: no statement for that reaches what is made now under its name.
            let followed = follow_all(session, now_ms() + FOLLOW_MS).await;
            followed.map_err(|refusal| {
                Refusal::text_of(format!("ERR nothing was changed: {refusal}"))
            })?;
        }
        let shape = match adopt {
            true => Shape::Check,
            false => Shape::Create,
        };
        let backend = &wanted.backend;
        let shaped = shared.sql.reshape(table, shape).await;
        shaped.map_err(|fault| unchanged(backend, fault))?;
        change(session, |known| Ok(known.create(wanted.clone())?.0)).await?;
        reply.ok();
        Ok(())
    })
}

/// Changes the catalogue, and waits until the logs of all regions say so: from then on no replica, whoever leads, answers by the old one.
async fn change(
    session: &mut Session,
    change: impl Fn(&Catalogue) -> Result<Catalogue, Refusal>,
) -> Result<(), Refusal> {
    change_catalogue(&session.shared().clone(), change).await?;
    let followed = follow_all(session, now_ms() + FOLLOW_MS).await;
    followed.map_err(|refusal| {
        Refusal::text_of(format!(
            "ERR the tables are changed, but not all regions know it yet: {refusal}"
        ))
    })
}

fn wanted(shared: &Shared, args: &Args<'_>) -> Result<(Wanted, bool), Refusal> {
    let name = text(args, 2)?;
    table::name::check("table", name)?;
    let (mut fields, mut backend, mut sql_name, mut adopt) = (None, None, None, false);
    let mut at = 3;
    while at < args.len() {
        let place = if args.is(at, "FIELDS") {
            &mut fields
        } else if args.is(at, "BACKEND") {
            &mut backend
        } else if args.is(at, "SQLNAME") {
            &mut sql_name
        } else if args.is(at, "ADOPT") {
            adopt = true;
            at += 1;
            continue;
        } else {
            return Err(Refusal::Syntax);
        };
        if place.replace(text(args, at + 1)?).is_some() {
            return Err(Refusal::Syntax);
        }
        at += 2;
    }
    let fields = fields.ok_or(Refusal::new(
        "ERR say which fields the table has: FIELDS 'age:int64=0,name:string'",
    ))?;
    let wanted = Wanted {
        name: name.into(),
        backend: backend_of(shared, backend)?,
        sql_name: sql_name.unwrap_or(name).into(),
        fields: parse_fields(fields, 1)?,
    };
    Ok((wanted, adopt))
}

/// The backend that was named; else `main`, or the only one there is.
fn backend_of(shared: &Shared, named: Option<&str>) -> Result<String, Refusal> {
    let known: Vec<&str> = shared.sql.backends().map(|it| it.name()).collect();
    match (named, known.as_slice()) {
        (Some(name), known) if known.contains(&name) => Ok(name.into()),
        (Some(name), _) => {
            table::name::check("backend", name)?;
            Err(Refusal::text_of(format!("ERR {}", no_backend(name))))
        }
        (None, known) if known.contains(&MAIN) => Ok(MAIN.into()),
        (None, [only]) => Ok((*only).into()),
        (None, []) => Err(Refusal::text_of(format!("ERR {}", no_backend(MAIN)))),
        (None, known) => Err(Refusal::text_of(format!(
            "ERR say which backend the table is in: BACKEND {}",
            known.join(" | BACKEND ")
        ))),
    }
}

/// ADDFIELD name field:kind[=default]
pub fn add_field<'a>(
    session: &'a mut Session,
    args: &'a Args<'a>,
    reply: &'a mut Reply,
) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared().clone();
        only_durable(&shared)?;
        let name = text(args, 2)?;
        let mut fields = parse_fields(text(args, 3)?, 1)?;
        let (Some(field), true) = (fields.pop(), fields.is_empty()) else {
            return Err(Refusal::new("ERR add one field at a time"));
        };
        let known = shared.known_tables().await;
        let added = known.with_field(name, field.clone());
        let (_, table) = added.map_err(|refusal| shared.unheard_or(refusal))?;
        let backend = table.backend.clone();
        let shape = Shape::AddField(field.clone());
        let shaped = shared.sql.reshape(table, shape).await;
        shaped.map_err(|fault| unchanged(&backend, fault))?;
        change(session, |known| {
            Ok(known.with_field(name, field.clone())?.0)
        })
        .await?;
        reply.ok();
        Ok(())
    })
}

/// DROPFIELD name field [KEEPSQL]
pub fn drop_field<'a>(
    session: &'a mut Session,
    args: &'a Args<'a>,
    reply: &'a mut Reply,
) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared().clone();
        only_durable(&shared)?;
        let (name, field) = (text(args, 2)?, text(args, 3)?);
        let keep_sql = keeps_sql(args, 4)?;
        let known = shared.known_tables().await;
        let table = known.named_or_refuse(name.as_bytes());
        let table = table.map_err(|refusal| shared.unheard_or(refusal))?.clone();
        table.without_field(field)?;
        let without = |known: &Catalogue| Ok(known.without_field(name, field)?.0);
        if keep_sql {
            change_keeping_sql(session, &table, without).await?;
        } else {
            let open = |known: &Catalogue| {
                known.open_or_refuse(name)?;
                without(known)
            };
            change(session, open).await?;
            let table = shared
                .catalogue
                .load()
                .named_or_refuse(name.as_bytes())?
                .clone();
            let what = format!(
                "the field is dropped, but its column in '{}'",
                table.sql_name
            );
            let shape = Shape::DropField(field.into());
            let shaped = shared.sql.reshape(table, shape).await;
            shaped.map_err(|fault| left_in_sql(&what, fault))?;
        }
        reply.ok();
        Ok(())
    })
}

/// DROP name [KEEPSQL]
pub fn drop_table<'a>(
    session: &'a mut Session,
    args: &'a Args<'a>,
    reply: &'a mut Reply,
) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared().clone();
        only_durable(&shared)?;
        let name = text(args, 2)?;
        let keep_sql = keeps_sql(args, 3)?;
        let known = shared.known_tables().await;
        let table = known.named_or_refuse(name.as_bytes());
        let table = table.map_err(|refusal| shared.unheard_or(refusal))?.clone();
        let drop = |known: &Catalogue| {
            is_meant(known, &table)?;
            known.drop(name)
        };
        if keep_sql {
            change_keeping_sql(session, &table, drop).await?;
        } else {
            let close = |known: &Catalogue| {
                is_meant(known, &table)?;
                Ok(known.close(name)?.0)
            };
            change(session, close).await?;
            let shaped = shared.sql.reshape(Arc::clone(&table), Shape::Drop).await;
            change(session, drop).await?;
            let what = format!("the table is dropped, but '{}' in SQL", table.sql_name);
            shaped.map_err(|fault| left_in_sql(&what, fault))?;
        }
        reply.ok();
        Ok(())
    })
}

/// OPEN name
pub fn open<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared().clone();
        only_durable(&shared)?;
        let name = text(args, 2)?;
        let opened = shared.known_tables().await.open(name);
        if opened
            .map_err(|refusal| shared.unheard_or(refusal))?
            .is_some()
        {
            let is_open = Refusal::new("ERR somebody else has opened the table just now");
            change(session, |known| known.open(name)?.ok_or(is_open.clone())).await?;
        }
        reply.ok();
        Ok(())
    })
}

/// Another of this name is not the one that was meant.
fn is_meant(known: &Catalogue, table: &Table) -> Result<(), Refusal> {
    match known.named_or_refuse(table.name.as_bytes())?.id == table.id {
        true => Ok(()),
        false => Err(Refusal::new("ERR the table was made anew meanwhile")),
    }
}

/// Makes a change after which nobody could write to SQL what it lacks: when it lacks nothing, and can lack nothing any more.
async fn change_keeping_sql(
    session: &mut Session,
    table: &Table,
    last: impl Fn(&Catalogue) -> Result<Catalogue, Refusal>,
) -> Result<(), Refusal> {
    // Most of it while the table is open still.
    all_in_sql(session, table).await?;
    let mine = RefCell::new(None);
    let close = |known: &Catalogue| {
        is_meant(known, table)?;
        let (next, closed) = known.close(&table.name)?;
        mine.replace(Some(closed));
        Ok(next)
    };
    let mut done = change(session, close)
        .await
        .map_err(|refusal| Refusal::text_of(format!("ERR nothing was dropped: {refusal}")));
    let Some(closed) = mine.into_inner() else {
        return done;
    };
    if done.is_ok() {
        done = all_in_sql(session, table).await;
    }
    match done {
        Ok(()) => {
            let last = |known: &Catalogue| {
                known.still(&closed)?;
                last(known)
            };
            change(session, last).await
        }
        Err(refusal) => {
            let shared = session.shared().clone();
            let open = |known: &Catalogue| {
                known.still(&closed)?;
                known.open(&table.name)?.ok_or(Refusal::Syntax)
            };
            let opened = change_catalogue(&shared, open).await;
            opened.map_err(|_| {
                Refusal::text_of(format!(
                    "{}; ROW.TABLE OPEN {} if it is closed still",
                    refusal.text(),
                    table.name
                ))
            })?;
            Err(refusal)
        }
    }
}

/// SQL has the rows of a table, whoever leads them.
async fn all_in_sql(session: &mut Session, table: &Table) -> Result<(), Refusal> {
    let drained = drain_all(session, table, now_ms() + DRAIN_MS).await;
    let dead = drained.map_err(|refusal| {
        Refusal::text_of(format!(
            "ERR nothing was dropped, SQL does not have all rows yet: {refusal}; try again later, or drop it without KEEPSQL"
        ))
    })?;
    match dead {
        0 => Ok(()),
        _ => Err(Refusal::new(
            "ERR nothing was dropped, SQL did not take all rows; see ROW.TABLE DEAD LIST, or drop it without KEEPSQL",
        )),
    }
}

fn keeps_sql(args: &Args<'_>, at: usize) -> Result<bool, Refusal> {
    match args.len() - at.min(args.len()) {
        0 => Ok(false),
        1 if args.is(at, "KEEPSQL") => Ok(true),
        _ => Err(Refusal::Syntax),
    }
}

/// SQL did not do its part, and came first.
fn unchanged(backend: &str, fault: Fault) -> Refusal {
    Refusal::text_of(match fault {
        Fault::Transient(why) => format!(
            "ERR the database of backend '{backend}' does not answer, nothing was changed: {why}"
        ),
        Fault::Unfit(why) => format!("ERR nothing was changed, backend '{backend}': {why}"),
    })
}

/// SQL did not do its part, and came last.
fn left_in_sql(what: &str, fault: Fault) -> Refusal {
    let (Fault::Transient(why) | Fault::Unfit(why)) = fault;
    Refusal::text_of(format!(
        "ERR {what} is still there, remove it there by hand: {why}"
    ))
}
