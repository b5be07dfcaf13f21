//! The server as a whole: TIME, LOLWUT, WAIT, ROLE, REPLICAOF NO ONE, FUNCTION FLUSH.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::Refusal;
use command::{Arity, Command, Flags};
use resp::{Args, Reply};

use super::connection::REDIS_VERSION;
use super::rows::{self, ANYTIME, CONNECTION, SERVER, sub};
use crate::{Session, SessionCommand, SessionRun};

const REPLICA_FLAGS: Flags = Flags::ADMIN
    .union(Flags::NOSCRIPT)
    .union(Flags::STALE)
    .union(Flags::NO_ASYNC_LOADING);

const FUNCTION_SUBCOMMANDS: &[Command] = &[
    sub(
        SERVER,
        "function|flush",
        Arity::AtLeast(2),
        Flags::WRITE.union(Flags::NOSCRIPT),
        "7.0.0",
        "Deletes all functions; there are none.",
    ),
    sub(
        SERVER,
        "function|list",
        Arity::AtLeast(2),
        Flags::NOSCRIPT,
        "7.0.0",
        "Lists the functions; there are none.",
    ),
    sub(
        SERVER,
        "function|stats",
        Arity::Exactly(2),
        Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
        "7.0.0",
        "Tells which function runs; none does.",
    ),
];

pub const ROWS: &[SessionCommand] = &[
    SessionCommand {
        row: Command {
            name: "time",
            arity: Arity::Exactly(1),
            flags: ANYTIME.union(Flags::FAST),
            since: "2.6.0",
            summary: "Returns the server's clock: Unix seconds and microseconds.",
            ..SERVER
        },
        run: SessionRun::Now(time),
    },
    SessionCommand {
        row: Command {
            name: "lolwut",
            arity: Arity::AtLeast(1),
            flags: Flags::READONLY.union(Flags::FAST),
            since: "5.0.0",
            summary: "Shows the version, with a picture.",
            ..SERVER
        },
        run: SessionRun::Now(lolwut),
    },
    SessionCommand {
        row: Command {
            name: "wait",
            arity: Arity::Exactly(3),
            flags: Flags::NOSCRIPT,
            since: "3.0.0",
            summary: "Returns how many replicas have the session's writes: 0, there are none.",
            ..CONNECTION
        },
        run: SessionRun::Later(wait),
    },
    SessionCommand {
        row: Command {
            name: "role",
            arity: Arity::Exactly(1),
            flags: ANYTIME
                .union(Flags::NOSCRIPT)
                .union(Flags::FAST)
                .union(Flags::DANGEROUS),
            since: "2.8.12",
            summary: "Returns the role in replication: master, without replicas.",
            ..SERVER
        },
        run: SessionRun::Now(role),
    },
    SessionCommand {
        row: Command {
            name: "replicaof",
            arity: Arity::Exactly(3),
            flags: REPLICA_FLAGS,
            since: "5.0.0",
            summary: "REPLICAOF NO ONE leaves the server the master it is.",
            ..SERVER
        },
        run: SessionRun::Now(replicaof),
    },
    SessionCommand {
        row: Command {
            name: "slaveof",
            arity: Arity::Exactly(3),
            flags: REPLICA_FLAGS,
            summary: "As REPLICAOF.",
            ..SERVER
        },
        run: SessionRun::Now(replicaof),
    },
    SessionCommand {
        row: rows::container(
            SERVER,
            "function",
            "7.0.0",
            "Functions; there are none yet.",
            FUNCTION_SUBCOMMANDS,
        ),
        run: SessionRun::Subcommands(&[
            ("function|flush", SessionRun::Now(function_flush)),
            ("function|list", SessionRun::Now(function_list)),
            ("function|stats", SessionRun::Now(function_stats)),
        ]),
    },
];

fn time(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    reply.array(2);
    reply.bulk_int(now.as_secs() as i64);
    reply.bulk_int(i64::from(now.subsec_micros()));
    Ok(())
}

fn lolwut(_: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if args.len() > 2 && args.is(1, "VERSION") {
        args.int(2)?;
    }
    reply.verbatim(&format!(
        concat!(
            "     .--.      .--.      .--.\n",
            "   .'    '.  .'    '.  .'    '.\n",
            "  /  core  \\/  core  \\/  core  \\\n",
            "  \\        /\\        /\\        /\n",
            "   '.    .'  '.    .'  '.    .'\n",
            "     '--'      '--'      '--'\n",
            "Redis ver. {}\n",
            "NeoKV {}\n"
        ),
        REDIS_VERSION,
        env!("CARGO_PKG_VERSION")
    ));
    Ok(())
}

/// There are no replicas: it waits its time, or not at all if none are asked for. Without a time
/// limit it would wait for ever, as Redis does; the client may then close the connection.
fn wait<'a>(
    session: &'a mut Session,
    args: &'a Args<'a>,
    reply: &'a mut Reply,
) -> crate::Later<'a> {
    Box::pin(async move {
        let replicas = args.int(1)?;
        let timeout_ms = args
            .int(2)
            .map_err(|_| Refusal::new("ERR timeout is not an integer or out of range"))?;
        if timeout_ms < 0 {
            return Err(Refusal::new("ERR timeout is negative"));
        }
        if replicas > 0 && !session.in_exec() {
            wait_for_nothing(session, timeout_ms as u64).await;
        }
        reply.int(0);
        Ok(())
    })
}

/// Sleeps until the time is up (0: no limit), CLIENT UNBLOCK or the end of the session.
async fn wait_for_nothing(session: &Session, timeout_ms: u64) {
    let client = &session.client;
    let limit = match timeout_ms {
        0 => Duration::from_secs(u64::from(u32::MAX)),
        ms => Duration::from_millis(ms),
    };
    client.blocked.store(true, Ordering::Release);
    let mut sleep = pin!(tokio::time::sleep(limit));
    poll_fn(|context| {
        if client.is_killed() || client.take_unblock().is_some() {
            return Poll::Ready(());
        }
        sleep.as_mut().poll(context)
    })
    .await;
    client.blocked.store(false, Ordering::Release);
}

fn role(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.array(3);
    reply.bulk(b"master");
    reply.int(0);
    reply.array(0);
    Ok(())
}

fn replicaof(_: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if args.is(1, "NO") && args.is(2, "ONE") {
        reply.ok();
        return Ok(());
    }
    if args.int(2).is_err() {
        return Err(Refusal::new("ERR Invalid master port"));
    }
    Err(Refusal::new(
        "ERR this server does not replicate from another; only REPLICAOF NO ONE is possible",
    ))
}

fn function_flush(_: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if args.len() > 3 || (args.len() == 3 && !args.is(2, "SYNC") && !args.is(2, "ASYNC")) {
        return Err(Refusal::new(
            "ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
        ));
    }
    reply.ok();
    Ok(())
}

fn function_list(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.array(0);
    Ok(())
}

fn function_stats(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.map(2);
    reply.bulk(b"running_script");
    reply.null();
    reply.bulk(b"engines");
    reply.map(0);
    Ok(())
}
