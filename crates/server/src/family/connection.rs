//! The connection itself: PING, ECHO, SELECT, QUIT. (The `admin` owner extends this file.)

use base::Refusal;
use command::{Arity, Command, Flags, Group, Run};
use resp::{Args, Reply};

use crate::{Session, SessionCommand, SessionRun};

pub const ROWS: &[SessionCommand] = &[
    SessionCommand {
        row: Command {
            name: "ping",
            arity: Arity::AtLeast(1),
            run: Run::Session,
            flags: Flags::FAST,
            group: Group::Connection,
            summary: "Answers PONG, or the argument.",
            ..Command::BASE
        },
        run: SessionRun::Now(ping),
    },
    SessionCommand {
        row: Command {
            name: "echo",
            arity: Arity::Exactly(2),
            run: Run::Session,
            flags: Flags::FAST,
            group: Group::Connection,
            summary: "Answers its argument.",
            ..Command::BASE
        },
        run: SessionRun::Now(echo),
    },
    SessionCommand {
        row: Command {
            name: "select",
            arity: Arity::Exactly(2),
            run: Run::Session,
            flags: Flags::FAST.union(Flags::LOADING).union(Flags::STALE),
            group: Group::Connection,
            summary: "Changes the database of the session.",
            ..Command::BASE
        },
        run: SessionRun::Now(select),
    },
    SessionCommand {
        row: Command {
            name: "quit",
            arity: Arity::AtLeast(1),
            run: Run::Session,
            flags: Flags::FAST
                .union(Flags::NO_AUTH)
                .union(Flags::LOADING)
                .union(Flags::STALE)
                .union(Flags::NOSCRIPT),
            group: Group::Connection,
            summary: "Closes the connection.",
            ..Command::BASE
        },
        run: SessionRun::Now(quit),
    },
];

fn ping(_: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    match args.len() {
        1 => reply.simple("PONG"),
        2 => reply.bulk(args.at(1)),
        _ => {
            return Err(Refusal::new(
                "ERR wrong number of arguments for 'ping' command",
            ));
        }
    }
    Ok(())
}

fn echo(_: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.bulk(args.at(1));
    Ok(())
}

fn select(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let db = args
        .int(1)
        .map_err(|_| Refusal::new("ERR invalid DB index"))?;
    if !(0..i64::from(base::limits::DATABASES)).contains(&db) {
        return Err(Refusal::new("ERR DB index is out of range"));
    }
    session.db = db as u8;
    reply.ok();
    Ok(())
}

fn quit(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    session.close_after_reply = true;
    reply.ok();
    Ok(())
}
