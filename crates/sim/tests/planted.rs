//! Checkers that find nothing prove nothing: each planted bug must be caught, within a bounded
//! number of seeds, by the checker that is there for it.

use sim::{Bug, Kind, Plan, explain, run};

/// The first seed that catches the bug, and the checker that did; the same plans without it are fine.
fn caught(bug: Bug, seeds: u64, plan: impl Fn(u64) -> Plan, by: &[&str]) {
    for seed in 0..seeds {
        let outcome = run(&plan(seed).with_bug(bug));
        let Some(broken) = &outcome.broken else {
            continue;
        };
        let text = explain(&outcome);
        assert!(by.contains(&broken.checker), "{bug:?}: {text}");
        assert!(text.contains(&format!("make sim SEED={seed}")), "{text}");
        let honest = run(&plan(seed));
        assert!(honest.broken.is_none(), "{}", explain(&honest));
        println!("{bug:?}: seed {seed}, {}", broken.checker);
        return;
    }
    panic!("{bug:?} was not caught in {seeds} seeds");
}

#[test]
fn a_disk_that_does_not_sync() {
    let plan = |seed| Plan::new(seed).with_faults(&[Kind::PowerCut, Kind::Crash], 1_000_000);
    // Acknowledged writes vanish, logs contradict each other, or a member says it has what it lost.
    caught(
        Bug::SkipFsync,
        40,
        plan,
        &["linear", "kept", "agree", "terms", "node", "panic"],
    );
}

#[test]
fn reads_without_a_lease() {
    let plan = |seed| {
        Plan::new(seed).with_faults(&[Kind::Partition, Kind::Pause, Kind::OneWay], 1_000_000)
    };
    caught(Bug::ServeWithoutLease, 60, plan, &["linear"]);
}

#[test]
fn entries_applied_twice() {
    let plan = |seed| Plan::new(seed).with_faults(&[Kind::Crash, Kind::Restart], 1_000_000);
    caught(Bug::ApplyTwice, 20, plan, &["agree", "kept", "linear"]);
}

#[test]
fn a_vote_forgotten() {
    caught(
        Bug::ForgetVote,
        400,
        Plan::of_elections,
        &["terms", "agree", "linear", "kept"],
    );
}

/// Caught once (seed 22, by `serving`) before the last change of `replica`, not in a few hundred seeds
/// since: the schedule has to bring about the case more often before this can be relied on.
#[test]
#[ignore = "not caught reliably yet"]
fn a_vote_right_after_a_start() {
    // One does not hear the leader, another that does starts anew: together they are a majority.
    let plan = |seed| {
        let faults = [Kind::Link, Kind::RestartFollower, Kind::RestartFollower];
        // Rarely enough that the one that is cut off comes to ask for votes.
        let mut plan = Plan::new(seed).with_faults(&faults, 1_000_000);
        (plan.nodes, plan.replicas) = (3, 3);
        plan.weather.delay_us = 1000;
        plan.limits.quiet_ticks = 0;
        // Whoever hears the leader again is bound again: little is to be said.
        (plan.regions, plan.think_us) = (1, 500_000);
        plan
    };
    caught(Bug::VoteAtOnce, 400, plan, &["serving", "linear"]);
}

#[test]
fn a_lease_in_ticks() {
    let plan = |seed| Plan::new(seed).with_faults(&[Kind::Pause], 1_000_000);
    caught(Bug::LeaseByTicks, 60, plan, &["serving", "linear"]);
}
