//! What goes wrong: each kind of fault, what it does, and how it ends.

use base::cluster::META_REGION;

use crate::check::Broken;
use crate::database::Health;
use crate::effects::Effects;
use crate::event::Event;
use crate::machine::Status;
use crate::script::Scene;
use crate::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A node dies and starts again.
    Crash,
    /// A node, often a leader, dies and starts again at once.
    Restart,
    /// A follower dies and starts again at once.
    RestartFollower,
    /// All die at the same moment, as in a power cut.
    PowerCut,
    /// A node is stopped and goes on later (SIGSTOP).
    Pause,
    /// The nodes fall into two parts.
    Partition,
    /// A leader and one other node do not hear each other; all others hear both.
    Link,
    /// A node hears nobody, or nobody hears it.
    OneWay,
    /// Some links are slow.
    SlowLinks,
    /// A wall clock jumps.
    ClockJump,
    /// A clock runs fast or slow.
    ClockRate,
    SlowDisk,
    /// A sync fails: the node stops, and is started again by somebody.
    FailingDisk,
    /// No sync ends for a while: no error, no answer.
    HungDisk,
    /// A sync fails, and the process stays for a while, as if it were well.
    BrokenDisk,
    /// Members come and go.
    Members,
    /// A leader hands over.
    Transfer,
    /// Nobody asks for anything for a while.
    Lull,
    /// The leader of meta dies and starts again.
    MetaLeader,
    /// A machine is lost for good; its replicas have to be made anew elsewhere.
    Lose,
    /// A machine comes back with an empty disk.
    Wipe,
    /// A new machine joins.
    Join,
    /// The database refuses everything for a while.
    DatabaseDown,
    /// A lock stops all statements for a while.
    DatabaseBlocked,
    DatabaseSlow,
}

impl Kind {
    pub const ALL: [Kind; 16] = [
        Kind::Crash,
        Kind::Restart,
        Kind::RestartFollower,
        Kind::PowerCut,
        Kind::Pause,
        Kind::Partition,
        Kind::Link,
        Kind::OneWay,
        Kind::SlowLinks,
        Kind::ClockJump,
        Kind::ClockRate,
        Kind::SlowDisk,
        Kind::FailingDisk,
        Kind::Members,
        Kind::Transfer,
        Kind::Lull,
    ];

    /// Of one disk at a time: the others go on without it.
    pub const DISK: [Kind; 3] = [Kind::HungDisk, Kind::BrokenDisk, Kind::SlowDisk];

    /// Those of the database behind the tables.
    pub const DATABASE: [Kind; 3] = [
        Kind::DatabaseDown,
        Kind::DatabaseBlocked,
        Kind::DatabaseSlow,
    ];

    /// Those that only a meta service can mend.
    pub const META: [Kind; 5] = [
        Kind::MetaLeader,
        Kind::MetaLeader,
        Kind::Lose,
        Kind::Wipe,
        Kind::Join,
    ];
}

/// A fault that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Down(u64),
    Paused(u64),
    Cut(Vec<(u64, u64)>),
    Links,
    SlowDisk(u64),
    HungDisk(u64),
    BrokenDisk(u64),
    Database,
}

/// A region whose leader's disk hangs or fails is written by others after this time at most, and then it is looked
/// for how long that it is.
const WRITABLE_US: u64 = 8_000_000;
const WRITES_US: u64 = 5_000_000;

/// A clock may be wrong by this much in a second; a lease has to allow for it.
pub const DRIFT_PPM: i64 = 500;

impl World {
    /// Something goes wrong, and the end of it is planned.
    pub(crate) fn on_nemesis(&mut self) {
        let rest_us = self.plan.fault_us;
        let next_us = match self.plan.alternates {
            true => rest_us,
            false => self.nemesis.u64(rest_us / 4..rest_us * 2),
        };
        self.after(next_us, Event::Nemesis);
        let nth = self.nemesis.usize(..self.plan.faults.len());
        let kind = self.plan.faults[nth];
        let node = self.victim();
        self.say(&[100, kind as u64, node], || {
            format!("fault {kind:?} on node {node}")
        });
        match kind {
            Kind::Crash => {
                let rest_us = self.nemesis.u64(1000..4_000_000);
                self.crash(node, rest_us);
            }
            Kind::Restart => {
                let rest_us = self.nemesis.u64(1000..50_000);
                self.crash(node, rest_us);
            }
            Kind::RestartFollower => {
                let region = self.any_region();
                let node = self.other_than_leader(region);
                let rest_us = self.nemesis.u64(1000..50_000);
                self.crash(node, rest_us);
            }
            Kind::PowerCut => {
                for node in 1..=self.machines() {
                    let rest_us = self.nemesis.u64(1000..1_000_000);
                    self.crash(node, rest_us);
                }
            }
            Kind::Pause => {
                let long_us = *self
                    .nemesis
                    .choice(&[300_000, 2_000_000, 6_000_000])
                    .unwrap_or(&300_000);
                let rest_us = self.nemesis.u64(1000..long_us);
                let at = &mut self.nodes[node as usize - 1];
                if at.status == Status::Up {
                    at.status = Status::Paused;
                    self.after(rest_us, Event::Mend(Fault::Paused(node)));
                }
            }
            Kind::Partition => self.partition(node),
            Kind::Link => {
                let region = self.any_region();
                let leader = self.leader_of(region).unwrap_or(node);
                let other = self.other_than_leader(region);
                self.cut(vec![(leader, other), (other, leader)]);
            }
            Kind::OneWay => {
                let outwards = self.nemesis.bool();
                let others = (1..=self.machines()).filter(|&other| other != node);
                let cuts = others.map(|other| match outwards {
                    true => (node, other),
                    false => (other, node),
                });
                let cuts = cuts.collect();
                self.cut(cuts);
            }
            Kind::SlowLinks => {
                for other in 1..=self.machines() {
                    self.network.slow(node, other);
                    self.network.slow(other, node);
                }
                let rest_us = self.nemesis.u64(100_000..4_000_000);
                self.after(rest_us, Event::Mend(Fault::Links));
            }
            Kind::ClockJump => {
                // Mostly minutes, now and then a year; back where it was half of the time.
                let offset_ms = match self.nemesis.u32(..8) {
                    0 => 365 * 86_400_000,
                    1..4 => 0,
                    _ => self.nemesis.i64(-300_000..300_000),
                };
                self.nodes[node as usize - 1]
                    .clock
                    .set_wall_offset(offset_ms);
            }
            Kind::ClockRate => {
                let rate_ppm = self.nemesis.i64(-DRIFT_PPM..=DRIFT_PPM);
                let now_us = self.now_us;
                self.nodes[node as usize - 1]
                    .clock
                    .set_rate(now_us, rate_ppm);
            }
            Kind::SlowDisk => {
                self.nodes[node as usize - 1].slow_us = self.nemesis.u64(20_000..800_000);
                let rest_us = self.nemesis.u64(100_000..4_000_000);
                self.after(rest_us, Event::Mend(Fault::SlowDisk(node)));
            }
            Kind::HungDisk => {
                self.nodes[node as usize - 1].is_hung = true;
                self.demand(node, Fault::HungDisk(node));
            }
            Kind::BrokenDisk => {
                if self.nemesis.bool() {
                    self.lull_us = self.now_us + 3_000_000; // regions are quiet when it happens
                }
                let at = &mut self.nodes[node as usize - 1];
                (at.disk.is_failing, at.stays_when_failed) = (true, true);
                self.demand(node, Fault::BrokenDisk(node));
            }
            Kind::FailingDisk => self.nodes[node as usize - 1].disk.is_failing = true,
            Kind::Members => self.change_members(),
            Kind::Transfer => self.transfer(),
            Kind::Lull => {
                let rest_us = self.nemesis.u64(200_000..4_000_000);
                self.lull_us = self.now_us + rest_us;
            }
            Kind::MetaLeader => {
                let node = self.leader_of(META_REGION).unwrap_or(node);
                let rest_us = self.nemesis.u64(1000..4_000_000);
                self.crash(node, rest_us);
            }
            Kind::Lose => self.lose(node, true),
            Kind::Wipe => self.lose(node, false),
            Kind::Join => self.join_machine(),
            Kind::DatabaseDown => self.trouble_database(Health::Down),
            Kind::DatabaseBlocked => self.trouble_database(Health::Blocked),
            Kind::DatabaseSlow => self.trouble_database(Health::Slow),
        }
    }

    /// The others have to go on without this node's disk, within [`WRITABLE_US`] and as long as the fault lasts.
    fn demand(&mut self, node: u64, fault: Fault) {
        let demand = Event::Demand { node, last: None };
        self.after(WRITABLE_US, demand);
        self.after(WRITABLE_US + WRITES_US, Event::Mend(fault));
    }

    /// Looks at every region twice: between the two something must have been written.
    pub(crate) fn on_demand(&mut self, node: u64, before: Option<Vec<u64>>) {
        let regions = 1..=self.plan.regions;
        let last: Vec<u64> = regions.map(|it| self.agree.last_index(it)).collect();
        let Some(before) = before else {
            let demand = Event::Demand {
                node,
                last: Some(last),
            };
            return self.after(WRITES_US - 1, demand);
        };
        for (region, (before, last)) in (1..).zip(before.iter().zip(&last)) {
            if before == last {
                let what = format!(
                    "nothing was written in region {region} (entry {last}) while the disk of node {node} was broken; \
                     it is led by {:?}",
                    self.leader_of(region)
                );
                self.fail(Broken::new("writable", what));
            }
        }
    }

    /// Leaders are the more interesting ones.
    fn victim(&mut self) -> u64 {
        let any = self.nemesis.u64(1..=self.machines());
        if self.nemesis.bool() {
            return any;
        }
        let region = self.any_region();
        self.leader_of(region).unwrap_or(any)
    }

    fn other_than_leader(&mut self, region: u64) -> u64 {
        let leader = self.leader_of(region).unwrap_or(0);
        let others = (1..=self.machines()).filter(|&node| node != leader);
        let others: Vec<u64> = others.collect();
        others[self.nemesis.usize(..others.len())]
    }

    fn partition(&mut self, node: u64) {
        let size = self.nemesis.usize(1..=self.machines() as usize / 2);
        let mut side = vec![node];
        while side.len() < size {
            let other = self.nemesis.u64(1..=self.machines());
            if !side.contains(&other) {
                side.push(other);
            }
        }
        let others = (1..=self.machines()).filter(|other| !side.contains(other));
        let mut cuts = Vec::new();
        for other in others {
            for &one in &side {
                cuts.extend([(one, other), (other, one)]);
            }
        }
        if self.nemesis.u32(..3) == 0 {
            // Clients (0) cannot reach that side either.
            cuts.extend(side.iter().flat_map(|&one| [(0, one), (one, 0)]));
        }
        self.cut(cuts);
    }

    fn cut(&mut self, cuts: Vec<(u64, u64)>) {
        for &(from, to) in &cuts {
            self.network.cut(from, to);
        }
        let rest_us = self.nemesis.u64(50_000..6_000_000);
        self.after(rest_us, Event::Mend(Fault::Cut(cuts)));
    }

    pub(crate) fn crash(&mut self, node: u64, rest_us: u64) {
        let at = &mut self.nodes[node as usize - 1];
        if at.status == Status::Down {
            return;
        }
        at.crash();
        self.after(rest_us, Event::Mend(Fault::Down(node)));
    }

    pub(crate) fn on_mend(&mut self, fault: Fault) {
        match fault {
            Fault::Down(node) => self.start(node),
            Fault::Paused(node) => self.resume(node),
            Fault::Cut(cuts) => {
                for (from, to) in cuts {
                    self.network.mend(from, to);
                }
            }
            Fault::Links => self.network.heal(),
            Fault::SlowDisk(node) => self.nodes[node as usize - 1].slow_us = 0,
            Fault::HungDisk(node) => self.nodes[node as usize - 1].is_hung = false,
            Fault::BrokenDisk(node) => {
                let at = &mut self.nodes[node as usize - 1];
                (at.disk.is_failing, at.stays_when_failed) = (false, false);
                if at.failed.is_some() {
                    let rest_us = self.nemesis.u64(1000..500_000);
                    self.crash(node, rest_us); // somebody starts it again
                }
            }
            Fault::Database => self.mend_database(),
        }
    }

    pub(crate) fn start(&mut self, node: u64) {
        let now_us = self.now_us;
        let at = &mut self.nodes[node as usize - 1];
        if at.status != Status::Down || at.is_lost {
            return;
        }
        let mut out = Effects::default();
        at.start(now_us, &mut out);
        let life = at.life;
        self.say(&[101, node, life], || format!("node {node} starts"));
        let first_us = self.nemesis.u64(1000..100_000);
        self.after(first_us, Event::Tick { node, life });
        self.after(first_us, Event::Checkpoint { node, life });
        if self.plan.tables.is_some() {
            self.after(first_us, Event::Advance { node, life });
            self.announce(node);
        }
        self.carry_out(node, out);
    }

    pub(crate) fn resume(&mut self, node: u64) {
        let at = &mut self.nodes[node as usize - 1];
        if at.status != Status::Paused {
            return;
        }
        at.status = Status::Up;
        self.say(&[102, node], || format!("node {node} goes on"));
        let held = std::mem::take(&mut self.nodes[node as usize - 1].held);
        for event in held {
            self.after(0, event);
        }
    }

    /// No more faults: all that is broken is mended.
    pub(crate) fn on_calm(&mut self) {
        self.say(&[103], || "calm".into());
        self.is_calm = true;
        self.lull_us = 0;
        self.reads_only_us = 0;
        self.scene = Scene::After;
        self.network.calm();
        self.mend_database();
        for node in 1..=self.machines() {
            let at = &mut self.nodes[node as usize - 1];
            at.slow_us = 0;
            at.is_hung = false;
            at.disk.is_failing = false;
            if at.failed.is_some() {
                at.crash();
            }
            self.resume(node);
            self.start(node);
        }
        self.after(0, Event::Look);
    }
}
