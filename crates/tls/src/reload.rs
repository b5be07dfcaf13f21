//! The configuration in use, and how it is replaced: by `CONFIG SET`, by SIGHUP, and when a file has changed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use settings::TlsSettings;
use tokio::sync::Notify;

use crate::TlsError;
use crate::files::{self, Stamp};
use crate::server::{self, Loaded};

/// How often files are looked at.
pub const POLL: Duration = Duration::from_secs(1);

/// What the ports of a node speak.
#[derive(Default)]
pub struct Tls {
    current: ArcSwapOption<Loaded>,
    /// The files as they were when they were read last, well or not. Who holds it is the one that loads.
    seen: Mutex<Vec<Stamp>>,
    /// Settings have changed: whoever looks at files learns whether there are any.
    changed: Notify,
}

impl Tls {
    /// None: nothing speaks TLS.
    pub fn current(&self) -> Option<Arc<Loaded>> {
        self.current.load_full()
    }

    /// Uses these settings, if they can be used: at start, and by CONFIG SET.
    pub fn apply(&self, settings: &TlsSettings) -> Result<(), TlsError> {
        let mut seen = self.lock();
        if settings.is_on() {
            let stamps = files::stamps(settings);
            self.current.store(Some(Arc::new(server::load(settings)?)));
            *seen = stamps;
        } else {
            self.current.store(None);
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Reads the files again (SIGHUP). What was in use stays, if they cannot be used.
    pub fn reload(&self, settings: &TlsSettings) {
        if settings.is_on() {
            let stamps = files::stamps(settings);
            self.replace(settings, stamps);
        }
    }

    /// As [`Tls::reload`], if a file is not what it was. Files that are wrong are told of once.
    pub fn reload_if_changed(&self, settings: &TlsSettings) {
        if !settings.is_on() {
            return;
        }
        // Before they are read: what changes meanwhile is seen the next time.
        let stamps = files::stamps(settings);
        if *self.lock() != stamps {
            self.replace(settings, stamps);
        }
    }

    fn replace(&self, settings: &TlsSettings, stamps: Vec<Stamp>) {
        let mut seen = self.lock();
        match server::load(settings) {
            Ok(loaded) => {
                self.current.store(Some(Arc::new(loaded)));
                tracing::info!("TLS: certificates are read again; new connections get them");
            }
            Err(why) => {
                tracing::error!("TLS: the new certificates cannot be used, the former stay: {why}");
            }
        }
        *seen = stamps;
    }

    /// When files are to be looked at again; never, while nothing speaks TLS.
    pub async fn next_look(&self) {
        while self.current.load().is_none() {
            self.changed.notified().await;
        }
        tokio::time::sleep(POLL).await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Stamp>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
