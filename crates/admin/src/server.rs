//! The server as a whole: TIME, LOLWUT, and what tools ask of functions and modules, of which there are none.

use base::Refusal;
use command::{Arity, CommandSpec, Flags, Group};
use resp::{Args, Reply};
use session::Session;
use session::SessionCommand;
use session::SessionRun;

use super::connection::REDIS_VERSION;
use super::specs::{self, ANYTIME, SERVER, sub};

const MODULE_SUBCOMMANDS: &[CommandSpec] = &[
    sub(
        SERVER,
        "module|list",
        "",
        Arity::Exactly(2),
        Flags::ADMIN.union(Flags::NOSCRIPT),
        "4.0.0",
        "Lists the loaded modules; there are none.",
    )
    .with_tips(&["nondeterministic_output_order"]),
    sub(
        SERVER,
        "module|help",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "5.0.0",
        "Tells about the subcommands.",
    ),
];

const FUNCTIONS: CommandSpec = CommandSpec {
    group: Group::Scripting,
    ..SERVER
};

const FUNCTION_SUBCOMMANDS: &[CommandSpec] = &[
    sub(
        FUNCTIONS,
        "function|flush",
        "[ASYNC|SYNC]",
        Arity::AtLeast(2),
        Flags::LISTED_AS_WRITE.union(Flags::NOSCRIPT),
        "7.0.0",
        "Deletes all functions; there are none.",
    )
    .with_tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    sub(
        FUNCTIONS,
        "function|list",
        "[LIBRARYNAME library-name-pattern] [WITHCODE]",
        Arity::AtLeast(2),
        Flags::NOSCRIPT,
        "7.0.0",
        "Lists the functions; there are none.",
    )
    .with_tips(&["nondeterministic_output_order"]),
    sub(
        FUNCTIONS,
        "function|stats",
        "",
        Arity::Exactly(2),
        Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
        "7.0.0",
        "Tells which function runs; none does.",
    )
    .with_tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ]),
];

pub const SPECS: &[SessionCommand] = &[
    SessionCommand {
        spec: CommandSpec {
            name: "time",
            arity: Arity::Exactly(1),
            flags: ANYTIME.union(Flags::FAST),
            since: "2.6.0",
            summary: "Returns the server's clock: Unix seconds and microseconds.",
            tips: &["nondeterministic_output"],
            ..SERVER
        },
        run: SessionRun::Now(time),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "lolwut",
            syntax: "[VERSION version]",
            arity: Arity::AtLeast(1),
            flags: Flags::READONLY.union(Flags::FAST),
            since: "5.0.0",
            summary: "Shows the version, with a picture.",
            ..SERVER
        },
        run: SessionRun::Now(lolwut),
    },
    SessionCommand {
        spec: specs::container(
            FUNCTIONS,
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
    SessionCommand {
        spec: specs::container(
            SERVER,
            "module",
            "4.0.0",
            "Modules; none can be loaded.",
            MODULE_SUBCOMMANDS,
        ),
        run: SessionRun::Subcommands(&[
            ("module|list", SessionRun::Now(module_list)),
            ("module|help", SessionRun::Now(module_help)),
        ]),
    },
];

fn time(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let now_us = runtime::clock::now_us();
    reply.array(2);
    reply.bulk_int((now_us / 1_000_000) as i64);
    reply.bulk_int((now_us % 1_000_000) as i64);
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

fn module_list(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.array(0);
    Ok(())
}

fn module_help(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "MODULE",
        &["LIST", "    Return a list of loaded modules."],
    )
}
