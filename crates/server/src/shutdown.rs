//! Stopping the node: SHUTDOWN, SIGTERM, SIGINT.
//!
//! Whoever wants it to stop saves first if that is wanted ([`crate::snapshotting::shut_down`]), then
//! notes it here; the thread that started the server sees it, tells every core to stop and waits
//! for their threads.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use settings::SaveAtExit;

use crate::Shared;
use crate::cores::Message;

#[derive(Default)]
pub struct Shutdown {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Shutdown {
    /// Asks the node to stop.
    pub fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    pub fn is_asked(&self) -> bool {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks the calling thread until somebody asks.
    pub fn wait(&self) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        while !*asked {
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
                loop {
                    let settings = shared.settings.current();
                    let (name, at_exit) = tokio::select! {
                        _ = terminate.recv() => ("SIGTERM", settings.shutdown_on_sigterm),
                        _ = interrupt.recv() => ("SIGINT", settings.shutdown_on_sigint),
                    };
                    let settings = shared.settings.current();
                    let save = match at_exit {
                        SaveAtExit::Default => !settings.save.is_empty(),
                        SaveAtExit::Save => true,
                        SaveAtExit::NoSave => false,
                    };
                    tracing::info!("{name}: stopping");
                    if let Some(mailbox) = shared.mailboxes.first() {
                        mailbox.send(Message::ShutDown { save });
                    }
                }
            });
        })?;
    Ok(())
}
