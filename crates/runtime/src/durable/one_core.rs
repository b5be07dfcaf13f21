//! For tests: a core of a node alone, with one region, on a store in memory. Nothing happens on it by
//! itself: no messages are heard, no turns ended.

use std::rc::Rc;
use std::sync::Arc;

use keyspace::rows::MapStore;
use node::Specs;
use replica::MapLog;
use settings::{LogSync, Settings};
use tokio::runtime::{Builder, LocalOptions};

use super::{Durable, Stores, recover};
use crate::Shared;
use crate::cores::{Core, Map, OwnedRegions};

/// Runs a test as the thread of a core would.
pub fn run_alone(test: impl Future<Output = ()>) {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(test);
}

/// A core with one region, on this store.
pub fn core(rows: Arc<MapStore>) -> Rc<Core> {
    let stores = Stores {
        rows,
        log: Arc::new(MapLog::new()),
        feed: false,
    };
    let commands = Specs::new(command::family::ALL.iter().copied().flatten().copied());
    let settings = Settings::default();
    let recovered = recover(&stores, 1, 1, &commands, &settings.tuning, &mut |_| {}).unwrap();
    let map = Map::of_regions(1, 1);
    let owned = OwnedRegions::of(&map, 0, recovered.regions);
    let durable = Durable::start(stores, LogSync::Always, recovered.progress).unwrap();
    let shared = Shared::with(settings, map, commands, Some(durable));
    Core::new(0, Arc::new(shared), owned)
}
