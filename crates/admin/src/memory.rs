//! MEMORY: how much is used, for what.

use base::{Refusal, number};
use command::{Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, Run};
use keyspace::View;
use resp::{Args, Reply};
use stats::memory;

use session::Later;
use session::Session;
use session::SessionCommand;
use session::SessionRun;
use stats::process::resident_bytes;

use super::info::totals_now;
use super::specs::{self, ANYTIME, SERVER, sub};

const SUBCOMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "memory|usage",
        syntax: "key [SAMPLES count]",
        arity: Arity::AtLeast(3),
        keys: Keys::one(2),
        run: Run::Read(usage),
        flags: Flags::READONLY,
        group: Group::Server,
        since: "4.0.0",
        complexity: "O(N) where N is the number of samples.",
        summary: "Returns the bytes of memory behind a key.",
        key_uses: KeyUses::All(KeyUse::Looks),
        ..CommandSpec::BASE
    },
    sub(
        SERVER,
        "memory|stats",
        "",
        Arity::Exactly(2),
        Flags::empty(),
        "4.0.0",
        "Returns what memory is used for.",
    )
    .with_tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ]),
    sub(
        SERVER,
        "memory|doctor",
        "",
        Arity::Exactly(2),
        Flags::empty(),
        "4.0.0",
        "Returns a report on the use of memory.",
    )
    .with_tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ]),
    sub(
        SERVER,
        "memory|purge",
        "",
        Arity::Exactly(2),
        Flags::empty(),
        "4.0.0",
        "Asks the allocator to give memory back.",
    )
    .with_tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    sub(
        SERVER,
        "memory|malloc-stats",
        "",
        Arity::Exactly(2),
        Flags::empty(),
        "4.0.0",
        "Returns what the allocator counts.",
    )
    .with_tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ]),
    sub(
        SERVER,
        "memory|help",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "4.0.0",
        "Tells about the subcommands.",
    ),
];

pub const SPECS: &[SessionCommand] = &[SessionCommand {
    spec: specs::container(SERVER, "memory", "4.0.0", "Use of memory.", SUBCOMMANDS),
    run: SessionRun::Subcommands(&[
        ("memory|stats", SessionRun::Later(stats)),
        ("memory|doctor", SessionRun::Now(doctor)),
        ("memory|purge", SessionRun::Now(purge)),
        ("memory|malloc-stats", SessionRun::Now(malloc_stats)),
        ("memory|help", SessionRun::Now(help)),
    ]),
}];

fn usage(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut at = 3;
    while at < args.len() {
        if !args.is(at, "SAMPLES") || at + 1 >= args.len() {
            return Err(Refusal::Syntax);
        }
        if number::parse_i64(args.at(at + 1)).ok_or(Refusal::NotInteger)? < 0 {
            return Err(Refusal::Syntax);
        }
        at += 2;
    }
    match view.memory_usage(args.at(2)) {
        Some(bytes) => reply.int(bytes as i64),
        None => reply.null(),
    }
    Ok(())
}

fn stats<'a>(session: &'a mut Session, _: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let totals = totals_now(session).await;
        memory::publish();
        let shared = session.shared();
        let used = memory::used_memory();
        let start = shared
            .memory_at_start
            .load(std::sync::atomic::Ordering::Relaxed) as usize;
        let start = start.min(used);
        let clients: usize = shared
            .clients
            .all()
            .values()
            .map(|client| {
                let relaxed = std::sync::atomic::Ordering::Relaxed;
                client.input_bytes.load(relaxed) + client.output_bytes.load(relaxed)
            })
            .sum();
        let tables: usize = totals.databases().map(|(_, it)| it.table_bytes).sum();
        let overhead = (start + clients + tables).min(used);
        let dataset = used - overhead;
        let resident = resident_bytes();
        let databases: Vec<(usize, usize)> = totals
            .databases()
            .filter(|(_, sums)| sums.keys > 0)
            .map(|(db, sums)| (db, sums.table_bytes))
            .collect();
        let numbers: Vec<(&str, i64)> = vec![
            ("peak.allocated", memory::peak_memory() as i64),
            ("total.allocated", used as i64),
            ("startup.allocated", start as i64),
            ("replication.backlog", 0),
            ("clients.slaves", 0),
            ("clients.normal", clients as i64),
            ("cluster.links", 0),
            ("aof.buffer", 0),
            ("lua.caches", 0),
            ("functions.caches", 0),
        ];
        reply.map(numbers.len() + databases.len() + 11);
        for (name, value) in numbers {
            reply.bulk(name.as_bytes());
            reply.int(value);
        }
        for (db, bytes) in databases {
            reply.bulk(format!("db.{db}").as_bytes());
            reply.map(3);
            reply.bulk(b"overhead.hashtable.main");
            reply.int(bytes as i64);
            // Deadlines are kept with the main table.
            reply.bulk(b"overhead.hashtable.expires");
            reply.int(0);
            reply.bulk(b"overhead.hashtable.slot-to-keys");
            reply.int(0);
        }
        let keys = totals.keys();
        for (name, value) in [
            ("overhead.total", overhead),
            ("keys.count", keys),
            (
                "keys.bytes-per-key",
                used.saturating_sub(start) / keys.max(1),
            ),
            ("dataset.bytes", dataset),
        ] {
            reply.bulk(name.as_bytes());
            reply.int(value as i64);
        }
        reply.bulk(b"dataset.percentage");
        reply.double(dataset as f64 * 100.0 / used.saturating_sub(start).max(1) as f64);
        reply.bulk(b"peak.percentage");
        reply.double(used as f64 * 100.0 / memory::peak_memory().max(1) as f64);
        for (name, value) in [
            ("allocator.allocated", used as i64),
            ("allocator.active", resident as i64),
            ("allocator.resident", resident as i64),
        ] {
            reply.bulk(name.as_bytes());
            reply.int(value);
        }
        reply.bulk(b"fragmentation");
        reply.double(resident as f64 / used.max(1) as f64);
        reply.bulk(b"fragmentation.bytes");
        reply.int(resident as i64 - used as i64);
        Ok(())
    })
}

fn doctor(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    memory::publish();
    let (used, peak) = (memory::used_memory(), memory::peak_memory());
    let resident = resident_bytes() as usize;
    if used < 5 << 20 {
        reply.verbatim(
            "Hi Sam, this instance is empty or is using very little memory, my issues detector \
             can't be used in these conditions. Please, leave for your mission on Earth and fill \
             it with some data.\n",
        );
    } else if resident > used + used / 2 {
        reply.verbatim(&format!(
            "Sam, the process holds {resident} bytes of memory but only {used} are in use. It had \
             {peak} at its peak; what is free is given back over time and used again first.\n"
        ));
    } else {
        reply.verbatim("Hi Sam, I can't find any memory issue in your instance.\n");
    }
    Ok(())
}

/// The allocator gives pages back by itself; this only publishes what threads have counted.
fn purge(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    memory::publish();
    reply.ok();
    Ok(())
}

fn malloc_stats(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    memory::publish();
    reply.verbatim(&format!(
        "mimalloc: allocated {}, peak {}, resident {}\n",
        memory::used_memory(),
        memory::peak_memory(),
        resident_bytes()
    ));
    Ok(())
}

fn help(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "MEMORY",
        &[
            "DOCTOR",
            "    Return memory problems reports.",
            "MALLOC-STATS",
            "    Return internal statistics report from the memory allocator.",
            "PURGE",
            "    Attempt to purge dirty pages for reclamation by the allocator.",
            "STATS",
            "    Return information about the memory usage of the server.",
            "USAGE <key> [SAMPLES <count>]",
            "    Return memory in bytes used by <key> and its value. Nested values are",
            "    sampled up to <count> times (default: 5, 0 means sample all).",
        ],
    )
}
