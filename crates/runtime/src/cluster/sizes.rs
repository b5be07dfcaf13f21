//! How large the replicas of this node are, about: the store is asked now and then, not with every
//! heartbeat.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base::cluster::{META_REGION, RegionId};
use keyspace::rows::RowStore;
use meta::wire::ReplicaReport;

const EVERY: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Sizes {
    asked: Option<Instant>,
    bytes: HashMap<RegionId, u64>,
}

impl Sizes {
    /// Completes reports. One of a replica that is new says 0 for a while.
    pub fn put(&mut self, rows: &dyn RowStore, reports: &mut [ReplicaReport]) {
        if self.asked.is_none_or(|at| at.elapsed() >= EVERY) {
            self.asked = Some(Instant::now());
            let owned_by_core: Vec<RegionId> = reports
                .iter()
                .map(|report| report.region)
                .filter(|&region| region != META_REGION)
                .collect();
            let sizes = rows.sizes(&owned_by_core);
            self.bytes = owned_by_core.into_iter().zip(sizes).collect();
        }
        for report in reports {
            report.size_bytes = self.bytes.get(&report.region).copied().unwrap_or(0);
        }
    }
}
