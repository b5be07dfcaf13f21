//! One thread per core, each with an event loop of its own.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Core, CoreId, OwnedRegions};
use crate::Shared;

/// Starts the cores. Each begins with what `begin` is for it (its listeners), on its own thread.
pub fn start_cores<Begin>(
    shared: &Arc<Shared>,
    owned_by_core: Vec<OwnedRegions>,
    begin: impl IntoIterator<Item = Begin>,
) -> io::Result<Vec<JoinHandle<()>>>
where
    Begin: FnOnce(&Rc<Core>) -> io::Result<()> + Send + 'static,
{
    let mut threads = Vec::new();
    for (id, (begin, owned)) in begin.into_iter().zip(owned_by_core).enumerate() {
        let shared = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("core-{id}"))
            .spawn(move || {
                if let Err(error) = run(id, shared, owned, begin) {
                    tracing::error!(core = id, "core {id} stopped: {error}");
                }
            })?;
        threads.push(thread);
    }
    Ok(threads)
}

/// The life of one core's thread.
fn run(
    id: CoreId,
    shared: Arc<Shared>,
    owned: OwnedRegions,
    begin: impl FnOnce(&Rc<Core>) -> io::Result<()>,
) -> io::Result<()> {
    let mailbox = shared.mailboxes[id].clone();
    let (before, after) = (mailbox.clone(), mailbox);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || before.before_park())
        .on_thread_unpark(move || after.after_unpark())
        .build_local(tokio::runtime::LocalOptions::default())?;
    runtime.block_on(async move {
        let core = Core::new(id, shared, owned);
        begin(&core)?;
        tokio::task::spawn_local(core.clone().run_upkeep());
        if core.shared.cluster.is_some() {
            tokio::task::spawn_local(core.clone().run_ticks());
        }
        if core.shared.durable.is_some() {
            tokio::task::spawn_local(core.clone().run_turn_ends());
            tokio::task::spawn_local(core.clone().run_tables());
        }
        // Ends when the node stops.
        tokio::task::spawn_local(core.clone().run_messages())
            .await
            .map_err(io::Error::other)?;
        core.last_words().await;
        Ok(())
    })
}

impl Core {
    /// Lets sessions write what they have, for a moment.
    async fn last_words(&self) {
        for _ in 0..50 {
            if self.clients.borrow().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
