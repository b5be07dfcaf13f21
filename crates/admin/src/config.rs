//! CONFIG GET, SET, RESETSTAT, REWRITE.

use base::Refusal;
use command::{Arity, CommandSpec, Secrets};
use resp::{Args, Reply};
use session::Later;
use session::Session;
use session::SessionCommand;
use session::SessionRun;
use session::listener;
use settings::{SetError, Settings};

use super::specs::{self, ADMIN, ANYTIME, SERVER, sub};

const SUBCOMMANDS: &[CommandSpec] = &[
    sub(
        SERVER,
        "config|get",
        "parameter...",
        Arity::AtLeast(3),
        ADMIN,
        "2.0.0",
        "Returns the settings whose names match the patterns.",
    ),
    CommandSpec {
        secrets: Secrets::Settings,
        ..sub(
            SERVER,
            "config|set",
            "<parameter value>...",
            Arity::AtLeast(4),
            ADMIN,
            "2.0.0",
            "Changes settings, all of them or none.",
        )
        .with_tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    },
    sub(
        SERVER,
        "config|resetstat",
        "",
        Arity::Exactly(2),
        ADMIN,
        "2.0.0",
        "Sets the counters of INFO back to zero.",
    ),
    sub(
        SERVER,
        "config|rewrite",
        "",
        Arity::Exactly(2),
        ADMIN,
        "2.8.0",
        "Writes the settings into the configuration file.",
    ),
    sub(
        SERVER,
        "config|help",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "5.0.0",
        "Tells about the subcommands.",
    ),
];

pub const SPECS: &[SessionCommand] = &[SessionCommand {
    spec: specs::container(
        SERVER,
        "config",
        "2.0.0",
        "Settings of the server.",
        SUBCOMMANDS,
    ),
    run: SessionRun::Subcommands(&[
        ("config|get", SessionRun::Now(get)),
        ("config|set", SessionRun::Now(set)),
        ("config|resetstat", SessionRun::Later(resetstat)),
        ("config|rewrite", SessionRun::Now(rewrite)),
        ("config|help", SessionRun::Now(help)),
    ]),
}];

fn get(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let patterns: Vec<String> = args
        .iter_from(2)
        .map(|pattern| String::from_utf8_lossy(pattern).into_owned())
        .collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let found = session.shared().settings.get(&patterns);
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn set(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if !args.len().is_multiple_of(2) {
        return Err(Refusal::Syntax);
    }
    let words: Vec<String> = args
        .iter_from(2)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let pairs: Vec<(&str, &str)> = words
        .chunks_exact(2)
        .filter_map(|pair| match pair {
            [name, value] => Some((name.as_str(), value.as_str())),
            _ => None,
        })
        .collect();
    let shared = session.shared();
    let is_of_password = |name: &str| name.eq_ignore_ascii_case("requirepass");
    let sets_password = pairs.iter().any(|(name, _)| is_of_password(name));
    if sets_password && shared.keeps_users() && shared.users.load().has_own_default() {
        return Err(Refusal::new(
            "ERR the default user was set by ACL rules, so requirepass does not count; use ACL SETUSER default resetpass \
             >password",
        ));
    }
    let now = shared.settings.current();
    let apply = |next: &Settings| apply(session, &pairs, &now, next);
    shared
        .settings
        .set_and(&pairs, session.client.is_local(), apply)
        .map_err(|error| Refusal::text_of(format!("ERR {error}")))?;
    if sets_password {
        shared.take_requirepass();
    }
    let tracking = shared.settings.current().latency_tracking;
    shared
        .stats
        .iter()
        .for_each(|core| core.track_latency(tracking));
    reply.ok();
    Ok(())
}

/// Does what must succeed before settings are taken: certificates are read, ports are opened.
fn apply(
    session: &Session,
    pairs: &[(&str, &str)],
    now: &Settings,
    next: &Settings,
) -> Result<(), SetError> {
    let named = |begin: &str| {
        let is_it = |name: &str| {
            name.get(..begin.len())
                .is_some_and(|it| it.eq_ignore_ascii_case(begin))
        };
        pairs.iter().map(|it| it.0).find(|&name| is_it(name))
    };
    let fail = |name: &str, reason: String| {
        let name = name.into();
        Err(SetError::Invalid { name, reason })
    };
    let shared = session.shared();
    if let Some(name) = named("tls-")
        && let Err(why) = shared.tls.apply(&next.tls)
    {
        return fail(name, format!("Unable to update TLS configuration: {why}"));
    }
    let moves =
        now.redis_port != next.redis_port || now.tls.port != next.tls.port || now.bind != next.bind;
    if !moves {
        return Ok(());
    }
    let name = named("bind").or(named("tls-port")).unwrap_or("port");
    if shared.cluster.is_some() {
        return fail(
            name,
            "can only be changed at start, on a node of a cluster".into(),
        );
    }
    let moved = listener::move_to(session, now, next);
    if moved.is_err() && named("tls-").is_some() {
        // They were good a moment ago.
        let _ = shared.tls.apply(&now.tls);
    }
    match moved {
        Ok(()) => Ok(()),
        Err(why) if name == "bind" => fail(
            name,
            format!("Failed to bind to specified addresses: {why}"),
        ),
        Err(why) => fail(name, format!("Unable to listen on this port: {why}")),
    }
}

/// Counters of the regions are theirs alone, so they are held for a moment.
fn resetstat<'a>(session: &'a mut Session, _: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let mut held = session.hold_all().await;
        held.spaces().for_each(super::info::reset_counters);
        session.release(held).await;
        session.shared().stats.iter().for_each(|core| core.reset());
        reply.ok();
        Ok(())
    })
}

fn rewrite(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    session
        .shared()
        .settings
        .rewrite()
        .map_err(|error| Refusal::text_of(format!("ERR {error}")))?;
    reply.ok();
    Ok(())
}

fn help(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "CONFIG",
        &[
            "GET <pattern>",
            "    Return parameters matching the glob-like <pattern> and their values.",
            "SET <directive> <value>",
            "    Set the configuration <directive> to <value>.",
            "RESETSTAT",
            "    Reset statistics reported by the INFO command.",
            "REWRITE",
            "    Rewrite the configuration file.",
        ],
    )
}
