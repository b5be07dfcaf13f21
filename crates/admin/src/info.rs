//! INFO: sections of `name:value` lines, each true of this server. What has no meaning here (a
//! fork, an append-only file, Lua) is left out unless exporters need the line, which then says 0.
//!
//! Numbers that regions keep (keys, hits, changes) are read while all regions are held, so that
//! they are of one moment; not on a cluster node, see [`totals_now`].

mod sections;

use base::Refusal;
use command::{Arity, CommandSpec, Flags};
use keyspace::Keyspace;
use resp::{Args, Reply};
use runtime::cores::{Tally, Totals};
use session::Later;
use session::Session;
use session::SessionCommand;
use session::SessionRun;

use super::specs::{ANYTIME, SERVER};

pub const SPECS: &[SessionCommand] = &[SessionCommand {
    spec: CommandSpec {
        name: "info",
        syntax: "[section...]",
        arity: Arity::AtLeast(1),
        flags: ANYTIME.union(Flags::DANGEROUS),
        summary: "Tells about the server, by sections.",
        tips: &[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ],
        ..SERVER
    },
    run: SessionRun::Later(info),
}];

/// Sums over all regions that this node leads. They are held meanwhile, and the sums are of one moment; on
/// a cluster node each core counts its own ([`Tally`]).
pub async fn totals_now(session: &mut Session) -> Totals {
    if session.shared().cluster.is_some() && !session.in_exec() {
        return session.core.tally(Tally::Led).await;
    }
    let mut held = session.hold_all().await;
    let totals = Totals::of(held.spaces());
    session.release(held).await;
    totals
}

/// `CONFIG RESETSTAT` for one region.
pub fn reset_counters(space: &mut Keyspace) {
    space.reset_counters();
}

/// Section names in the order they are shown; `true`: part of the default.
const SECTIONS: &[(&str, bool)] = &[
    ("server", true),
    ("clients", true),
    ("memory", true),
    ("persistence", true),
    ("stats", true),
    ("replication", true),
    ("cpu", true),
    ("modules", true),
    ("commandstats", false),
    ("errorstats", true),
    ("latencystats", false),
    ("cluster", true),
    ("tables", true),
    ("keyspace", true),
];

/// Which sections the arguments ask for.
fn chosen(args: &Args<'_>) -> Vec<&'static str> {
    let wants = |name: &str, default: bool| {
        if args.len() == 1 {
            return default;
        }
        args.iter_from(1).any(|word| {
            let is = |text: &str| word.eq_ignore_ascii_case(text.as_bytes());
            is(name) || is("everything") || is("all") || (default && is("default"))
        })
    };
    // `all` leaves modules out, as in Redis; there are none to show anyway.
    SECTIONS
        .iter()
        .filter(|(name, default)| wants(name, *default))
        .map(|(name, _)| *name)
        .collect()
}

fn info<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let chosen = chosen(args);
        let regions = ["persistence", "stats", "keyspace"];
        let totals = if chosen.iter().any(|name| regions.contains(name)) {
            totals_now(session).await
        } else {
            Totals::default()
        };
        let tables = match chosen.contains(&"tables") {
            true => super::row_table::section(session, None).await,
            false => String::new(),
        };
        reply.verbatim(&text(session, &chosen, &totals, &tables));
        Ok::<(), Refusal>(())
    })
}

fn text(session: &Session, chosen: &[&str], totals: &Totals, tables: &str) -> String {
    let shared = session.shared();
    let mut out = String::new();
    for name in chosen {
        if !out.is_empty() {
            out.push_str("\r\n");
        }
        let mut title = name.to_string();
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        if *name == "cpu" {
            title.make_ascii_uppercase();
        }
        out.push_str(&format!("# {title}\r\n"));
        let lines = &mut sections::Lines(&mut out);
        match *name {
            "server" => sections::server(lines, shared),
            "clients" => sections::clients(lines, shared),
            "memory" => sections::memory(lines, shared),
            "persistence" => sections::persistence(lines, shared, totals),
            "stats" => sections::stats(lines, shared, totals),
            "replication" => sections::replication(lines, shared),
            "cpu" => sections::cpu(lines),
            "commandstats" => sections::commandstats(lines, shared),
            "errorstats" => sections::errorstats(lines, shared),
            "latencystats" => sections::latencystats(lines, shared),
            "cluster" => {
                let is_cluster = shared.cluster.as_ref().is_some_and(|it| it.redirects);
                lines.add("cluster_enabled", u8::from(is_cluster));
                if shared.cluster.is_some() {
                    sections::regions(lines, shared);
                }
            }
            "tables" => lines.0.push_str(tables),
            "keyspace" => sections::keyspace(lines, totals),
            _ => {}
        }
    }
    out
}
