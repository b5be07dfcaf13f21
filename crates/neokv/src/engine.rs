//! Opens what the chosen engine needs and starts the node on it.

use std::sync::Arc;

use rocks::{
    DataDir, Limits, Log, LogSettings, OpenError, Rejoin, Store, StoreSettings, WriteBehind,
};
use server::settings::Engine;
use server::{Settings, Stores};

use crate::import;

/// A running node, with the lock on its data.
pub struct Node {
    pub server: server::Server,
    /// Let go when everything is closed.
    _data: Option<DataDir>,
}

impl Node {
    /// Serves until it is asked to stop, then closes everything.
    pub fn wait(self) {
        self.server.wait();
    }
}

/// Starts a node, or says in one line why not.
pub fn start(mut settings: Settings) -> Result<Node, String> {
    match settings.engine {
        Engine::Memory if settings.import.is_some() => Err(
            "--import: the engine memory reads --dbfilename in --dir at every start; put the file there"
                .into(),
        ),
        Engine::Memory if settings.cluster.is_asked_for() => {
            Err("--engine memory: a cluster node keeps what it acknowledges; leave the engine at rocksdb".into())
        }
        Engine::Memory => {
            Ok(Node {
                server: server::start(settings).map_err(|error| error.to_string())?,
                _data: None,
            })
        }
        Engine::Rocksdb => {
            let data = DataDir::lock(&settings.dir).map_err(|error| error.to_string())?;
            server::make_room(&settings);
            import::run(&settings, &data)?;
            data.prepare().map_err(|error| error.to_string())?;
            for folder in data.lost_logs() {
                tracing::warn!(
                    "acknowledged writes were lost with a damaged log; what is left of them is in {}. Remove the \
                     folder when nobody needs it",
                    folder.display()
                );
            }
            let stores = open(&settings, &data)?;
            if let Some(rejoin) = data.rejoins().map_err(|error| error.to_string())? {
                settings.cluster.init = false;
                settings.cluster.replace = rejoin.node;
                if settings.cluster.join.is_empty() {
                    settings.cluster.join = rejoin.addresses;
                }
            }
            let is_cluster = settings.cluster.is_asked_for()
                || server::cluster::is_cluster_data(&*stores.rows)?;
            let started = match is_cluster {
                true => server::start_cluster(settings, stores),
                false => server::start_durable(settings, stores),
            };
            let server = started.map_err(|error| error.to_string())?;
            data.has_rejoined().map_err(|error| error.to_string())?;
            Ok(Node {
                server,
                _data: Some(data),
            })
        }
    }
}

/// A node of a cluster whose log has lost what was synced must not vote as who it was: it becomes a new node. `None` if
/// there is nobody it could get its data from.
fn set_aside(data: &DataDir, rows: Arc<Store>, what: &str) -> Result<Option<()>, String> {
    let (node, addresses) = server::cluster::other_nodes(&*rows)?;
    drop(rows);
    if addresses.is_empty() {
        return Ok(None);
    }
    let rejoin = Rejoin { node, addresses };
    let folder = data.set_aside(&rejoin);
    let folder = folder.map_err(|error| error.to_string())?;
    tracing::error!(
        "the log of this node has lost acknowledged writes: {what}. Its replicas may not vote any more. Its data is \
         moved to {}, and the node joins the cluster again as a new one, which gets its data from the others; they need \
         a majority without it. If none of them has the data either, stop all nodes, put this data back and accept the \
         loss: neokv accept-lost-log --data-dir {}",
        folder.display(),
        data.path().display()
    );
    data.prepare().map_err(|error| error.to_string())?;
    Ok(Some(()))
}

fn open(settings: &Settings, data: &DataDir) -> Result<Stores, String> {
    let log = LogSettings {
        file_bytes: (settings.log_bytes / 4).max(1 << 20),
        keep_bytes: settings.log_bytes.max(4 << 20),
        ..LogSettings::default()
    };
    let mut rows = open_rows(settings, data)?;
    let mut opened = Log::open(&data.log(), &log);
    if let Err(error @ OpenError::LostLog { what, .. }) = &opened {
        if set_aside(data, rows, what)?.is_none() {
            return Err(error.to_string());
        }
        rows = open_rows(settings, data)?;
        opened = Log::open(&data.log(), &log);
    }
    let log = opened.map_err(|error| error.to_string())?;
    let limits = Limits::for_memtables(rows.memtable_bytes());
    let rows = WriteBehind::start(rows, limits).map_err(|error| error.to_string())?;
    Ok(Stores {
        rows: rows as Arc<_>,
        log: log as Arc<_>,
        feed: settings.binlog,
    })
}

pub fn open_rows(settings: &Settings, data: &DataDir) -> Result<Arc<Store>, String> {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let rows = StoreSettings {
        block_cache_bytes: settings.block_cache_bytes,
        binlog_bytes: settings.binlog_bytes,
        ..StoreSettings::for_machine(settings.block_cache_bytes.saturating_mul(12), cpus)
    };
    Store::open(&data.rows(), &rows).map_err(|error| error.to_string())
}
