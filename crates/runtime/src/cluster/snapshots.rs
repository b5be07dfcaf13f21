//! Whole regions, from a leader to a replica that is too far behind for the log, or new.
//!
//! ```text
//!   leader's core                  a thread                      the other node
//!   settle, a moment of the rows ─► export to files ─► transport ─► folder, verified
//!   on_snapshot_made ◄───────────── sent                            │
//!   MsgSnapshot ────────────────────────────────────────────────► files there? step
//!                                                                   keyspace away ─► a thread:
//!                                                                   install ─► keyspace opened
//!                                                                   on_installed
//! ```
//!
//! Files on their way are under `snapshots/` in the data directory; what a crash leaves there is
//! removed at the next start, once interrupted installs are done again.
//!
//! A replica asks every few seconds for what it still needs; a large region takes longer than that. One
//! snapshot at a time is on its way to a member: another would have the region's size on disk once
//! more, and of a region that stands still the very files of the first.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::cluster::{NodeId, ReplicaId};
use bytes::Bytes;
use keyspace::Keyspace;
use keyspace::rows::{Manifest, RowSource};
use node::{Peers, open_space};
use replica::SnapshotHead;
use transport::{Accept, IncomingOffer, OutgoingSnapshot, SnapshotFile};

use super::Task;
use crate::Shared;
use crate::cores::{Core, Place};

const LOOK: Duration = Duration::from_millis(20);

/// Snapshots that have arrived and wait to be installed: by region, the manifest and the folder.
#[derive(Default)]
pub struct Received(Mutex<HashMap<u64, (Bytes, PathBuf)>>);

impl Received {
    fn put(&self, region: u64, manifest: Bytes, folder: PathBuf) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, old)) = all.insert(region, (manifest, folder.clone()))
            && old != folder
        {
            let _ = std::fs::remove_dir_all(old);
        }
    }

    /// Gives away the files, under a name that no other transfer of this region uses.
    fn take(&self, region: u64, manifest: &Bytes) -> Option<PathBuf> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&region)?.0 != manifest {
            return None;
        }
        let (_, folder) = all.remove(&region)?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let taken = folder.with_file_name(format!("install-{region}-{count}"));
        std::fs::rename(&folder, &taken).ok()?;
        Some(taken)
    }
}

/// Where files on their way are.
pub fn folder(data: &Path) -> PathBuf {
    data.join("snapshots")
}

/// What a thread has done for a region.
pub enum Done {
    Sent {
        to: ReplicaId,
        head: Box<SnapshotHead>,
        result: Result<(), String>,
    },
    Installed {
        index: u64,
        result: Result<Box<Keyspace>, String>,
    },
}

impl Core {
    /// A member needs what the log has forgotten.
    pub(crate) fn on_snapshot_wanted(self: &Rc<Self>, place: Place, to: ReplicaId) {
        let (Some(durable), Some(cluster)) = (&self.shared.durable, &self.shared.cluster) else {
            return;
        };
        if self.sending.borrow().contains(&to) {
            return; // it is told of when it is there, or not to be had
        }
        let mut owned = self.regions.borrow_mut();
        let Some(region) = owned.region_mut(place) else {
            return;
        };
        // What is not in the store yet cannot be sent; it is asked for again.
        let Some(head) = region.snapshot_head() else {
            return;
        };
        let Some(member) = region.member.as_deref_mut() else {
            return;
        };
        let Some(peers) = member.peers.as_deref() else {
            return;
        };
        let Some(node) = peers.node_of(to) else {
            return member.replica.report_snapshot(to, false);
        };
        let descriptor = peers.record.descriptor.clone();
        let moment = durable.stores.rows.snapshot();
        drop(owned);
        self.sending.borrow_mut().insert(to);
        let (shared, cluster, core) = (self.shared.clone(), cluster.clone(), self.id);
        let sending = Sending {
            shared: shared.clone(),
            cluster,
            region: descriptor.region,
            to,
            node,
        };
        let spawned = std::thread::Builder::new()
            .name("snapshot".into())
            .spawn(move || {
                let mut head = head;
                // It only reads.
                let result =
                    base::contained(|| sending.run(&descriptor.segments, &*moment, &mut head));
                let result = result.unwrap_or_else(|_| Err("its thread broke".into()));
                drop(moment);
                let done = Done::Sent {
                    to,
                    head: Box::new(head),
                    result,
                };
                if let Some(mailbox) = shared.mailboxes.get(core) {
                    mailbox.send(Task::Snapshot { place, done }.into());
                }
            });
        if spawned.is_err() {
            self.sending.borrow_mut().remove(&to);
            let mut owned = self.regions.borrow_mut();
            if let Some(member) = owned
                .region_mut(place)
                .and_then(|r| r.member.as_deref_mut())
            {
                member.replica.report_snapshot(to, false);
            }
        }
    }

    /// Whether the files of a snapshot that a message announces are here. They are this region's
    /// from now on: another transfer of it, even of the same snapshot, does not touch them.
    pub(crate) fn claim_files(&self, peers: &mut Peers, head: &SnapshotHead) -> bool {
        if peers.is_installing {
            return false;
        }
        if peers.files.as_ref().is_some_and(|it| it.0 == head.data) {
            return true;
        }
        let Some(cluster) = &self.shared.cluster else {
            return false;
        };
        let Some(folder) = cluster.received.take(peers.record.region(), &head.data) else {
            return false;
        };
        if let Some((_, unused)) = peers.files.replace((head.data.clone(), folder)) {
            let _ = std::fs::remove_dir_all(unused);
        }
        true
    }

    /// The region's state is replaced by a snapshot: a thread installs it.
    pub(crate) fn begin_install(self: &Rc<Self>, place: Place, head: SnapshotHead) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let (id, folder) = {
            let mut owned = self.regions.borrow_mut();
            let member = owned.member_mut(place);
            let Some(peers) = member.and_then(|member| member.peers.as_deref_mut()) else {
                return;
            };
            let files = peers.files.take().filter(|it| it.0 == head.data);
            (peers.record.region(), files.map(|it| it.1))
        };
        let (shared, core) = (self.shared.clone(), self.id);
        let (rows, seed) = (durable.stores.rows.clone(), self.next_seed());
        let spawned = std::thread::Builder::new()
            .name("install".into())
            .spawn(move || {
                let installed = || {
                    let manifest = Manifest::decode(&head.data).map_err(|e| e.to_string())?;
                    let folder = folder.as_ref().ok_or("its files are not here")?;
                    if manifest.applied_index != head.index {
                        return Err("the manifest is that of another snapshot".into());
                    }
                    rows.install(id, &manifest.segments, &manifest, folder)
                        .map_err(|error| error.to_string())?;
                    open_space(&rows, id, seed)
                };
                let result: Result<Keyspace, String> = installed();
                if let Some(folder) = folder {
                    let _ = std::fs::remove_dir_all(folder);
                }
                let done = Done::Installed {
                    index: head.index,
                    result: result.map(Box::new),
                };
                if let Some(mailbox) = shared.mailboxes.get(core) {
                    mailbox.send(Task::Snapshot { place, done }.into());
                }
            });
        if let Err(error) = spawned {
            durable.fail(&format!("no thread to install a snapshot: {error}"));
        }
    }

    pub(super) fn on_snapshot_done(self: &Rc<Self>, place: Place, done: Done) {
        let mut owned = self.regions.borrow_mut();
        let Some(region) = owned.region_mut(place) else {
            if owned.is_used(place) {
                // It is lent for a moment.
                let core = self.clone();
                tokio::task::spawn_local(async move {
                    tokio::time::sleep(LOOK).await;
                    core.begin_batch();
                    core.on_snapshot_done(place, done);
                });
            } else if let Done::Sent { to, .. } = done {
                self.sending.borrow_mut().remove(&to);
            }
            return;
        };
        match done {
            Done::Sent { to, head, result } => {
                self.sending.borrow_mut().remove(&to);
                let Some(member) = region.member.as_deref_mut() else {
                    return;
                };
                match result {
                    Ok(()) => member.replica.on_snapshot_made(to, &head),
                    Err(reason) => {
                        member.replica.report_snapshot(to, false);
                        let region = member.peers.as_ref().map(|it| it.record.region());
                        let node = self.shared.cluster.as_ref().map(|it| it.node);
                        tracing::warn!(node, region, "a snapshot was not sent: {reason}");
                    }
                }
            }
            Done::Installed { index, result } => match result {
                Ok(space) => {
                    let Some(cluster) = &self.shared.cluster else {
                        return;
                    };
                    drop(owned);
                    let region = self.with_regions(|regions, cx, _| {
                        let region = regions.region_mut(place)?;
                        region.on_installed(index, *space, cx);
                        let peers = region.member.as_deref()?.peers.as_deref()?;
                        Some(peers.record.region())
                    });
                    let node = cluster.node;
                    tracing::info!(node, region, index, "a snapshot is installed");
                    self.drive(place);
                    return self.end_turn();
                }
                Err(reason) => {
                    drop(owned);
                    if let Some(durable) = &self.shared.durable {
                        let text = format!("a snapshot cannot be installed: {reason}");
                        durable.fail(&text);
                    }
                    return self.fail_region(place);
                }
            },
        }
        drop(owned);
        self.drive(place);
        self.end_turn();
    }
}

/// A snapshot on its way out.
struct Sending {
    shared: Arc<Shared>,
    cluster: Arc<super::Cluster>,
    region: u64,
    to: ReplicaId,
    node: NodeId,
}

impl Sending {
    fn run(
        &self,
        segments: &[base::cluster::Segment],
        moment: &dyn RowSource,
        head: &mut SnapshotHead,
    ) -> Result<(), String> {
        let Some(durable) = &self.shared.durable else {
            return Err("no store".into());
        };
        let data = self.shared.settings.current().dir.clone();
        let id = format!("{}-{}-{}-{}", self.region, head.index, head.term, self.to);
        let folder = folder(&data).join(format!("out-{id}"));
        let stopped = || self.shared.shutdown.is_asked();
        let result = (|| {
            let rows = &durable.stores.rows;
            let mut pace = |_: u64| !stopped();
            let manifest = rows
                .export(moment, self.region, segments, &folder, &mut pace)
                .map_err(|error| error.to_string())?;
            head.data = manifest.encode().into();
            let files = manifest.files.iter().map(|file| SnapshotFile {
                name: file.name.clone(),
                path: folder.join(&file.name),
                crc32c: Some(file.crc32c),
            });
            let outgoing = OutgoingSnapshot {
                region: self.region,
                id,
                meta: head.data.clone(),
                files: files.collect(),
            };
            let transfer = self.cluster.transport.send_snapshot(self.node, outgoing);
            loop {
                match transfer.result() {
                    Some(result) => return result.map_err(|error| error.to_string()),
                    None if stopped() => return Err("the node stops".into()),
                    None => std::thread::sleep(LOOK),
                }
            }
        })();
        let _ = std::fs::remove_dir_all(&folder);
        result
    }
}

/// A peer wants to send a snapshot.
pub fn on_offer(shared: &Shared, _from: NodeId, offer: &IncomingOffer) -> Accept {
    let Some(cluster) = &shared.cluster else {
        return Accept::Refuse("this node is alone".into());
    };
    if cluster.table.place_of(offer.region).is_none() {
        return Accept::Refuse(format!("no replica of region {} is here", offer.region));
    }
    match Manifest::decode(&offer.meta) {
        Ok(manifest) if manifest.region == offer.region => {}
        _ => return Accept::Refuse("its manifest makes no sense".into()),
    }
    let is_name = |id: &str| id.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if !is_name(&offer.id) {
        return Accept::Refuse("a name that makes no sense".into());
    }
    let data = shared.settings.current().dir.clone();
    Accept::Into(folder(&data).join(format!("in-{}", offer.id)))
}

/// All files of a snapshot are here.
pub fn on_complete(
    shared: &Shared,
    _from: NodeId,
    offer: &IncomingOffer,
    folder: PathBuf,
) -> Result<(), String> {
    let cluster = shared.cluster.as_ref().ok_or("this node is alone")?;
    cluster
        .received
        .put(offer.region, offer.meta.clone(), folder);
    Ok(())
}

/// What a crash has left: interrupted installs are done again, the rest of the files goes.
pub fn recover(shared_rows: &dyn keyspace::rows::RowStore, data: &Path) -> Result<(), String> {
    let unfinished = shared_rows
        .unfinished_installs()
        .map_err(|error| error.to_string())?;
    for installing in unfinished {
        let redone = shared_rows
            .redo_install(&installing)
            .map_err(|error| error.to_string())?;
        if let keyspace::rows::Redone::WantsSnapshot(why) = redone {
            let region = installing.manifest.region;
            tracing::warn!(region, "region {region} has to be fetched again: {why}");
        }
    }
    let _ = std::fs::remove_dir_all(folder(data));
    Ok(())
}
