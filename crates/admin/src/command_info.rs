//! COMMAND: the command table, as clients and `redis-cli` read it.

mod key_specs;
mod listing;

use base::{Refusal, glob};
use command::{Arity, Categories, CommandSpec};
use resp::{Args, Reply};
use session::Session;
use session::SessionCommand;
use session::SessionRun;

use super::specs::{self, ANYTIME, SERVER, sub};

const ABOUT_COMMANDS: CommandSpec = CommandSpec {
    categories: Some(Categories::CONNECTION),
    ..SERVER
};

const SUBCOMMANDS: &[CommandSpec] = &[
    sub(
        ABOUT_COMMANDS,
        "command|count",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "2.8.13",
        "Returns the number of commands.",
    ),
    sub(
        ABOUT_COMMANDS,
        "command|docs",
        "[command-name...]",
        Arity::AtLeast(2),
        ANYTIME,
        "7.0.0",
        "Returns what commands do.",
    )
    .with_tips(&["nondeterministic_output_order"]),
    sub(
        ABOUT_COMMANDS,
        "command|getkeys",
        "command [arg...]",
        Arity::AtLeast(4),
        ANYTIME,
        "2.8.13",
        "Returns the keys of a whole command.",
    ),
    sub(
        ABOUT_COMMANDS,
        "command|getkeysandflags",
        "command [arg...]",
        Arity::AtLeast(4),
        ANYTIME,
        "7.0.0",
        "Returns the keys of a whole command and what it does to them.",
    ),
    sub(
        ABOUT_COMMANDS,
        "command|info",
        "[command-name...]",
        Arity::AtLeast(2),
        ANYTIME,
        "2.8.13",
        "Returns the rows of commands.",
    )
    .with_tips(&["nondeterministic_output_order"]),
    sub(
        ABOUT_COMMANDS,
        "command|list",
        "[FILTERBY <MODULE module-name|ACLCAT category|PATTERN pattern>]",
        Arity::AtLeast(2),
        ANYTIME,
        "7.0.0",
        "Returns the names of commands.",
    )
    .with_tips(&["nondeterministic_output_order"]),
    sub(
        ABOUT_COMMANDS,
        "command|help",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "5.0.0",
        "Tells about the subcommands.",
    ),
];

pub const SPECS: &[SessionCommand] = &[SessionCommand {
    spec: CommandSpec {
        name: "command",
        arity: Arity::AtLeast(1),
        flags: ANYTIME,
        since: "2.8.13",
        complexity: "O(N) where N is the number of commands.",
        summary: "Returns the rows of all commands.",
        subcommands: SUBCOMMANDS,
        tips: &["nondeterministic_output_order"],
        ..ABOUT_COMMANDS
    },
    run: SessionRun::Subcommands(&[
        ("command", SessionRun::Now(all)),
        ("command|count", SessionRun::Now(count)),
        ("command|docs", SessionRun::Now(docs)),
        ("command|getkeys", SessionRun::Now(getkeys)),
        ("command|getkeysandflags", SessionRun::Now(getkeysandflags)),
        ("command|info", SessionRun::Now(info)),
        ("command|list", SessionRun::Now(list)),
        ("command|help", SessionRun::Now(help)),
    ]),
}];

fn all(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let table = &session.shared().commands.table;
    reply.array(table.listed().count());
    table.listed().for_each(|spec| listing::info(spec, reply));
    Ok(())
}

fn count(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(session.shared().commands.table.listed().count() as i64);
    Ok(())
}

/// The specification called `name`: a command, or `command|subcommand`.
fn find<'a>(session: &'a Session, name: &[u8]) -> Option<&'a CommandSpec> {
    let table = &session.shared().commands.table;
    let head = name.split(|byte| *byte == b'|').next().unwrap_or_default();
    let spec = table.specs().get(table.find(head)?);
    let spec = spec.filter(|spec| !spec.is_internal())?;
    if head.len() == name.len() {
        return Some(spec);
    }
    spec.subcommands
        .iter()
        .find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name))
}

fn info(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if args.len() == 2 {
        return all(session, args, reply);
    }
    reply.array(args.len() - 2);
    for name in args.iter_from(2) {
        match find(session, name) {
            Some(spec) => listing::info(spec, reply),
            None => reply.null(),
        }
    }
    Ok(())
}

fn docs(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let specs: Vec<&CommandSpec> = if args.len() == 2 {
        session.shared().commands.table.listed().collect()
    } else {
        args.iter_from(2)
            .filter_map(|name| find(session, name))
            .collect()
    };
    reply.map(specs.len());
    for spec in specs {
        reply.bulk(spec.name.as_bytes());
        listing::docs(spec, reply);
    }
    Ok(())
}

fn list(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let table = &session.shared().commands.table;
    let every = || {
        let subcommands = table.listed().flat_map(|spec| spec.subcommands);
        table.listed().chain(subcommands)
    };
    let names: Vec<&str> = match args.len() {
        2 => every().map(|spec| spec.name).collect(),
        5 if args.is(2, "FILTERBY") => {
            if args.is(3, "MODULE") {
                Vec::new()
            } else if args.is(3, "ACLCAT") {
                let category = Categories::named(args.at(4)).unwrap_or(Categories::empty());
                every()
                    .filter(|spec| spec.acl_categories().intersects(category))
                    .map(|spec| spec.name)
                    .collect()
            } else if args.is(3, "PATTERN") {
                every()
                    .filter(|spec| glob::matches_ignoring_case(args.at(4), spec.name.as_bytes()))
                    .map(|spec| spec.name)
                    .collect()
            } else {
                return Err(Refusal::Syntax);
            }
        }
        _ => return Err(Refusal::Syntax),
    };
    reply.set(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

/// The whole command given behind COMMAND GETKEYS, and the positions of its keys.
fn whole<'a>(
    session: &'a Session,
    args: &Args<'a>,
) -> Result<(&'a CommandSpec, Args<'a>, Vec<usize>), Refusal> {
    let inner = args.skip(2);
    let table = &session.shared().commands.table;
    if table.find(inner.at(0)).is_none() {
        return Err(Refusal::new("ERR Invalid command specified"));
    }
    let (_, spec) = table.resolve(&inner).map_err(|refusal| {
        if refusal.text().starts_with("ERR wrong number") {
            Refusal::new("ERR Invalid number of arguments specified for command")
        } else {
            Refusal::new("ERR Invalid command specified")
        }
    })?;
    if matches!(
        spec.keys,
        command::Keys::None | command::Keys::Everything | command::Keys::Cursor
    ) {
        return Err(Refusal::new("ERR The command has no key arguments"));
    }
    let mut positions = Vec::new();
    spec.keys
        .positions(&inner, |at| positions.push(at))
        .map_err(|_| Refusal::new("ERR Invalid arguments specified for command"))?;
    if positions.is_empty() {
        return Err(Refusal::new("ERR The command has no key arguments"));
    }
    Ok((spec, inner, positions))
}

fn getkeys(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (_, inner, positions) = whole(session, args)?;
    reply.array(positions.len());
    positions.iter().for_each(|&at| reply.bulk(inner.at(at)));
    Ok(())
}

fn getkeysandflags(
    session: &mut Session,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let (spec, inner, positions) = whole(session, args)?;
    reply.array(positions.len());
    for (number, &at) in positions.iter().enumerate() {
        let flags = spec.key_use_with(&inner, number).words();
        reply.array(2);
        reply.bulk(inner.at(at));
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
    }
    Ok(())
}

fn help(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "COMMAND",
        &[
            "(no subcommand)",
            "    Return details about all Redis commands.",
            "COUNT",
            "    Return the total number of commands in this Redis server.",
            "LIST",
            "    Return a list of all commands in this Redis server.",
            "INFO [<command-name> ...]",
            "    Return details about multiple Redis commands.",
            "    If no command names are given, documentation details for all",
            "    commands are returned.",
            "DOCS [<command-name> ...]",
            "    Return documentation details about multiple Redis commands.",
            "    If no command names are given, documentation details for all",
            "    commands are returned.",
            "GETKEYS <full-command>",
            "    Return the keys from a full Redis command.",
            "GETKEYSANDFLAGS <full-command>",
            "    Return the keys and the access flags from a full Redis command.",
        ],
    )
}
