//! A single voter and its disk: what is committed when, and what survives.

use replica::{Committed, LogError, LogStore, LogWrite, MapLog, Ready, Refused, Replica};
use replica::{Members, ReplicaConfig, ReplicaError};

fn config(applied: u64) -> ReplicaConfig {
    ReplicaConfig {
        region: 7,
        applied,
        seed: 1,
        ..ReplicaConfig::default()
    }
}

/// All readies until there is none: writes and committed entries in the order they came.
fn drain(replica: &mut Replica, log: &MapLog) -> (Vec<LogWrite>, Vec<Committed>) {
    let mut out = Ready::default();
    let (mut writes, mut committed) = (Vec::new(), Vec::new());
    while replica.has_ready() {
        replica.ready(&mut out);
        assert!(out.messages.is_empty(), "to whom?");
        writes.extend(out.write.take());
        if let Some(last) = out.committed.last() {
            let index = last.index;
            committed.append(&mut out.committed);
            replica.on_applied(index);
        }
        if let Some(fetch) = out.fetch.take() {
            replica.fetch_now(&fetch, log).unwrap();
        }
    }
    (writes, committed)
}

/// Drains, writes and syncs until nothing is left to do.
fn settle(replica: &mut Replica, log: &MapLog) -> Vec<Committed> {
    let mut all = Vec::new();
    loop {
        let (writes, mut committed) = drain(replica, log);
        all.append(&mut committed);
        let Some(last) = writes.last() else {
            return all;
        };
        log.write(&writes, true).unwrap();
        replica.on_persisted(last.number);
    }
}

fn payloads(committed: &[Committed]) -> Vec<String> {
    let texts = committed.iter().filter(|entry| !entry.payload.is_empty());
    texts
        .map(|entry| String::from_utf8_lossy(&entry.payload).into_owned())
        .collect()
}

#[test]
fn it_leads_at_once_and_serves_after_its_first_entry() {
    let log = MapLog::new();
    let mut replica = Replica::new(config(0), &log).unwrap();
    assert!(replica.is_leader());
    assert_eq!(replica.leader(), Some(1));
    assert!(!replica.may_serve(0));
    let mut out = Ready::default();
    replica.ready(&mut out);
    assert_eq!(out.became_leader, Some(1));
    let write = out.write.take().unwrap();
    assert_eq!(write.entries.len(), 1);
    assert_eq!(write.hard_state.as_ref().map(|hard| hard.term), Some(1));
    assert!(out.committed.is_empty());
    assert!(!replica.has_ready());

    log.write(std::slice::from_ref(&write), true).unwrap();
    replica.on_persisted(write.number);
    replica.ready(&mut out);
    assert!(out.write.is_none(), "a commit index alone is not written");
    assert_eq!(out.committed.len(), 1);
    assert!(out.committed[0].payload.is_empty());
    assert!(!replica.may_serve(0), "not applied yet");
    replica.on_applied(1);
    assert!(replica.may_serve(0));
    assert!(!replica.has_unapplied());
    for _ in 0..100 {
        replica.tick(0);
        assert!(
            !replica.has_ready(),
            "an idle single voter has nothing to do"
        );
    }
}

#[test]
fn proposals_commit_when_they_are_on_disk_and_not_before() {
    let log = MapLog::new();
    let mut replica = Replica::new(config(0), &log).unwrap();
    settle(&mut replica, &log);

    // Three turns, all under way to the disk at the same time.
    let mut writes = Vec::new();
    for text in ["a", "b", "c"] {
        replica.propose(text.into()).unwrap();
        let (mut more, committed) = drain(&mut replica, &log);
        assert_eq!(more.len(), 1);
        assert!(committed.is_empty());
        writes.append(&mut more);
    }
    assert_eq!(replica.writes_in_flight(), 3);
    assert_eq!(replica.last_index(), 4);
    assert_eq!(replica.committed_index(), 1);
    assert!(replica.has_unapplied());
    log.write(&writes, true).unwrap();

    replica.on_persisted(writes[1].number);
    let (more, committed) = drain(&mut replica, &log);
    assert!(more.is_empty());
    assert_eq!(
        payloads(&committed),
        ["a", "b"],
        "one report covers all before it"
    );
    replica.on_persisted(writes[1].number);
    assert!(!replica.has_ready(), "told twice");
    replica.on_persisted(writes[2].number);
    let (_, committed) = drain(&mut replica, &log);
    assert_eq!(payloads(&committed), ["c"]);
    assert_eq!(committed[0].index, 4);
    assert_eq!(
        replica.memory_bytes(),
        0,
        "applied, on disk, nobody to send it to"
    );
}

#[test]
fn proposals_of_one_turn_share_a_write() {
    let log = MapLog::new();
    let mut replica = Replica::new(config(0), &log).unwrap();
    settle(&mut replica, &log);
    for i in 0..10 {
        replica.propose(format!("{i}").into()).unwrap();
    }
    let (writes, _) = drain(&mut replica, &log);
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0].entries.len(), 10);
}

#[test]
fn a_restart_gives_again_what_was_not_applied() {
    let log = MapLog::new();
    let mut replica = Replica::new(config(0), &log).unwrap();
    settle(&mut replica, &log);
    for i in 0..20 {
        replica.propose(format!("{i}").into()).unwrap();
        settle(&mut replica, &log);
    }
    drop(replica);
    for applied in [0, 1, 7, 20, 21] {
        let copy = MapLog::new();
        let entries = log.entries(7, 1, 22, usize::MAX).unwrap();
        let hard_state = log.hard_state(7).unwrap();
        let write = LogWrite {
            replica: 1,
            region: 7,
            number: 0,
            reset: None,
            entries,
            hard_state,
        };
        copy.write(&[write], true).unwrap();
        let mut replica = Replica::new(config(applied), &copy).unwrap();
        let committed = settle(&mut replica, &copy);
        let expected: Vec<_> = (applied.saturating_sub(1)..20)
            .map(|i| i.to_string())
            .collect();
        assert_eq!(payloads(&committed), expected, "applied {applied}");
        assert_eq!(
            committed.first().map(|entry| entry.index),
            Some(applied + 1)
        );
        assert_eq!(replica.term(), 2);
        assert!(replica.may_serve(0));
    }
}

#[test]
fn what_was_committed_survives_the_loss_of_everything_unsynced() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let log = MapLog::new();
        let mut acknowledged: Vec<String> = Vec::new();
        let mut state: Vec<String> = Vec::new();
        let mut next = 0;
        for _life in 0..5 {
            // The state machine starts from nothing: the whole log is its history.
            state.clear();
            let mut replica = Replica::new(
                ReplicaConfig {
                    batch_bytes: rng.usize(1..200),
                    seed,
                    ..config(0)
                },
                &log,
            )
            .unwrap();
            let mut waiting = Vec::new();
            for _ in 0..rng.usize(1..40) {
                if rng.bool() && replica.is_leader() {
                    replica.propose(format!("{next}").into()).unwrap();
                    next += 1;
                }
                let (writes, committed) = drain(&mut replica, &log);
                state.append(&mut payloads(&committed));
                if replica.is_leader() {
                    acknowledged.clone_from(&state);
                }
                for write in writes {
                    log.write(std::slice::from_ref(&write), false).unwrap();
                    waiting.push(write.number);
                }
                if rng.u8(..3) == 0
                    && let Some(&number) = waiting.last()
                {
                    log.sync().unwrap();
                    waiting.clear();
                    replica.on_persisted(number);
                }
            }
            log.crash_keeping(rng.usize(..=waiting.len()));
        }
        let mut replica = Replica::new(config(0), &log).unwrap();
        let state = payloads(&settle(&mut replica, &log));
        assert_eq!(state[..acknowledged.len()], acknowledged[..], "seed {seed}");
    }
}

#[test]
fn a_long_log_is_replayed_in_bounded_memory() {
    let log = MapLog::new();
    let mut replica = Replica::new(config(0), &log).unwrap();
    settle(&mut replica, &log);
    let payload = vec![b'x'; 1000];
    for _ in 0..2000 {
        replica.propose(payload.clone()).unwrap();
    }
    settle(&mut replica, &log);
    drop(replica);

    let small = ReplicaConfig {
        batch_bytes: 10_000,
        ..config(0)
    };
    let mut replica = Replica::new(small, &log).unwrap();
    let mut out = Ready::default();
    let (mut expected, mut most) = (1, 0);
    loop {
        replica.ready(&mut out);
        most = most.max(replica.memory_bytes());
        if let Some(write) = out.write.take() {
            log.write(std::slice::from_ref(&write), true).unwrap();
            replica.on_persisted(write.number);
        }
        for entry in out.committed.drain(..) {
            assert_eq!(entry.index, expected);
            expected += 1;
        }
        replica.on_applied(expected - 1);
        if let Some(fetch) = out.fetch.take() {
            replica.fetch_now(&fetch, &log).unwrap();
        }
        if !replica.has_ready() {
            break;
        }
    }
    assert_eq!(expected, 2003);
    assert!(most < 30_000, "{most} bytes held");
    assert!(replica.may_serve(0));
}

#[test]
fn the_log_is_truncated_behind_what_is_applied() {
    let log = MapLog::new();
    let mut replica = Replica::new(config(0), &log).unwrap();
    settle(&mut replica, &log);
    for i in 0..50 {
        replica.propose(format!("{i}").into()).unwrap();
    }
    settle(&mut replica, &log);
    assert_eq!(replica.truncate_to(30), 30);
    log.truncate(7, 30).unwrap();
    assert_eq!(replica.truncate_to(10), 30, "never backwards");
    assert_eq!(replica.truncate_to(1000), 51, "never past what is applied");
    log.truncate(7, 51).unwrap();
    replica.propose(b"more".to_vec()).unwrap();
    assert_eq!(payloads(&settle(&mut replica, &log)), ["more"]);
    drop(replica);
    assert_eq!(log.span(7), Some((51, 52)));
    let mut replica = Replica::new(config(51), &log).unwrap();
    assert_eq!(payloads(&settle(&mut replica, &log)), ["more"]);
    drop(replica);
    // Somebody truncated one further than told.
    log.truncate(7, 52).unwrap();
    let mut replica = Replica::new(config(51), &log).unwrap();
    assert_eq!(payloads(&settle(&mut replica, &log)), ["more"]);
    drop(replica);
    let error = Replica::new(config(49), &log).err().unwrap();
    assert!(matches!(error, ReplicaError::Inconsistent(_)), "{error}");
}

#[test]
fn data_that_is_ahead_of_an_unsynced_log_is_gone_on_with() {
    let log = MapLog::new();
    let mut replica = Replica::new(config(0), &log).unwrap();
    settle(&mut replica, &log);
    drop(replica);
    let mut replica = Replica::new(config(100), &log).unwrap();
    assert!(replica.is_leader());
    replica.propose(b"next".to_vec()).unwrap();
    let committed = settle(&mut replica, &log);
    assert_eq!(payloads(&committed), ["next"]);
    assert_eq!(committed[1].index, 102);
    let three = ReplicaConfig {
        members: Members::of_voters([1, 2, 3]),
        ..config(1000)
    };
    let error = Replica::new(three, &log).err().unwrap();
    assert!(matches!(error, ReplicaError::Inconsistent(_)), "{error}");
}

#[test]
fn limits_refuse_before_anything_happened() {
    let log = MapLog::new();
    let limits = ReplicaConfig {
        max_entry_bytes: 3 << 20,
        max_uncommitted_bytes: 1 << 20,
        ..config(0)
    };
    let mut replica = Replica::new(limits, &log).unwrap();
    settle(&mut replica, &log);
    assert_eq!(
        replica.propose(vec![1; (3 << 20) + 1]),
        Err(Refused::TooLarge)
    );
    // One may be larger than what may wait, the next has to.
    replica.propose(vec![1; 2 << 20]).unwrap();
    assert_eq!(replica.propose(vec![1; 10]), Err(Refused::Busy));
    assert_eq!(settle(&mut replica, &log).len(), 1);
    replica.propose(vec![1; 10]).unwrap();
}

#[test]
fn a_broken_log_is_an_error_not_a_start() {
    let log = MapLog::new();
    log.break_with(LogError::Failed("no disk".into()));
    let error = Replica::new(config(0), &log).err().unwrap();
    assert_eq!(error.to_string(), "log failed: no disk");
    let nobody = ReplicaConfig {
        members: Members::of_voters([2, 2]),
        ..config(0)
    };
    assert!(matches!(
        Replica::new(nobody, &MapLog::new()),
        Err(ReplicaError::Config(_))
    ));
}

/// It leads without having asked anybody, in a term that is on no disk yet. If it died now it would lead in the same
/// term again, with other entries at the same places, and a learner that had heard of the first would keep them.
#[test]
fn a_learner_hears_nothing_of_a_term_that_is_not_on_disk() {
    let with_learner = ReplicaConfig {
        members: Members {
            learners: vec![2],
            ..Members::of_voters([1])
        },
        snapshot: replica::FOUNDED,
        ..config(1)
    };
    let log = MapLog::new();
    let mut out = Ready::default();
    let (mut terms, mut writes) = (Vec::new(), Vec::new());
    // The first dies before anything is on disk.
    for text in ["lost", "kept"] {
        let mut replica = Replica::new(with_learner.clone(), &log).unwrap();
        replica.propose(text.into()).unwrap();
        writes.clear();
        while replica.has_ready() {
            replica.ready(&mut out);
            assert_eq!(out.messages, [], "{text}: its term is not on disk");
            writes.extend(out.write.take());
        }
        terms.push(replica.term());
        if text == "kept" {
            log.write(&writes, true).unwrap();
            replica.on_persisted(writes.last().unwrap().number);
            replica.ready(&mut out);
            assert!(out.messages.iter().any(|message| message.to == 2));
        }
    }
    assert_eq!(terms[0], terms[1]);
}
