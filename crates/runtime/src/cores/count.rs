//! What a core's regions have counted, left once a second where every thread may read it ([`stats::RegionStats`]).
//!
//! A region that is lent stays as it was last seen. Counts only grow: of a region that goes, what it had counted stays.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use base::limits::DATABASES;
use keyspace::Keyspace;

use stats::{RegionStats, TableGauges};
use table::leader::Numbers;

use super::{Core, Place, Region};
use crate::tables::status;

/// A region as it was last seen.
#[derive(Default, Clone)]
pub struct Seen {
    counts: [u64; 5],
    leads: bool,
    is_quiet: bool,
    /// Database, keys, keys with a deadline; of those that have keys.
    databases: Vec<(u8, usize, usize)>,
}

/// By place.
pub type Noted = BTreeMap<Place, Seen>;

impl Seen {
    fn of(space: &Keyspace, leads: bool, is_quiet: bool) -> Seen {
        let mut databases = Vec::new();
        for db in 0..DATABASES {
            let (keys, expires, _) = space.db_stats(db);
            if keys > 0 {
                databases.push((db, keys, expires));
            }
        }
        Seen {
            counts: [
                space.hits(),
                space.misses(),
                space.expired(),
                space.evicted(),
                space.changes(),
            ],
            leads,
            is_quiet,
            databases,
        }
    }

    /// What was counted since; a region that was reset begins at zero.
    fn since(&self, before: Option<&Seen>) -> [u64; 5] {
        let mut grown = self.counts;
        if let Some(before) = before {
            for (now, then) in grown.iter_mut().zip(before.counts) {
                *now = now.checked_sub(then).unwrap_or(*now);
            }
        }
        grown
    }
}

impl Core {
    pub(super) fn count_regions(&self) {
        let mut noted = self.noted.borrow_mut();
        let stats = &self.stats().regions;
        let mut owned = self.regions.borrow_mut();
        noted.retain(|place, _| owned.is_used(*place));
        for region in owned.present() {
            let member = region.member.as_ref();
            let leads = member.is_none_or(|member| member.replica.is_leader());
            let is_quiet = member.is_some_and(|member| member.replica.is_quiet());
            let seen = Seen::of(&region.space, leads, is_quiet);
            let grown = seen.since(noted.get(&region.id));
            for (counter, grown) in stats.counters().into_iter().zip(grown) {
                counter.add(grown);
            }
            noted.insert(region.id, seen);
        }
        publish(stats, &noted);
        if self.shared.catalogue_version() != 0 {
            publish_tables(&stats.tables, owned.present(), self.now_ms());
        }
    }
}

/// Regions that are lent are left out for once.
fn publish_tables<'a>(
    gauges: &TableGauges,
    regions: impl Iterator<Item = &'a mut Region>,
    now_ms: u64,
) {
    let (mut sum, mut lag_ms) = (Numbers::default(), 0);
    let mut by_table = BTreeMap::new();
    for region in regions {
        let Some(numbers) = region.table_numbers(now_ms) else {
            continue;
        };
        let counts = region.space.table_rows().map(|rows| rows.counts());
        for (table, counts) in counts.into_iter().flatten() {
            status::count(by_table.entry(table).or_default(), counts);
        }
        sum.rows += numbers.rows;
        sum.bytes += numbers.bytes;
        sum.dirty += numbers.dirty;
        sum.flying += numbers.flying;
        sum.dead += numbers.dead;
        sum.waiting += numbers.waiting;
        lag_ms = lag_ms.max(numbers.lag_ms);
    }
    gauges.rows.set(sum.rows as u64);
    gauges.bytes.set(sum.bytes as u64);
    gauges.dirty.set(sum.dirty as u64);
    gauges.flying.set(sum.flying as u64);
    gauges.dead.set(sum.dead as u64);
    gauges.waiting.set(sum.waiting as u64);
    gauges.lag_ms.set(lag_ms);
    *gauges
        .by_table
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = by_table;
}

fn publish(stats: &RegionStats, noted: &Noted) {
    let (mut keys, mut expires) = ([0; DATABASES as usize], [0; DATABASES as usize]);
    for (db, count, deadlines) in noted.values().flat_map(|seen| &seen.databases) {
        let at = usize::from(*db);
        if let (Some(keys), Some(expires)) = (keys.get_mut(at), expires.get_mut(at)) {
            *keys += *count as u64;
            *expires += *deadlines as u64;
        }
    }
    for (gauges, sums) in [(&stats.keys, keys), (&stats.expires, expires)] {
        for (gauge, sum) in gauges.iter().zip(sums) {
            gauge.set(sum);
        }
    }
    stats.count.set(noted.len() as u64);
    let led = noted.values().filter(|seen| seen.leads);
    stats.led.set(led.count() as u64);
    let quiet = noted.values().filter(|seen| seen.is_quiet);
    stats.quiet.set(quiet.count() as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_never_go_back() {
        let seen = |hits| Seen {
            counts: [hits, 0, 0, 0, 0],
            ..Seen::default()
        };
        assert_eq!(seen(5).since(None)[0], 5);
        assert_eq!(seen(7).since(Some(&seen(5)))[0], 2);
        assert_eq!(seen(3).since(Some(&seen(5)))[0], 3, "it was reset");
    }
}
