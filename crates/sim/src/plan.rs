//! What a run is going to be like: everything that is decided before it begins, from its seed.
//!
//! Every run has its own mixture (number of nodes, weather, which faults happen at all and how
//! often): some bugs only show when one kind of fault comes often and another never.

use crate::bugs::Bug;
use crate::effects::Limits;
use crate::faults::Kind;
use crate::network::Weather;
use crate::script::Script;

/// Rows of tables, and the database behind them.
#[derive(Debug, Clone)]
pub struct Tables {
    /// Per region.
    pub rows: usize,
    pub limits: table::leader::Limits,
    pub adds_field: bool,
    /// A statement is given up after so long.
    pub timeout_us: u64,
    /// Of a thousand statements, and of their answers, so many.
    pub lost: u32,
    pub late: u32,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub bug: Bug,
    pub nodes: u64,
    /// Members of a region at the beginning; they are on the first nodes.
    pub replicas: u64,
    pub regions: u64,
    pub sessions: u32,
    /// Of each kind, per region.
    pub keys: usize,
    pub weather: Weather,
    pub sync_us: u64,
    /// Between faults, on average.
    pub fault_us: u64,
    pub faults: Vec<Kind>,
    /// A fault begins only when the one before it has ended.
    pub alternates: bool,
    /// Instead of faults by chance.
    pub script: Option<Script>,
    /// Regions are placed and repaired by the meta service, not by chance.
    pub meta: Option<meta::limits::Limits>,
    pub tables: Option<Tables>,
    pub chaos_us: u64,
    pub limits: Limits,
    /// Of a hundred reads, so many ask whoever they meet.
    pub anywhere: u32,
    /// Between checkpoints of a node.
    pub checkpoint_us: u64,
    /// A session rests so long between calls, on average.
    pub think_us: u64,
}

impl Plan {
    pub fn new(seed: u64) -> Plan {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let all = Kind::ALL;
        let mut faults: Vec<Kind> = all.into_iter().filter(|_| rng.bool()).collect();
        if faults.is_empty() {
            faults.push(all[rng.usize(..all.len())]);
        }
        let often = |rng: &mut fastrand::Rng| match rng.u32(..3) {
            0 => 0,
            1 => 10,
            _ => rng.u32(..100),
        };
        let nodes = *rng.choice(&[3, 3, 4, 5]).unwrap_or(&3);
        Plan {
            seed,
            bug: Bug::None,
            nodes,
            replicas: if rng.bool() { 3 } else { nodes },
            regions: *rng.choice(&[1, 1, 2, 3]).unwrap_or(&1),
            sessions: rng.u32(3..=7),
            keys: rng.usize(1..=3),
            weather: Weather {
                lost: often(rng),
                doubled: often(rng),
                late: often(rng) / 2,
                delay_us: *rng.choice(&[200, 1000, 5000, 20_000]).unwrap_or(&1000),
            },
            sync_us: *rng.choice(&[100, 1000, 10_000]).unwrap_or(&1000),
            fault_us: *rng
                .choice(&[300_000, 1_000_000, 3_000_000])
                .unwrap_or(&1_000_000),
            faults,
            alternates: false,
            script: None,
            meta: None,
            tables: None,
            chaos_us: 15_000_000,
            limits: Limits {
                keep_entries: *rng.choice(&[1, 5, 50]).unwrap_or(&5),
                quiet_ticks: *rng.choice(&[0, 3, 30]).unwrap_or(&30),
                most_change_bytes: *rng.choice(&[400, 2000, usize::MAX]).unwrap_or(&usize::MAX),
                is_alone: false,
            },
            anywhere: *rng.choice(&[0, 0, 20, 60]).unwrap_or(&0),
            checkpoint_us: *rng
                .choice(&[300_000, 2_000_000, 8_000_000])
                .unwrap_or(&2_000_000),
            think_us: *rng.choice(&[5_000, 20_000, 60_000]).unwrap_or(&20_000),
        }
    }

    pub fn with_bug(mut self, bug: Bug) -> Plan {
        self.bug = bug;
        self
    }

    /// Elections all the time: leaders vanish, voters start anew, messages are late.
    pub fn of_elections(seed: u64) -> Plan {
        let mut plan = Plan::new(seed);
        plan.weather.late = 100;
        plan.weather.lost = 0;
        plan.weather.delay_us = plan.weather.delay_us.min(5000);
        plan.replicas = plan.nodes;
        plan.limits.quiet_ticks = 0;
        let faults = [
            Kind::Restart,
            Kind::Restart,
            Kind::Pause,
            Kind::Partition,
            Kind::OneWay,
        ];
        plan.with_faults(&faults, 300_000)
    }

    /// What `make sim` runs: with a meta service, with tables, with neither, and a node that is alone.
    pub fn of_seed(seed: u64) -> Plan {
        match seed % 4 {
            0 => Plan::of_meta(seed),
            1 => Plan::of_tables(seed),
            2 => Plan::of_one_node(seed),
            _ if seed % 12 == 3 => Plan::of_disks(seed),
            _ => Plan::new(seed),
        }
    }

    /// One node without peers: its commands may be about several regions.
    pub fn of_one_node(seed: u64) -> Plan {
        let mut plan = Plan::new(seed);
        let rng = &mut fastrand::Rng::with_seed(seed ^ 0xa10e);
        (plan.nodes, plan.replicas) = (1, 1);
        plan.regions = rng.u64(1..=4);
        (plan.limits.is_alone, plan.anywhere) = (true, 0);
        let mut faults = vec![Kind::Crash, Kind::PowerCut];
        for kind in [
            Kind::Crash,
            Kind::Pause,
            Kind::ClockJump,
            Kind::ClockRate,
            Kind::SlowDisk,
            Kind::FailingDisk,
            Kind::Lull,
        ] {
            if rng.bool() {
                faults.push(kind);
            }
        }
        plan.with_faults(&faults, 1_000_000)
    }

    /// Disks that hang, fail under a process that stays, or are slow, one at a time: the others write on.
    pub fn of_disks(seed: u64) -> Plan {
        let mut plan = Plan::new(seed);
        plan.weather.lost = 0;
        plan.weather.delay_us = plan.weather.delay_us.min(5000);
        plan.weather.late = 0;
        plan.replicas = plan.nodes;
        plan.limits.quiet_ticks = 3;
        plan.think_us = 20_000;
        plan.chaos_us = 70_000_000;
        let mut plan = plan.with_faults(&Kind::DISK, 20_000_000);
        plan.alternates = true;
        plan
    }

    /// Rows of tables beside everything else, and a database that has its own troubles.
    pub fn of_tables(seed: u64) -> Plan {
        let mut plan = Plan::new(seed);
        let rng = &mut fastrand::Rng::with_seed(seed ^ 0x7ab1e);
        let soft_bytes = *rng.choice(&[2_000, 10_000, 40_000]).unwrap_or(&10_000);
        plan.tables = Some(Tables {
            rows: rng.usize(2..=8),
            limits: table::leader::Limits {
                load_keys: 3,
                load_batches: 2,
                flush_rows: 4,
                flush_bytes: 800,
                flush_batches: 2,
                linger: *rng.choice(&[0, 20, 200]).unwrap_or(&20),
                entry_rows: 3,
                entry_bytes: 300,
                backoff_min: 20,
                backoff_max: 300,
                lease: 3_000,
                lease_margin: 300,
                soft_bytes,
                hard_bytes: 1_000_000,
                evict_looks: 6,
                ..table::leader::Limits::default()
            },
            adds_field: rng.bool(),
            timeout_us: *rng.choice(&[300_000, 1_000_000]).unwrap_or(&300_000),
            lost: *rng.choice(&[0, 20, 150]).unwrap_or(&20),
            late: *rng.choice(&[0, 20, 150]).unwrap_or(&20),
        });
        // Sometimes nothing else goes wrong.
        if rng.u32(..4) == 0 {
            plan.faults.clear();
        }
        let often = plan.faults.len() / 6 + 1;
        for _ in 0..often {
            plan.faults.extend(Kind::DATABASE);
        }
        plan.fault_us = plan.fault_us.min(1_000_000);
        plan
    }

    /// The meta service founds the regions and looks after them, while machines are lost and come.
    pub fn of_meta(seed: u64) -> Plan {
        let mut plan = Plan::new(seed);
        let rng = &mut fastrand::Rng::with_seed(seed ^ 0x3e7a);
        plan.replicas = 3;
        plan.meta = Some(meta::limits::Limits {
            down_after_ms: 2_000,
            dead_after_ms: 4_000,
            operator_timeout_ms: 15_000,
            transfer_timeout_ms: 3_000,
            balance_after_ms: 3_000,
            rest_ms: 2_000,
            leader_rest_ms: 2_000,
            caught_up_lag: 20,
            ..meta::limits::Limits::default()
        });
        // Members change by meta's orders only.
        plan.faults.retain(|kind| *kind != Kind::Members);
        // Sometimes nothing else goes wrong.
        if rng.u32(..4) == 0 {
            plan.faults.clear();
        }
        let often = plan.faults.len() / 4 + 1;
        for _ in 0..often {
            plan.faults.extend(Kind::META);
        }
        plan.fault_us = *rng
            .choice(&[1_000_000, 2_000_000, 4_000_000])
            .unwrap_or(&2_000_000);
        plan.think_us = plan.think_us.max(20_000);
        plan.chaos_us = 40_000_000;
        plan
    }

    /// Three nodes and one region in fair weather, and an adversary who knows what he does.
    pub fn of_script(seed: u64, script: Script) -> Plan {
        let mut plan = Plan::new(seed);
        (plan.nodes, plan.replicas, plan.regions) = (3, 3, 1);
        plan.weather = Weather {
            lost: 0,
            doubled: 0,
            late: 0,
            delay_us: 1000,
        };
        plan.limits.quiet_ticks = 0;
        (plan.sessions, plan.think_us, plan.chaos_us) = (4, 20_000, 9_000_000);
        plan.script = Some(script);
        plan
    }

    /// Only these faults, this often.
    pub fn with_faults(mut self, faults: &[Kind], fault_us: u64) -> Plan {
        self.faults = faults.to_vec();
        self.fault_us = fault_us;
        self
    }
}
