//! A node's member of meta: region 0, on the real `Replica`, with meta's own state machine, leader and
//! scheduler.
//!
//! It stands for `server::cluster::chair`: what is kept, when the log is cut, how a state gets to
//! another member, when a leader begins and ends are as there.

use std::collections::BTreeMap;

use base::cluster::{Descriptor, META_REGION, NodeId};
use keyspace::rows::{Changes, RowStore};
use meta::leader::{Leader, join_answer, join_elsewhere, not_leader};
use meta::limits::Limits;
use meta::state::{Change, Command, Found, Outcome, State};
use meta::wire::{Action, Order, ReplicaReport};
use node::ReplicaRecord;
use node::replica_record::{members_of, with_members};
use node::{Newcomers, lead, report_of_replica};
use prost::Message as _;
use replica::{Committed, Message, Ready, Replica, ReplicaConfig, SnapshotHead};
use server::cluster::{Minutes, Motion};

use crate::bugs::Bug;
use crate::check::agree::Applied;
use crate::desk::{Asker, Call, Reply, machine_of};
use crate::effects::{Around, Fact};
use crate::trace::hash_of;

/// Entries after which the state is kept and the log cut. Few, so that it happens.
const KEEP_AFTER: u64 = 24;
const TURN_MS: u64 = 200;

/// How a member of meta is set up.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub limits: Limits,
    pub keep_entries: u64,
}

enum Asked {
    Join(Asker),
    Nobody,
}

pub struct Chair {
    pub replica: Replica,
    pub seat: ReplicaRecord,
    pub state: State,
    node: NodeId,
    setup: Setup,
    applied: u64,
    applied_term: u64,
    /// As of the last time the state was kept.
    kept: u64,
    stamp_ms: u64,
    founder: Option<Found>,
    leader: Option<Leader>,
    turn_at_ms: u64,
    asked: BTreeMap<u64, (u64, Asked)>,
    ready: Ready,
    pub has_left: bool,
}

fn descriptors_of(state: &State) -> Vec<Descriptor> {
    let regions = state.regions();
    regions.map(|region| region.descriptor.clone()).collect()
}

impl Chair {
    pub fn open(
        minutes: Minutes,
        node: NodeId,
        founder: Option<Found>,
        setup: Setup,
        around: &mut Around<'_>,
    ) -> Result<Chair, String> {
        let state = minutes.state()?;
        let replica = minutes.seat.replica;
        let config = ReplicaConfig {
            region: META_REGION,
            replica,
            members: minutes.seat.members(minutes.applied),
            applied: minutes.applied,
            snapshot: minutes.seat.snapshot(),
            seed: around.rng.u64(..),
            now_ms: match around.bug {
                Bug::VoteAtOnce => 1,
                _ => around.now_ms,
            },
            keep_entries: setup.keep_entries,
            quiet_ticks: 0,
            ..ReplicaConfig::default()
        };
        let opened = Replica::new(config, &*around.disk.log).map_err(|error| error.to_string())?;
        around.out.facts.push(Fact::Started {
            region: META_REGION,
            replica,
            applied: opened.applied_index(),
        });
        Ok(Chair {
            applied: opened.applied_index(),
            replica: opened,
            state,
            node,
            setup,
            applied_term: minutes.applied_term,
            kept: minutes.applied,
            stamp_ms: 0,
            founder,
            leader: None,
            turn_at_ms: 0,
            asked: BTreeMap::new(),
            ready: Ready::default(),
            has_left: false,
            seat: minutes.seat,
        })
    }

    pub fn tick(&mut self, around: &mut Around<'_>) {
        self.replica.tick(around.now_ms);
        self.schedule(around);
        self.drive(around);
    }

    pub fn step(&mut self, message: Message, around: &mut Around<'_>) {
        let _ = self.replica.step(message, around.now_ms);
        self.drive(around);
    }

    pub fn on_persisted(&mut self, number: u64, around: &mut Around<'_>) {
        self.replica.on_persisted(number);
        self.drive(around);
    }

    pub fn lease(&self, now_ms: u64) -> Option<u64> {
        let may_serve = self.replica.may_serve(now_ms);
        may_serve.then(|| self.replica.term())
    }

    pub fn report(&self) -> ReplicaReport {
        let mut report = report_of_replica(&self.replica, &self.seat);
        report.applied = self.applied;
        report
    }

    pub fn drive(&mut self, around: &mut Around<'_>) {
        while around.out.failure.is_none() && self.replica.has_ready() {
            let mut ready = std::mem::take(&mut self.ready);
            self.replica.ready(&mut ready);
            let done = self.take(&mut ready, around);
            self.ready = ready;
            if let Err(error) = done {
                around.out.failure = Some(error);
            }
        }
        self.take_the_chair(around);
        if self.applied >= self.kept + KEEP_AFTER {
            self.keep(around);
        }
    }

    fn take(&mut self, ready: &mut Ready, around: &mut Around<'_>) -> Result<(), String> {
        if let Some(term) = ready.became_leader {
            around.out.facts.push(Fact::Leads {
                region: META_REGION,
                replica: self.replica.id(),
                term,
            });
        }
        if let Some(write) = ready.write.take() {
            let written = around.disk.write_log(write);
            written.map_err(|error| error.to_string())?;
        }
        let messages = ready.messages.drain(..);
        let messages = messages.map(|message| (META_REGION, message));
        around.out.messages.extend(messages);
        if let Some(fetch) = ready.fetch.take() {
            let fetched = self.replica.fetch_now(&fetch, &*around.disk.log);
            fetched.map_err(|error| error.to_string())?;
        }
        if let Some(head) = ready.install.take() {
            self.install(&head, around)?;
        }
        for committed in ready.committed.drain(..) {
            self.apply(committed, around)?;
        }
        for to in ready.snapshots_wanted.drain(..) {
            let head = self.head();
            self.replica.on_snapshot_made(to, &head);
        }
        if ready.lost_leadership {
            self.leader = None;
            for (_, (_, asked)) in std::mem::take(&mut self.asked) {
                self.give_up(asked, around);
            }
        }
        Ok(())
    }

    fn apply(&mut self, committed: Committed, around: &mut Around<'_>) -> Result<(), String> {
        let (index, term) = (committed.index, committed.term);
        let entry = hash_of(&[&committed.payload]);
        let mut outcome = Outcome::Unchanged;
        if let Some(change) = committed.change {
            let members = self.replica.apply_members(&change);
            let newcomers = Newcomers::of(&change.context);
            let next = with_members(&self.seat.descriptor, &members, |id| newcomers.node_of(id));
            if members_of(&next) != members {
                return Err(format!("entry {index} gives {members:?}, and {next:?}"));
            }
            self.seat.descriptor = next;
            self.tell_members(index, around);
        } else if !committed.payload.is_empty() {
            let motion = Motion::decode(committed.payload).map_err(|error| error.to_string())?;
            self.stamp_ms = self.stamp_ms.max(motion.stamp_ms);
            outcome = self.state.apply(&motion.command, motion.stamp_ms);
        }
        self.replica.on_applied(index);
        (self.applied, self.applied_term) = (index, term);
        around.out.facts.push(Fact::Applied(Applied {
            region: META_REGION,
            replica: self.replica.id(),
            index,
            term,
            entry,
            digest: Some(hash_of(&[&self.state.encode()])),
        }));
        self.tell_state(around);
        if let Some((of, asked)) = self.asked.remove(&index) {
            match (of == term, asked) {
                (true, Asked::Join(asker)) => {
                    let answer = join_answer(&outcome, &self.state);
                    around.out.replies.push((asker, Reply::Join(answer)));
                }
                (true, Asked::Nobody) => {}
                (false, asked) => self.give_up(asked, around),
            }
            self.turn_at_ms = 0;
        }
        Ok(())
    }

    fn tell_members(&self, index: u64, around: &mut Around<'_>) {
        around.out.facts.push(Fact::Members {
            replica: self.replica.id(),
            index,
            descriptor: self.seat.descriptor.clone(),
        });
        around.out.is_news = true;
    }

    fn tell_state(&self, around: &mut Around<'_>) {
        around.out.facts.push(Fact::Meta {
            replica: self.replica.id(),
            descriptors: descriptors_of(&self.state),
        });
    }

    fn minutes(&self) -> Minutes {
        Minutes {
            seat: self.seat.clone(),
            applied: self.applied,
            applied_term: self.applied_term,
            state: self.state.encode().into(),
        }
    }

    fn head(&self) -> SnapshotHead {
        self.minutes().into_head(self.replica.members().clone())
    }

    fn install(&mut self, head: &SnapshotHead, around: &mut Around<'_>) -> Result<(), String> {
        let (minutes, state) = Minutes::of_head(head, self.seat.replica)?;
        self.state = state;
        minutes.keep(&*around.disk.rows)?;
        around.disk.flush();
        self.seat = minutes.seat;
        (self.applied, self.applied_term) = (head.index, head.term);
        self.kept = head.index;
        self.replica.on_installed(head.index);
        around.out.facts.push(Fact::Installed {
            region: META_REGION,
            replica: self.replica.id(),
            index: head.index,
            digest: hash_of(&[&self.state.encode()]),
        });
        self.tell_members(head.index, around);
        self.tell_state(around);
        Ok(())
    }

    /// Keeps the state and cuts the log behind it.
    fn keep(&mut self, around: &mut Around<'_>) {
        let kept = self.minutes().keep(&*around.disk.rows);
        around.disk.flush();
        self.kept = self.applied;
        let index = self.replica.truncate_to(self.applied);
        let cut = around.disk.truncate_log(META_REGION, index);
        if let Err(error) = kept.and(cut.map_err(|error| error.to_string())) {
            around.out.failure = Some(error);
        }
    }

    /// About this member of meta itself.
    pub fn on_order(&mut self, order: &Order, around: &mut Around<'_>) {
        let leads_in = self.replica.is_leader().then(|| self.replica.term());
        match order.check(self.seat.descriptor.epoch, leads_in) {
            Ok(Action::Destroy(destroy)) if destroy.replica == self.seat.replica => {
                self.has_left = true;
                let mut changes = Changes::new();
                Minutes::put_gone(&mut changes, destroy.replica);
                let _ = around.disk.rows.write(&[&changes]);
                around.disk.remove_region(META_REGION);
                around.out.facts.push(Fact::Destroyed {
                    region: META_REGION,
                    replica: destroy.replica,
                });
                return;
            }
            Ok(action) => drop(lead(&mut self.replica, action)),
            Err(_) => {}
        }
        self.drive(around);
    }

    /// This member leads and knows all that was decided before.
    fn take_the_chair(&mut self, around: &mut Around<'_>) {
        if self.leader.is_some() || !self.replica.is_serving() {
            return;
        }
        let (node, term) = (self.node, self.replica.term());
        let leader = Leader::new(node, term, &self.state, around.now_ms, self.setup.limits);
        self.leader = Some(leader);
        self.turn_at_ms = 0;
        if let Some(found) = self.founder.clone()
            && self.state.cluster() == 0
        {
            self.propose(Change::Found(found).into(), Asked::Nobody, around);
            self.drive(around);
        }
    }

    fn schedule(&mut self, around: &mut Around<'_>) {
        let now_ms = around.now_ms;
        let Some(leader) = &mut self.leader else {
            return;
        };
        if !self.replica.may_serve(now_ms) || (now_ms < self.turn_at_ms && !leader.is_urged()) {
            return;
        }
        self.turn_at_ms = now_ms + TURN_MS;
        let proposals = leader.turn(&self.state, now_ms);
        for node in leader.nodes_with_news() {
            let known = self.state.node(node);
            let machine = known.and_then(|known| machine_of(&known.profile.peer));
            around.out.news.extend(machine);
        }
        for command in proposals {
            self.propose(command, Asked::Nobody, around);
        }
    }

    pub fn on_call(&mut self, call: Call, asker: Asker, around: &mut Around<'_>) {
        let now_ms = around.now_ms;
        let leads = self.replica.may_serve(now_ms);
        match (call, &mut self.leader) {
            (Call::Beat(heartbeat), Some(leader)) if leads => {
                let answer = leader.on_heartbeat(&self.state, heartbeat, now_ms);
                around.out.replies.push((asker, Reply::Beat(answer.into())));
                self.schedule(around);
            }
            (Call::Beat(_), _) => {
                let answer = not_leader(&self.state, self.leader_node());
                around.out.replies.push((asker, Reply::Beat(answer.into())));
            }
            (Call::Join(join), Some(leader)) if leads => {
                let command = leader.register(&self.state, join, now_ms);
                self.propose(command, Asked::Join(asker), around);
            }
            (Call::Join(_), _) => self.give_up(Asked::Join(asker), around),
        }
        self.drive(around);
    }

    fn leader_node(&self) -> Option<NodeId> {
        let leader = self.replica.leader()?;
        Some(self.seat.descriptor.member(leader)?.node)
    }

    fn propose(&mut self, command: Command, asked: Asked, around: &mut Around<'_>) {
        self.stamp_ms = self.stamp_ms.max(around.wall_ms);
        let motion = Motion {
            stamp_ms: self.stamp_ms,
            command,
        };
        match self.replica.propose(motion.encode_to_vec()) {
            Ok(()) => {
                let at = (self.replica.term(), asked);
                self.asked.insert(self.replica.last_index(), at);
            }
            Err(_) => self.give_up(asked, around),
        }
    }

    fn give_up(&self, asked: Asked, around: &mut Around<'_>) {
        if let Asked::Join(asker) = asked {
            let answer = join_elsewhere(&self.state, self.leader_node());
            around.out.replies.push((asker, Reply::Join(answer)));
        }
    }
}
