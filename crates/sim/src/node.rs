//! A node: a clock, a disk, and the members of its regions. It lives, is stopped, dies, and starts
//! again from what its disk kept.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::cluster::META_REGION;
use server::cluster::Minutes;
use server::cluster::seats::ReplicaRecord;

use crate::bugs::Bug;
use crate::chair::Chair;
use crate::clock::Clock;
use crate::desk::Desk;
use crate::disk::Disk;
use crate::event::Event;
use crate::member::{Around, Catalogue, Effects, Limits, Member, remove_seat};

/// A tick of the server's timer.
pub const TICK_US: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Up,
    /// As under SIGSTOP: what comes waits.
    Paused,
    Down,
}

/// What a node knows of a replica of its own, kept on disk.
#[derive(Debug, Clone)]
pub struct Place {
    /// What it begins with.
    pub seat: ReplicaRecord,
    pub made_us: u64,
}

pub struct Node {
    pub id: u64,
    pub clock: Clock,
    pub disk: Disk,
    pub status: Status,
    /// Starts so far: what was meant for a former life is dropped.
    pub life: u64,
    pub places: BTreeMap<u64, Place>,
    pub members: BTreeMap<u64, Member>,
    /// Its member of meta, and how it talks to meta: if there is a meta service at all.
    pub chair: Option<Chair>,
    pub desk: Option<Desk>,
    /// It never starts again.
    pub is_lost: bool,
    /// What came while it was paused.
    pub held: Vec<Event>,
    /// A sync takes this much longer.
    pub slow_us: u64,
    pub rng: fastrand::Rng,
    pub(crate) bug: Bug,
    limits: Limits,
    /// What it has heard of tables, and keeps.
    pub catalogue: Rc<Catalogue>,
    /// Ticks of this life, and what the clock showed at its beginning.
    ticks: u64,
    began_ms: u64,
}

impl Node {
    pub fn new(id: u64, rng: fastrand::Rng, bug: Bug, limits: Limits) -> Node {
        Node {
            id,
            clock: Clock::new(),
            disk: Disk::new(bug),
            status: Status::Down,
            life: 0,
            places: BTreeMap::new(),
            members: BTreeMap::new(),
            chair: None,
            desk: None,
            is_lost: false,
            held: Vec::new(),
            slow_us: 0,
            rng,
            bug,
            limits,
            catalogue: Rc::default(),
            ticks: 0,
            began_ms: 0,
        }
    }

    /// What it takes for the time.
    pub fn now_ms(&self, true_us: u64) -> u64 {
        match self.bug {
            Bug::LeaseByTicks => self.began_ms + self.ticks * TICK_US / 1000,
            _ => self.clock.now_ms(true_us),
        }
    }

    pub fn start(&mut self, true_us: u64, out: &mut Effects) {
        let local_us = self.rng.u64(10_000_000..20_000_000);
        self.clock.start(true_us, local_us);
        self.status = Status::Up;
        self.life += 1;
        self.ticks = 0;
        self.began_ms = self.clock.now_ms(true_us);
        for region in self.places.keys().copied().collect::<Vec<_>>() {
            self.open(region, true_us, out);
        }
        self.open_desk(true_us, out);
    }

    pub(crate) fn around<'a>(&'a mut self, true_us: u64, out: &'a mut Effects) -> Around<'a> {
        let now_ms = self.now_ms(true_us);
        Around {
            now_ms,
            wall_ms: self.clock.wall_ms(true_us),
            disk: &mut self.disk,
            rng: &mut self.rng,
            out,
            bug: self.bug,
            catalogue: self.catalogue.clone(),
        }
    }

    pub fn open(&mut self, region: u64, true_us: u64, out: &mut Effects) {
        let Some(place) = self.places.get(&region).cloned() else {
            return;
        };
        let (id, limits) = (self.id, self.limits);
        let mut around = self.around(true_us, out);
        match Member::open(&place.seat, limits, &mut around) {
            Ok(mut member) => {
                member.drive(&mut around);
                self.members.insert(region, member);
            }
            Err(error) => out.failure = Some(format!("node {id} cannot start: {error}")),
        }
    }

    /// The process is gone; what the disk keeps is decided by chance.
    pub fn crash(&mut self) {
        self.status = Status::Down;
        self.members.clear();
        self.chair = None;
        self.held.clear();
        self.disk.crash(&mut self.rng);
    }

    /// A replica that was removed is cleaned up.
    pub fn destroy(&mut self, region: u64) {
        let place = self.places.remove(&region);
        self.members.remove(&region);
        if let Some(place) = place {
            remove_seat(&mut self.disk, region, place.seat.replica);
        }
        self.disk.remove_region(region);
    }

    /// The machine is as good as new: nothing is left on its disk.
    pub fn wipe(&mut self, told: u64) {
        self.disk = Disk::new(self.bug);
        self.places.clear();
        let setup = self.desk.as_ref().map(|desk| desk.setup);
        self.desk = setup.map(|setup| Desk::new(setup, told));
    }

    /// Runs `what` on the member of meta, if it is here.
    pub fn with_chair(
        &mut self,
        true_us: u64,
        out: &mut Effects,
        what: impl FnOnce(&mut Chair, &mut Around<'_>),
    ) {
        if let Some(mut chair) = self.chair.take() {
            what(&mut chair, &mut self.around(true_us, out));
            self.chair = Some(chair);
        }
    }

    /// Whether this replica is still on its disk, and knows there that this index is committed.
    pub fn keeps(&self, region: u64, replica: u64, index: u64) -> bool {
        let seat = match region {
            META_REGION => Minutes::read(&*self.disk.rows)
                .ok()
                .flatten()
                .map(|it| it.seat),
            _ => self.places.get(&region).map(|place| place.seat.clone()),
        };
        !self.is_lost
            && seat.is_some_and(|seat| seat.replica == replica)
            && self.disk.log.synced_commit(region) >= index
    }

    pub fn leads(&self, region: u64) -> Option<u64> {
        let replica = match region {
            META_REGION => &self.chair.as_ref()?.replica,
            _ => &self.members.get(&region)?.replica,
        };
        replica.is_leader().then(|| replica.term())
    }

    /// Runs `what` on the member of a region, if it is here.
    pub fn with(
        &mut self,
        region: u64,
        true_us: u64,
        out: &mut Effects,
        what: impl FnOnce(&mut Member, &mut Around<'_>),
    ) {
        let now_ms = self.now_ms(true_us);
        if let Some(member) = self.members.get_mut(&region) {
            let mut around = Around {
                now_ms,
                wall_ms: self.clock.wall_ms(true_us),
                disk: &mut self.disk,
                rng: &mut self.rng,
                out,
                bug: self.bug,
                catalogue: self.catalogue.clone(),
            };
            what(member, &mut around);
        }
    }

    pub fn tick(&mut self, true_us: u64, out: &mut Effects) {
        self.ticks += 1;
        for region in self.members.keys().copied().collect::<Vec<_>>() {
            self.with(region, true_us, out, |member, around| member.tick(around));
        }
        self.with_chair(true_us, out, |chair, around| chair.tick(around));
    }

    /// Time passes for the desks of tables.
    pub fn tend(&mut self, true_us: u64, out: &mut Effects) {
        for region in self.members.keys().copied().collect::<Vec<_>>() {
            self.with(region, true_us, out, |member, around| member.drive(around));
        }
    }

    /// A sync has ended.
    pub fn on_synced(&mut self, true_us: u64, out: &mut Effects) {
        match self.disk.end_sync() {
            Ok(done) => {
                for (region, number) in done {
                    if region == META_REGION {
                        self.with_chair(true_us, out, |chair, around| {
                            chair.on_persisted(number, around);
                        });
                    }
                    self.with(region, true_us, out, |member, around| {
                        member.on_persisted(number, around);
                    });
                }
            }
            Err(error) => out.failure = Some(error.to_string()),
        }
    }

    /// All rows come to disk, then the log may be cut.
    pub fn checkpoint(&mut self, true_us: u64, out: &mut Effects) {
        self.disk.flush();
        for region in self.members.keys().copied().collect::<Vec<_>>() {
            self.with(region, true_us, out, |member, around| {
                member.on_flushed(around);
            });
        }
    }
}
