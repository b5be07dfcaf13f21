//! The network between nodes: it loses, delays, doubles and reorders, and can be cut, one way or
//! both. What is on its way when a link is cut still arrives.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// Of a thousand messages, so many are lost.
    pub lost: u32,
    pub doubled: u32,
    /// So many take up to a hundred times as long.
    pub late: u32,
    pub delay_us: u64,
}

#[derive(Debug)]
pub struct Network {
    rng: fastrand::Rng,
    pub weather: Weather,
    /// (from, to): nothing is taken.
    cut: BTreeSet<(u64, u64)>,
    /// (from, to): everything takes this much longer.
    slow: BTreeSet<(u64, u64)>,
}

const SLOW_US: u64 = 300_000;

impl Network {
    pub fn new(rng: fastrand::Rng, weather: Weather) -> Network {
        Network {
            rng,
            weather,
            cut: BTreeSet::new(),
            slow: BTreeSet::new(),
        }
    }

    fn delay_us(&mut self) -> u64 {
        let usual = self.weather.delay_us;
        let delay_us = usual / 2 + self.rng.u64(..=usual);
        match self.rng.u32(..1000) < self.weather.late {
            true => delay_us * self.rng.u64(1..=100),
            false => delay_us,
        }
    }

    /// How long a message takes: never, once or twice.
    pub fn send(&mut self, from: u64, to: u64) -> impl Iterator<Item = u64> + use<> {
        let mut delays = [None; 2];
        let is_lost = self.rng.u32(..1000) < self.weather.lost;
        if !self.cut.contains(&(from, to)) && !is_lost {
            let extra = if self.slow.contains(&(from, to)) {
                SLOW_US
            } else {
                0
            };
            delays[0] = Some(self.delay_us() + extra);
            if self.rng.u32(..1000) < self.weather.doubled {
                delays[1] = Some(self.delay_us() + extra);
            }
        }
        delays.into_iter().flatten()
    }

    /// Between a client and a node: as between nodes, but TCP does not double, and a connection
    /// that loses something is gone.
    pub fn call(&mut self, from: u64, to: u64) -> Option<u64> {
        if self.cut.contains(&(from, to)) || self.rng.u32(..1000) < self.weather.lost / 4 {
            return None;
        }
        Some(self.delay_us())
    }

    pub fn cut(&mut self, from: u64, to: u64) {
        self.cut.insert((from, to));
    }

    pub fn mend(&mut self, from: u64, to: u64) {
        self.cut.remove(&(from, to));
    }

    pub fn slow(&mut self, from: u64, to: u64) {
        self.slow.insert((from, to));
    }

    pub fn heal(&mut self) {
        self.cut.clear();
        self.slow.clear();
    }

    /// All that is left is the time messages take.
    pub fn calm(&mut self) {
        self.heal();
        self.weather.lost = 0;
        self.weather.doubled = 0;
        self.weather.late = 0;
    }
}
