//! CLIENT: who is connected, and what may be done to them.
//!
//! Client-side caching (TRACKING, CACHING) is left out; GETREDIR tells so truly.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Refusal, number};
use command::{Arity, CommandSpec};
use resp::{Args, Reply};
use runtime::now_ms;
use session::ReplyMode;
use session::Session;
use session::SessionCommand;
use session::SessionRun;
use stats::clients::{Client, Unblock};

use super::connection::{check_name, is_plain};
use super::specs::{self, ADMIN, ANYTIME, CONNECTION, QUIET, sub};

const SUBCOMMANDS: &[CommandSpec] = &[
    sub(
        CONNECTION,
        "client|id",
        "",
        Arity::Exactly(2),
        QUIET,
        "5.0.0",
        "Returns the id of the session.",
    ),
    sub(
        CONNECTION,
        "client|info",
        "",
        Arity::Exactly(2),
        QUIET,
        "6.2.0",
        "Returns what CLIENT LIST tells of the session.",
    )
    .with_tips(&["nondeterministic_output"]),
    sub(
        CONNECTION,
        "client|list",
        "[TYPE <NORMAL|MASTER|REPLICA|PUBSUB>] [ID client-id...]",
        Arity::AtLeast(2),
        ADMIN,
        "2.4.0",
        "Lists the connected clients.",
    )
    .with_tips(&["nondeterministic_output"]),
    sub(
        CONNECTION,
        "client|kill",
        "<ip:port|[ID client-id] [TYPE <NORMAL|MASTER|REPLICA|PUBSUB>] [USER username] [ADDR ip:port] [LADDR ip:port] [SKIPME yes/no]>",
        Arity::AtLeast(3),
        ADMIN,
        "2.4.0",
        "Closes connections.",
    ),
    sub(
        CONNECTION,
        "client|getname",
        "",
        Arity::Exactly(2),
        QUIET,
        "2.6.9",
        "Returns the name of the session.",
    ),
    sub(
        CONNECTION,
        "client|setname",
        "connection-name",
        Arity::Exactly(3),
        QUIET,
        "2.6.9",
        "Names the session.",
    ),
    sub(
        CONNECTION,
        "client|getredir",
        "",
        Arity::Exactly(2),
        QUIET,
        "6.0.0",
        "Returns the client tracking messages go to: -1, there is no tracking.",
    ),
    sub(
        CONNECTION,
        "client|reply",
        "<ON|OFF|SKIP>",
        Arity::Exactly(3),
        QUIET,
        "3.2.0",
        "Turns replies on or off, or skips the next one.",
    ),
    sub(
        CONNECTION,
        "client|pause",
        "timeout:integer [WRITE|ALL]",
        Arity::AtLeast(3),
        ADMIN,
        "2.9.50",
        "Holds commands, or only writes, back for a while.",
    ),
    sub(
        CONNECTION,
        "client|unpause",
        "",
        Arity::Exactly(2),
        ADMIN,
        "6.2.0",
        "Ends CLIENT PAUSE.",
    ),
    sub(
        CONNECTION,
        "client|unblock",
        "client-id [TIMEOUT|ERROR]",
        Arity::AtLeast(3),
        ADMIN,
        "5.0.0",
        "Ends the blocking command of another client.",
    ),
    sub(
        CONNECTION,
        "client|no-evict",
        "<ON|OFF>",
        Arity::Exactly(3),
        ADMIN,
        "7.0.0",
        "Marks the session as one not to be closed when memory is short.",
    ),
    sub(
        CONNECTION,
        "client|no-touch",
        "<ON|OFF>",
        Arity::Exactly(3),
        QUIET,
        "7.2.0",
        "Lets this session's commands not count as uses of keys for LRU and LFU.",
    ),
    sub(
        CONNECTION,
        "client|setinfo",
        "<LIB-NAME libname|LIB-VER libver>",
        Arity::Exactly(4),
        QUIET,
        "7.2.0",
        "Tells the name or version of the client library.",
    ),
    sub(
        CONNECTION,
        "client|help",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "5.0.0",
        "Tells about the subcommands.",
    ),
];

pub const SPECS: &[SessionCommand] = &[SessionCommand {
    spec: specs::container(
        CONNECTION,
        "client",
        "2.4.0",
        "Connected clients.",
        SUBCOMMANDS,
    ),
    run: SessionRun::Subcommands(&[
        ("client|id", SessionRun::Now(id)),
        ("client|info", SessionRun::Now(info)),
        ("client|list", SessionRun::Now(list)),
        ("client|kill", SessionRun::Now(kill)),
        ("client|getname", SessionRun::Now(getname)),
        ("client|setname", SessionRun::Now(setname)),
        ("client|getredir", SessionRun::Now(getredir)),
        ("client|reply", SessionRun::Now(reply_mode)),
        ("client|pause", SessionRun::Now(pause)),
        ("client|unpause", SessionRun::Now(unpause)),
        ("client|unblock", SessionRun::Now(unblock)),
        ("client|no-evict", SessionRun::Now(no_evict)),
        ("client|no-touch", SessionRun::Now(no_touch)),
        ("client|setinfo", SessionRun::Now(set_info)),
        ("client|help", SessionRun::Now(help)),
    ]),
}];

fn id(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(session.id as i64);
    Ok(())
}

fn info(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let line = line_of(session, &session.client, args, now_ms());
    reply.verbatim(&(line + "\n"));
    Ok(())
}

/// A client's line; the asking one has at least its own command in its input buffer.
fn line_of(session: &Session, client: &Arc<Client>, args: &Args<'_>, now_ms: u64) -> String {
    let input_bytes = if client.id == session.id {
        encoded_len(args)
    } else {
        0
    };
    client.line(&session.shared().commands, now_ms, input_bytes)
}

/// Length of a command as clients send it.
fn encoded_len(args: &Args<'_>) -> usize {
    let head = |n: usize| 3 + n.to_string().len();
    args.iter_from(0)
        .map(|arg| head(arg.len()) + arg.len() + 2)
        .sum::<usize>()
        + head(args.len())
}

fn list(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let clients: Vec<Arc<Client>> = match args.len() {
        2 => session.shared().clients.all().values().cloned().collect(),
        4 if args.is(2, "TYPE") => match client_type(args.at(3))? {
            true => session.shared().clients.all().values().cloned().collect(),
            false => Vec::new(),
        },
        n if n > 3 && args.is(2, "ID") => {
            let mut found = Vec::new();
            for text in args.iter_from(3) {
                let id = number::parse_i64(text)
                    .filter(|id| *id > 0)
                    .ok_or(Refusal::new("ERR Invalid client ID"))?;
                found.extend(session.shared().clients.all().get(&(id as u64)).cloned());
            }
            found
        }
        _ => return Err(Refusal::Syntax),
    };
    let now_ms = now_ms();
    let text: String = clients
        .iter()
        .map(|client| line_of(session, client, args, now_ms) + "\n")
        .collect();
    reply.verbatim(&text);
    Ok(())
}

/// Whether clients here are of this type: all are normal.
fn client_type(text: &[u8]) -> Result<bool, Refusal> {
    match text.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"slave" | b"replica" | b"pubsub" => Ok(false),
        _ => Err(Refusal::text_of(format!(
            "ERR Unknown client type '{}'",
            String::from_utf8_lossy(text)
        ))),
    }
}

/// What CLIENT KILL looks for.
struct Filter<'a> {
    id: Option<u64>,
    addr: Option<&'a [u8]>,
    laddr: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    normal: bool,
    skip_me: bool,
}

fn kill(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut filter = Filter {
        id: None,
        addr: None,
        laddr: None,
        user: None,
        normal: true,
        skip_me: true,
    };
    let old_form = args.len() == 3;
    if old_form {
        filter.addr = Some(args.at(2));
        filter.skip_me = false;
    } else {
        read_filter(args, &session.shared().users.load(), &mut filter)?;
    }
    let matches = |client: &Client| {
        filter.normal
            && filter.id.is_none_or(|id| id == client.id)
            && filter
                .addr
                .is_none_or(|addr| addr == client.addr.as_bytes())
            && filter.user.is_none_or(|user| *user == *client.user())
            && filter
                .laddr
                .is_none_or(|addr| addr == client.laddr.as_bytes())
            && !(filter.skip_me && client.id == session.id)
    };
    let found: Vec<Arc<Client>> = {
        let all = session.shared().clients.all();
        all.values()
            .filter(|client| !client.is_killed() && matches(client))
            .cloned()
            .collect()
    };
    for client in &found {
        if client.id == session.id {
            session.close_after_reply = true;
        } else {
            client.kill();
        }
    }
    match (old_form, found.len()) {
        (true, 0) => return Err(Refusal::new("ERR No such client")),
        (true, _) => reply.ok(),
        (false, n) => reply.int(n as i64),
    }
    Ok(())
}

fn read_filter<'a>(
    args: &Args<'a>,
    users: &acl::Users,
    filter: &mut Filter<'a>,
) -> Result<(), Refusal> {
    let mut at = 2;
    while at < args.len() {
        let Some(value) = args.get(at + 1) else {
            return Err(Refusal::Syntax);
        };
        if args.is(at, "ID") {
            let id = number::parse_i64(value)
                .filter(|id| *id > 0)
                .ok_or(Refusal::new("ERR client-id should be greater than 0"))?;
            filter.id = Some(id as u64);
        } else if args.is(at, "TYPE") {
            filter.normal = client_type(value)?;
        } else if args.is(at, "ADDR") {
            filter.addr = Some(value);
        } else if args.is(at, "LADDR") {
            filter.laddr = Some(value);
        } else if args.is(at, "USER") {
            if users.named(value).is_none() {
                return Err(Refusal::text_of(format!(
                    "ERR No such user '{}'",
                    String::from_utf8_lossy(value)
                )));
            }
            filter.user = Some(value);
        } else if args.is(at, "SKIPME") {
            filter.skip_me = match value.to_ascii_lowercase().as_slice() {
                b"yes" => true,
                b"no" => false,
                _ => return Err(Refusal::Syntax),
            };
        } else {
            return Err(Refusal::Syntax);
        }
        at += 2;
    }
    Ok(())
}

fn getname(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let name = session.client.name();
    reply.bulk_or_null((!name.is_empty()).then_some(&name[..]));
    Ok(())
}

fn setname(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    check_name(args.at(2))?;
    session.client.set_name(args.at(2));
    reply.ok();
    Ok(())
}

fn getredir(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(-1);
    Ok(())
}

fn reply_mode(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if args.is(2, "ON") {
        session.reply_mode = ReplyMode::On;
        reply.ok();
    } else if args.is(2, "OFF") {
        session.reply_mode = ReplyMode::Off;
    } else if args.is(2, "SKIP") {
        if session.reply_mode == ReplyMode::On {
            session.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(Refusal::Syntax);
    }
    Ok(())
}

fn pause(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let writes_only = match args.len() {
        3 => false,
        4 if args.is(3, "WRITE") => true,
        4 if args.is(3, "ALL") => false,
        4 => {
            return Err(Refusal::new("ERR CLIENT PAUSE mode must be WRITE or ALL"));
        }
        _ => return Err(Refusal::Syntax),
    };
    let timeout_ms = args
        .int(2)
        .map_err(|_| Refusal::new("ERR timeout is not an integer or out of range"))?;
    if timeout_ms < 0 {
        return Err(Refusal::new("ERR timeout is negative"));
    }
    let until_ms = now_ms().saturating_add(timeout_ms as u64);
    let shared = session.shared();
    // A pause never ends an earlier, longer or stricter one.
    let place = if writes_only {
        &shared.paused_writes_until_ms
    } else {
        &shared.paused_all_until_ms
    };
    place.fetch_max(until_ms, Ordering::AcqRel);
    reply.ok();
    Ok(())
}

fn unpause(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let shared = session.shared();
    shared.paused_all_until_ms.store(0, Ordering::Release);
    shared.paused_writes_until_ms.store(0, Ordering::Release);
    // Sessions that wait for the end of the pause look again.
    shared
        .clients
        .all()
        .values()
        .for_each(|client| client.wake());
    reply.ok();
    Ok(())
}

fn unblock(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let how = match args.len() {
        3 => Unblock::Timeout,
        4 if args.is(3, "TIMEOUT") => Unblock::Timeout,
        4 if args.is(3, "ERROR") => Unblock::Error,
        4 => {
            return Err(Refusal::new(
                "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
            ));
        }
        _ => return Err(command::wrong_arity("client|unblock")),
    };
    let id = args.int(2)?;
    let client = u64::try_from(id)
        .ok()
        .and_then(|id| session.shared().clients.all().get(&id).cloned());
    reply.int_bool(client.is_some_and(|client| client.unblock(how)));
    Ok(())
}

fn no_evict(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let on = match args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(Refusal::Syntax),
    };
    session.client.no_evict.store(on, Ordering::Relaxed);
    reply.ok();
    Ok(())
}

fn no_touch(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let on = match args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(Refusal::Syntax),
    };
    session
        .client
        .requester
        .no_touch
        .store(on, Ordering::Relaxed);
    reply.ok();
    Ok(())
}

fn set_info(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (is_name, value) = (args.is(2, "LIB-NAME"), args.at(3));
    let option = String::from_utf8_lossy(args.at(2));
    if !is_name && !args.is(2, "LIB-VER") {
        return Err(Refusal::text_of(format!(
            "ERR Unrecognized option '{option}'"
        )));
    }
    if !is_plain(value) {
        return Err(Refusal::text_of(format!(
            "ERR {option} cannot contain spaces, newlines or special characters."
        )));
    }
    let mut library = session.client.library();
    match is_name {
        true => library.name = value.to_vec(),
        false => library.version = value.to_vec(),
    }
    reply.ok();
    Ok(())
}

fn help(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "CLIENT",
        &[
            "GETREDIR",
            "    Return the client ID we are redirecting to when tracking is enabled.",
            "GETNAME",
            "    Return the name of the current connection.",
            "ID",
            "    Return the ID of the current connection.",
            "INFO",
            "    Return information about the current client connection.",
            "KILL <ip:port>",
            "    Kill connection made from <ip:port>.",
            "KILL <option> <value> [<option> <value> [...]]",
            "    Kill connections. Options are:",
            "    * ADDR (<ip:port>|<unixsocket>:0)",
            "      Kill connections made from the specified address",
            "    * LADDR (<ip:port>|<unixsocket>:0)",
            "      Kill connections made to specified local address",
            "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
            "      Kill connections by type.",
            "    * USER <username>",
            "      Kill connections authenticated by <username>.",
            "    * SKIPME (YES|NO)",
            "      Skip killing current connection (default: yes).",
            "LIST [options ...]",
            "    Return information about client connections. Options:",
            "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
            "      Return clients of specified type.",
            "UNPAUSE",
            "    Stop the current client pause, resuming traffic.",
            "PAUSE <timeout> [WRITE|ALL]",
            "    Suspend all, or just write, clients for <timeout> milliseconds.",
            "REPLY (ON|OFF|SKIP)",
            "    Control the replies sent to the current connection.",
            "SETNAME <name>",
            "    Assign the name <name> to the current connection.",
            "UNBLOCK <clientid> [TIMEOUT|ERROR]",
            "    Unblock the specified blocked client.",
            "NO-EVICT (ON|OFF)",
            "    Protect current client connection from eviction.",
            "NO-TOUCH (ON|OFF)",
            "    Will not touch LRU/LFU stats when this mode is on.",
            "SETINFO <option> <value>",
            "    Set client meta attr. Options are:",
            "    * LIB-NAME: the client lib name.",
            "    * LIB-VER: the client lib version.",
        ],
    )
}
