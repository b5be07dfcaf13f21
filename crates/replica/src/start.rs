//! A replica from what its log store holds.
//!
//! Little is read, however long the log: the terms by bisection (they never fall along a log),
//! and the first batch behind the applied index; the rest is fetched while it is applied.
//!
//! The first entry a truncated log still holds serves raft-rs as its `base`, the entry whose term
//! it must know though it never reads it: truncation leaves the last applied entry in place
//! (see `truncate`), so nothing is lost by it. A log that was never truncated begins behind what
//! the replica began with, whose term the state machine keeps ([`ReplicaConfig::snapshot`]).

use std::collections::{BTreeMap, VecDeque};

use raft::{Config, RaftState, RawNode};

use crate::config::{FOUNDED, Position, ReplicaConfig, ReplicaError};
use crate::election::Timeouts;
use crate::lease::Lease;
use crate::log::{LogError, LogStore, LogWrite};
use crate::promise::Promise;
use crate::quiet::Quiet;
use crate::read::Reads;
use crate::recent::{Recent, Run};
use crate::replica::Replica;
use crate::snapshot::Snapshots;
use crate::terms::Terms;

impl Replica {
    /// Reads the log (blocking, at start only). A replica that is the only voter is leader when
    /// this returns, unless entries known to be committed must be fetched and applied first.
    pub fn new(mut config: ReplicaConfig, log: &dyn LogStore) -> Result<Replica, ReplicaError> {
        config.check()?;
        if config.snapshot == FOUNDED {
            // The empty state is the state at the founding.
            config.applied = config.applied.max(FOUNDED.index);
        }
        let raft_config = Config {
            id: config.replica,
            election_tick: config.election_ticks,
            heartbeat_tick: config.heartbeat_ticks,
            applied: config.applied,
            max_size_per_msg: config.message_bytes as u64,
            max_inflight_msgs: config.max_inflight_messages,
            check_quorum: true,
            pre_vote: true,
            // raft-rs can put the entries of several proposals into one message, but adds them to an
            // empty one without looking where it points (0.7, `is_continuous_ents`): after a
            // rejection in the same turn that is a message with a hole, which panics its receiver.
            batch_append: false,
            // Followers hear of the commit with the next entries or the next heartbeat, and before the
            // answer to a question of theirs (`read`): half of the messages of a busy region.
            skip_bcast_commit: true,
            max_uncommitted_size: config.max_uncommitted_bytes.max(1 << 20) as u64,
            max_committed_size_per_ready: config.batch_bytes as u64,
            ..Config::default()
        };
        // Who never had a term has promised nothing.
        let is_bound = log.hard_state(config.region)?.is_some()
            && !config.members.is_only_voter(config.replica);
        let mut promise = Promise::default();
        if is_bound {
            promise.silent_until_ms = config.now_ms + config.promise_ms();
        }
        let recent = read(&config, log)?;
        let hard = &recent.initial.hard_state;
        let written_vote = (hard.term, hard.vote);
        // The features of slog compile raft-rs' logging to nothing.
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&raft_config, recent, &logger)
            .map_err(|error| ReplicaError::Config(error.to_string()))?;
        let mut lease = Lease::default();
        lease.clear();
        // Questions to a leader of before this start must not be taken for one of now.
        let first_number = fastrand::Rng::with_seed(config.seed ^ config.now_ms).u64(..) >> 8;
        let mut replica = Replica {
            timeouts: Timeouts::new(&config),
            handed_out: config.applied,
            members: config.members.clone(),
            now_ms: config.now_ms,
            node,
            in_flight: VecDeque::new(),
            released: Vec::new(),
            unwritten_state: None,
            fetching: None,
            told: (None, raft::INVALID_ID),
            written_vote,
            serving_term: None,
            persisted_term: written_vote.0,
            led: None,
            was_transferring: false,
            refuses_leadership: false,
            leaving: None,
            promise,
            lease,
            reads: Reads::from(first_number),
            snapshots: Snapshots::default(),
            quiet: Quiet::default(),
            leaderless_ticks: 0,
            versions: BTreeMap::new(),
            config,
        };
        replica.seed_timeout();
        replica.campaign_if_only_voter();
        Ok(replica)
    }
}

fn read(config: &ReplicaConfig, log: &dyn LogStore) -> Result<Recent, ReplicaError> {
    let region = config.region;
    let applied = config.applied;
    let snapshot = config.snapshot;
    let only_voter = config.members.is_only_voter(config.replica);
    if applied < snapshot.index {
        return Err(inconsistent(format!(
            "applied up to {applied}, but it began at {}",
            snapshot.index
        )));
    }
    let mut hard = log.hard_state(region)?.unwrap_or_default();
    if hard.term < snapshot.term {
        // Voted before the term the snapshot is of.
        (hard.term, hard.vote) = (snapshot.term, raft::INVALID_ID);
    }
    let mut span = log.span(region);
    if !begins_with(snapshot, span, log, region)? && applied == snapshot.index {
        // The state was installed and the log not yet forgotten when this replica died.
        hard.commit = applied;
        let reset = LogWrite {
            region,
            reset: Some(applied),
            hard_state: Some(hard.clone()),
            ..LogWrite::default()
        };
        log.write(&[reset], true)?;
        span = None;
    }

    if applied > span.map_or(snapshot.index, |(_, last)| last) {
        // Without a sync on every write the data may get to disk before the log that made it. A
        // majority would notice a member that forgot what it said; a single voter may go on, with
        // a log that begins behind what it has.
        if !only_voter {
            return Err(inconsistent(format!(
                "applied up to {applied}, log ends at {}",
                span.map_or(snapshot.index, |(_, last)| last)
            )));
        }
        if let Some((_, last)) = span {
            hard.term = hard.term.max(term_in(log, region, last)?);
        }
        log.truncate(region, applied + 1)?;
        span = None;
        hard.commit = applied;
        hard.term = hard.term.max(1);
    }

    let (base, last, terms) = match span {
        None if applied == snapshot.index => {
            (applied, applied, Terms::behind(applied, snapshot.term))
        }
        None => (applied, applied, Terms::behind(applied, hard.term)),
        Some((first, last)) if first == snapshot.index + 1 => {
            let mut terms = Terms::behind(snapshot.index, snapshot.term);
            read_terms(log, region, first, last, &mut terms)?;
            (snapshot.index, last, terms)
        }
        Some((first, last)) if first <= applied => {
            let mut terms = Terms::behind(first, term_in(log, region, first)?);
            read_terms(log, region, first, last, &mut terms)?;
            (first, last, terms)
        }
        // Truncated right behind what is applied: the term before is not known, and nobody
        // compares it with theirs.
        Some((first, last)) if first == applied + 1 && only_voter => {
            let mut terms = Terms::behind(applied, term_in(log, region, first)?);
            read_terms(log, region, first, last, &mut terms)?;
            (applied, last, terms)
        }
        Some((first, _)) => {
            return Err(inconsistent(format!(
                "applied up to {applied}, but the log begins at {first}"
            )));
        }
    };

    if hard.commit > last {
        return Err(inconsistent(format!(
            "committed up to {}, but the log ends at {last}",
            hard.commit
        )));
    }
    if hard.term < terms.at(last) {
        return Err(inconsistent(format!(
            "an entry of term {} was written in term {}",
            terms.at(last),
            hard.term
        )));
    }
    // The commit index is not written for its own sake (see `ready`): what is applied is newer.
    hard.commit = hard.commit.max(applied).max(base);

    let mut recent = Recent {
        initial: RaftState::new(hard, config.members.to_raft()),
        base,
        last,
        terms,
        sizes: Default::default(),
        fetched: Run::default(),
        tail: Run::new(last + 1, Vec::new()),
        wants: Default::default(),
        offers: BTreeMap::new(),
    };
    if applied < last {
        let entries = log.entries(region, applied + 1, last + 1, config.batch_bytes)?;
        recent.check(applied + 1, &entries)?;
        let run = Run::new(applied + 1, entries);
        if run.end() > last {
            recent.tail = run;
        } else {
            recent.fetched = run;
        }
    }
    Ok(recent)
}

/// Whether the log goes on from this snapshot: begins behind it, or has its entry.
fn begins_with(
    snapshot: Position,
    span: Option<(u64, u64)>,
    log: &dyn LogStore,
    region: u64,
) -> Result<bool, ReplicaError> {
    match span {
        None => Ok(true),
        Some((first, _)) if first > snapshot.index => Ok(true),
        Some((_, last)) if last < snapshot.index => Ok(false),
        Some(_) => Ok(term_in(log, region, snapshot.index)? == snapshot.term),
    }
}

fn term_in(log: &dyn LogStore, region: u64, index: u64) -> Result<u64, ReplicaError> {
    let entries = log.entries(region, index, index + 1, 0)?;
    match entries.first() {
        Some(entry) if entry.index == index => Ok(entry.term),
        _ => Err(LogError::Corrupt(format!("region {region}: entry {index} is missing")).into()),
    }
}

/// Terms of `first..=last`: each step finds where the next term begins.
fn read_terms(
    log: &dyn LogStore,
    region: u64,
    first: u64,
    last: u64,
    terms: &mut Terms,
) -> Result<(), ReplicaError> {
    let newest = term_in(log, region, last)?;
    let mut index = first;
    loop {
        let term = term_in(log, region, index)?;
        terms.set_from(index, term);
        if term >= newest {
            return Ok(());
        }
        // `low` is in this term, `high` in a later one.
        let (mut low, mut high) = (index, last);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if term_in(log, region, middle)? > term {
                high = middle;
            } else {
                low = middle;
            }
        }
        index = high;
    }
}

fn inconsistent(text: String) -> ReplicaError {
    ReplicaError::Inconsistent(text)
}

impl Recent {
    /// Entries read back must be the ones that were written: `first`, consecutive, right terms.
    pub(crate) fn check(
        &self,
        first: u64,
        entries: &[raft::eraftpb::Entry],
    ) -> Result<(), ReplicaError> {
        for (index, entry) in (first..).zip(entries) {
            if entry.index != index {
                let text = format!("entry {} where {index} belongs", entry.index);
                return Err(LogError::Corrupt(text).into());
            }
            if entry.term != self.terms.at(index) {
                let text = format!("entry {index} is of term {}", entry.term);
                return Err(LogError::Corrupt(text).into());
            }
        }
        if entries.is_empty() {
            return Err(LogError::Corrupt(format!("entry {first} is missing")).into());
        }
        Ok(())
    }
}
