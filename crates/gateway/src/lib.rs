//! The HTTP port: numbers for Prometheus, whether the node is well, and rows over gRPC.
//!
//! ```text
//!   door      the sockets, from the start on        metrics   /metrics
//!   serve     connections and pages                 rows      the service neokv.table.v1
//!   access    who may ask
//! ```
//!
//! One thread with an event loop of its own. It never touches a keyspace and no core waits for it: what it tells was left in
//! atomics ([`stats`]), what it does for gRPC goes through ordinary sessions.

mod access;
mod door;
pub mod metrics;
mod rows;
mod serve;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use runtime::Shared;
use session::SessionRuns;
use tokio::sync::watch;

pub use door::Door;

/// How long a stopping node lets calls end.
const LAST_CALLS: Duration = Duration::from_millis(500);

/// The running thread.
pub struct Http {
    thread: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Http {
    /// None if there is no door. `runs` is for sessions that calls go through.
    pub fn start(
        shared: &Arc<Shared>,
        runs: &Arc<SessionRuns>,
        door: Option<Door>,
    ) -> std::io::Result<Option<Http>> {
        let Some(door) = door else {
            return Ok(None);
        };
        shared.http_port.store(door.port(), Ordering::Relaxed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listeners = {
            let _inside = runtime.enter();
            door.listen()?
        };
        let (stop, stopped) = watch::channel(false);
        let (shared, runs) = (shared.clone(), runs.clone());
        let thread = std::thread::Builder::new()
            .name("http".into())
            .spawn(move || {
                runtime.block_on(serve::run(shared, runs, listeners, stopped));
                // A task that does not listen is no reason to wait.
                runtime.shutdown_timeout(Duration::ZERO);
            })?;
        Ok(Some(Http { thread, stop }))
    }

    /// No new calls; those that run may end, for a moment.
    pub fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.thread.join();
    }
}
