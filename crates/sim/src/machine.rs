//! A node: a clock, a disk, and the members of its regions. It lives, is stopped, dies, and starts
//! again from what its disk kept.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::cluster::META_REGION;
use node::{MetaRecord, ReplicaRecord};
use replica::LogWatch;

use crate::bugs::Bug;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::effects::{Effects, Known, Limits};
use crate::event::Event;
use crate::heartbeats::HeartbeatDriver;
use crate::meta::Member;
use crate::regions::{CORES, Regions};
use crate::state::remove_record;

/// A tick of the server's timer.
pub const TICK_US: u64 = 100_000;
/// `log-stall-timeout`.
const STALL_MS: u64 = 1_500;
/// How long a node counts as unable to write after it said so.
const UNWELL_US: u64 = 2_000_000;

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
    pub record: ReplicaRecord,
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
    pub regions: Regions,
    /// Its member of meta, and how it talks to meta: if there is a meta service at all.
    pub meta: Option<Member>,
    pub heartbeats: Option<HeartbeatDriver>,
    /// It never starts again.
    pub is_lost: bool,
    /// What came while it was paused.
    pub held: Vec<Event>,
    /// A sync takes this much longer.
    pub slow_us: u64,
    /// No sync ends.
    pub is_hung: bool,
    /// What it makes of that, and since when it is too much.
    watch: LogWatch,
    stalled_since_ms: Option<u64>,
    /// When its disk fails the process stays, of no use to anybody.
    pub stays_when_failed: bool,
    pub failed: Option<String>,
    /// Nodes that said that they cannot write, and until when that counts.
    unwell: BTreeMap<u64, u64>,
    pub rng: fastrand::Rng,
    pub(crate) bug: Bug,
    pub(crate) limits: Limits,
    /// What it has heard of tables, and keeps.
    pub catalogue: Rc<Known>,
    /// Ticks of this life, and what the clock showed at its beginning.
    ticks: u64,
    began_ms: u64,
    /// Nodes it can hear, as it thinks.
    heard: Vec<u64>,
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
            regions: Regions::new(0),
            meta: None,
            heartbeats: None,
            is_lost: false,
            held: Vec::new(),
            slow_us: 0,
            is_hung: false,
            watch: LogWatch::default(),
            stalled_since_ms: None,
            stays_when_failed: false,
            failed: None,
            unwell: BTreeMap::new(),
            rng,
            bug,
            limits,
            catalogue: Rc::default(),
            ticks: 0,
            began_ms: 0,
            heard: (1..=16).collect(),
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
        self.regions = Regions::new(self.rng.u64(..));
        for region in self.places.keys().copied().collect::<Vec<_>>() {
            self.open(region, true_us, out);
        }
        self.start_heartbeats(true_us, out);
    }

    /// The process is gone; what the disk keeps is decided by chance.
    pub fn crash(&mut self) {
        self.status = Status::Down;
        self.regions = Regions::new(0);
        self.meta = None;
        self.held.clear();
        (self.watch, self.stalled_since_ms) = (LogWatch::default(), None);
        (self.stays_when_failed, self.failed) = (false, None);
        self.unwell.clear();
        self.disk.crash(&mut self.rng);
    }

    /// A replica that was removed is cleaned up.
    pub fn destroy(&mut self, region: u64) {
        let place = self.places.remove(&region);
        let core = self.regions.core_of(region);
        let _ = self.regions.owned[core].remove(region as usize);
        self.regions.progress.set_region(region as usize, 0, 0);
        if let Some(place) = place {
            remove_record(&mut self.disk, region, place.record.replica);
        }
        self.disk.remove_region(region);
    }

    /// The machine is as good as new: nothing is left on its disk.
    pub fn wipe(&mut self, told: u64) {
        self.disk = Disk::new(self.bug);
        self.places.clear();
        let setup = self.heartbeats.as_ref().map(|driver| driver.setup);
        self.heartbeats = setup.map(|setup| HeartbeatDriver::new(setup, told, None));
    }

    /// Whether this replica is still on its disk, and knows there that this index is committed.
    pub fn keeps(&self, region: u64, replica: u64, index: u64) -> bool {
        let record = match region {
            META_REGION => MetaRecord::read(&*self.disk.rows)
                .ok()
                .flatten()
                .map(|it| it.record),
            _ => self.places.get(&region).map(|place| place.record.clone()),
        };
        !self.is_lost
            && record.is_some_and(|record| record.replica == replica)
            && self.disk.log.synced_commit(region) >= index
    }

    pub fn leads(&self, region: u64) -> Option<u64> {
        let replica = match region {
            META_REGION => self.meta.as_ref()?.replica(),
            _ => self.replica(region)?,
        };
        replica.is_leader().then(|| replica.term())
    }

    /// The regions that are here.
    fn here(&self) -> Vec<u64> {
        let places = self.regions.owned.iter().flat_map(|it| it.places());
        let places = places.map(|place| place as u64);
        places
            .filter(|&region| self.replica(region).is_some())
            .collect()
    }

    pub fn tick(&mut self, true_us: u64, out: &mut Effects) {
        self.ticks += 1;
        self.clock.check(true_us);
        // Now and then nodes are thought to be gone, true or not, and to be there again.
        if self.rng.u32(..10) == 0 {
            self.heard = (1..=16).collect();
            if self.rng.bool() {
                self.heard.retain(|_| self.rng.u32(..3) > 0);
            }
        }
        let mut heard = self.heard.clone();
        heard.retain(|node| self.unwell.get(node).is_none_or(|until| *until < true_us));
        self.look_at_disk(true_us, out);
        let down = match self.rng.u32(..15) {
            0 => Some(self.rng.u64(1..=5)),
            _ => None,
        };
        let here = self.here();
        for core in 0..CORES {
            self.on_regions(core, true_us, out, |owned, cx, asked| {
                if let Some(down) = down {
                    owned.on_node_down(down, cx, asked);
                }
                owned.tick(&heard, cx, asked);
                for &region in &here {
                    owned.expire(region as usize, cx, asked);
                }
            });
        }
        let is_failed = self.failed.is_some();
        self.with_meta(true_us, out, |member, cx, asked| {
            if is_failed {
                member.stop();
            }
            member.on_tick(cx, asked);
        });
    }

    /// Judges the disk, as core 0 of the server does; the others hear of what is wrong.
    fn look_at_disk(&mut self, true_us: u64, out: &mut Effects) {
        let now_ms = self.clock.now_ms(true_us);
        self.watch.look(self.disk.under_way(), STALL_MS, now_ms);
        self.stalled_since_ms = match self.watch.is_stalled() {
            true => self.stalled_since_ms.or(Some(now_ms)),
            false => None,
        };
        out.is_unwell = self.stalled_since_ms.is_some() || self.failed.is_some();
    }

    pub(crate) fn stalled_ms(&self, true_us: u64) -> Option<u64> {
        let now_ms = self.clock.now_ms(true_us);
        self.stalled_since_ms
            .map(|since_ms| now_ms.saturating_sub(since_ms))
    }

    /// Another node says that it cannot write.
    pub fn on_unwell(&mut self, from: u64, true_us: u64, out: &mut Effects) {
        let until_us = true_us + UNWELL_US;
        let before = self.unwell.insert(from, until_us);
        if before.is_some_and(|until| until >= true_us) {
            return;
        }
        for core in 0..CORES {
            self.on_regions(core, true_us, out, |owned, cx, asked| {
                owned.on_node_down(from, cx, asked);
            });
        }
    }

    /// Time passes for SQL rows.
    pub fn advance(&mut self, true_us: u64, out: &mut Effects) {
        let here = self.here();
        for region in here {
            self.on_region(region, true_us, out, |owned, cx, asked| {
                owned.advance(region as usize, cx, asked);
            });
        }
    }

    /// A sync has ended.
    pub fn on_synced(&mut self, true_us: u64, out: &mut Effects) {
        if self.failed.is_some() {
            return;
        }
        match self.disk.end_sync() {
            Ok(done) => {
                let (meta, done): (Vec<_>, Vec<_>) = done
                    .into_iter()
                    .partition(|(region, ..)| *region == META_REGION);
                for (_, _, number) in meta {
                    self.with_meta(true_us, out, |member, _, _| member.on_persisted(number));
                }
                if !done.is_empty() {
                    self.on_written(done, true_us, out);
                }
            }
            Err(error) => out.failure = Some(error.to_string()),
        }
    }

    /// All rows come to disk, then the log may be cut.
    pub fn checkpoint(&mut self, out: &mut Effects) {
        self.disk.flush();
        let regions: Vec<_> = self.regions.progress.regions().collect();
        for (place, region, applied) in regions {
            let core = self.regions.core_of(place as u64);
            self.regions.owned[core].on_cut(place, applied, u64::MAX);
            let unneeded = self.regions.progress.unneeded(place);
            if unneeded > 0
                && let Err(error) = self.disk.truncate_log(region, unneeded)
            {
                out.failure = Some(error.to_string());
            }
        }
    }
}
