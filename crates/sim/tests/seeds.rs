//! A fixed set of seeds, as `make test` runs them: nothing may break, and the same seed must do the
//! same thing twice.

use sim::{Plan, explain, run};

/// Cut into several tests, so that they run beside each other.
fn range(seeds: std::ops::Range<u64>) {
    let (mut done, mut elections, mut installs) = (0, 0, 0);
    let count = (seeds.end - seeds.start) as usize;
    for seed in seeds {
        let outcome = run(&Plan::new(seed));
        assert!(outcome.broken.is_none(), "{}", explain(&outcome));
        done += outcome.done;
        elections += outcome.elections;
        installs += outcome.installs;
    }
    // A simulation in which nothing happens finds nothing.
    assert!(done > 100 * count, "{done} calls done");
    assert!(elections > 2 * count, "{elections} elections");
    assert!(installs > count / 8, "{installs} snapshots installed");
}

#[test]
fn nothing_breaks_1() {
    range(1000..1040);
}

#[test]
fn nothing_breaks_2() {
    range(2000..2040);
}

/// The meta service places the regions, machines are lost for good, wiped and new, and its own leader
/// dies in between: in the end every region is whole again.
#[test]
fn meta_mends_what_is_lost() {
    let (mut losses, mut made, mut on_new, mut installs) = (0, 0, 0, 0);
    let seeds = 3000..3014;
    let count = seeds.clone().count();
    for seed in seeds {
        let outcome = run(&Plan::of_meta(seed));
        assert!(outcome.broken.is_none(), "{}", explain(&outcome));
        losses += outcome.losses;
        made += outcome.made;
        on_new += outcome.made_on_new;
        installs += outcome.installs;
    }
    assert!(losses > count / 2, "{losses} machines lost their disks");
    assert!(made > 6 * count, "{made} replicas made");
    assert!(
        on_new > count,
        "{on_new} replicas made on machines that joined"
    );
    assert!(installs > 3 * count, "{installs} snapshots installed");
}

/// Rows of tables: leaders change, the database is down, blocked, slow, loses what it is told; in the end
/// it has everything.
fn tables(seeds: std::ops::Range<u64>) {
    let (mut calls, mut loads, mut flushes, mut evicted, mut elections) = (0, 0, 0, 0, 0);
    let count = (seeds.end - seeds.start) as usize;
    for seed in seeds {
        let outcome = run(&Plan::of_tables(seed));
        assert!(outcome.broken.is_none(), "{}", explain(&outcome));
        calls += outcome.row_calls;
        loads += outcome.loads as usize;
        flushes += outcome.flushes as usize;
        evicted += outcome.evicted as usize;
        elections += outcome.elections;
    }
    assert!(calls > 100 * count, "{calls} calls done");
    assert!(loads > 10 * count, "{loads} loads");
    assert!(flushes > 10 * count, "{flushes} flushes");
    assert!(evicted > 10 * count, "{evicted} rows left a cache");
    assert!(elections > 2 * count, "{elections} elections");
}

#[test]
fn rows_are_kept_1() {
    tables(4000..4015);
}

#[test]
fn rows_are_kept_2() {
    tables(5000..5015);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in [1, 77, 4711, 1 << 40] {
        for plan in [Plan::new(seed), Plan::of_meta(seed), Plan::of_tables(seed)] {
            let (one, two) = (run(&plan), run(&plan));
            assert_eq!(one.trace_hash, two.trace_hash, "seed {seed}");
            assert_eq!(one.events, two.events);
            hashes.insert(one.trace_hash);
        }
    }
    assert_eq!(hashes.len(), 12);
}

/// A disk hangs, fails under a process that stays, or is slow: every region is written on by the others, within a bound.
#[test]
fn a_broken_disk_stops_no_region() {
    for seed in 6000..6020 {
        let outcome = run(&Plan::of_disks(seed));
        assert!(outcome.broken.is_none(), "{}", explain(&outcome));
    }
}
