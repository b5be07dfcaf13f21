//! The connection itself: HELLO, AUTH, PING, ECHO, SELECT, RESET, QUIT.

use std::sync::atomic::Ordering;

use base::Refusal;
use command::family::parse_db;
use command::{Arity, CommandSpec, Flags, Secrets, Traits};
use resp::{Args, Protocol, Reply};
use session::ReplyMode;
use session::Session;
use session::SessionCommand;
use session::SessionRun;

use super::specs::{ANYTIME, CONNECTION, QUIET};

/// The Redis version whose behaviour clients may expect.
pub const REDIS_VERSION: &str = "7.0.15";

const BEFORE_AUTH: Flags = QUIET
    .union(Flags::FAST)
    .union(Flags::NO_AUTH)
    .union(Flags::ALLOW_BUSY);

pub const SPECS: &[SessionCommand] = &[
    SessionCommand {
        spec: CommandSpec {
            name: "hello",
            syntax: "[protover [AUTH <username password>] [SETNAME clientname]]",
            arity: Arity::AtLeast(1),
            flags: BEFORE_AUTH,
            since: "6.0.0",
            summary: "Chooses the protocol version; may also authenticate and name the session.",
            secrets: Secrets::BehindAuth,
            ..CONNECTION
        },
        run: SessionRun::Now(hello),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "auth",
            syntax: "[username] password",
            arity: Arity::AtLeast(2),
            flags: BEFORE_AUTH,
            summary: "Authenticates the session.",
            secrets: Secrets::All,
            ..CONNECTION
        },
        run: SessionRun::Now(auth),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "ping",
            syntax: "[message]",
            arity: Arity::AtLeast(1),
            flags: Flags::FAST,
            summary: "Answers PONG, or the argument.",
            traits: Traits::RUNS_BESIDE_PENDING,
            tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
            ..CONNECTION
        },
        run: SessionRun::Now(ping),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "echo",
            syntax: "message",
            arity: Arity::Exactly(2),
            flags: Flags::FAST.union(ANYTIME),
            summary: "Answers its argument.",
            traits: Traits::RUNS_BESIDE_PENDING,
            ..CONNECTION
        },
        run: SessionRun::Now(echo),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "select",
            syntax: "index",
            arity: Arity::Exactly(2),
            flags: Flags::FAST.union(ANYTIME),
            summary: "Changes the database of the session.",
            traits: Traits::RUNS_BESIDE_PENDING,
            ..CONNECTION
        },
        run: SessionRun::Now(select),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "reset",
            arity: Arity::Exactly(1),
            flags: BEFORE_AUTH,
            since: "6.2.0",
            summary: "Puts the session back to how it was when it connected.",
            traits: Traits::NOT_QUEUED,
            ..CONNECTION
        },
        run: SessionRun::Now(reset),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "quit",
            arity: Arity::AtLeast(1),
            flags: BEFORE_AUTH,
            summary: "Closes the connection.",
            traits: Traits::NOT_QUEUED,
            ..CONNECTION
        },
        run: SessionRun::Now(quit),
    },
];

fn ping(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if !session
        .shared()
        .saving
        .last_bgsave_ok
        .load(Ordering::Relaxed)
    {
        session.core.check_disk()?;
    }
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
    let db = parse_db(args.at(1), None)?;
    if db != 0 && session.shared().cluster.is_some() {
        return Err(Refusal::new("ERR SELECT is not allowed in cluster mode"));
    }
    session.db = db;
    session.client.db.store(session.db, Ordering::Relaxed);
    reply.ok();
    Ok(())
}

fn quit(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    session.close_after_reply = true;
    reply.ok();
    Ok(())
}

fn reset(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    session.discard();
    if session.monitor {
        session.monitor = false;
        session.client.monitor.store(false, Ordering::Relaxed);
        session.shared().clients.add_monitors(-1);
    }
    session.db = 0;
    session.client.db.store(0, Ordering::Relaxed);
    session.client.set_name(b"");
    session.client.no_evict.store(false, Ordering::Relaxed);
    session
        .client
        .requester
        .no_touch
        .store(false, Ordering::Relaxed);
    session.reply_mode = ReplyMode::On;
    session.readonly = false;
    session.redirects = session
        .shared()
        .cluster
        .as_ref()
        .is_none_or(|it| it.redirects);
    session.log_out();
    speak(session, reply, Protocol::Resp2);
    reply.simple("RESET");
    Ok(())
}

fn auth(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    match args.len() {
        2 => {
            if !session.shared().users.has_default_password() {
                return Err(Refusal::new(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ));
            }
            session.authenticate(b"default", args.at(1), args.at(0))?;
        }
        3 => session.authenticate(args.at(1), args.at(2), args.at(0))?,
        _ => return Err(Refusal::Syntax),
    }
    reply.ok();
    Ok(())
}

fn hello(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut protocol = session.protocol;
    if args.len() > 1 {
        protocol = match args.int(1) {
            Ok(2) => Protocol::Resp2,
            Ok(3) => Protocol::Resp3,
            Ok(_) => return Err(Refusal::new("NOPROTO unsupported protocol version")),
            Err(_) => {
                return Err(Refusal::new(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        };
    }
    let mut credentials = None;
    let mut name = None;
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - 1 - at;
        if args.is(at, "AUTH") && more >= 2 {
            credentials = Some((args.at(at + 1), args.at(at + 2)));
            at += 3;
        } else if args.is(at, "SETNAME") && more >= 1 {
            name = Some(args.at(at + 1));
            at += 2;
        } else {
            return Err(Refusal::text_of(format!(
                "ERR Syntax error in HELLO option '{}'",
                String::from_utf8_lossy(args.at(at))
            )));
        }
    }
    if let Some((user, password)) = credentials {
        session.authenticate(user, password, args.at(0))?;
    }
    if !session.authenticated {
        return Err(Refusal::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        check_name(name)?;
        session.client.set_name(name);
    }
    if args.len() > 1 {
        speak(session, reply, protocol);
    }
    reply.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.int(match session.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    });
    reply.bulk(b"id");
    reply.int(session.id as i64);
    // A node that forwards is to its clients as one that is alone.
    let cluster = session.shared().cluster.as_ref();
    let mode = match cluster.is_some_and(|it| it.redirects) {
        true => "cluster",
        false => "standalone",
    };
    for (key, value) in [("mode", mode), ("role", "master")] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// Changes the protocol of the session, from this reply on.
fn speak(session: &mut Session, reply: &mut Reply, protocol: Protocol) {
    session.protocol = protocol;
    reply.set_protocol(protocol);
    let version = match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    session.client.protocol.store(version, Ordering::Relaxed);
}

/// Client names are printable and without blanks, so that CLIENT LIST stays readable.
pub fn check_name(name: &[u8]) -> Result<(), Refusal> {
    if is_plain(name) {
        return Ok(());
    }
    Err(Refusal::new(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))
}

/// Printable and without blanks.
pub fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}
