//! SLOWLOG GET, LEN, RESET.

use base::Refusal;
use command::{Arity, CommandSpec, Flags};
use resp::{Args, Reply};
use session::Session;
use session::SessionCommand;
use session::SessionRun;

use super::specs::{self, ANYTIME, SERVER, sub};

const LOOK: Flags = Flags::ADMIN.union(ANYTIME);

const SUBCOMMANDS: &[CommandSpec] = &[
    sub(
        SERVER,
        "slowlog|get",
        "[count]",
        Arity::AtLeast(2),
        LOOK,
        "2.2.12",
        "Returns the latest slow commands.",
    )
    .with_tips(&["request_policy:all_nodes", "nondeterministic_output"]),
    sub(
        SERVER,
        "slowlog|len",
        "",
        Arity::Exactly(2),
        LOOK,
        "2.2.12",
        "Returns how many slow commands are remembered.",
    )
    .with_tips(&[
        "request_policy:all_nodes",
        "response_policy:agg_sum",
        "nondeterministic_output",
    ]),
    sub(
        SERVER,
        "slowlog|reset",
        "",
        Arity::Exactly(2),
        LOOK,
        "2.2.12",
        "Forgets the slow commands.",
    )
    .with_tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    sub(
        SERVER,
        "slowlog|help",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "6.2.0",
        "Tells about the subcommands.",
    ),
];

pub const SPECS: &[SessionCommand] = &[SessionCommand {
    spec: specs::container(
        SERVER,
        "slowlog",
        "2.2.12",
        "Commands that took long.",
        SUBCOMMANDS,
    ),
    run: SessionRun::Subcommands(&[
        ("slowlog|get", SessionRun::Now(get)),
        ("slowlog|len", SessionRun::Now(len)),
        ("slowlog|reset", SessionRun::Now(reset)),
        ("slowlog|help", SessionRun::Now(help)),
    ]),
}];

fn get(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    const BAD: Refusal = Refusal::new("ERR count should be greater than or equal to -1");
    if args.len() > 3 {
        return Err(command::wrong_arity("slowlog|get"));
    }
    let count = match args.len() {
        2 => 10,
        _ => match args.int(2).map_err(|_| BAD)? {
            -1 => usize::MAX,
            n if n < -1 => return Err(BAD),
            n => n as usize,
        },
    };
    let log = session.shared().slowlog.lock();
    reply.array(log.entries.len().min(count));
    for entry in log.entries.iter().take(count) {
        reply.array(6);
        reply.int(entry.id as i64);
        reply.int(entry.at_seconds as i64);
        reply.int(entry.took_us as i64);
        reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(entry.addr.as_bytes());
        reply.bulk(&entry.client_name);
    }
    Ok(())
}

fn len(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(session.shared().slowlog.lock().entries.len() as i64);
    Ok(())
}

fn reset(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    session.shared().slowlog.reset();
    reply.ok();
    Ok(())
}

fn help(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "SLOWLOG",
        &[
            "GET [<count>]",
            "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
            "    Entries are made of:",
            "    id, timestamp, time in microseconds, arguments array, client IP and port,",
            "    client name",
            "LEN",
            "    Return the length of the slowlog.",
            "RESET",
            "    Reset the slowlog.",
        ],
    )
}
