//! Data on disk: SAVE, BGSAVE, LASTSAVE, SHUTDOWN, and the DEBUG RELOAD of [`super::debug`].

use std::sync::atomic::Ordering;

use base::Refusal;
use command::{Arity, CommandSpec, Flags};
use dump::loading;
use dump::saving::SaveError;
use dump::snapshotting::{self, InProgress};
use keyspace::{Keyspace, Txn, View};
use resp::{Args, Reply};
use runtime::now_ms;
use session::Later;
use session::Session;
use session::SessionCommand;
use session::SessionRun;

use super::specs::{ADMIN, ANYTIME, SERVER};

const SAVE_FLAGS: Flags = Flags::ADMIN
    .union(Flags::NOSCRIPT)
    .union(Flags::NO_ASYNC_LOADING);

const IN_PROGRESS: Refusal = Refusal::new("ERR Background save already in progress");

pub const SPECS: &[SessionCommand] = &[
    SessionCommand {
        spec: CommandSpec {
            name: "save",
            arity: Arity::Exactly(1),
            flags: SAVE_FLAGS.union(Flags::NO_MULTI),
            complexity: "O(N) where N is the total number of keys in all databases",
            summary: "Saves the data of this moment to disk and waits for the end. Others go on.",
            ..SERVER
        },
        run: SessionRun::Later(save),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "bgsave",
            syntax: "[SCHEDULE]",
            arity: Arity::AtLeast(1),
            flags: SAVE_FLAGS,
            summary: "Saves the data of this moment to disk while commands go on.",
            ..SERVER
        },
        run: SessionRun::Later(bgsave),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "lastsave",
            arity: Arity::Exactly(1),
            flags: ANYTIME.union(Flags::FAST).union(Flags::ADMIN_CATEGORY),
            summary: "Returns the Unix time of the last save that succeeded.",
            tips: &["nondeterministic_output"],
            ..SERVER
        },
        run: SessionRun::Now(lastsave),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "shutdown",
            syntax: "[NOSAVE|SAVE] [NOW] [FORCE] [ABORT]",
            arity: Arity::AtLeast(1),
            flags: ADMIN.union(Flags::NO_MULTI).union(Flags::ALLOW_BUSY),
            complexity: "O(N) when saving, where N is the total number of keys in all databases",
            summary: "Saves, if there are save points or SAVE is given, and stops the server.",
            ..SERVER
        },
        run: SessionRun::Later(shutdown),
    },
];

fn save<'a>(session: &'a mut Session, _: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        match snapshotting::save(&session.core).await {
            Ok(Ok(_)) => {
                reply.ok();
                Ok(())
            }
            Ok(Err(error)) => Err(not_saved(&error)),
            Err(InProgress) => Err(IN_PROGRESS),
        }
    })
}

fn not_saved(error: &SaveError) -> Refusal {
    Refusal::text_of(format!("ERR {error}"))
}

fn bgsave<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        if args.len() > 2 || (args.len() == 2 && !args.is(1, "SCHEDULE")) {
            return Err(Refusal::Syntax);
        }
        let status = &session.shared().saving;
        if session.in_exec() {
            if status.is_running() && status.in_background.load(Ordering::Relaxed) {
                return Err(IN_PROGRESS);
            }
            status.scheduled.store(true, Ordering::Relaxed);
            reply.simple("Background saving scheduled");
            return Ok(());
        }
        match snapshotting::begin(&session.core, true).await {
            Ok(_) => {
                reply.simple("Background saving started");
                Ok(())
            }
            Err(InProgress) => Err(IN_PROGRESS),
        }
    })
}

fn lastsave(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let status = &session.shared().saving;
    reply.int(status.last_save_seconds.load(Ordering::Relaxed) as i64);
    Ok(())
}

fn shutdown<'a>(session: &'a mut Session, args: &'a Args<'a>, _: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let (mut save, mut nosave, mut now, mut force, mut abort) = Default::default();
        for at in 1..args.len() {
            let word = [
                ("SAVE", &mut save),
                ("NOSAVE", &mut nosave),
                ("NOW", &mut now),
                ("FORCE", &mut force),
                ("ABORT", &mut abort),
            ];
            let found = word.into_iter().find(|(name, _)| args.is(at, name));
            let (_, flag) = found.ok_or(Refusal::Syntax)?;
            *flag = true;
        }
        if (abort && args.len() > 2) || (save && nosave) {
            return Err(Refusal::Syntax);
        }
        if abort {
            return Err(Refusal::new("ERR No shutdown in progress."));
        }
        let settings = session.shared().settings.current();
        let save = save || (!nosave && !settings.save.is_empty());
        tracing::info!("SHUTDOWN by a client");
        // Comes back only if it failed, which the log tells in full.
        let _error = snapshotting::shut_down(&session.core, save, force).await;
        Err(Refusal::new("ERR Errors trying to SHUTDOWN. Check logs."))
    })
}

/// DEBUG RELOAD [NOSAVE] [NOFLUSH] [MERGE]: what is in memory goes to disk and comes back, while
/// nothing else runs. MERGE changes nothing here: the file's keys win in any case.
pub async fn reload(
    session: &mut Session,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let (mut save, mut flush) = (true, true);
    for at in 2..args.len() {
        if args.is(at, "NOSAVE") {
            save = false;
        } else if args.is(at, "NOFLUSH") {
            flush = false;
        } else if !args.is(at, "MERGE") {
            return Err(Refusal::new(
                "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
            ));
        }
    }
    let core = session.core.clone();
    let shared = core.shared.clone();
    let (mut held, claimed) = match (save, session.in_exec()) {
        (false, _) => (session.hold_all().await, None),
        // What is under way could not end while EXEC holds the regions.
        (true, true) => {
            let claimed = snapshotting::try_claim(&shared).ok_or(IN_PROGRESS)?;
            (session.hold_all().await, Some(claimed))
        }
        (true, false) => {
            let (held, run, ended) = snapshotting::claim_held(&core, false).await;
            (held, Some((run, ended)))
        }
    };
    if let Some((run, ended)) = claimed {
        let saved = snapshotting::save_held(&core, &mut held, run, ended).await;
        if let Err(error) = saved {
            session.release(held).await;
            return Err(not_saved(&error));
        }
    }
    let settings = shared.settings.current();
    let path = settings.dir.join(&settings.dbfilename);
    // The file is read to its end before anything is dropped: a bad one must not cost the data.
    let good = match loading::load(&path, &settings.tuning, &mut |_, _, _| {}) {
        Ok(summary) => summary.is_some(),
        Err(_) => false,
    };
    if shared.durable.is_some() {
        // The rows are the data: what is in memory goes, and comes back from them.
        held.commit().await?;
        for space in held.spaces() {
            space.abandon_entry();
            space.uncache_all();
        }
        session.release(held).await;
        reply.ok();
        return Ok(());
    }
    let mut spaces: Vec<&mut Keyspace> = held.spaces().collect();
    if flush && good {
        for space in &mut spaces {
            Txn::new(View::one(space, 0, now_ms(), 0, &settings.tuning)).flush_all();
        }
    }
    let (map, tuning) = (&shared.map, &settings.tuning);
    let restored = loading::restore(&path, map, &mut spaces, tuning, now_ms(), &mut |_| {});
    let changes = spaces.iter().map(|space| space.changes()).sum();
    session.release(held).await;
    let status = &shared.saving;
    match restored {
        Ok(Some(restored)) => {
            if save && flush {
                status
                    .changes_at_last_save
                    .store(changes, Ordering::Relaxed);
            }
            status.loaded_keys.store(restored.keys, Ordering::Relaxed);
            let expired = &status.loaded_expired;
            expired.store(restored.expired, Ordering::Relaxed);
            tracing::info!("DEBUG RELOAD: {restored}");
            reply.ok();
            Ok(())
        }
        Ok(None) => Err(cannot_load()),
        Err(error) => {
            tracing::warn!("DEBUG RELOAD of {}: {error}", path.display());
            Err(cannot_load())
        }
    }
}

fn cannot_load() -> Refusal {
    Refusal::new("ERR Error trying to load the RDB dump, check server logs.")
}
