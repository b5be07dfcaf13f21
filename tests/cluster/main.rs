//! Faults with a cluster of real processes: nothing acknowledged is lost, nothing stale is read, and it heals by itself.
//!
//! ```text
//!   traffic.rs: sessions ─► calls ─► nodes.rs: processes ─┬─ kill -9, SIGSTOP, wiped, started again
//!        │                                                └─ network.rs: namespaces, cut in one or both directions
//!        └─► history ─► verify.rs: is there one order that explains every answer (sim::check, the simulation's own
//!                       checkers)? Are all replicas equal (`neokv ctl digest`)?
//! ```
//!
//! One file per kind of fault: `kill.rs`, `partition.rs`, `failover.rs` (how long it takes), `rebuild.rs` (nodes that
//! come late, empty, or not again), `refused.rs` (what must not be let in), `full_disk.rs`, `failed_disk.rs`, `skew.rs` (clocks), `slow.rs` (a slow line), `tls.rs`; and `tables.rs` (who knows which tables there are). `make
//! test` runs all of them in short form. `storm.rs` puts the faults together at random, `stock/` does it with stock
//! clients instead of our own, `rows/` on rows of tables over a database that fails, too: `make chaos SECONDS=600 SEED=7`.
//!
//! Data and logs of a test that fails are kept, and it says where.

mod client;
#[path = "../dice/mod.rs"]
mod dice;
mod failed_disk;
mod failover;
#[path = "../faulty_disk/mod.rs"]
mod faulty_disk;
mod full_disk;
#[path = "../clients/installed.rs"]
mod installed;
mod kill;
mod lost_log;
mod network;
mod nodes;
mod partition;
mod rebuild;
mod recover;
mod refused;
mod replace;
mod rows;
mod skew;
mod slow;
mod stock;
mod storm;
mod tables;
mod tls;
mod traffic;
mod verify;
#[path = "../transcript/wire.rs"]
mod wire;

pub use dice::Dice;

/// A number from the environment.
pub fn given(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}: a number, not {text}")),
    )
}

/// `NEOKV_SEED`, or another each time; printed, so that a failure can be had again.
pub fn seed() -> u64 {
    let seed = given("NEOKV_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |since| since.as_micros() as u64 % 1_000_000_007)
    });
    eprintln!("seed {seed}");
    seed
}
