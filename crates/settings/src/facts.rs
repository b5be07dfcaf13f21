//! What `CONFIG GET` answers beside the settings: names of Redis that clients, exporters and frameworks ask for and that
//! have one true answer here.
//!
//! They are no flags and stand in no configuration file. `CONFIG SET` accepts the value a fact has and refuses any other, so
//! that a tool which writes back what it read goes on. A name of which nothing true can be said is not here.

use base::glob;

use super::Settings;

/// A name and how its value is found.
pub struct Fact {
    pub name: &'static str,
    value: Answer,
}

enum Answer {
    Text(&'static str),
    Of(fn(&Settings) -> String),
}

const fn fact(name: &'static str, value: &'static str) -> Fact {
    let value = Answer::Text(value);
    Fact { name, value }
}

const fn found(name: &'static str, value: fn(&Settings) -> String) -> Fact {
    let value = Answer::Of(value);
    Fact { name, value }
}

pub const ALL: &[Fact] = &[
    // The log of the engine rocksdb is no append-only file of Redis, but `appendfsync` means what `log-sync` does.
    found("appendfsync", |settings| settings.text("log-sync")),
    fact("no-appendfsync-on-rewrite", "no"),
    found("cluster-enabled", |settings| {
        yes_no(settings.cluster.is_asked_for() && settings.cluster.redirects)
    }),
    fact("cluster-require-full-coverage", "no"),
    fact("cluster-allow-reads-when-down", "no"),
    found("cluster-node-timeout", |settings| {
        settings.cluster.election_ms.to_string()
    }),
    // There are no replicas of the Redis kind.
    fact("masterauth", ""),
    fact("masteruser", ""),
    fact("min-replicas-to-write", "0"),
    fact("min-slaves-to-write", "0"),
    fact("min-replicas-max-lag", "10"),
    fact("min-slaves-max-lag", "10"),
    fact("replica-read-only", "yes"),
    fact("slave-read-only", "yes"),
    fact("replica-serve-stale-data", "no"),
    fact("slave-serve-stale-data", "no"),
    fact("replica-priority", "100"),
    fact("slave-priority", "100"),
    fact("replica-announce-ip", ""),
    fact("replica-announce-port", "0"),
    fact("repl-backlog-size", "0"),
    // One thread per core does everything.
    found("io-threads", |settings| settings.num_shards.to_string()),
    fact("io-threads-do-reads", "yes"),
    fact("dynamic-hz", "no"),
    // Memory is neither moved about nor kept for clients.
    fact("activedefrag", "no"),
    fact("maxmemory-clients", "0"),
    fact("replica-ignore-maxmemory", "yes"),
    // What is not here yet has no limits either.
    fact("tracking-table-max-keys", "0"),
    fact("enable-module-command", "no"),
    fact("unixsocket", ""),
    fact("unixsocketperm", "0"),
    // Streams and HyperLogLogs come; these are the sizes Redis has.
    fact("stream-node-max-bytes", "4096"),
    fact("stream-node-max-entries", "100"),
    fact("hll-sparse-max-bytes", "3000"),
    // Standard error, by whoever starts the server.
    fact("pidfile", ""),
    fact("supervised", "no"),
    fact("syslog-enabled", "no"),
];

impl Fact {
    pub fn value(&self, settings: &Settings) -> String {
        match self.value {
            Answer::Text(text) => text.into(),
            Answer::Of(value) => value(settings),
        }
    }
}

pub fn find(name: &str) -> Option<&'static Fact> {
    ALL.iter().find(|it| it.name.eq_ignore_ascii_case(name))
}

/// The facts a pattern matches.
pub fn matching(pattern: &str) -> impl Iterator<Item = &'static Fact> {
    ALL.iter()
        .filter(move |it| glob::matches_ignoring_case(pattern.as_bytes(), it.name.as_bytes()))
}

fn yes_no(it: bool) -> String {
    if it { "yes" } else { "no" }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fact_is_a_setting_or_stands_twice() {
        for (at, fact) in ALL.iter().enumerate() {
            assert!(
                super::super::list::find(fact.name).is_none(),
                "{}",
                fact.name
            );
            let is_again = ALL[..at].iter().any(|it| it.name == fact.name);
            assert!(!is_again, "{}", fact.name);
        }
    }
}
