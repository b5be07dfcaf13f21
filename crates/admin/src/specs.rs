//! Short hand for the specifications of session commands.

use base::Refusal;
use command::{Arity, CommandSpec, Flags, Group, Run};
use resp::Reply;

/// A session command of the connection group.
pub const CONNECTION: CommandSpec = CommandSpec {
    run: Run::Session,
    group: Group::Connection,
    ..CommandSpec::BASE
};

/// A session command of the server group.
pub const SERVER: CommandSpec = CommandSpec {
    run: Run::Session,
    group: Group::Server,
    ..CommandSpec::BASE
};

pub const ANYTIME: Flags = Flags::LOADING.union(Flags::STALE);
pub const ADMIN: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(ANYTIME);
pub const QUIET: Flags = Flags::NOSCRIPT.union(ANYTIME);

/// A subcommand's specification.
pub const fn sub(
    base: CommandSpec,
    name: &'static str,
    syntax: &'static str,
    arity: Arity,
    flags: Flags,
    since: &'static str,
    summary: &'static str,
) -> CommandSpec {
    CommandSpec {
        name,
        syntax,
        arity,
        flags,
        since,
        summary,
        ..base
    }
}

/// A container's specification.
pub const fn container(
    base: CommandSpec,
    name: &'static str,
    since: &'static str,
    summary: &'static str,
    subcommands: &'static [CommandSpec],
) -> CommandSpec {
    CommandSpec {
        name,
        arity: Arity::AtLeast(2),
        run: Run::Container,
        since,
        summary,
        complexity: "Depends on subcommand.",
        subcommands,
        ..base
    }
}

/// The reply of a HELP subcommand; lines as they are printed.
pub fn help(reply: &mut Reply, command: &str, lines: &[&str]) -> Result<(), Refusal> {
    reply.array(lines.len() + 3);
    reply.simple(&format!(
        "{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    ));
    lines.iter().for_each(|line| reply.simple(line));
    reply.simple("HELP");
    reply.simple("    Prints this help.");
    Ok(())
}
