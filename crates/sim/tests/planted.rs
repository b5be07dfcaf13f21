//! Checkers that find nothing prove nothing: each planted bug must be caught, within a bounded
//! number of seeds, by the checker that is there for it.

use sim::{Bug, Kind, Plan, Script, explain, run};

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
    // Or the node sees itself that its log does not fit.
    caught(
        Bug::ApplyTwice,
        20,
        plan,
        &["agree", "kept", "linear", "node"],
    );
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

/// Chance brings this about too rarely: it takes somebody who strikes when the vote is asked for.
#[test]
fn a_vote_right_after_a_start() {
    let plan = |seed| Plan::of_script(seed, Script::ForgottenPromise);
    caught(Bug::VoteAtOnce, 10, plan, &["serving", "linear"]);
}

/// The same adversary comes to nothing if nothing is planted.
#[test]
fn a_promise_forgotten_is_kept_by_silence() {
    for seed in 0..8 {
        let outcome = run(&Plan::of_script(seed, Script::ForgottenPromise));
        assert!(outcome.broken.is_none(), "{}", explain(&outcome));
        assert!(
            outcome.elections > 1,
            "seed {seed}: nobody was elected anew"
        );
    }
}

#[test]
fn a_lease_in_ticks() {
    let plan = |seed| Plan::new(seed).with_faults(&[Kind::Pause], 1_000_000);
    caught(Bug::LeaseByTicks, 60, plan, &["serving", "linear"]);
}

#[test]
fn members_forgotten_by_a_start() {
    // Two descriptors of one epoch, or nobody knows who votes.
    let by = [
        "descriptors",
        "agree",
        "node",
        "serving",
        "progress",
        "placed",
    ];
    caught(Bug::ForgetReplicaRecord, 10, Plan::of_meta, &by);
}

#[test]
fn replicas_that_are_never_cleaned_up() {
    caught(Bug::NeverDestroy, 10, Plan::of_meta, &["placed"]);
}

#[test]
fn a_flush_without_a_guard() {
    caught(Bug::FlushUnguarded, 40, Plan::of_tables, &["written"]);
}

#[test]
fn a_dirty_row_evicted() {
    caught(Bug::KickDirty, 10, Plan::of_tables, &["written"]);
}

#[test]
fn a_reply_before_its_entry_is_on_disk() {
    let plan = |seed| Plan::new(seed).with_faults(&[Kind::PowerCut, Kind::Crash], 1_000_000);
    let by = ["linear", "kept", "agree", "terms", "node", "panic"];
    caught(Bug::ReplyEarly, 60, plan, &by);
}

#[test]
fn replies_of_two_clients_exchanged() {
    let by = ["linear", "replies", "rows"];
    caught(Bug::SwapReplies, 20, Plan::new, &by);
}

#[test]
fn a_doubtful_write_called_undone() {
    // A leader that hears nobody: its entries reach the others, and it never learns that they did.
    let plan = |seed| {
        let mut plan = Plan::new(seed).with_faults(&[Kind::OneWay], 2_000_000);
        (plan.think_us, plan.sessions) = (5_000, 7);
        plan
    };
    caught(Bug::DoubtIsNo, 200, plan, &["linear", "kept", "pools"]);
}

#[test]
fn a_retry_done_twice() {
    caught(Bug::ForgetRequests, 40, Plan::of_tables, &["rows"]);
}

/// A client is told that its transaction was not kept, and asks for it again.
#[test]
fn an_effect_applied_twice() {
    caught(
        Bug::EffectTwice,
        40,
        Plan::new,
        &["linear", "kept", "pools"],
    );
}

/// Another leader's entry took the place of an effect batch, and its client is told that it is done.
#[test]
fn a_batch_that_lost_its_place() {
    let faults = [Kind::Pause, Kind::Partition, Kind::OneWay, Kind::Restart];
    let plan = |seed| Plan::new(seed).with_faults(&faults, 300_000);
    caught(Bug::LosePlace, 200, plan, &["linear", "kept", "pools"]);
}

#[test]
fn a_blocked_client_served_twice() {
    caught(Bug::ServeTwice, 40, Plan::new, &["pools"]);
}

/// Two descriptors of one epoch, or a member that does not know who votes.
#[test]
fn a_region_returned_with_a_stale_epoch() {
    let faults = [Kind::Members, Kind::Members, Kind::Restart];
    let plan = |seed| Plan::new(seed).with_faults(&faults, 300_000);
    let by = [
        "descriptors",
        "agree",
        "node",
        "serving",
        "progress",
        "panic",
    ];
    caught(Bug::StaleEpoch, 40, plan, &by);
}

/// A crash between the records of one commit leaves half of it.
#[test]
fn a_commit_in_several_records() {
    caught(
        Bug::TornCommit,
        500,
        Plan::of_one_node,
        &["linear", "kept", "pools"],
    );
}
