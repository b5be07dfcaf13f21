//! The start of a durable node: rows as of the last checkpoint, then the log behind them, run again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyspace::Tuning;
use keyspace::rows::{Changes, Family, RowError, RowSource, RowStore, Tier, WriteError};
use node::{Paused, Progress, RegionBox, Replay, ReplayError, Specs};

use super::{Stores, log_id, room};

/// What a node knows of itself, in the family of states.
const NODE_ROW: &[u8] = b"node";
const NODE_VERSION: u8 = 1;
/// Long recoveries tell how far they are this often.
const PROGRESS: Duration = Duration::from_secs(5);

/// Why a node cannot start from its data.
#[derive(Debug)]
pub enum RecoverError {
    Rows(String),
    Log(String),
    /// An entry, or the state of a region, cannot be read.
    Entry(String),
}

impl std::fmt::Display for RecoverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecoverError::Rows(what) => write!(f, "the rows cannot be used: {what}"),
            RecoverError::Log(what) => write!(f, "the log cannot be used: {what}"),
            RecoverError::Entry(what) => f.write_str(what),
        }
    }
}

impl From<RowError> for RecoverError {
    fn from(error: RowError) -> Self {
        RecoverError::Rows(match error {
            RowError::Cold => "a row is not in memory".into(),
            RowError::Failed(what) => what,
        })
    }
}

impl From<ReplayError> for RecoverError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Rows(what) => RecoverError::Rows(what),
            ReplayError::Log(what) => RecoverError::Log(what),
            ReplayError::Entry(what) => RecoverError::Entry(what),
        }
    }
}

/// What a start found.
pub struct Recovered {
    pub regions: Vec<RegionBox>,
    pub progress: Arc<Progress>,
    /// Entries of the log that were run again. Those that elect a leader are empty and do not count.
    pub replayed: u64,
    pub took: Duration,
}

/// Opens all regions and brings them up to the end of the log. A new data directory gets one
/// region per core.
pub fn recover(
    stores: &Stores,
    cores: usize,
    seed: u64,
    commands: &Specs,
    tuning: &Tuning,
    tell: &mut dyn FnMut(u64),
) -> Result<Recovered, RecoverError> {
    let began = Instant::now();
    let count = region_count(&*stores.rows, cores)?;
    let progress = Arc::new(Progress::new(count));
    let mut told = began;
    let mut pause = |paused: Paused| match paused {
        Paused::StoreBusy => std::thread::sleep(Duration::from_millis(1)),
        Paused::Replayed(count) => {
            if told.elapsed() > PROGRESS {
                told = Instant::now();
                tell(count);
            }
        }
    };
    let mut replay = Replay {
        rows: &stores.rows,
        log: &*stores.log,
        progress: &progress,
        specs: commands,
        tuning,
        feed: stores.feed,
        pause: &mut pause,
        applied: 0,
        replayed: 0,
    };
    let mut regions = Vec::with_capacity(count);
    for place in 0..count {
        let home = log_id(place);
        regions.push(replay.open(place, home, seed ^ home)?);
    }
    let replayed = replay.replayed;
    if replay.applied > 0 {
        match stores.rows.checkpoint() {
            // The log has it all still.
            Err(RowError::Failed(what)) if room::lacks_room(&what) => {
                tracing::warn!("no room for a checkpoint behind the replay: {what}");
            }
            done => done?,
        }
    }
    Ok(Recovered {
        regions,
        progress,
        replayed,
        took: began.elapsed(),
    })
}

/// How many regions the data of a node that is alone is in; none, if it is not that.
pub fn region_count_of(rows: &dyn RowSource) -> Result<Option<usize>, RecoverError> {
    let mut found: Option<Vec<u8>> = None;
    rows.get(Family::Info, NODE_ROW, Tier::All, &mut |value| {
        found = Some(value.into())
    })?;
    match found.as_deref() {
        Some([NODE_VERSION, count @ ..]) => {
            let count = <[u8; 4]>::try_from(count).map(u32::from_le_bytes);
            match count {
                Ok(count @ 1..=64) => Ok(Some(count as usize)),
                _ => Err(RecoverError::Entry("the node's own row is damaged".into())),
            }
        }
        Some(_) => Err(RecoverError::Entry(
            "the data directory was made by a newer version of neokv; use that version".into(),
        )),
        None => Ok(None),
    }
}

/// How many regions the data is in; decided when the directory is made.
pub fn region_count(rows: &dyn RowStore, cores: usize) -> Result<usize, RecoverError> {
    if let Some(count) = region_count_of(rows)? {
        return Ok(count);
    }
    let count = cores.clamp(1, crate::cores::MOST_REGIONS);
    let mut value = vec![NODE_VERSION];
    value.extend_from_slice(&(count as u32).to_le_bytes());
    let mut changes = Changes::new();
    changes.put(Family::Info, NODE_ROW, &value);
    rows.write(&[&changes]).map_err(write_error)?;
    rows.checkpoint()?;
    Ok(count)
}

fn write_error(error: WriteError) -> RecoverError {
    RecoverError::Rows(match error {
        WriteError::Busy => "the store is busy".into(),
        WriteError::Failed(what) => what,
    })
}
