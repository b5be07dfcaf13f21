//! One command as COMMAND INFO and COMMAND DOCS give it.

use command::syntax::{self, Argument, Kind};
use command::{CommandSpec, Flags, Keys};
use resp::Reply;

use super::key_specs;

const FLAG_NAMES: &[(Flags, &str)] = &[
    (Flags::READONLY, "readonly"),
    (Flags::DENYOOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NOSCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::SKIP_MONITOR, "skip_monitor"),
    (Flags::SKIP_SLOWLOG, "skip_slowlog"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_ASYNC_LOADING, "no_async_loading"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::MOVABLEKEYS, "movablekeys"),
    (Flags::ALLOW_BUSY, "allow_busy"),
];

/// The ten elements of a COMMAND INFO row.
pub fn info(command: &CommandSpec, reply: &mut Reply) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.int(command.arity.as_redis());
    let named = FLAG_NAMES
        .iter()
        .filter(|(flag, _)| command.flags.contains(*flag))
        .map(|(_, name)| *name);
    let mut flags: Vec<&str> = command
        .is_listed_as_write()
        .then_some("write")
        .into_iter()
        .chain(named)
        .collect();
    let counted = matches!(
        command.keys,
        Keys::Counted { .. } | Keys::DestinationAndCounted { .. } | Keys::Sort { .. }
    );
    if counted && !command.flags.contains(Flags::MOVABLEKEYS) {
        flags.push("movablekeys");
    }
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    let (first, last, step) = match command.keys {
        Keys::Range { first, last, step } => (first as i64, last as i64, step as i64),
        Keys::DestinationAndCounted { .. } | Keys::Sort { .. } => (1, 1, 1),
        _ => (0, 0, 0),
    };
    reply.int(first);
    reply.int(last);
    reply.int(step);
    let categories: Vec<&str> = command.acl_categories().names().collect();
    reply.set(categories.len());
    categories
        .iter()
        .for_each(|name| reply.simple(&format!("@{name}")));
    reply.set(command.tips.len());
    command
        .tips
        .iter()
        .for_each(|tip| reply.bulk(tip.as_bytes()));
    key_specs::write(command, reply);
    reply.array(command.subcommands.len());
    command.subcommands.iter().for_each(|sub| info(sub, reply));
}

/// The value of a COMMAND DOCS entry.
pub fn docs(command: &CommandSpec, reply: &mut Reply) {
    let has_subcommands = !command.subcommands.is_empty();
    // A test parses the syntax of every row.
    let arguments = syntax::parse(command.syntax).unwrap_or_default();
    reply.map(4 + usize::from(!arguments.is_empty()) + usize::from(has_subcommands));
    for (name, text) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group.name()),
        ("complexity", command.complexity),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        reply.array(arguments.len());
        let mut keys = 0;
        let all = arguments.iter();
        all.for_each(|it| argument(command, it, &mut keys, reply));
    }
    if has_subcommands {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        for sub in command.subcommands {
            reply.bulk(sub.name.as_bytes());
            docs(sub, reply);
        }
    }
}

/// One argument. `keys`: how many keys came before it.
fn argument(command: &CommandSpec, argument: &Argument, keys: &mut usize, reply: &mut Reply) {
    let flags: Vec<&str> = [
        (argument.optional, "optional"),
        (argument.multiple, "multiple"),
        (argument.multiple_token, "multiple_token"),
    ]
    .iter()
    .filter_map(|(set, name)| set.then_some(*name))
    .collect();
    let is_group = matches!(argument.kind, Kind::OneOf | Kind::Block);
    let spec = key_specs::index_of(command, argument, keys);
    let has_text = !is_group && argument.kind != Kind::PureToken;
    let count = 2
        + usize::from(has_text)
        + usize::from(spec.is_some())
        + usize::from(argument.token.is_some())
        + usize::from(!flags.is_empty())
        + usize::from(is_group);
    reply.map(count);
    let mut text = |name: &str, text: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    };
    text("name", &argument.name);
    text("type", argument.kind.name());
    if has_text {
        text("display_text", &argument.name);
    }
    if let Some(token) = &argument.token {
        text("token", token);
    }
    if let Some(spec) = spec {
        reply.bulk(b"key_spec_index");
        reply.int(spec as i64);
    }
    if !flags.is_empty() {
        reply.bulk(b"flags");
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
    }
    if is_group {
        reply.bulk(b"arguments");
        reply.array(argument.arguments.len());
        let inner = argument.arguments.iter();
        inner.for_each(|it| self::argument(command, it, keys, reply));
    }
}
