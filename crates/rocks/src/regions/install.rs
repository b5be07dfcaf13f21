//! All rows of a region are replaced by those in files: nothing of what it was survives, and a crash at
//! any instruction leaves the old region, the new one, or a note that says "begin again".
//!
//! ```text
//!   1  files are there, whole, of this region, synced    else refused: nothing has changed
//!   2  batch: old rows and state row out, note in        after a crash: the old region
//!   3  flush                                             from here on: the note, and no rows that count
//!   4  files of old rows are dropped, what is left of them is compacted away
//!   5  files are taken in, family by family              after a crash: some are in; begun again at 2
//!   6  batch: state row in, note out                     after a crash: as before it
//!   7  flush                                             from here on: the new region
//! ```
//!
//! Why this is enough:
//! - 2 and 6 are one write batch each and 3 and 7 flush all families at one moment, so old rows, state row
//!   and note change together: there is no moment in which a state row stands beside rows that are not its
//!   own. Rows taken in at 5 are on disk at once, beside a note and no state row.
//! - Beginning again removes whatever 5 has brought in, by the same range deletions as the old rows. The
//!   files are not used up: RocksDB gets links to them.
//! - Should the disk refuse a record of 5, the database can still be opened, with the files or without
//!   (`files/take_in.rs`).
//! - A file that is taken in is newer than the deletions of 2, for these are flushed before it: no row of
//!   it is hidden by them. The flush also keeps RocksDB from stopping all writers for one of its own.
//! - The compaction at 4 is about speed: it removes the range deletions. A file goes into the lowest level
//!   that has nothing in its range, and with a deletion in level 0 that would be level 0, where many files
//!   slow down all writers. A region that had no rows has no deletions, and nothing to compact.
//! - Filters drop nothing of the region from before 5 until 7 is done (`filter.rs`, guarded): elements
//!   whose head is not in yet are no orphans. After a crash that does not hold, and need not: all goes.
//! - The log is not looked at here. The caller resets it behind 7; if a crash comes between, the state row
//!   has index and term to do it by (`docs/internals/snapshots.md`).

use std::fs;
use std::path::Path;

use base::cluster::{RegionId, Segment};
use keyspace::rows::layout;
use keyspace::rows::{Family, Installing, Manifest, Redone, RegionError, RowSource, State, Tier};
use rust_rocksdb::WriteBatch;

use super::files::{sync_files, verify};
use super::remove::{delete_rows, drop_rows, is_whole};
use super::{failed, refused, step, tell, write_durably};
use crate::{Store, files};

pub(crate) fn install(
    store: &Store,
    region: RegionId,
    segments: &[Segment],
    manifest: &Manifest,
    dir: &Path,
) -> Result<(), RegionError> {
    check(region, segments, manifest)?;
    verify(manifest, dir)?;
    let place = fs::canonicalize(dir).map_err(|error| refused(format!("its folder: {error}")))?;
    let Some(place) = place.to_str() else {
        return Err(refused("its folder has a name that is no text"));
    };
    sync_files(manifest, dir)?;
    step()?;
    let installing = Installing {
        manifest: manifest.clone(),
        dir: place.into(),
    };
    replace(store, &installing)
}

fn check(region: RegionId, segments: &[Segment], manifest: &Manifest) -> Result<(), RegionError> {
    if manifest.region != region {
        return Err(refused(format!(
            "it is of region {}, not {region}",
            manifest.region
        )));
    }
    let sorted = |segments: &[Segment]| {
        let mut segments = segments.to_vec();
        segments.sort_unstable();
        segments
    };
    if segments.is_empty() || sorted(segments) != sorted(&manifest.segments) {
        return Err(refused(format!(
            "region {region} has other slots than the snapshot"
        )));
    }
    Ok(())
}

/// Steps 2 to 7.
fn replace(store: &Store, installing: &Installing) -> Result<(), RegionError> {
    let Installing { manifest, dir } = installing;
    let region = manifest.region;
    let unreadable = || refused("its state row cannot be read");
    let state = State::parse(&manifest.state).ok_or_else(unreadable)?;
    guard(store, region, &manifest.segments);
    let mut batch = WriteBatch::default();
    let ranges = delete_rows(store, &mut batch, region, &manifest.segments)?;
    let info = store.open.db.family(Family::Info);
    batch.put_cf(&info, Installing::key(region), installing.encode());
    write_durably(store, &batch)?;
    drop_rows(store, &ranges, &manifest.segments)?;
    for (family, from, to) in &ranges {
        // The feed is never rewritten: its oldest files go as they are.
        if *family != Family::Feed {
            store.compact_range(*family, Some(from), Some(to));
        }
    }
    step()?;
    take_in(store, manifest, Path::new(dir))?;

    let mut batch = WriteBatch::default();
    batch.put_cf(&info, layout::state_key(region), &manifest.state);
    batch.delete_cf(&info, Installing::key(region));
    write_durably(store, &batch)?;
    unguard(store, region, &manifest.segments, &state);
    Ok(())
}

fn guard(store: &Store, region: RegionId, segments: &[Segment]) {
    let mut told = store.telling();
    told.guard(region);
    segments.iter().for_each(|segment| told.guard(segment.home));
    store.publish(&told);
}

fn unguard(store: &Store, region: RegionId, segments: &[Segment], state: &State) {
    tell(store, region, state);
    let others = segments.iter().filter(|segment| segment.home != region);
    others.for_each(|segment| tell(store, segment.home, state));
}

/// Step 5. Heads before elements, should anything look at them in between.
fn take_in(store: &Store, manifest: &Manifest, dir: &Path) -> Result<(), RegionError> {
    for family in Family::ALL {
        let of_family = manifest.files.iter().filter(|file| file.family == family);
        let paths = of_family.map(|file| (family, dir.join(&file.name)));
        let paths: Vec<_> = paths.collect();
        step()?;
        if !paths.is_empty() {
            files::take_in(&store.open.db, &paths).map_err(failed)?;
        }
        step()?;
    }
    Ok(())
}

pub(crate) fn unfinished(store: &Store) -> Result<Vec<Installing>, RegionError> {
    let mut found = Vec::new();
    let (from, to) = Installing::keys();
    let mut note = |_: &[u8], value: &[u8]| {
        found.push(Installing::decode(value));
        true
    };
    store.scan(Family::Info, &from, &to, false, Tier::All, &mut note)?;
    found.into_iter().collect()
}

pub(crate) fn redo(store: &Store, installing: &Installing) -> Result<Redone, RegionError> {
    let Installing { manifest, dir } = installing;
    match verify(manifest, Path::new(dir)) {
        Ok(()) => replace(store, installing).map(|()| Redone::Installed),
        Err(RegionError::Refused(why)) => {
            wipe(store, manifest)?;
            Ok(Redone::WantsSnapshot(why))
        }
        Err(error) => Err(error),
    }
}

/// The region has nothing, and says so.
fn wipe(store: &Store, manifest: &Manifest) -> Result<(), RegionError> {
    let (region, segments) = (manifest.region, &manifest.segments);
    let descriptor = State::parse(&manifest.state).map(|state| state.descriptor);
    let state = State {
        descriptor: descriptor.unwrap_or_default(),
        ..State::default()
    };
    let mut value = Vec::new();
    state.push(&mut value);
    let mut batch = WriteBatch::default();
    let ranges = delete_rows(store, &mut batch, region, segments)?;
    let info = store.open.db.family(Family::Info);
    batch.put_cf(&info, layout::state_key(region), value);
    batch.delete_cf(&info, Installing::key(region));
    write_durably(store, &batch)?;
    drop_rows(store, &ranges, segments)?;
    let whole = segments.iter().filter(|segment| is_whole(segment));
    whole.for_each(|segment| tell(store, segment.home, &state));
    Ok(())
}
