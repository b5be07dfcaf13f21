//! Opens what the chosen engine needs and starts the node on it.

use std::sync::Arc;

use rocks::{DataDir, Limits, Log, LogSettings, Store, StoreSettings, WriteBehind};
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
pub fn start(settings: Settings) -> Result<Node, String> {
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
            import::run(&settings, &data)?;
            data.prepare().map_err(|error| error.to_string())?;
            let stores = open(&settings, &data)?;
            let is_cluster = settings.cluster.is_asked_for()
                || server::cluster::is_cluster_data(&*stores.rows)?;
            let started = match is_cluster {
                true => server::start_cluster(settings, stores),
                false => server::start_durable(settings, stores),
            };
            Ok(Node {
                server: started.map_err(|error| error.to_string())?,
                _data: Some(data),
            })
        }
    }
}

fn open(settings: &Settings, data: &DataDir) -> Result<Stores, String> {
    let log = LogSettings {
        file_bytes: (settings.log_bytes / 4).max(1 << 20),
        keep_bytes: settings.log_bytes.max(4 << 20),
        ..LogSettings::default()
    };
    let rows = open_rows(settings, data)?;
    let log = Log::open(&data.log(), &log).map_err(|error| error.to_string())?;
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
