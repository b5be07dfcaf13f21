//! The rows of a region and their leaders against a model and a database, by seed.
//!
//! Leaders change in the middle of everything and old ones go on for a while; statements run late, twice removed or not at all; answers
//! are lost; hands edit rows in SQL; replicas restart from what they stored. Always: every outcome is the model's, replicas agree, a version in SQL never goes
//! back, an edit by hand is never overwritten, a row that leaves the cache is in SQL, one statement per row, one node that writes. In the end SQL has
//! everything. `TABLE_SEEDS=5000 cargo test -p table --test region` for longer.

mod dice;
mod model;
mod sql;
mod world;

use world::{Plant, World};

fn seeds(usual: u64) -> u64 {
    let asked = std::env::vars().find(|(name, _)| name == "TABLE_SEEDS");
    asked
        .and_then(|(_, text)| text.parse().ok())
        .unwrap_or(usual)
}

#[test]
fn whatever_happens() {
    let (mut kicks, mut deads, mut flushes, mut writes) = (0, 0, 0, 0);
    for seed in 0..seeds(150) {
        println!("seed {seed}");
        let mut world = World::new(seed, Plant::None);
        world.run(600);
        kicks += world.kicks;
        deads += world.deads;
        flushes += world.flushes;
        writes += world.writes;
    }
    println!("{writes} writes, {flushes} flushes, {kicks} kicks, {deads} dead letters");
    assert!(
        kicks > 100 && deads > 100 && flushes > 1000,
        "too little happened"
    );
}

/// A test that sees no mistake proves nothing.
#[test]
fn planted_mistakes_are_seen() {
    for plant in [
        Plant::ApplyTwice,
        Plant::NoGuard,
        Plant::FalseWritten,
        Plant::LateLoad,
        Plant::ForgetChange,
        Plant::NoLease,
    ] {
        let seen = (0..60u64)
            .find(|seed| std::panic::catch_unwind(|| World::new(*seed, plant).run(600)).is_err());
        assert!(seen.is_some(), "{plant:?} was not seen");
        println!("{plant:?}: seed {seen:?}");
    }
}
