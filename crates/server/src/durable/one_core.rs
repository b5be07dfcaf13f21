//! For tests: a core of a node alone, with one region, on a store that may be busy. Nothing happens on it by
//! itself: no messages are heard, no turns ended.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use keyspace::rows::{
    Changes, Family, MapStore, RowError, RowSource, RowStore, StoreStats, Tier, WriteError,
};
use replica::MapLog;
use tokio::runtime::{Builder, LocalOptions};

use super::{Durable, LogSync, Stores, recover};
use crate::cores::{Core, Map, OwnedRegions, Region};
use crate::{Commands, Settings, Shared};

/// Runs a test as the thread of a core would.
pub fn run_alone(test: impl Future<Output = ()>) {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(test);
}

/// Takes nothing while it is told so.
#[derive(Default)]
pub struct Slow {
    pub rows: MapStore,
    pub is_busy: AtomicBool,
    /// Writes that it did not take.
    pub refused: AtomicUsize,
}

impl RowSource for Slow {
    fn get(
        &self,
        family: Family,
        key: &[u8],
        tier: Tier,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, RowError> {
        self.rows.get(family, key, tier, found)
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        to: &[u8],
        descending: bool,
        tier: Tier,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), RowError> {
        self.rows.scan(family, from, to, descending, tier, each)
    }
}

impl RowStore for Slow {
    fn write(&self, changes: &[&Changes]) -> Result<(), WriteError> {
        if self.is_busy.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(WriteError::Busy);
        }
        self.rows.write(changes)
    }

    fn checkpoint(&self) -> Result<(), RowError> {
        self.rows.checkpoint()
    }

    fn snapshot(&self) -> Arc<dyn RowSource> {
        self.rows.snapshot()
    }

    fn set_alive(&self, alive: &[(u64, u64)]) {
        self.rows.set_alive(alive);
    }

    fn start_compaction(&self) {}

    fn tidy(&self, _everything: bool) {}

    fn stop_tidying(&self) {}

    fn stats(&self) -> StoreStats {
        self.rows.stats()
    }
}

/// A core with one region, on this store.
pub fn core(rows: Arc<Slow>) -> Rc<Core> {
    let stores = Stores {
        rows,
        log: Arc::new(MapLog::new()),
        feed: false,
    };
    let (commands, settings) = (Commands::new(), Settings::default());
    let recovered = recover(&stores, 1, 1, &commands, &settings.tuning, &mut |_| {}).unwrap();
    let map = Map::of_regions(1, 1);
    let regions = recovered.regions.into_iter().enumerate();
    let regions = regions.map(|(id, (space, member))| Box::new(Region::durable(id, space, member)));
    let home = OwnedRegions::of(&map, 0, regions.collect());
    let durable = Durable::start(stores, LogSync::Always, recovered.progress, 1, false).unwrap();
    let shared = Shared::with(settings, map, commands, Some(durable));
    Core::new(0, Arc::new(shared), home)
}
