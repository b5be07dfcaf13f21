//! Faults with a cluster of real processes: nothing acknowledged is lost, nothing stale is read, and it heals by itself.
//!
//! ```text
//!   traffic.rs: sessions ─► calls ─► nodes.rs: processes ─┬─ kill -9, SIGSTOP, wiped, started again
//!        │                                                └─ network.rs: namespaces, cut in one or both directions
//!        └─► history ─► sim::check: is there one order that explains every answer? (the simulation's own checkers)
//! ```
//!
//! One file per kind of fault: `kill.rs`, `partition.rs`, `failover.rs` (how long it takes), `rebuild.rs` (nodes that
//! come late, empty, or not again), `refused.rs` (what must not be let in), `full_disk.rs`, `skew.rs` (clocks). `make
//! test` runs all of them in short form. `storm.rs` puts the faults together at random: `make chaos SECONDS=600 SEED=7`.
//!
//! Data and logs of a test that fails are kept, and it says where.

mod client;
mod failover;
mod full_disk;
mod kill;
mod network;
mod nodes;
mod partition;
mod rebuild;
mod refused;
mod skew;
mod storm;
mod traffic;
#[path = "../transcript/wire.rs"]
mod wire;

/// Numbers that look random, the same for the same seed.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        let mut dice = Dice(seed ^ 0x9e37_79b9_7f4a_7c15);
        dice.roll(2);
        dice.roll(2);
        dice
    }

    /// From 0 to `sides - 1`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u64) as usize]
    }
}

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
