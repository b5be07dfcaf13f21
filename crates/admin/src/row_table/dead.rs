//! DEAD: rows that SQL did not take, and what is to become of them.

use base::Refusal;
use base::slot::slot_of;
use resp::{Args, Reply};
use runtime::cluster::Unserved;
use runtime::cores::NOWHERE;
use runtime::tables::{Ask, status};
use session::Later;
use session::Session;
use table::entry::DeadKind;

use super::{key_of, only_durable};

/// Letters listed unless told.
const COUNT: usize = 1000;
const COUNT_MAX: usize = 100_000;

/// DEAD LIST [COUNT n] | RETRY key [OVER version] | DROP key
pub fn dead<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        only_durable(session.shared())?;
        match args.len() {
            3 if args.is(2, "LIST") => list(session, COUNT, reply).await,
            5 if args.is(2, "LIST") && args.is(3, "COUNT") => {
                let count = usize::try_from(args.int(4)?).map_err(|_| Refusal::NotInteger)?;
                list(session, count.clamp(1, COUNT_MAX), reply).await
            }
            4 if args.is(2, "RETRY") => settle(session, args.at(3), Way::Retry(None), reply).await,
            6 if args.is(2, "RETRY") && args.is(4, "OVER") => {
                let over = args.int(5)?.unsigned_abs();
                settle(session, args.at(3), Way::Retry(Some(over)), reply).await
            }
            4 if args.is(2, "DROP") => settle(session, args.at(3), Way::Drop, reply).await,
            _ => Err(Refusal::Syntax),
        }
    })
}

async fn list(session: &Session, count: usize, reply: &mut Reply) -> Result<(), Refusal> {
    let catalogue = session.shared().catalogue.load_full();
    if catalogue.version == 0 {
        reply.map(2);
        reply.bulk(b"dead");
        reply.int(0);
        reply.bulk(b"letters");
        reply.array(0);
        return Ok(());
    }
    let (letters, dead) = status::dead_letters(&session.core, count).await?;
    reply.map(2);
    reply.bulk(b"dead");
    reply.int(dead as i64);
    reply.bulk(b"letters");
    reply.array(letters.len());
    for (id, letter) in &letters {
        let (kind, sql_version) = match letter.kind {
            DeadKind::Refused => ("refused", None),
            DeadKind::Conflict { sql_version } => ("conflict", Some(sql_version)),
        };
        reply.map(5);
        for (name, text) in [
            ("key", key_of(&catalogue, id).as_str()),
            ("kind", kind),
            ("why", &letter.why),
        ] {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        reply.bulk(b"version");
        reply.int(letter.version);
        reply.bulk(b"sql_version");
        match sql_version {
            Some(version) => reply.int(version),
            None => reply.null(),
        }
    }
    Ok(())
}

enum Way {
    /// After a conflict: over this version in SQL.
    Retry(Option<u64>),
    Drop,
}

async fn settle(session: &Session, key: &[u8], way: Way, reply: &mut Reply) -> Result<(), Refusal> {
    let shared = session.shared();
    let catalogue = shared.known_tables().await;
    let name = key.split(|&byte| byte == b':').next().unwrap_or_default();
    let table = catalogue.named_or_refuse(name);
    let table = table.map_err(|refusal| shared.unheard_or(refusal))?;
    let Some(id) = catalogue.row_of(key) else {
        let name = &table.name;
        let text = format!("ERR name the row as {name}:key");
        return Err(Refusal::text_of(text));
    };
    let region = shared.map.region_of(key);
    if region == NOWHERE {
        return Err(session.core.unserved(slot_of(key), Unserved::Elsewhere));
    }
    let ask = match way {
        Way::Retry(over) => Ask::Retry { id, over },
        Way::Drop => Ask::Discard { id },
    };
    session.core.ask_table(region, ask).await?;
    reply.ok();
    Ok(())
}
