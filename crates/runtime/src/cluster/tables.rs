//! The catalogue of tables in a cluster: meta has it, every node keeps a copy.
//!
//! ```text
//!   a core ── SetTables(version it was made from) ──► meta's leader ──► its log
//!     │                                                     └─ news ─► all nodes ─► heartbeat ─► answer: the catalogue
//!     │                                                                                            └─► kept, then published
//!     └── who is behind? ──► meta's leader ◄── heartbeat: the version published ◄── all nodes
//! ```
//!
//! A node publishes only what its own thread ("node") got from meta, in the order of versions. The copy on its disk is for a start
//! while meta is not to be reached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Refusal;
use bytes::Bytes;
use meta::state::SetTables;
use meta::wire::{AdminAnswer, AdminRequest, Ask, Behind, CatalogueAnswer, Reply};
use prost::Message;
use transport::Target;

use super::{Cluster, METHOD_ADMIN};
use crate::Shared;
use crate::tables::catalogue::Catalogue;
use crate::tables::catalogue_change;

/// A change ends within this time, one way or the other. A node that died counts as such after five seconds.
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
const CALL: Duration = Duration::from_secs(3);
/// Between two questions.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
/// After one that nobody answered.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Replaces the catalogue by what `change` makes of the newest. Returns when all nodes that live know it.
pub async fn change_tables(
    shared: &Arc<Shared>,
    cluster: &Cluster,
    change: impl Fn(&Catalogue) -> Result<Catalogue, Refusal>,
) -> Result<Arc<Catalogue>, Refusal> {
    let until = Instant::now() + TIMEOUT;
    let version = loop {
        let known = shared.catalogue.load_full();
        let newest = cluster.ask_catalogue(Ask::Catalogue(known.version), until);
        let newest = newest.await.map_err(not_made)?.version;
        if newest > known.version {
            hear_of(shared, cluster, newest, until).await?;
            continue;
        }
        let ask = Ask::SetTables(SetTables {
            expected_version: known.version,
            bytes: change(&known)?.encode(),
        });
        let answer = cluster.ask_catalogue(ask, until).await.map_err(in_doubt)?;
        match answer.was_set {
            true => break answer.version,
            // Somebody else was quicker.
            false => hear_of(shared, cluster, answer.version, until).await?,
        }
    };
    hear_of(shared, cluster, version, until).await?;
    loop {
        let asked = cluster.ask_catalogue(Ask::Catalogue(version), until).await;
        match asked {
            Ok(answer) if answer.behind.is_empty() => return Ok(shared.catalogue.load_full()),
            Ok(_) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
            Ok(answer) => return Err(lagging(&answer.behind)),
            Err(why) => return Err(unseen(&why)),
        }
    }
}

/// Waits until this node itself has published a version.
async fn hear_of(
    shared: &Shared,
    cluster: &Cluster,
    version: u64,
    until: Instant,
) -> Result<(), Refusal> {
    if shared.catalogue_version() < version {
        cluster.trigger_heartbeat();
    }
    while shared.catalogue_version() < version {
        if Instant::now() >= until {
            return Err(Refusal::text_of(format!(
                "ERR this node did not hear of version {version} of the tables in time; is the meta service reachable?"
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn not_made(why: String) -> Refusal {
    Refusal::text_of(format!("ERR nothing was changed: {why}"))
}

fn in_doubt(why: String) -> Refusal {
    Refusal::text_of(format!(
        "ERR it is not known whether the tables were changed, see ROW.TABLE LIST: {why}"
    ))
}

fn unseen(why: &str) -> Refusal {
    Refusal::text_of(format!(
        "ERR the tables are changed, but it is not known whether all nodes know it yet: {why}"
    ))
}

fn lagging(behind: &[Behind]) -> Refusal {
    Refusal::text_of(format!(
        "ERR the tables are changed, but not all nodes know it after {} s: {} will learn it when they can",
        TIMEOUT.as_secs(),
        named(behind)
    ))
}

pub(super) fn named(behind: &[Behind]) -> String {
    let nodes: Vec<String> = behind
        .iter()
        .map(|it| format!("node {} ({})", it.node, it.redis))
        .collect();
    nodes.join(", ")
}

impl Cluster {
    /// Asks meta's leader, wherever it is, until it answers.
    pub(super) async fn ask_catalogue(
        &self,
        ask: Ask,
        until: Instant,
    ) -> Result<CatalogueAnswer, String> {
        let body = Bytes::from(AdminRequest { ask: Some(ask) }.encode_to_vec());
        let mut targets = vec![Target::Node(self.node)];
        let others = self.meta_nodes().into_iter();
        targets.extend(others.map(|node| Target::Address(node.peer.to_string())));
        for target in targets.iter().cycle() {
            let transport = &self.transport;
            let call = transport.call(target.clone(), METHOD_ADMIN, body.clone(), CALL);
            // A call to this node itself has no limit of its own.
            let why = match tokio::time::timeout(CALL, call).await {
                Ok(Ok(bytes)) => match AdminAnswer::decode(bytes).map(|answer| answer.reply) {
                    Ok(Some(Reply::Catalogue(answer))) => return Ok(answer),
                    Ok(Some(Reply::Refused(why))) => return Err(why),
                    _ => "an answer that makes no sense".into(),
                },
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".into(),
            };
            if Instant::now() + AFTER_FAILURE >= until {
                return Err(format!("the meta service does not answer: {why}"));
            }
            tokio::time::sleep(AFTER_FAILURE).await;
        }
        Err("the meta service is nowhere".into())
    }
}

/// Keeps a catalogue that came from meta and makes it known to this node's cores.
pub fn take_tables(shared: &Shared, tables: &meta::wire::Catalogue) -> Result<(), String> {
    let catalogue = Catalogue::decode(&tables.bytes)?;
    if catalogue.version != tables.version {
        return Err(format!(
            "version {} of the catalogue of tables says that it is version {}",
            tables.version, catalogue.version
        ));
    }
    if let Some(durable) = &shared.durable {
        catalogue_change::keep(&*durable.stores.rows, &tables.bytes)?;
    }
    shared.publish_catalogue(catalogue);
    Ok(())
}
