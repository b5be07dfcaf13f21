//! Changing the catalogue: where it is kept, and how it becomes known.
//!
//! ```text
//!   change(&old) -> new ──► kept (a row on disk; in a cluster: meta) ──► published in `Shared` ──► answered
//! ```
//!
//! Kept before it is published: what a client was told survives a crash. The change may be asked again, if somebody else
//! was quicker.

use std::sync::Arc;
use std::time::Duration;

use base::Refusal;
use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier, WriteError};

use super::catalogue::Catalogue;
use crate::Shared;
use crate::durable::RecoverError;

/// Where a node keeps its catalogue (in a cluster, what it last heard of it), in the family of states.
const ROW: &[u8] = b"tables";

pub const MEMORY_ENGINE: Refusal = Refusal::new(
    "ERR tables need the engine rocksdb, because a row that is acknowledged must be on disk; start the server with --engine rocksdb",
);

/// Replaces the catalogue by what `change` makes of it. Returns when it is kept and this node knows it; in a cluster, when all
/// nodes that live do.
pub async fn change_catalogue(
    shared: &Arc<Shared>,
    change: impl Fn(&Catalogue) -> Result<Catalogue, Refusal>,
) -> Result<Arc<Catalogue>, Refusal> {
    if let Some(cluster) = &shared.cluster {
        let _one_at_a_time = shared.catalogue_change.lock().await;
        return crate::cluster::change_tables(shared, cluster, change).await;
    }
    let Some(durable) = &shared.durable else {
        return Err(MEMORY_ENGINE);
    };
    if let Some(refusal) = durable.refusal() {
        return Err(refusal);
    }
    let _one_at_a_time = shared.catalogue_change.lock().await;
    let next = change(&shared.catalogue.load())?;
    let (rows, bytes) = (durable.stores.rows.clone(), next.encode());
    let kept = off_core(move || keep(&*rows, &bytes)).await;
    if let Err(why) = kept {
        return Err(Refusal::text_of(format!(
            "ERR the catalogue of tables could not be written: {why}"
        )));
    }
    shared.publish_catalogue(next);
    Ok(shared.catalogue.load_full())
}

/// Writes it and waits for the disk: not for cores.
pub fn keep(rows: &dyn RowStore, bytes: &[u8]) -> Result<(), String> {
    keep_row(rows, ROW, bytes)
}

/// Writes a row of the family of states and waits for the disk: not for cores.
pub fn keep_row(rows: &dyn RowStore, row: &[u8], bytes: &[u8]) -> Result<(), String> {
    let mut changes = Changes::new();
    changes.put(Family::Info, row, bytes);
    loop {
        match rows.write(&[&changes]) {
            Ok(()) => break,
            Err(WriteError::Busy) => std::thread::sleep(Duration::from_millis(1)),
            Err(WriteError::Failed(why)) => return Err(why),
        }
    }
    let flushed = rows.keep().map_err(RecoverError::from);
    flushed.map_err(|error| error.to_string())
}

/// The catalogue that a node had when it stopped.
pub fn kept(rows: &dyn RowSource) -> Result<Catalogue, RecoverError> {
    match kept_row(rows, ROW)? {
        Some(bytes) => Catalogue::decode(&bytes).map_err(RecoverError::Entry),
        None => Ok(Catalogue::default()),
    }
}

/// What [`keep_row`] wrote last.
pub fn kept_row(rows: &dyn RowSource, row: &[u8]) -> Result<Option<Vec<u8>>, RecoverError> {
    let mut found: Option<Vec<u8>> = None;
    rows.get(Family::Info, row, Tier::All, &mut |value| {
        found = Some(value.into())
    })?;
    Ok(found)
}

/// Runs what waits for the disk on a thread of its own.
pub async fn off_core<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (to, from) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("catalogue".into())
        .spawn(move || {
            let _ = to.send(work());
        })
        .map_err(|error| error.to_string())?;
    let gone = |_| Err("the thread that wrote it died".into());
    from.await.unwrap_or_else(gone)
}
