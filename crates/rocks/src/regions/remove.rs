//! All rows of a region go, at once: range deletions, and files that hold nothing else.
//!
//! ```text
//!   1  batch: range deletions in every family, state row     nothing yet after a crash
//!   2  flush                                                 from here on the region is gone
//!   3  files with no other rows are dropped                  the space comes back at once
//! ```
//!
//! Files are cut where databases meet (the SST partitioner), so nearly all of a region's rows are in
//! files of its own. Files that a held snapshot may read stay; compactions take them.
//!
//! A region may have only some slots of a home. Then rows of one database are one range of slots, but
//! its deadlines lie among those of the others and are deleted one by one behind step 2: nobody asks for
//! deadlines of slots that are not his, so those a crash leaves are harmless, and go when this is done
//! again or the home is dropped.

use base::cluster::{RegionId, Segment};
use keyspace::rows::layout::{self, PREFIX_LEN};
use keyspace::rows::{Family, RegionError, RowSource, Tier, feed, range};
use rust_rocksdb::WriteBatch;

use super::{failed, step, write_durably};
use crate::Store;
use crate::store::ROWS;

/// Deadlines deleted at a time.
const DEADLINES: usize = 4096;
const LAST_SLOT: u16 = base::SLOT_COUNT - 1;

/// Rows of a family from the first key on, up to the second.
pub(super) type Range = (Family, Vec<u8>, Vec<u8>);

pub(crate) fn remove(
    store: &Store,
    region: RegionId,
    segments: &[Segment],
) -> Result<(), RegionError> {
    let mut batch = WriteBatch::default();
    let ranges = delete_rows(store, &mut batch, region, segments)?;
    batch.delete_cf(
        &store.open.db.family(Family::Info),
        keyspace::rows::Installing::key(region),
    );
    write_durably(store, &batch)?;
    {
        let mut told = store.telling();
        for segment in segments.iter().filter(|segment| is_whole(segment)) {
            told.forget(segment.home);
        }
        store.publish(&told);
    }
    step()?;
    drop_rows(store, &ranges, segments)
}

/// Whether a segment has all slots of its home.
pub(super) fn is_whole(segment: &Segment) -> bool {
    segment.slots() == (0..=LAST_SLOT)
}

/// Adds to the batch what deletes the region: its state row and all ranges of its rows, which are
/// returned.
pub(super) fn delete_rows(
    store: &Store,
    batch: &mut WriteBatch,
    region: RegionId,
    segments: &[Segment],
) -> Result<Vec<Range>, RegionError> {
    let (from, to) = (feed::key(region, 0), feed::key(region.saturating_add(1), 0));
    let mut ranges = vec![(Family::Feed, from.to_vec(), to.to_vec())];
    for segment in segments {
        let home = layout::i64_bytes(segment.home as i64);
        for family in ROWS {
            if is_whole(segment) {
                ranges.push((family, home.to_vec(), layout::behind(&home)));
            } else if family != Family::Expiry {
                for prefix in databases(store, family, &home)? {
                    let is_state = layout::split_prefix(&prefix)
                        .is_some_and(|(_, index_id, _)| index_id == layout::TABLE_STATE);
                    let slots = match is_state {
                        true => Some((prefix.clone(), layout::behind(&prefix))),
                        false => range(&prefix, segment),
                    };
                    ranges.extend(slots.map(|(from, to)| (family, from, to)));
                }
            }
        }
    }
    // A deletion of nothing would keep files that are taken in later out of the lowest level.
    let mut used = Vec::new();
    for range in ranges {
        if has_rows(store, &range)? {
            used.push(range);
        }
    }
    let db = &store.open.db;
    for (family, from, to) in &used {
        batch.delete_range_cf(&db.family(*family), from, to);
    }
    batch.delete_cf(&db.family(Family::Info), layout::state_key(region));
    Ok(used)
}

fn has_rows(store: &Store, (family, from, to): &Range) -> Result<bool, RegionError> {
    let mut found = false;
    let mut row = |_: &[u8], _: &[u8]| {
        found = true;
        false
    };
    store.scan(*family, from, to, false, Tier::All, &mut row)?;
    Ok(found)
}

/// Once the deletions are on disk: space, and deadlines that are no range.
pub(super) fn drop_rows(
    store: &Store,
    ranges: &[Range],
    segments: &[Segment],
) -> Result<(), RegionError> {
    for (family, from, to) in ranges {
        // The lock is let go in between: whoever takes a snapshot on a core must not wait long.
        store.drop_files(&store.telling(), *family, from, to);
        step()?;
    }
    for segment in segments.iter().filter(|segment| !is_whole(segment)) {
        delete_deadlines(store, segment)?;
    }
    Ok(())
}

/// The databases of a home that a family has rows of, as prefixes.
fn databases(store: &Store, family: Family, home: &[u8; 8]) -> Result<Vec<Vec<u8>>, RegionError> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let to = layout::behind(home);
    let mut from = home.to_vec();
    loop {
        let mut first = None;
        let mut row = |key: &[u8], _: &[u8]| {
            first = key.first_chunk::<PREFIX_LEN>().map(|it| it.to_vec());
            false
        };
        store.scan(family, &from, &to, false, Tier::All, &mut row)?;
        let Some(prefix) = first else {
            return Ok(found);
        };
        from = layout::behind(&prefix);
        found.push(prefix);
    }
}

fn delete_deadlines(store: &Store, segment: &Segment) -> Result<(), RegionError> {
    let family = Family::Expiry;
    let home = layout::i64_bytes(segment.home as i64);
    let (mut from, to) = (home.to_vec(), layout::behind(&home));
    loop {
        let mut batch = WriteBatch::default();
        let db = &store.open.db;
        let mut next = None;
        let mut deadline = |key: &[u8], _: &[u8]| {
            if batch.len() == DEADLINES {
                next = Some(key.to_vec());
                return false;
            }
            let slot = layout::slot_of_expiry_key(key);
            if slot.is_some_and(|slot| segment.contains(slot)) {
                batch.delete_cf(&db.family(family), key);
            }
            true
        };
        store.scan(family, &from, &to, false, Tier::All, &mut deadline)?;
        let mut writes = rust_rocksdb::WriteOptions::default();
        writes.disable_wal(true);
        db.write_opt(&batch, &writes).map_err(failed)?;
        step()?;
        match next {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}
