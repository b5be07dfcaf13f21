//! Latency events (`LATENCY`): for each kind of event the spikes above
//! `latency-monitor-threshold`, at most one per second, the last 160 seconds that had one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

const SAMPLES_MAX: usize = 160;

/// The spikes of one kind of event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Series {
    /// Unix second and worst milliseconds in it, oldest first.
    pub samples: VecDeque<(u64, u64)>,
    pub max_ms: u64,
}

#[derive(Default)]
pub struct Latency {
    events: Mutex<BTreeMap<String, Series>>,
}

impl Latency {
    /// Notes a spike; the caller has compared it with the threshold.
    pub fn add(&self, event: &str, took_ms: u64, now_ms: u64) {
        let second = now_ms / 1000;
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let series = events.entry(event.into()).or_default();
        series.max_ms = series.max_ms.max(took_ms);
        match series.samples.back_mut() {
            Some((at, worst)) if *at == second => *worst = (*worst).max(took_ms),
            _ => series.samples.push_back((second, took_ms)),
        }
        if series.samples.len() > SAMPLES_MAX {
            series.samples.pop_front();
        }
    }

    pub fn series(&self, event: &str) -> Option<Series> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.get(event).cloned()
    }

    pub fn all(&self) -> BTreeMap<String, Series> {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Forgets one event; whether there was one.
    pub fn forget(&self, event: &str) -> bool {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.remove(event).is_some()
    }

    /// Forgets everything; how many events there were.
    pub fn forget_all(&self) -> usize {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let count = events.len();
        events.clear();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sample_per_second_with_the_worst() {
        let latency = Latency::default();
        for (at, took) in [(1000, 5), (1400, 9), (1900, 7), (2100, 3)] {
            latency.add("command", took, at);
        }
        let series = latency.series("command").unwrap();
        assert_eq!(series.samples, [(1, 9), (2, 3)]);
        assert_eq!(series.max_ms, 9);
        assert!(latency.forget("command"));
        assert!(!latency.forget("command"));
    }
}
