//! One number for all a region's rows at one moment: equal on two nodes exactly if their rows are.
//!
//! Only what can be reached counts (`reach.rs`), and of the state what the next entry builds on: index
//! ids, counts, the last generation. Generations are log indices, the same on every replica, and entries
//! of rows carry them; so two replicas whose generations differ *are* different, and that is to be seen.
//! The applied index, its stamp and its term are left out: compare digests of one index. So is the
//! descriptor, which a node may be told of by others.
//!
//! ```text
//!   digest = xxh3-128( state , { count:u64  xxh3-128 of ( klen:u64 key vlen:u64 value )… } per family )
//! ```

use base::cluster::{RegionId, Segment};
use xxhash_rust::xxh3::Xxh3;

use super::regions::state_of;
use super::{Family, Gauge, Pace, RegionError, RowSource, reach};

/// The families a digest is made of.
const FAMILIES: [Family; 5] = [
    Family::Metadata,
    Family::Data,
    Family::Score,
    Family::Expiry,
    Family::Tables,
];

/// The digest of a region at the moment `source` is. Reads everything: not for cores. `pace` is told
/// how many bytes were read since the last time.
pub fn digest(
    source: &dyn RowSource,
    region: RegionId,
    segments: &[Segment],
    pace: &mut Pace<'_>,
) -> Result<[u8; 16], RegionError> {
    let state = state_of(source, region)?.unwrap_or_default();
    let mut parts: [(u64, Xxh3); FAMILIES.len()] = Default::default();
    let mut gauge = Gauge::new(pace);
    let whole = reach(source, segments, &state, &mut |row| {
        let part = FAMILIES.iter().position(|it| *it == row.family);
        if let Some((count, hash)) = part.and_then(|part| parts.get_mut(part)) {
            *count += 1;
            for part in [row.key, row.value] {
                hash.update(&(part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        gauge.add(row.key.len() + row.value.len())
    })?;
    if !whole {
        return Err(RegionError::Cancelled);
    }
    let mut all = Xxh3::new();
    let mut word = |word: u64| all.update(&word.to_be_bytes());
    word(state.generation);
    word(state.next_index_id);
    for db in &state.dbs {
        word(db.index_id);
        word(db.keys);
        word(db.with_deadline);
    }
    for (count, hash) in parts {
        word(count);
        let digest = hash.digest128();
        word((digest >> 64) as u64);
        word(digest as u64);
    }
    Ok(all.digest128().to_be_bytes())
}
