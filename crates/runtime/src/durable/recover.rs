//! The start of a durable node: rows as of the last checkpoint, then the log behind them, run again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyspace::rows::{self, Changes, Family, RowError, RowSource, RowStore, Tier, WriteError};
use keyspace::{Keyspace, Tuning};
use node::{Member, Progress, Specs, execute_payload};
use replica::{LogError, Members, Ready, Replica, ReplicaConfig, ReplicaError};

use super::{Stores, log_id};

/// What a node knows of itself, in the family of states.
const NODE_ROW: &[u8] = b"node";
const NODE_VERSION: u8 = 1;
/// The only member of every region, as long as a node is alone.
const REPLICA_ID: u64 = 1;
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

impl From<LogError> for RecoverError {
    fn from(error: LogError) -> Self {
        RecoverError::Log(error.to_string())
    }
}

impl From<ReplicaError> for RecoverError {
    fn from(error: ReplicaError) -> Self {
        RecoverError::Log(error.to_string())
    }
}

/// What a start found.
pub struct Recovered {
    /// By region.
    pub regions: Vec<(Keyspace, Box<Member>)>,
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
    let mut replay = Replay {
        stores,
        known: progress.clone(),
        commands,
        tuning,
        applied: 0,
        replayed: 0,
        told: began,
        tell,
    };
    let mut regions = Vec::with_capacity(count);
    for region in 0..count {
        let (space, member) = replay.open(log_id(region), seed ^ log_id(region))?;
        progress.set_region(region, log_id(region), space.applied_index());
        regions.push((space, member));
    }
    let replayed = replay.replayed;
    if replay.applied > 0 {
        stores.rows.checkpoint()?;
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

struct Replay<'a> {
    stores: &'a Stores,
    known: Arc<Progress>,
    commands: &'a Specs,
    tuning: &'a Tuning,
    applied: u64,
    /// Of these, the ones that are not empty.
    replayed: u64,
    told: Instant,
    tell: &'a mut dyn FnMut(u64),
}

impl Replay<'_> {
    fn open(&mut self, home: u64, seed: u64) -> Result<(Keyspace, Box<Member>), RecoverError> {
        let rows = &self.stores.rows;
        let mut state: Option<Vec<u8>> = None;
        let key = rows::layout::state_key(home);
        rows.get(Family::Info, &key, Tier::All, &mut |value| {
            state = Some(value.into())
        })?;
        let source: Arc<dyn RowSource> = rows.clone();
        let mut space = Keyspace::durable(seed, home, state.as_deref(), source)
            .map_err(|what| RecoverError::Entry(format!("region {home}: {what}")))?;
        let config = ReplicaConfig {
            region: home,
            replica: REPLICA_ID,
            members: Members::of_voters([REPLICA_ID]),
            applied: space.applied_index(),
            seed,
            ..ReplicaConfig::default()
        };
        let mut replica = Replica::new(config, &*self.stores.log)?;
        let mut ready = Ready::default();
        while !replica.may_serve(0) {
            replica.ready(&mut ready);
            if let Some(fetch) = ready.fetch.take() {
                replica.fetch_now(&fetch, &*self.stores.log)?;
            }
            if let Some(write) = ready.write.take() {
                let number = write.number;
                self.stores.log.write(&[write], true)?;
                replica.on_persisted(number);
            }
            for committed in ready.committed.drain(..) {
                self.apply(&mut space, committed.index, &committed.payload)?;
                replica.on_applied(committed.index);
            }
        }
        let stamp_ms = space.last_stamp_ms();
        let (rows, known) = (rows.clone(), self.known.clone());
        let mut member = Member::new(replica, stamp_ms, rows, known);
        member.feed = self.stores.feed.then(Changes::new);
        Ok((space, Box::new(member)))
    }

    fn apply(
        &mut self,
        space: &mut Keyspace,
        index: u64,
        payload: &[u8],
    ) -> Result<(), RecoverError> {
        let mut changes = Changes::new();
        let store = &self.stores.rows;
        let is_rows = execute_payload(
            space,
            &**store,
            index,
            payload,
            self.commands,
            self.tuning,
            &mut changes,
        )
        .map_err(RecoverError::Entry)?;
        if self.stores.feed {
            rows::feed::note(&mut changes, space.home(), index, payload);
        }
        loop {
            match store.write(&[&changes]) {
                Ok(()) => break,
                Err(WriteError::Busy) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(write_error(error)),
            }
        }
        space.rows_written();
        if is_rows {
            space.apply_rows(&changes);
        }
        space.take_effects();
        space.take_garbage();
        self.applied += 1;
        self.replayed += u64::from(!payload.is_empty());
        if self.told.elapsed() > PROGRESS {
            self.told = Instant::now();
            (self.tell)(self.replayed);
        }
        Ok(())
    }
}

fn write_error(error: WriteError) -> RecoverError {
    RecoverError::Rows(match error {
        WriteError::Busy => "the store is busy".into(),
        WriteError::Failed(what) => what,
    })
}
