//! Faults with real processes: what a client was told is kept, whatever happens to the server.
//!
//! Several connections write known histories (`client.rs`) and remember which replies they got. The server dies in the
//! middle of it, is started again on the same data, and every key is compared with what it may be (`verify.rs`): all
//! acknowledged writes, then those without a reply up to some point in their order, nothing twice, and of a command over
//! several keys all or nothing.
//!
//! Two ways to die: `kill.rs` (kill -9: the page cache survives) and `power_cut.rs` (a preloaded library takes back what
//! was not fsynced, tears writes, fails an fsync, fills the disk). Disks that are really full: `full.rs`. And what is
//! refused at the start: `damage.rs`.
//!
//! The number of deaths is `NEOKV_KILLS` (5 unless told; `make crash` has more), the random seed `NEOKV_SEED`; a failure
//! prints the seed it had. `NEOKV_CRASH_SERVER=redis` puts `redis-server --appendonly yes` in neokv's place, which
//! tries the tests themselves.

mod client;
mod damage;
#[path = "../dice/mod.rs"]
mod dice;
mod full;
mod kill;
mod model;
mod node;
mod power_cut;
mod queue;
mod round;
mod verify;
#[path = "../transcript/wire.rs"]
mod wire;

pub use dice::Dice;

/// How often the server dies in each test.
pub fn deaths() -> u64 {
    std::env::var("NEOKV_KILLS").map_or(5, |text| text.parse().expect("NEOKV_KILLS: a number"))
}

/// `NEOKV_SEED`, or another each time.
pub fn seed() -> u64 {
    match std::env::var("NEOKV_SEED") {
        Ok(text) => text.parse().expect("NEOKV_SEED: a number"),
        Err(_) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |since| since.as_micros() as u64 % 1_000_000_007)
        }
    }
}
