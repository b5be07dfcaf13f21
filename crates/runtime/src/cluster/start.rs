//! The start of a cluster node.
//!
//! ```text
//!   who am I?  "self" row ─► known: serve at once, tell meta aside
//!              none, --cluster-init ─► found a cluster: node 1, the only member of meta
//!              none, --join ─► ask until meta gives an id
//!   then: transport, replicas from their records, cores, meta member, heartbeats
//! ```

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use base::cluster::NodeId;
use keyspace::rows::{RowSource, RowStore};
use meta::wire::{Address, Profile};
use transport::{Config, Target, Transport};

use super::heartbeats::{HeartbeatTrigger, Node, ask_to_join};
use super::meta_thread::MetaThread;
use super::peers::PeerHandler;
use super::regions::{self, MOST_PLACES};
use super::replica_record::{self, Identity};
use super::{Cluster, Table};
use super::{secret, snapshots};
use crate::Shared;
use crate::clock::clock_ms;
use crate::cores::{Map, OwnedRegions, Places, Region};
use crate::durable::{Checkpoints, Durable, Stores, region_count_of};
use crate::open::{OpenError, Opened};
use crate::shared::random_seed;
use crate::tables::catalogue_change;
use node::{Newcomer, NewcomerStep, Pace, Progress, Specs, Start, StartOptions};
use settings::Settings;

/// Newest format of entries and rows this program reads.
pub const FORMAT: u32 = replica::entry::VERSION as u32;
/// Nothing longer goes between nodes at once: a value of 512 MB does.
pub const FRAME_BYTES: usize = 640 << 20;

/// Opens a node of a cluster; `http_port`: what it tells others, 0 for none.
pub fn open_cluster(
    mut settings: Settings,
    commands: Specs,
    stores: Stores,
    http_port: u16,
) -> Result<Opened, OpenError> {
    let wrong = OpenError::Cluster;
    let rows = &*stores.rows;
    if region_count_of(rows).map_err(OpenError::Recover)?.is_some() {
        return Err(wrong(
            "the data directory is that of a node that is alone; a cluster node needs one of its own"
                .into(),
        ));
    }
    let cores = settings.num_shards.max(1);
    let options = StartOptions {
        founds: settings.cluster.init,
        joins: !settings.cluster.join.is_empty(),
    };
    let start = Start::begin(options, rows, super::pause, random_seed).map_err(wrong)?;
    let mut identity = start.identity.clone();
    let handler = Arc::new(PeerHandler::default());
    let transport = start_transport(&settings, &identity, handler.clone()).map_err(wrong)?;
    for (node, address) in identity.addresses() {
        transport.set_peer(node, address);
    }
    let profile = profile(&settings, http_port);
    let has_joined = identity.node != 0;
    if !has_joined {
        let (addresses, clock_ms) = (settings.cluster.join.clone(), clock_ms());
        let replace = settings.cluster.replace;
        let newcomer = Newcomer::new(identity, profile.clone(), addresses, replace, clock_ms);
        identity = join(newcomer, rows, &transport).map_err(wrong)?;
        secret::keep(&settings, transport.secrets()).map_err(wrong)?;
    }

    snapshots::recover(rows, &settings.dir).map_err(wrong)?;
    let progress = Arc::new(Progress::new(MOST_PLACES));
    let places = Arc::new(Places::default());
    let pace = pace(&settings);
    let (heartbeat_trigger, heartbeat_triggers) = HeartbeatTrigger::channel();
    let (meta, meta_inbox) = std::sync::mpsc::channel();
    let cluster = Arc::new(Cluster {
        id: identity.cluster,
        node: identity.node,
        places: places.clone(),
        routes: Default::default(),
        transport,
        table: Table::default(),
        received: Default::default(),
        digests: Default::default(),
        meta,
        meta_report: Default::default(),
        heartbeat_trigger,
        lost: Default::default(),
        unwell: Default::default(),
        tick_ms: pace.tick_ms,
        heard_tables: Default::default(),
        unfit_told: Default::default(),
        follower_read: settings.cluster.follower_read,
        redirects: settings.cluster.redirects,
    });
    let map = Map::of_cluster(cores, places);
    let mut owned_by_core: Vec<Vec<Box<Region>>> = (0..cores).map(|_| Vec::new()).collect();
    let mut alive = Vec::new();
    for record in replica_record::records(rows).map_err(wrong)? {
        let Some(place) = cluster.table.take(record.region()) else {
            return Err(wrong("this node has no room for its replicas".into()));
        };
        let region = regions::open(&stores, &record, place, &progress, pace, random_seed());
        let region = region.map_err(wrong)?;
        alive.extend(region.space.alive());
        cluster.lead_slots(&record, place);
        if let Some(owned) = owned_by_core.get_mut(map.core_of(place)) {
            owned.push(region);
        }
    }
    let durable = Durable::start(stores, settings.log_sync, progress).map_err(OpenError::Thread)?;
    durable.stores.rows.set_alive(&alive);
    durable.stores.rows.start_compaction();
    let owned_by_core = owned_by_core
        .into_iter()
        .enumerate()
        .map(|(core, regions)| OwnedRegions::of(&map, core, regions))
        .collect();
    let join = settings.cluster.join.clone();
    settings.have_no_own_database();
    let catalogue = catalogue_change::kept(&*durable.stores.rows).map_err(OpenError::Recover)?;
    let mut shared = Shared::with(settings, map, commands, Some(durable));
    shared.publish_catalogue(catalogue);
    shared.cluster = Some(cluster.clone());
    let shared = Arc::new(shared);
    let checkpoints = Checkpoints::start(shared.clone()).map_err(OpenError::Thread)?;

    let founder = start.is_founder.then(|| {
        let settings = founding(&shared.settings.current());
        start.founding(settings, profile.clone())
    });
    let meta_thread = MetaThread {
        shared: shared.clone(),
        cluster: cluster.clone(),
        inbox: meta_inbox,
        pace,
        founder,
    };
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    threads.push(spawn("meta", move || meta_thread.run())?);
    let node = Node {
        shared: shared.clone(),
        cluster,
        identity,
        token: start.token,
        profile,
        pace,
        join,
        heartbeat_triggers,
    };
    threads.push(spawn("node", move || node.run())?);
    Ok(Opened {
        shared,
        owned_by_core,
        checkpoints: Some(checkpoints),
        threads,
        peers: Some(PeerDoor(handler)),
    })
}

/// Peers are heard once everything is there.
pub struct PeerDoor(Arc<PeerHandler>);

impl PeerDoor {
    pub fn open(self, shared: Arc<Shared>) {
        let _ = self.0.shared.set(shared);
    }
}

/// Whether the rows are those of a cluster node.
pub fn is_cluster_data(rows: &dyn RowStore) -> Result<bool, String> {
    Ok(Identity::read(rows)?.is_some())
}

/// The node these rows are of, and the peer addresses of the others of its cluster, as last heard. None: they are rows
/// of a node that is alone, or has not heard of any.
pub fn other_nodes(rows: &dyn RowSource) -> Result<(NodeId, Vec<String>), String> {
    let Some(identity) = Identity::read(rows)? else {
        return Ok((0, Vec::new()));
    };
    let others = identity.addresses().filter(|(id, _)| *id != identity.node);
    let addresses = others.map(|(_, address)| address.to_owned()).collect();
    Ok((identity.node, addresses))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(run).map_err(OpenError::Thread)
}

/// The wishes of whoever founds a cluster.
fn founding(settings: &Settings) -> meta::state::Settings {
    let wanted = &settings.cluster;
    let regions = match wanted.regions {
        0 => 4 * wanted.replicas,
        given => given,
    };
    meta::state::Settings {
        replicas: wanted.replicas,
        regions,
        meta_replicas: wanted.meta_replicas,
    }
}

/// Asks meta for an id until it gives one.
fn join(
    mut newcomer: Newcomer,
    rows: &dyn RowStore,
    transport: &Transport,
) -> Result<Identity, String> {
    loop {
        match newcomer.step(clock_ms()) {
            NewcomerStep::Ask(address) => {
                let target = Target::Address(address);
                match ask_to_join(transport, target, newcomer.join()) {
                    Ok(answer) => {
                        if let Some(identity) = newcomer.on_answer(answer, rows, super::pause)? {
                            transport.set_identity(identity.cluster, identity.node);
                            return Ok(identity);
                        }
                    }
                    Err(error) => newcomer.on_no_answer(error.to_string()),
                }
            }
            NewcomerStep::Wait { ms, tell } => {
                if let Some((since_ms, why)) = tell {
                    let seconds = since_ms / 1000;
                    tracing::info!(seconds, "asking to join for {seconds} s: {why}");
                }
                std::thread::sleep(Duration::from_millis(ms));
            }
        }
    }
}

fn profile(settings: &Settings, http_port: u16) -> Profile {
    let cluster = &settings.cluster;
    // A node that speaks TLS only is known by that port.
    let redis_port = match cluster.advertise_port {
        0 => cluster.advertise_tls_port,
        plain => plain,
    };
    Profile {
        redis: Address::new(cluster.advertise_host.clone(), redis_port),
        peer: Address::new(cluster.advertise_host.clone(), cluster.peer_port),
        http_port: u32::from(http_port),
        tls_port: u32::from(cluster.advertise_tls_port),
        labels: cluster.labels.clone(),
        stores: cluster.stores,
        metas: cluster.metas,
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

fn pace(settings: &Settings) -> Pace {
    let election_ticks = Pace::default().election_ticks;
    Pace {
        tick_ms: (settings.cluster.election_ms / election_ticks as u64).max(10),
        keep_entries: settings.cluster.keep_entries,
        ..Pace::default()
    }
}

fn start_transport(
    settings: &Settings,
    identity: &Identity,
    handler: Arc<PeerHandler>,
) -> Result<Transport, String> {
    let host = settings.bind.iter().find(|it| !it.starts_with('-'));
    let host = host.map_or("127.0.0.1", |it| if it == "*" { "0.0.0.0" } else { it });
    let port = settings.cluster.peer_port;
    let listen = (host, port).to_socket_addrs();
    let listen: Option<SocketAddr> = listen.ok().and_then(|mut it| it.next());
    let listen = listen.ok_or_else(|| format!("{host} is no address to listen on"))?;
    let tls = settings.cluster.tls.clone().map(armour).transpose()?;
    let config = Config {
        cluster_id: identity.cluster,
        node_id: identity.node,
        listen: Some(listen),
        tls,
        secrets: secret::open(settings, listen, identity.node != 0)?,
        known_only: true,
        frame_bytes_max: FRAME_BYTES,
        snapshots: transport::Snapshots {
            rate_bytes: settings.cluster.snapshot_rate_bytes,
            ..Default::default()
        },
        ..Config::default()
    };
    Transport::start(config, handler)
        .map_err(|error| format!("cannot listen for peers on {host}:{port}: {error}"))
}

/// All three or none: a node that was to be armoured does not start without.
fn armour(files: [String; 3]) -> Result<transport::Tls, String> {
    let names = ["peer-tls-cert", "peer-tls-key", "peer-tls-ca"];
    if let Some((name, _)) = names.iter().zip(&files).find(|(_, file)| file.is_empty()) {
        return Err(format!(
            "peer-tls-cert, peer-tls-key and peer-tls-ca go together: {name} is missing"
        ));
    }
    let [certificate, key, authority] = files.map(Into::into);
    Ok(transport::Tls {
        certificate,
        key,
        authority,
        name: None,
    })
}
