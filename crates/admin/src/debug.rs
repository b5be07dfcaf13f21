//! DEBUG: looks behind the scenes, for tests.
//!
//! Allowed as `enable-debug-command` says. One command without subcommand rows, as in Redis; what
//! needs keys holds all regions, since nobody calls it where speed matters.

mod digest;
mod protocol;

use std::time::Duration;

use base::Refusal;
use command::{Arity, CommandSpec};
use keyspace::{Expire, Keyspace, Txn, ValueRef, View};
use resp::{Args, Reply};
use runtime::now_ms;
use session::Later;
use session::Session;
use session::SessionCommand;
use session::SessionRun;

use super::specs::{self, ADMIN, SERVER};

pub const SPECS: &[SessionCommand] = &[SessionCommand {
    spec: CommandSpec {
        name: "debug",
        arity: Arity::AtLeast(2),
        flags: ADMIN,
        complexity: "Depends on subcommand.",
        summary: "Looks behind the scenes, for tests.",
        ..SERVER
    },
    run: SessionRun::Later(debug),
}];

fn debug<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let settings = session.shared().settings.current();
        if !settings
            .enable_debug_command
            .allows(session.client.is_local())
        {
            return Err(Refusal::new(
                "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
                 \"local\", you can run it from a local connection, otherwise you need to set \
                 this option in the configuration file, and then restart the server.",
            ));
        }
        let word = args.at(1).to_ascii_lowercase();
        match (word.as_slice(), args.len()) {
            (b"help", 2) => help(reply),
            (b"compact", 2) => compact(session, reply).await,
            (b"sleep", 3) => sleep(session, args, reply).await,
            (b"object", 3) => on_key(session, args, reply, object).await,
            (b"reload", _) => super::persistence::reload(session, args, reply).await,
            (b"listpack", 3) => on_key(session, args, reply, listpack).await,
            (b"htstats-key", 3) => on_key(session, args, reply, htstats_key).await,
            (b"htstats", 3) => htstats(session, args, reply).await,
            (b"digest", 2) => digest_all(session, reply).await,
            (b"digest-value", _) => digest_values(session, args, reply).await,
            (b"populate", 3..=5) => populate(session, args, reply).await,
            (b"protocol", 3) => protocol::reply(args, reply),
            (b"error", 3) => Err(Refusal::text_of(
                String::from_utf8_lossy(args.at(2)).into_owned(),
            )),
            (b"log", 3) => {
                tracing::warn!("DEBUG LOG: {}", String::from_utf8_lossy(args.at(2)));
                reply.ok();
                Ok(())
            }
            (b"set-active-expire", 3) => {
                let on = args.int(2).unwrap_or(0) != 0;
                let settings = &session.shared().settings;
                settings.change(|settings| settings.active_expire = on);
                reply.ok();
                Ok(())
            }
            (b"rows-from-elements", 3) => {
                let from = args.int(2).ok().and_then(|from| usize::try_from(from).ok());
                let from = from.ok_or(Refusal::new("ERR not a number of elements"))?;
                let settings = &session.shared().settings;
                settings.change(|settings| settings.tuning.rows_from_elements = from);
                reply.ok();
                Ok(())
            }
            // Lists hold elements of any size in the same way: there is no threshold to move.
            (b"quicklist-packed-threshold", 3) => {
                reply.ok();
                Ok(())
            }
            (b"change-repl-id", 2) => {
                session.shared().change_replication_id();
                reply.ok();
                Ok(())
            }
            (b"stringmatch-len", 4) => {
                reply.int_bool(base::glob::matches(args.at(2), args.at(3)));
                Ok(())
            }
            (b"config-rewrite-force-all", 2) => {
                let done = session.shared().settings.rewrite();
                done.map_err(|error| Refusal::text_of(format!("ERR {error}")))?;
                reply.ok();
                Ok(())
            }
            _ => Err(Refusal::text_of(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try DEBUG HELP.",
                String::from_utf8_lossy(args.at(1))
            ))),
        }
    })
}

/// Stops every command on keys for a while.
async fn sleep(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let seconds = args.float(2).unwrap_or(0.0).clamp(0.0, 1e9);
    let held = session.hold_all().await;
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    session.release(held).await;
    reply.ok();
    Ok(())
}

/// Gives back all space of what was deleted; answers when that is done.
async fn compact(session: &mut Session, reply: &mut Reply) -> Result<(), Refusal> {
    // What is done is handed to the store when its region is lent.
    let held = session.hold_all().await;
    session.release(held).await;
    let shared = session.shared().clone();
    if let Some(durable) = &shared.durable {
        let number = durable.compact();
        while !durable.is_compacted(number) {
            if let Some(refusal) = durable.refusal() {
                return Err(refusal);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    reply.ok();
    Ok(())
}

/// A function over the value at a key, argument 2.
type OnKey = fn(&View<'_>, &[u8], &mut Reply) -> Result<(), Refusal>;

async fn on_key(
    session: &mut Session,
    args: &Args<'_>,
    reply: &mut Reply,
    run: OnKey,
) -> Result<(), Refusal> {
    let key = args.at(2);
    let (db, tuning) = (session.db, session.shared().settings.current());
    let mut held = session.hold_all().await;
    held.load_missing_of(vec![(db, key.into())]).await;
    let result = match held.region_of(key) {
        Some(region) => {
            let view = View::one(&mut region.space, db, now_ms(), 0, &tuning.tuning);
            run(&view, key, reply)
        }
        None => Err(Refusal::NoSuchKey),
    };
    session.release(held).await;
    result
}

fn object(view: &View<'_>, key: &[u8], reply: &mut Reply) -> Result<(), Refusal> {
    let value = view.peek(key).ok_or(Refusal::NoSuchKey)?;
    // A number lies in its entry, which has no address of its own to show.
    let place = value.address().unwrap_or(1);
    let mut extra = String::new();
    if let ValueRef::List(list) = &value
        && list.encoding() == "quicklist"
    {
        extra = format!(
            " ql_listpack_max:{} ql_compressed:0 ql_uncompressed_size:{}",
            view.tuning().list_max_packed_size,
            list.memory_usage()
        );
    }
    // Written with an empty key: database (2 bytes), type and key length (1 each) come first.
    let mut bytes = Vec::new();
    dump::Encoder::new(true).append(0, b"", value, None, &mut bytes);
    reply.simple(&format!(
        "Value at:{place:#x} refcount:1 encoding:{} serializedlength:{} lru:{} \
         lru_seconds_idle:{}{extra}",
        view.encoding(key).unwrap_or("unknown"),
        bytes.len().saturating_sub(4),
        (view.now_ms() / 1000) & 0xff_ffff,
        view.idle_ms(key).unwrap_or(0) / 1000,
    ));
    Ok(())
}

fn listpack(view: &View<'_>, key: &[u8], reply: &mut Reply) -> Result<(), Refusal> {
    match view.encoding(key).ok_or(Refusal::NoSuchKey)? {
        "listpack" => {
            reply.simple("Listpack structure printed on stdout");
            Ok(())
        }
        _ => Err(Refusal::new("ERR Not a listpack encoded object.")),
    }
}

fn htstats_key(view: &View<'_>, key: &[u8], reply: &mut Reply) -> Result<(), Refusal> {
    let value = view.peek(key).ok_or(Refusal::NoSuchKey)?;
    let length = match view.encoding(key) {
        Some("hashtable" | "skiplist") => value.elements(),
        _ => None,
    };
    let length = length.ok_or(Refusal::new(
        "ERR The value stored at the specified key is not represented using an hash table",
    ))?;
    reply.verbatim(&format!("number of elements: {length}\n"));
    Ok(())
}

async fn htstats(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let db = args
        .int(2)
        .ok()
        .and_then(|db| u8::try_from(db).ok())
        .filter(|db| *db < base::limits::DATABASES)
        .ok_or(Refusal::new("ERR Out of range database"))?;
    let mut held = session.hold_all().await;
    let mut text = String::from("[Dictionary HT]\n");
    let mut with_deadline = 0;
    for (region, space) in held.spaces().enumerate() {
        let (keys, expires, _) = space.db_stats(db);
        with_deadline += expires;
        text.push_str(&format!(
            "region {region}: {keys} keys, {} bytes of tables\n",
            space.table_bytes(db)
        ));
    }
    session.release(held).await;
    text.push_str(&format!("[Expires HT]\n{with_deadline} keys\n"));
    reply.verbatim(&text);
    Ok(())
}

async fn digest_all(session: &mut Session, reply: &mut Reply) -> Result<(), Refusal> {
    let settings = session.shared().settings.current();
    let mut held = session.hold_all().await;
    let digest = loop {
        let mut spaces: Vec<&mut Keyspace> = held.spaces().collect();
        let digest = digest::of_everything(&mut spaces, now_ms(), &settings.tuning);
        if !held.load_missing().await {
            break digest;
        }
    };
    session.release(held).await;
    reply.simple(&digest.to_string());
    Ok(())
}

async fn digest_values(
    session: &mut Session,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let (db, settings) = (session.db, session.shared().settings.current());
    let map = session.shared().map.clone();
    let mut held = session.hold_all().await;
    let keys = args.iter_from(2).map(|key| (db, key.into()));
    held.load_missing_of(keys.collect()).await;
    let mut spaces: Vec<&mut Keyspace> = held.spaces().collect();
    reply.array(args.len() - 2);
    for key in args.iter_from(2) {
        let digest = spaces
            .get_mut(map.region_of(key))
            .map(|space| {
                let view = View::one(space, db, now_ms(), 0, &settings.tuning);
                digest::of_value(&view, key)
            })
            .unwrap_or_default();
        reply.simple(&digest.to_string());
    }
    session.release(held).await;
    Ok(())
}

/// DEBUG POPULATE count [prefix] [size]: string keys `prefix:number`, those that exist kept.
async fn populate(
    session: &mut Session,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let bad = Refusal::new("ERR value is out of range, must be positive");
    let count = u64::try_from(args.int(2)?).map_err(|_| bad.clone())?;
    let prefix = args.get(3).unwrap_or(b"key");
    let size = match args.get(4) {
        Some(_) => usize::try_from(args.int(4)?).map_err(|_| bad)?,
        None => 0,
    };
    let (db, settings) = (session.db, session.shared().settings.current());
    let map = session.shared().map.clone();
    let mut held = session.hold_all().await;
    let mut spaces: Vec<&mut Keyspace> = held.spaces().collect();
    for number in 0..count {
        let mut key = prefix.to_vec();
        key.extend_from_slice(format!(":{number}").as_bytes());
        let mut value = format!("value:{number}").into_bytes();
        if size > 0 {
            value.resize(size, 0);
        }
        let Some(space) = spaces.get_mut(map.region_of(&key)) else {
            continue;
        };
        let mut txn = Txn::new(View::one(space, db, now_ms(), 0, &settings.tuning));
        if txn.kind(&key).is_none() {
            txn.put_string(&key, &value, Expire::Clear);
        }
    }
    if !session.in_exec() {
        held.commit().await?;
    }
    session.release(held).await;
    reply.ok();
    Ok(())
}

fn help(reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "DEBUG",
        &[
            "CHANGE-REPL-ID",
            "    Change the replication IDs of the instance.",
            "COMPACT",
            "    Bring everything to disk, cut the log and compact all files: the space of",
            "    what was deleted comes back. On the durable engine; answers when it is done.",
            "CONFIG-REWRITE-FORCE-ALL",
            "    As CONFIG REWRITE.",
            "DIGEST",
            "    Output a hex signature representing the current DB content.",
            "DIGEST-VALUE <key> [<key> ...]",
            "    Output a hex signature of the values of all the specified keys.",
            "ERROR <string>",
            "    Return a Redis protocol error with <string> as message. Useful for clients",
            "    unit tests to simulate Redis errors.",
            "LOG <message>",
            "    Write <message> to the server log.",
            "HTSTATS <dbid>",
            "    Return the size of the tables of a database, by region.",
            "HTSTATS-KEY <key>",
            "    Return the size of the table stored at <key>.",
            "LISTPACK <key>",
            "    Tell whether <key> is kept packed.",
            "OBJECT <key>",
            "    Show low level info about `key` and associated value.",
            "POPULATE <count> [<prefix>] [<size>]",
            "    Create <count> string keys named key:<num>. If <prefix> is specified then",
            "    it is used instead of the 'key' prefix.",
            "PROTOCOL <type>",
            "    Reply with a test value of the specified type. <type> can be: string,",
            "    integer, double, bignum, null, array, set, map, attrib, push, verbatim,",
            "    true, false.",
            "QUICKLIST-PACKED-THRESHOLD <size>",
            "    Accepted; lists here have no such threshold.",
            "RELOAD [option ...]",
            "    Save the RDB on disk and reload it back to memory.",
            "ROWS-FROM-ELEMENTS <count>",
            "    Engine rocksdb: collections of more than <count> elements stay in their rows",
            "    when they are loaded.",
            "SET-ACTIVE-EXPIRE <0|1>",
            "    Setting it to 0 disables expiring keys in background when they are not",
            "    accessed. Setting it to 1 reenables back the default.",
            "SLEEP <seconds>",
            "    Stop all commands on keys for <seconds>. Decimals allowed.",
            "STRINGMATCH-LEN <pattern> <string>",
            "    Tell whether the glob-like <pattern> matches.",
        ],
    )
}
