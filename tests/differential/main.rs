//! Random commands, everywhere at once: every reply must be the same, errors included, and so must the data.
//!
//! - `pure.rs`: the pure command table against a real `redis-server`.
//! - `race.rs`: servers side by side, [`field`]: redis-server, neokv in memory, neokv on rows, and neokv on rows that
//!   keeps nothing in memory. Several clients, pipelines, transactions; the durable servers are killed now and then.
//!
//! What is sent is made by a grammar ([`grammar`], [`words`]) and a seed, so a seed is a test. `NEOKV_SEED` chooses it,
//! `NEOKV_ROUNDS` the number of scripts (`make differential` for more). A script that fails is made shorter
//! ([`shrink`]) and printed; what was found once is in [`found`].

mod alike;
mod field;
mod found;
mod grammar;
#[allow(dead_code)] // shared with other tests, which use the rest
#[path = "../process/mod.rs"]
mod process;
mod pure;
mod race;
mod script;
mod shrink;
mod state;
#[allow(dead_code)]
#[path = "../transcript/mod.rs"]
mod transcript;
mod words;

fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}
