//! A region's rows at one moment, as files another store can take in.
//!
//! Rows come ordered from the moment (which includes those that still wait for RocksDB) and go into one
//! file per family at a time, of some 64 MB each, so that a transfer that broke off goes on with the
//! file it was at. A file ends where a run ends (`keyspace::rows::reach`): between the first and the last
//! row of a file there are none of another region, so taking it in concerns nobody else.
//!
//! In memory are the blocks being written, and of each open file its index and its filter.

use std::fs;
use std::path::{Path, PathBuf};

use base::cluster::{RegionId, Segment};
use keyspace::rows::{
    Family, Gauge, Manifest, Pace, RegionError, RegionFile, RowSource, State, Tier, feed, reach,
    state_row,
};
use rust_rocksdb::{Options, SstFileWriter};

use super::files::{checksum, write_manifest};
use super::{failed, refused};
use crate::{Store, families};

/// A file ends when it has this size,
const FILE_BYTES: u64 = 64 << 20;
/// which is asked for after so many bytes of rows.
const ASK_BYTES: usize = 256 << 10;

pub(crate) fn export(
    store: &Store,
    moment: &dyn RowSource,
    region: RegionId,
    segments: &[Segment],
    dir: &Path,
    pace: &mut Pace<'_>,
) -> Result<Manifest, RegionError> {
    let exported = write(store, moment, region, segments, dir, pace);
    if exported.is_err() {
        // Half a snapshot is of use to nobody; if it cannot be removed, the next one does.
        let _ = fs::remove_dir_all(dir);
    }
    exported
}

fn write(
    store: &Store,
    moment: &dyn RowSource,
    region: RegionId,
    segments: &[Segment],
    dir: &Path,
    pace: &mut Pace<'_>,
) -> Result<Manifest, RegionError> {
    let row = state_row(moment, region)?;
    let row = row.ok_or_else(|| refused(format!("region {region} is not here")))?;
    let unreadable = || failed(format!("the state row of region {region} cannot be read"));
    let state = State::parse(&row).ok_or_else(unreadable)?;
    let manifest = Manifest::new(region, segments, row).ok_or_else(unreadable)?;
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(failed)?;
    }
    fs::create_dir_all(dir).map_err(failed)?;

    let options =
        Family::ALL.map(|family| families::of_files(&store.settings, &store.cache, family));
    let mut files = Files {
        dir,
        open: Family::ALL.map(|_| None),
        options: &options,
        manifest,
        gauge: Gauge::new(pace),
        failure: None,
    };
    let whole = reach(moment, segments, &state, &mut |row| {
        files.take(row.family, row.run, row.key, row.value)
    })?;
    if whole {
        let (from, to) = (feed::key(region, 0), feed::key(region.saturating_add(1), 0));
        let mut record = |key: &[u8], value: &[u8]| files.take(Family::Feed, 0, key, value);
        moment.scan(Family::Feed, &from, &to, false, Tier::All, &mut record)?;
    }
    files.finish()
}

struct Files<'a, 'p> {
    dir: &'a Path,
    options: &'a [Options; Family::ALL.len()],
    open: [Option<OpenFile<'a>>; Family::ALL.len()],
    manifest: Manifest,
    gauge: Gauge<'a, 'p>,
    failure: Option<RegionError>,
}

struct OpenFile<'a> {
    writer: SstFileWriter<'a>,
    path: PathBuf,
    name: String,
    run: u32,
    rows: u64,
    /// Bytes of rows since its size was asked for.
    bytes: usize,
}

impl<'a> Files<'a, '_> {
    /// Whether to go on.
    fn take(&mut self, family: Family, run: u32, key: &[u8], value: &[u8]) -> bool {
        let taken = self.put(family, run, key, value);
        if self.failure.is_none() {
            self.failure = taken.err();
        }
        if self.failure.is_none() && !self.gauge.add(key.len() + value.len()) {
            self.failure = Some(RegionError::Cancelled);
        }
        self.failure.is_none()
    }

    fn put(
        &mut self,
        family: Family,
        run: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), RegionError> {
        let place = family as usize;
        if let Some(file) = &mut self.open[place] {
            let is_full = file.bytes >= ASK_BYTES && {
                file.bytes = 0;
                file.writer.file_size() >= FILE_BYTES
            };
            if is_full || file.run != run {
                self.close(family)?;
            }
        }
        if self.open[place].is_none() {
            self.open[place] = Some(self.begin(family, run)?);
        }
        if let Some(file) = &mut self.open[place] {
            file.writer.put(key, value).map_err(failed)?;
            file.rows += 1;
            file.bytes += key.len() + value.len();
        }
        Ok(())
    }

    fn begin(&self, family: Family, run: u32) -> Result<OpenFile<'a>, RegionError> {
        let number = self.manifest.files.len() + self.open.iter().flatten().count();
        let name = format!("{}-{number:06}.sst", family.name());
        let path = self.dir.join(&name);
        let mut writer = SstFileWriter::create(&self.options[family as usize]);
        writer.open(&path).map_err(failed)?;
        Ok(OpenFile {
            writer,
            path,
            name,
            run,
            rows: 0,
            bytes: 0,
        })
    }

    fn close(&mut self, family: Family) -> Result<(), RegionError> {
        let Some(mut file) = self.open[family as usize].take() else {
            return Ok(());
        };
        // Synced by this.
        file.writer.finish().map_err(failed)?;
        let (bytes, crc32c) = checksum(&file.path).map_err(failed)?;
        self.manifest.add(RegionFile {
            family,
            name: file.name,
            bytes,
            rows: file.rows,
            crc32c,
        });
        Ok(())
    }

    fn finish(mut self) -> Result<Manifest, RegionError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        for family in Family::ALL {
            self.close(family)?;
        }
        // By family, in the order of their rows: the sort is stable.
        self.manifest.files.sort_by_key(|file| file.family);
        write_manifest(self.dir, &self.manifest)?;
        Ok(self.manifest)
    }
}
