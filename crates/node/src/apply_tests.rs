//! Entries on a region whose store is busy.

use std::sync::Arc;

use base::Refusal;
use keyspace::rows::{Changes, Family, MapStore, RowStore};
use keyspace::{Expire, Keyspace, Tuning, Txn, View};
use replica::entry::rows_payload;
use replica::{MapLog, Members, Ready, Replica, ReplicaConfig};

use super::*;
use crate::member::EffectsOf;
use crate::{Batch, Catalogue, Host, LogJob, Map, Member, Progress, Requester, Seeds, Specs};

const HOME: u64 = 1;

struct Healthy;

impl Host for Healthy {
    fn fail(&self, reason: &str) {
        panic!("{reason}");
    }

    fn failure(&self) -> Option<Refusal> {
        None
    }
}

/// A core of a node alone with one region; its log is on disk as soon as it is written.
struct OneRegion {
    store: Arc<MapStore>,
    owned: OwnedRegions,
    specs: Specs,
    map: Map,
    tuning: Tuning,
    seeds: Seeds,
    catalogue: Catalogue,
}

impl OneRegion {
    fn new() -> OneRegion {
        let store = Arc::new(MapStore::new());
        let map = Map::of_regions(1, 1);
        let region = OneRegion::region(&store, 1);
        let commands = command::family::ALL.iter().copied().flatten().copied();
        let mut one = OneRegion {
            store,
            owned: OwnedRegions::of(&map, 0, vec![region]),
            specs: Specs::new(commands),
            map,
            tuning: Tuning::default(),
            seeds: Seeds::new(7),
            catalogue: Catalogue::default(),
        };
        // It begins to lead.
        one.on(|owned, cx, out| owned.drive(0, cx, out));
        one
    }

    /// A replica with an empty log.
    fn region(store: &Arc<MapStore>, replica: u64) -> crate::RegionBox {
        let rows: Arc<dyn RowStore> = store.clone();
        let space = Keyspace::durable(1, HOME, None, rows.clone()).unwrap();
        let config = ReplicaConfig {
            region: HOME,
            replica,
            members: Members::of_voters([replica]),
            ..ReplicaConfig::default()
        };
        let replica = Replica::new(config, &MapLog::new()).unwrap();
        let member = Member::new(replica, 0, rows, Arc::new(Progress::new(1)));
        Box::new(Region::durable(0, space, Box::new(member)))
    }

    /// Lets something happen, and all that follows from it until something is to be written.
    fn until_written(
        &mut self,
        handle: impl FnOnce(&mut OwnedRegions, &Context<'_>, &mut Effects),
    ) -> Vec<crate::Logged> {
        let rows: Arc<dyn RowStore> = self.store.clone();
        let cx = Context {
            specs: &self.specs,
            map: &self.map,
            tuning: &self.tuning,
            now_ms: 1,
            clock_ms: 0,
            seeds: &self.seeds,
            rows: Some(&rows),
            is_cluster: false,
            most_change_bytes: usize::MAX,
            catalogue: &self.catalogue,
            host: &Healthy,
        };
        let mut out = Effects::default();
        handle(&mut self.owned, &cx, &mut out);
        self.owned.propose_queued(&cx, &mut out);
        self.owned.drive_logged(&cx, &mut out);
        self.owned.outgoing.flush(&mut out);
        let jobs = out.jobs.iter();
        jobs.flat_map(|job| LogJob::logged(&job.places, &job.writes))
            .collect()
    }

    /// Lets something happen, and all that follows from it.
    fn on(
        &mut self,
        handle: impl FnOnce(&mut OwnedRegions, &Context<'_>, &mut Effects),
    ) -> Effects {
        let rows: Arc<dyn RowStore> = self.store.clone();
        let cx = Context {
            specs: &self.specs,
            map: &self.map,
            tuning: &self.tuning,
            now_ms: 1,
            clock_ms: 0,
            seeds: &self.seeds,
            rows: Some(&rows),
            is_cluster: false,
            most_change_bytes: usize::MAX,
            catalogue: &self.catalogue,
            host: &Healthy,
        };
        let mut out = Effects::default();
        handle(&mut self.owned, &cx, &mut out);
        loop {
            self.owned.propose_queued(&cx, &mut out);
            self.owned.outgoing.flush(&mut out);
            let jobs = std::mem::take(&mut out.jobs);
            if jobs.is_empty() {
                return out;
            }
            for job in jobs {
                let written = LogJob::logged(&job.places, &job.writes);
                self.owned.outgoing.note_written();
                self.owned.on_logged(&written, true, &cx, &mut out);
                self.owned.drive_logged(&cx, &mut out);
            }
        }
    }

    fn applied_index(&mut self) -> u64 {
        self.owned.member_mut(0).unwrap().replica.applied_index()
    }

    fn has(&self, key: &[u8]) -> bool {
        self.owned.region(0).unwrap().space.may_have(0, key)
    }

    /// A batch of one SET.
    fn set(&self, key: &[u8]) -> crate::BatchBox {
        let mut batch = Batch::new(0, 0, Arc::new(Requester::new(1)));
        batch.writes = true;
        batch.commands.push_all([&b"SET"[..], key, b"v"]);
        let table = &self.specs.table;
        let (number, row) = table.resolve(&batch.commands.args(0)).unwrap();
        let stat = self.specs.stat_number(number, row) as u16;
        batch.heads.push((stat, 0));
        batch
    }

    /// Proposes the rows that another replica's keyspace makes of a new string, which is not in memory
    /// here: as on a leader that has thrown its memory away because it led no more, before it heard that
    /// its entry is committed.
    fn propose_rows(&mut self, other: &mut Keyspace, key: &[u8], ticket: usize) {
        let member = self.owned.member_mut(0).unwrap();
        let index = member.replica.last_index() + 1;
        other.begin_entry(index);
        let tuning = Tuning::default();
        Txn::new(View::one(other, 0, 1, 1, &tuning)).put_string(key, b"v", Expire::Clear);
        let (mut changes, mut rows) = (Changes::new(), Vec::new());
        other.end_entry(1, &mut changes);
        changes.encode(&mut rows);
        member.replica.propose(rows_payload(1, 0, &rows)).unwrap();
        let term = member.replica.term();
        member.add_proposal(Proposal {
            effects: Some(EffectsOf {
                changes,
                from: 0,
                ticket,
            }),
            ..Proposal::new(index, term)
        });
        let ready = &mut Ready::default();
        while member.replica.has_ready() {
            member.replica.ready(ready);
            if let Some(write) = ready.write.take() {
                member.replica.on_persisted(write.number);
            }
            member.committed.extend(ready.committed.drain(..));
        }
    }
}

#[test]
fn a_write_is_settled_when_its_entry_is_in_the_log() {
    let mut one = OneRegion::new();
    let batch = one.set(b"k");
    let out = one.on(|owned, _, _| assert!(owned.enqueue(batch).is_none()));
    let [(batch, outcome)] = &out.finished[..] else {
        panic!("{} batches are settled", out.finished.len());
    };
    assert_eq!(*outcome, Outcome::Done);
    assert_eq!(batch.replies.as_bytes(), b"+OK\r\n");
    assert!(one.has(b"k"));
}

/// Otherwise it would be refused with a word that lets sessions run it again, and reads that wait for it
/// would be let go before it is there.
#[test]
fn an_entry_of_rows_is_applied_and_answered_when_the_store_has_it() {
    let mut one = OneRegion::new();
    let mut other = Keyspace::durable(1, HOME, None, Arc::new(MapStore::new())).unwrap();
    for (ticket, key) in [b"a", b"b"].into_iter().enumerate() {
        one.propose_rows(&mut other, key, ticket);
    }
    let before = one.applied_index();
    one.store.set_busy(true);
    let mut out = one.on(|owned, cx, out| owned.apply(0, cx, out));
    for _ in 0..3 {
        assert_eq!(out.busy, [0], "it is to be tried again");
        assert!(out.batch_outcomes.is_empty(), "nobody is told");
        assert_eq!(one.applied_index(), before, "nothing of it is to be seen");
        out = one.on(|owned, cx, out| owned.resume(0, cx, out));
    }
    one.store.set_busy(false);
    let out = one.on(|owned, cx, out| owned.resume(0, cx, out));
    let kept = |fate: &(usize, usize, BatchOutcome)| matches!(fate.2, BatchOutcome::Committed);
    assert_eq!(out.batch_outcomes.len(), 2);
    assert!(out.batch_outcomes.iter().all(kept));
    assert_eq!(one.applied_index(), before + 2);
    assert!(one.has(b"a") && one.has(b"b"));
    assert_eq!(one.store.all(Family::Metadata).len(), 2);
}

/// The entry that begins a term has no stamp of its own. With an older one in the state row, time would go
/// back after a restart, and replicas that wrote their rows in between would differ.
#[test]
fn time_does_not_go_back_with_an_entry_without_a_stamp() {
    let mut one = OneRegion::new();
    let batch = one.set(b"k");
    one.on(|owned, _, _| assert!(owned.enqueue(batch).is_none()));
    let member = one.owned.member_mut(0).unwrap();
    let applied = member.replica.applied_index();
    member.open = Some((applied, 500));
    // The next entry is as one that begins a term.
    member.stalled = true;
    let batch = one.set(b"l");
    one.on(|owned, _, _| assert!(owned.enqueue(batch).is_none()));
    let member = one.owned.member_mut(0).unwrap();
    member.committed.front_mut().unwrap().payload = Default::default();
    member.proposals.clear();
    one.on(|owned, cx, out| owned.resume(0, cx, out));
    let region = one.owned.region(0).unwrap();
    let open = region.member.as_deref().unwrap().open;
    assert_eq!(open, Some((applied + 1, 500)));
}

/// A replica is destroyed while a write of it is on its way to a slow disk, and another one is made at its place: the
/// write says nothing of what that one has on disk.
#[test]
fn a_write_of_a_replica_that_is_gone_is_not_that_of_the_one_at_its_place() {
    let mut one = OneRegion::new();
    for key in [b"a", b"b", b"c"] {
        let set = one.set(key);
        one.on(|owned, _, _| assert!(owned.enqueue(set).is_none()));
    }
    let set = one.set(b"old");
    let old = one.until_written(|owned, _, _| assert!(owned.enqueue(set).is_none()));
    let gone = one.owned.remove(0);
    assert!(gone.is_some());
    one.owned.add(OneRegion::region(&one.store.clone(), 2));
    let new = one.until_written(|owned, cx, out| owned.drive(0, cx, out));
    let numbers = |all: &[crate::Logged]| all.iter().map(|it| it.number).max();
    assert!(
        numbers(&old) >= numbers(&new),
        "else the old one means nothing anyway"
    );
    let in_flight =
        |one: &mut OneRegion| one.owned.member_mut(0).unwrap().replica.writes_in_flight();
    let before = in_flight(&mut one);
    assert!(before > 0);
    one.until_written(|owned, cx, out| owned.on_logged(&old, true, cx, out));
    assert_eq!(in_flight(&mut one), before, "nothing of it is on disk");
    one.until_written(|owned, cx, out| owned.on_logged(&new, true, cx, out));
    assert!(in_flight(&mut one) < before);
}
