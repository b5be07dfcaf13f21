//! Secrets and certificates that change on disk: read again, without a restart.
//!
//! The files are looked at every second, by the thread for disk work of snapshots: a disk that hangs holds up no
//! connection. What cannot be read leaves everything as it was, and is told.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::tls::Armour;
use crate::transport::Shared;

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// When each file was changed, and how long it is.
type Seen = Vec<Option<(SystemTime, u64, u64)>>;

/// For ever, if there is anything to look at.
pub async fn watch(shared: Arc<Shared>) {
    if shared.config.tls.is_none() && shared.secrets.is_none() {
        return;
    }
    let mut before = look(&shared).await;
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let now = look(&shared).await;
        if now == before {
            continue;
        }
        before = now;
        let shared = shared.clone();
        let _ = tokio::task::spawn_blocking(move || reload(&shared)).await;
    }
}

fn files(shared: &Shared) -> Vec<PathBuf> {
    if let Some(tls) = &shared.config.tls {
        return vec![
            tls.certificate.clone(),
            tls.key.clone(),
            tls.authority.clone(),
        ];
    }
    let file = shared.secrets.as_ref().and_then(|it| it.file());
    file.into_iter().collect()
}

async fn look(shared: &Arc<Shared>) -> Seen {
    let shared = shared.clone();
    let looking = tokio::task::spawn_blocking(move || {
        let seen = |file: &PathBuf| {
            use std::os::unix::fs::MetadataExt;
            let found = file.metadata().ok()?;
            Some((found.modified().ok()?, found.len(), found.ino()))
        };
        files(&shared).iter().map(seen).collect()
    });
    looking.await.unwrap_or_default()
}

/// Takes over what the files say now.
pub fn reload(shared: &Shared) {
    let failed = |error: std::io::Error| {
        let line = format!("kept what was in force before: {error}");
        shared.notice("reload", &line);
    };
    if let Some(tls) = &shared.config.tls {
        match Armour::load(tls) {
            Ok(armour) => {
                shared.set_armour(armour);
                tracing::info!(target: "transport", "new connections use the new certificates");
            }
            Err(error) => failed(error),
        }
    }
    if let Some(secrets) = &shared.secrets {
        match secrets.reload() {
            Ok(true) => {
                let count = secrets.all().len();
                tracing::info!(
                    target: "transport",
                    count,
                    "the file of the cluster secret has changed: {count} in force"
                );
            }
            Ok(false) => {}
            Err(error) => failed(error),
        }
    }
}
