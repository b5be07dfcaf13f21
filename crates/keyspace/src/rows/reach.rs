//! The rows of a region that can be reached at one moment: what a copy of the region must have, and
//! what two copies must have in common.
//!
//! A store has more than that: elements of keys that are gone, databases that were flushed, slots that
//! went to another region. They are there on one node and compacted away on the other, so neither an
//! export nor a digest may look at them.
//!
//! ```text
//!   for each home, index id the state names, range of slots       one *run*: rows that lie side by side
//!     heads ─► some thousand metadata rows                        handed out, the generations remembered
//!     elements, scores between the first and the last of them     handed out if the generation is that of the head
//!   then deadlines of that index id                               handed out if the slot belongs to the region
//!   for each home: what it has of SQL tables                      handed out, rows if the slot belongs to the region
//! ```
//!
//! Elements sort as their heads do (the key's length stands before the key), so one pass over each
//! family does; nothing is looked up. What is in memory is one batch of heads.
//!
//! *Invariants*: the rows of a family come in ascending order; a run holds no row of another region
//! between its first and its last, except in the order of deadlines when the region has only part of
//! the slots of a home.

use base::cluster::Segment;

use super::layout::{self, Body, Metadata};
use super::{Family, RowError, RowSource, State, Tier};

/// Heads remembered at a time, and bytes of their keys.
const HEADS: usize = 4096;
const HEAD_BYTES: usize = 1 << 20;

/// A row that can be reached.
#[derive(Debug, Clone, Copy)]
pub struct Reached<'a> {
    pub family: Family,
    /// Counts the ranges of rows that lie side by side in the store.
    pub run: u32,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// Receives rows; false: that is enough.
pub type EachReached<'a> = dyn FnMut(Reached<'_>) -> bool + 'a;

/// Calls `each` with every row that can be reached, state row and feed left out, until it says false;
/// whether it never did. `source` is one moment, `state` the state of the region at that moment.
pub fn reach(
    source: &dyn RowSource,
    segments: &[Segment],
    state: &State,
    each: &mut EachReached<'_>,
) -> Result<bool, RowError> {
    let mut segments: Vec<Segment> = segments.to_vec();
    segments.sort_unstable_by_key(|segment| (segment.home, segment.first_slot));
    let mut ids: Vec<u64> = state.dbs.iter().map(|db| db.index_id).collect();
    ids.sort_unstable();
    let mut run = 0;
    for of_home in segments.chunk_by(|a, b| a.home == b.home) {
        for &id in &ids {
            let mut prefix = Vec::new();
            layout::push_prefix(&mut prefix, of_home.first().map_or(0, |it| it.home), id);
            for segment in of_home {
                let Some((from, to)) = range(&prefix, segment) else {
                    continue;
                };
                run += 1;
                if !values(source, run, from, &to, each)? {
                    return Ok(false);
                }
            }
            run += 1;
            if !deadlines(source, run, &prefix, of_home, each)? {
                return Ok(false);
            }
        }
        if !tables(source, &mut run, of_home, each)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a home has of SQL tables: schemas and the like, whatever its slots, then the rows of these.
fn tables(
    source: &dyn RowSource,
    run: &mut u32,
    segments: &[Segment],
    each: &mut EachReached<'_>,
) -> Result<bool, RowError> {
    let home = segments.first().map_or(0, |it| it.home);
    let (mut state, mut rows) = (Vec::new(), Vec::new());
    layout::push_prefix(&mut state, home, layout::TABLE_STATE);
    layout::push_prefix(&mut rows, home, layout::TABLE_ROWS);
    let mut ranges = vec![(state.clone(), layout::behind(&state))];
    ranges.extend(segments.iter().filter_map(|it| range(&rows, it)));
    let family = Family::Tables;
    let mut more = true;
    for (from, to) in ranges {
        *run += 1;
        let mut row = |key: &[u8], value: &[u8]| {
            more = each(Reached {
                family,
                run: *run,
                key,
                value,
            });
            more
        };
        source.scan(family, &from, &to, false, Tier::All, &mut row)?;
        if !more {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The rows of a segment in one database, deadlines left out: from the first on, up to the second.
pub fn range(prefix: &[u8], segment: &Segment) -> Option<(Vec<u8>, Vec<u8>)> {
    let slots = segment.slots();
    if slots.is_empty() {
        return None;
    }
    let from = [prefix, &slots.start().to_be_bytes()].concat();
    let to = [prefix, &(slots.end() + 1).to_be_bytes()].concat();
    Some((from, to))
}

struct Head {
    row: Box<[u8]>,
    generation: u64,
    is_scored: bool,
}

fn values(
    source: &dyn RowSource,
    run: u32,
    mut from: Vec<u8>,
    to: &[u8],
    each: &mut EachReached<'_>,
) -> Result<bool, RowError> {
    let mut heads: Vec<Head> = Vec::new();
    loop {
        heads.clear();
        let (mut rows, mut bytes) = (0, 0);
        let mut next = None;
        let mut failure = None;
        let mut more = true;
        let family = Family::Metadata;
        let mut head = |key: &[u8], value: &[u8]| {
            if rows == HEADS || bytes > HEAD_BYTES {
                next = Some(key.to_vec());
                return false;
            }
            let Some(metadata) = Metadata::parse(value) else {
                let key = key.escape_ascii();
                failure = Some(RowError::Failed(format!("metadata row {key} is damaged")));
                return false;
            };
            rows += 1;
            if let Body::Collection { generation, .. } = metadata.body {
                bytes += key.len();
                heads.push(Head {
                    row: key.into(),
                    generation,
                    is_scored: metadata.kind.order() == Family::Score,
                });
            }
            more = each(Reached {
                family,
                run,
                key,
                value,
            });
            more
        };
        source.scan(family, &from, to, false, Tier::All, &mut head)?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        more = more && elements(source, Family::Data, run, &heads, each)?;
        if more && heads.iter().any(|head| head.is_scored) {
            more = elements(source, Family::Score, run, &heads, each)?;
        }
        match next {
            _ if !more => return Ok(false),
            Some(next) => from = next,
            None => return Ok(true),
        }
    }
}

fn elements(
    source: &dyn RowSource,
    family: Family,
    run: u32,
    heads: &[Head],
    each: &mut EachReached<'_>,
) -> Result<bool, RowError> {
    let (Some(first), Some(last)) = (heads.first(), heads.last()) else {
        return Ok(true);
    };
    let to = layout::behind(&last.row);
    let mut heads = heads;
    let mut more = true;
    let mut element = |key: &[u8], value: &[u8]| {
        let Some((owner, generation, _)) = layout::split_sub_key(key) else {
            return true; // belongs to nobody
        };
        while let Some((head, behind)) = heads.split_first()
            && *head.row < *owner
        {
            heads = behind;
        }
        let Some(head) = heads.first() else {
            return false;
        };
        if *head.row == *owner && head.generation == generation {
            more = each(Reached {
                family,
                run,
                key,
                value,
            });
        }
        more
    };
    source.scan(family, &first.row, &to, false, Tier::All, &mut element)?;
    Ok(more)
}

fn deadlines(
    source: &dyn RowSource,
    run: u32,
    prefix: &[u8],
    segments: &[Segment],
    each: &mut EachReached<'_>,
) -> Result<bool, RowError> {
    let family = Family::Expiry;
    let mut more = true;
    let mut deadline = |key: &[u8], value: &[u8]| {
        let slot = layout::slot_of_expiry_key(key);
        if slot.is_some_and(|slot| segments.iter().any(|it| it.contains(slot))) {
            more = each(Reached {
                family,
                run,
                key,
                value,
            });
        }
        more
    };
    let to = layout::behind(prefix);
    source.scan(family, prefix, &to, false, Tier::All, &mut deadline)?;
    Ok(more)
}
