//! MULTI, EXEC, DISCARD, WATCH, UNWATCH. How a transaction runs is in `session::exec`.

use std::sync::Arc;

use base::Refusal;
use base::slot::slot_of;
use command::{Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, Run, Traits};
use node::{Watch, WatchFlag};
use resp::{Args, Reply};
use runtime::cluster::Unserved;
use session::{Later, Multi, Session, SessionCommand, SessionRun, exec};

const FLAGS: Flags = Flags::NOSCRIPT
    .union(Flags::LOADING)
    .union(Flags::STALE)
    .union(Flags::FAST)
    .union(Flags::ALLOW_BUSY);

pub const SPECS: &[SessionCommand] = &[
    SessionCommand {
        spec: CommandSpec {
            name: "multi",
            arity: Arity::Exactly(1),
            run: Run::Session,
            flags: FLAGS,
            group: Group::Transactions,
            since: "1.2.0",
            summary: "Begins a transaction: the commands that follow are queued.",
            traits: Traits::NOT_QUEUED,
            ..CommandSpec::BASE
        },
        run: SessionRun::Now(multi),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "exec",
            arity: Arity::Exactly(1),
            run: Run::Session,
            flags: Flags::NOSCRIPT
                .union(Flags::LOADING)
                .union(Flags::STALE)
                .union(Flags::SKIP_SLOWLOG),
            group: Group::Transactions,
            since: "1.2.0",
            complexity: "Depends on commands in the transaction",
            summary: "Runs the queued commands, all together.",
            traits: Traits::NOT_QUEUED.union(Traits::RUNS_QUEUE),
            ..CommandSpec::BASE
        },
        run: SessionRun::Later(exec),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "discard",
            arity: Arity::Exactly(1),
            run: Run::Session,
            flags: FLAGS,
            group: Group::Transactions,
            since: "2.0.0",
            complexity: "O(N), when N is the number of queued commands",
            summary: "Drops the queued commands.",
            traits: Traits::NOT_QUEUED,
            ..CommandSpec::BASE
        },
        run: SessionRun::Now(discard),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "watch",
            syntax: "key...",
            arity: Arity::AtLeast(2),
            keys: Keys::from(1),
            run: Run::Session,
            flags: FLAGS,
            group: Group::Transactions,
            since: "2.2.0",
            complexity: "O(1) for every key.",
            summary: "Makes the next EXEC fail if one of the keys changes before it.",
            key_uses: KeyUses::All(KeyUse::Looks),
            traits: Traits::NOT_QUEUED,
            ..CommandSpec::BASE
        },
        run: SessionRun::Later(watch),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "unwatch",
            arity: Arity::Exactly(1),
            run: Run::Session,
            flags: FLAGS,
            group: Group::Transactions,
            since: "2.2.0",
            summary: "Forgets all watched keys.",
            ..CommandSpec::BASE
        },
        run: SessionRun::Now(unwatch),
    },
];

fn multi(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if session.multi.is_some() {
        return Err(Refusal::new("ERR MULTI calls can not be nested"));
    }
    session.multi = Some(Box::<Multi>::default());
    reply.ok();
    Ok(())
}

fn discard(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if session.multi.is_none() {
        return Err(Refusal::new("ERR DISCARD without MULTI"));
    }
    session.discard();
    reply.ok();
    Ok(())
}

fn unwatch(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    session.unwatch();
    reply.ok();
    Ok(())
}

/// The flag is registered while the key's region is held, so no change can slip by.
fn watch<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        if session.multi.is_some() {
            return Err(Refusal::new("ERR WATCH inside MULTI is not allowed"));
        }
        let slot = slot_of(args.at(1));
        if session.forwards() && session.watch_remote(slot, args, reply).await?.is_some() {
            return Ok(());
        }
        let map = session.shared().map.clone();
        let mut regions: Vec<_> = args.iter_from(1).map(|key| map.region_of(key)).collect();
        regions.sort_unstable();
        regions.dedup();
        let mut held = session.hold(&regions).await;
        if !held.has(&regions) {
            return Err(session.core.unserved(slot, Unserved::Elsewhere));
        }
        let db = session.db;
        let keys = args.iter_from(1).map(|key| (db, key.into()));
        held.load_missing_of(keys.collect()).await;
        for key in args.iter_from(1) {
            let known = |watch: &Watch| watch.db == db && *watch.key == *key;
            if session.watched.iter().any(known) {
                continue;
            }
            let flag = Arc::new(WatchFlag::default());
            let existed = held.with_view(db, |view| view.kind(key).is_some());
            if let Some(region) = held.region_of(key) {
                region.add_watcher(db, key, &flag);
            }
            session.watched.push(Watch {
                db,
                key: key.into(),
                existed,
                flag,
            });
        }
        session.release(held).await;
        reply.ok();
        Ok(())
    })
}
