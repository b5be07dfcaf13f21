//! The regions of a node as they are found when it starts: none, in the log and the store, or as meta knows them
//! ([`crate::cluster::open_cluster`]).

use std::sync::Arc;
use std::thread::JoinHandle;

use node::Specs;
use settings::Settings;

use crate::Shared;
use crate::cluster::PeerDoor;
use crate::cores::{Map, OwnedRegions};
use crate::durable::{self, Checkpoints, Durable, RecoverError, Stores};
use crate::shared::random_seed;
use crate::tables::catalogue_change;

/// Why a node cannot be opened: one line for whoever started it.
#[derive(Debug)]
pub enum OpenError {
    Thread(std::io::Error),
    /// The data directory is there and cannot be used.
    Recover(RecoverError),
    /// It cannot be a node of a cluster.
    Cluster(String),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Recover(error) => write!(
                f,
                "{error}; nothing was changed. Put back a good copy of the data directory, or start \
                 with another one (--data-dir)"
            ),
            OpenError::Cluster(line) => f.write_str(line),
            OpenError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

/// A node that is about to serve.
pub struct Opened {
    pub shared: Arc<Shared>,
    /// By core.
    pub owned_by_core: Vec<OwnedRegions>,
    pub checkpoints: Option<Checkpoints>,
    /// Of a cluster node: those that are no cores.
    pub threads: Vec<JoinHandle<()>>,
    /// Of a cluster node: opened when it serves.
    pub peers: Option<PeerDoor>,
}

/// A node in memory, empty.
pub fn open_memory(settings: Settings, commands: Specs) -> Opened {
    let shared = Arc::new(Shared::new(settings, commands));
    let owned_by_core = owned_by_core(&shared);
    Opened {
        shared,
        owned_by_core,
        checkpoints: None,
        threads: Vec::new(),
        peers: None,
    }
}

/// The empty regions of every core.
fn owned_by_core(shared: &Shared) -> Vec<OwnedRegions> {
    (0..shared.map.cores())
        .map(|id| {
            let mut rng = fastrand::Rng::with_seed(shared.seed.wrapping_add(id as u64));
            OwnedRegions::new(&shared.map, id, || rng.u64(..))
        })
        .collect()
}

/// A durable node: brings the regions up to the end of their logs.
pub fn open_durable(
    settings: Settings,
    commands: Specs,
    stores: Stores,
) -> Result<Opened, OpenError> {
    let seed = random_seed();
    let cores = settings.num_shards.max(1);
    let mut progress = |entries| {
        tracing::info!(entries, "replaying the log: {entries} entries so far");
    };
    let (tuning, progress) = (&settings.tuning, &mut progress);
    let recovered = durable::recover(&stores, cores, seed, &commands, tuning, progress)
        .map_err(OpenError::Recover)?;
    if recovered.replayed > 0 {
        let (entries, took) = (recovered.replayed, recovered.took);
        tracing::info!(entries, ?took, "replayed the end of the log");
    }
    let catalogue = catalogue_change::kept(&*stores.rows).map_err(OpenError::Recover)?;
    let map = Map::of_regions(recovered.regions.len(), cores);
    let durable = Durable::start(stores, settings.log_sync, recovered.progress);
    let durable = durable.map_err(OpenError::Thread)?;
    durable.regions_known(recovered.regions.iter().map(|region| &region.space));
    let mut regions = recovered.regions.into_iter();
    let owned_by_core = (0..cores)
        .map(|core| {
            let own = map.regions_of(core).count();
            OwnedRegions::of(&map, core, regions.by_ref().take(own).collect())
        })
        .collect();
    let shared = Arc::new(Shared::with(settings, map, commands, Some(durable)));
    shared.publish_catalogue(catalogue);
    let checkpoints = Checkpoints::start(shared.clone()).map_err(OpenError::Thread)?;
    Ok(Opened {
        shared,
        owned_by_core,
        checkpoints: Some(checkpoints),
        threads: Vec::new(),
        peers: None,
    })
}
