//! Whether all replicas of a region are the same: an entry of its log asks each for a digest of its
//! state as of that entry.
//!
//! ```text
//!   ctl ─► any node ─► the leader's node: propose Digest(id) ─► every replica applies it:
//!                          │                                   settle, a moment ─► a thread: digest
//!                          └─► asks every member's node ─► (index, digest) ─► compared by who asked
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::cluster::RegionId;
use bytes::Bytes;
use node::DigestRequest;
use prost::Message;
use transport::{Reply, Target};

use super::{METHOD_DIGEST, METHOD_DIGEST_OF, Task};
use crate::Shared;
use crate::cores::Core;
use crate::shared::random_seed;

const MOST: usize = 256;
const CALL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(50);

/// One replica's answer.
#[derive(Clone, PartialEq, Message)]
pub struct Digest {
    #[prost(uint64, tag = "1")]
    pub node: u64,
    #[prost(uint64, tag = "2")]
    pub replica: u64,
    #[prost(uint64, tag = "3")]
    pub index: u64,
    #[prost(bytes = "bytes", tag = "4")]
    pub digest: Bytes,
    #[prost(string, tag = "5")]
    pub error: String,
}

/// What `ctl digest` gets.
#[derive(Clone, PartialEq, Message)]
pub struct Digests {
    #[prost(message, repeated, tag = "1")]
    pub replicas: Vec<Digest>,
}

/// Region and number of a question; on the wire between nodes.
#[derive(Clone, Copy, PartialEq, Message)]
struct Question {
    #[prost(uint64, tag = "1")]
    region: u64,
    #[prost(uint64, tag = "2")]
    id: u64,
}

/// Digests this node has made lately, by (region, id).
#[derive(Default)]
pub struct Made(Mutex<HashMap<(RegionId, u64), Digest>>);

impl Made {
    fn put(&self, region: RegionId, id: u64, digest: Digest) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.clear();
        }
        all.insert((region, id), digest);
    }

    fn get(&self, region: RegionId, id: u64) -> Option<Digest> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(region, id)).cloned()
    }
}

/// An entry asked for a digest of a region's rows: a thread makes it.
pub fn take_digest(core: &Core, request: DigestRequest) {
    let Some(cluster) = &core.shared.cluster else {
        return;
    };
    let DigestRequest {
        record,
        id,
        index,
        moment,
    } = request;
    let (wide, segments) = (record.region(), record.descriptor.segments);
    let mut made = Digest {
        node: cluster.node,
        replica: record.replica,
        index,
        ..Digest::default()
    };
    let Some(moment) = moment else {
        made.error = "the store is busy; try again".into();
        return cluster.digests.put(wide, id, made);
    };
    let shared = core.shared.clone();
    let spawned = std::thread::Builder::new()
        .name("digest".into())
        .spawn(move || {
            let mut pace = |_: u64| !shared.shutdown.is_asked();
            match keyspace::rows::digest(&*moment, wide, &segments, &mut pace) {
                Ok(digest) => made.digest = Bytes::copy_from_slice(&digest),
                Err(error) => made.error = error.to_string(),
            }
            drop(moment);
            if let Some(cluster) = &shared.cluster {
                cluster.digests.put(wide, id, made);
            }
        });
    drop(spawned);
}

/// A call about digests. Takes as long as it takes: on a thread of its own.
pub fn on_call(shared: &Arc<Shared>, method: u16, body: Bytes, reply: Reply) {
    let shared = shared.clone();
    let spawned = std::thread::Builder::new()
        .name("digests".into())
        .spawn(move || {
            let answer = match method {
                METHOD_DIGEST => gather(&shared, &body).map(|it| it.encode_to_vec()),
                _ => of_this_node(&shared, body).map(|it| it.encode_to_vec()),
            };
            match answer {
                Ok(answer) => reply.done(answer),
                Err(text) => reply.reject(text),
            }
        });
    drop(spawned);
}

/// This node's digest, when it is made.
fn of_this_node(shared: &Shared, body: Bytes) -> Result<Digest, String> {
    let question = Question::decode(body).map_err(|error| error.to_string())?;
    let cluster = shared.cluster.as_ref().ok_or("this node is alone")?;
    let until = Instant::now() + CALL / 2;
    loop {
        if let Some(made) = cluster.digests.get(question.region, question.id) {
            return Ok(made);
        }
        if Instant::now() > until || shared.shutdown.is_asked() {
            return Err("not yet".into());
        }
        std::thread::sleep(AGAIN);
    }
}

/// Asks the region, then all its members.
fn gather(shared: &Shared, body: &Bytes) -> Result<Digests, String> {
    let region = <[u8; 8]>::try_from(&body[..]).map(u64::from_be_bytes);
    let region = region.map_err(|_| "a question that makes no sense")?;
    let cluster = shared.cluster.as_ref().ok_or("this node is alone")?;
    let leader = cluster.routes().leader(region);
    let leader = leader.ok_or_else(|| format!("region {region} has no leader, or is not there"))?;
    let until = Instant::now() + TIMEOUT;
    if leader != cluster.node {
        let target = Target::Node(leader);
        let answer = cluster
            .transport
            .call_blocking(target, METHOD_DIGEST, body.clone(), TIMEOUT)
            .map_err(|error| error.to_string())?;
        return Digests::decode(answer).map_err(|error| error.to_string());
    }
    let place = cluster.table.place_of(region);
    let place = place.ok_or("the region has just left this node")?;
    let id = random_seed();
    let (done, asked) = std::sync::mpsc::channel();
    let core = shared.map.core_of(place);
    if let Some(mailbox) = shared.mailboxes.get(core) {
        mailbox.send(Task::Digest { place, id, done }.into());
    }
    if asked.recv_timeout(CALL) != Ok(true) {
        return Err("the leader is changing; try again".into());
    }
    let question = Bytes::from(Question { region, id }.encode_to_vec());
    let routes = cluster.routes();
    let members = routes
        .region(region)
        .map(|it| it.descriptor.members.clone());
    let mut replicas = Vec::new();
    for member in members.unwrap_or_default() {
        let mut error;
        let found = loop {
            let target = Target::Node(member.node);
            let answer =
                cluster
                    .transport
                    .call_blocking(target, METHOD_DIGEST_OF, question.clone(), CALL);
            match answer {
                Ok(answer) => break Digest::decode(answer).ok(),
                Err(why) => error = why.to_string(),
            }
            if Instant::now() > until {
                break Some(Digest {
                    node: member.node,
                    replica: member.replica,
                    error,
                    ..Digest::default()
                });
            }
            std::thread::sleep(AGAIN);
        };
        replicas.extend(found);
    }
    Ok(Digests { replicas })
}
