//! SAVE, BGSAVE, LASTSAVE, SHUTDOWN, and the reload behind DEBUG RELOAD.
//!
//! SAVE and DEBUG RELOAD hold all regions while they encode, as Redis stops everything for them.
//! BGSAVE does not: see `crate::saving`.

use std::sync::atomic::Ordering;

use base::{DbIndex, Refusal, limits::DATABASES};
use command::{Arity, Command, Flags};
use keyspace::rdb::{Encoder, Header};
use keyspace::{Keyspace, Owned, Txn, View};
use resp::{Args, Reply};

use super::rows::{ANYTIME, SERVER};
use crate::saving::{self, Plan};
use crate::shared::{Shared, now_ms};
use crate::shutdown::Stop;
use crate::{Later, Session, SessionCommand, SessionRun, loading};

pub const ROWS: &[SessionCommand] = &[
    SessionCommand {
        row: Command {
            name: "save",
            arity: Arity::Exactly(1),
            flags: Flags::ADMIN
                .union(Flags::NOSCRIPT)
                .union(Flags::NO_ASYNC_LOADING)
                .union(Flags::NO_MULTI),
            complexity: "O(N) where N is the number of keys.",
            summary: "Saves all data, holding all commands back meanwhile.",
            ..SERVER
        },
        run: SessionRun::Later(save),
    },
    SessionCommand {
        row: Command {
            name: "lastsave",
            arity: Arity::Exactly(1),
            flags: ANYTIME.union(Flags::FAST).union(Flags::DANGEROUS),
            summary: "Returns the Unix time of the last save that succeeded.",
            ..SERVER
        },
        run: SessionRun::Now(lastsave),
    },
    SessionCommand {
        row: Command {
            name: "shutdown",
            arity: Arity::AtLeast(1),
            flags: Flags::ADMIN
                .union(Flags::NOSCRIPT)
                .union(ANYTIME)
                .union(Flags::NO_MULTI)
                .union(Flags::ALLOW_BUSY),
            complexity: "O(N) when saving, where N is the number of keys.",
            summary: "Stops the server, saving first if it should.",
            ..SERVER
        },
        run: SessionRun::Later(shutdown),
    },
];

fn lastsave(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let status = &session.shared().saving;
    reply.int(status.last_save_seconds.load(Ordering::Relaxed) as i64);
    Ok(())
}

fn save<'a>(session: &'a mut Session, _: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        if session.shared().saving.is_running() {
            return Err(Refusal::new("ERR Background save already in progress"));
        }
        save_held(session).await?;
        reply.ok();
        Ok(())
    })
}

/// Saves while all regions are held. The file is written by the saver's thread, so the core's
/// other work (sessions without keys) goes on.
async fn save_held(session: &mut Session) -> Result<(), Refusal> {
    let mut held = session.hold_all().await;
    let mut spaces: Vec<&mut Keyspace> = held.spaces().collect();
    let shared = session.shared().clone();
    let result = write(&shared, &mut spaces).await;
    session.release(held);
    result
}

/// Bytes of a chunk handed to the saver.
const CHUNK_BYTES: usize = 1 << 20;

async fn write(shared: &Shared, spaces: &mut [&mut Keyspace]) -> Result<(), Refusal> {
    let settings = shared.settings.current();
    let at_ms = now_ms();
    let plan = Plan {
        path: settings.dir.join(&settings.dbfilename),
        header: Header {
            created_s: at_ms / 1000,
            used_memory_bytes: crate::memory::used_memory() as u64,
        },
        checksum: settings.rdbchecksum,
    };
    let (done, ended) = tokio::sync::oneshot::channel();
    let on_end = move |result| drop(done.send(result));
    let failed = |why: String| {
        eprintln!("save failed: {why}");
        Refusal::new("ERR")
    };
    let mut parts = saving::start(plan, 1, on_end).map_err(|error| failed(error.to_string()))?;
    let Some(part) = parts.pop() else {
        return Err(Refusal::new("ERR"));
    };
    let mut encoder = Encoder::new(settings.rdbcompression);
    let mut chunk = Vec::new();
    let mut changes = 0;
    for space in spaces.iter_mut() {
        changes += space.changes();
        for db in 0..DATABASES {
            let view = View::one(space, db, at_ms, 0, &settings.tuning);
            view.for_each_key(&mut |key| {
                let Some(value) = view.peek(key) else {
                    return;
                };
                let expire = view.expire_at(key).flatten();
                encoder.append(db, key, value, expire, &mut chunk);
                if chunk.len() >= CHUNK_BYTES {
                    part.send(std::mem::take(&mut chunk));
                    encoder.begin_chunk();
                }
            });
        }
    }
    part.send(chunk);
    part.finish();
    match ended.await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => return Err(failed("the saver is gone".into())),
    }
    let status = &shared.saving;
    status
        .changes_at_last_save
        .store(changes, Ordering::Relaxed);
    status
        .last_save_seconds
        .store(now_ms() / 1000, Ordering::Relaxed);
    status.saves.fetch_add(1, Ordering::Relaxed);
    status.last_bgsave_ok.store(true, Ordering::Relaxed);
    Ok(())
}

/// DEBUG RELOAD [NOSAVE] [NOFLUSH] [MERGE]: everything to disk, and back into memory.
pub async fn reload(
    session: &mut Session,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let (mut save, mut flush, mut merge) = (true, true, false);
    for i in 2..args.len() {
        if args.is(i, "NOSAVE") {
            save = false;
        } else if args.is(i, "NOFLUSH") {
            flush = false;
        } else if args.is(i, "MERGE") {
            merge = true;
        } else {
            return Err(Refusal::new(
                "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
            ));
        }
    }
    let shared = session.shared().clone();
    let settings = shared.settings.current();
    let mut held = session.hold_all().await;
    let mut spaces: Vec<&mut Keyspace> = held.spaces().collect();
    let mut result = Ok(());
    if save {
        result = write(&shared, &mut spaces).await;
    }
    if result.is_ok() {
        let now_ms = now_ms();
        // Everything is read before anything is dropped: a bad file must not cost the data.
        let mut entries: Vec<(DbIndex, Vec<u8>, Owned)> = Vec::new();
        let path = settings.dir.join(&settings.dbfilename);
        let read = loading::load(&path, &settings.tuning, &mut |db, key, owned| {
            entries.push((db, key.to_vec(), owned));
        });
        result = match read {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(_) => Err(Refusal::new(
                "ERR Error trying to load the RDB dump, check server logs.",
            )),
        };
        if result.is_ok() {
            if flush {
                for space in &mut spaces {
                    Txn::new(View::one(space, 0, now_ms, 0, &settings.tuning)).flush_all();
                }
            }
            for (db, key, owned) in entries {
                if owned.expire_at_ms.is_some_and(|at| at <= now_ms) {
                    continue;
                }
                let Some(space) = spaces.get_mut(shared.map.region_of(&key)) else {
                    continue;
                };
                let mut txn = Txn::new(View::one(space, db, now_ms, 0, &settings.tuning));
                if flush || merge || txn.kind(&key).is_none() {
                    txn.put(&key, owned);
                }
            }
            // What is in memory is what the file has.
            let changes = spaces.iter().map(|space| space.changes()).sum();
            let status = &shared.saving;
            status
                .changes_at_last_save
                .store(changes, Ordering::Relaxed);
        }
    }
    session.release(held);
    result?;
    reply.ok();
    Ok(())
}

fn shutdown<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let (mut save, mut no_save, mut force, mut abort, mut other) =
            (false, false, false, false, false);
        for i in 1..args.len() {
            if args.is(i, "NOSAVE") {
                no_save = true;
            } else if args.is(i, "SAVE") {
                save = true;
            } else if args.is(i, "FORCE") {
                force = true;
            } else if args.is(i, "NOW") {
                other = true;
            } else if args.is(i, "ABORT") {
                abort = true;
            } else {
                return Err(Refusal::Syntax);
            }
        }
        if (abort && (save || no_save || force || other)) || (save && no_save) {
            return Err(Refusal::Syntax);
        }
        if abort {
            return Err(Refusal::new("ERR No shutdown in progress."));
        }
        let wanted = save || (!no_save && !session.shared().settings.current().save.is_empty());
        if wanted && save_held(session).await.is_err() && !force {
            return Err(Refusal::new("ERR Errors trying to SHUTDOWN. Check logs."));
        }
        // Saved already: whoever stops the cores need not save again.
        session.shared().shutdown.ask(Stop { save: false });
        session.close_after_reply = true;
        // SHUTDOWN answers nothing: the connection just ends.
        let _ = reply;
        Ok(())
    })
}
