//! Stopping the node: SHUTDOWN, SIGTERM, SIGINT.
//!
//! Whoever asks notes it here; the thread that started the server sees it, saves if it should,
//! tells every core to stop and waits for their threads.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::Shared;
use crate::settings::SaveAtExit;

/// Why and how to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Write the data to disk first.
    pub save: bool,
}

#[derive(Default)]
pub struct Shutdown {
    asked: Mutex<Option<Stop>>,
    changed: Condvar,
}

impl Shutdown {
    /// Asks the node to stop. The first one to ask decides how.
    pub fn ask(&self, stop: Stop) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.get_or_insert(stop);
        self.changed.notify_all();
    }

    pub fn is_asked(&self) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_some()
    }

    /// Blocks the calling thread until somebody asks.
    pub fn wait(&self) -> Stop {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(stop) = *asked {
                return stop;
            }
            asked = self
                .changed
                .wait(asked)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Lets SIGTERM and SIGINT stop the node, from a thread of their own.
pub fn on_signals(shared: Arc<Shared>) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut terminate, mut interrupt) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        )
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                let settings = tokio::select! {
                    _ = terminate.recv() => shared.settings.current().shutdown_on_sigterm,
                    _ = interrupt.recv() => shared.settings.current().shutdown_on_sigint,
                };
                let save = match settings {
                    SaveAtExit::Default => !shared.settings.current().save.is_empty(),
                    SaveAtExit::Save => true,
                    SaveAtExit::NoSave => false,
                };
                shared.shutdown.ask(Stop { save });
            });
        })?;
    Ok(())
}
