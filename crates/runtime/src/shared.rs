//! What all cores share. Read-mostly, or off the hot path.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use base::Refusal;
use node::{Catalogue, DataSet, Specs};
use settings::{Settings, SettingsCell};
use sqldb::Sql;
use stats::acl_log::AclLog;
use stats::clients::Clients;
use stats::latency::Latency;
use stats::save_status::SaveStatus;
use stats::slowlog::SlowLog;
use stats::{CoreStats, Rates};

use crate::clock::now_ms;
use crate::cluster::Cluster;
use crate::cores::{Evictions, Mailbox, Map};
use crate::durable::Durable;
use crate::shutdown::Shutdown;
use crate::users::UsersCell;

/// A node that meta has not told of the tables for so long after its start goes by those it knew before.
const HEAR_OF_TABLES: Duration = Duration::from_secs(3);
const LISTEN: Duration = Duration::from_millis(10);

pub const UNHEARD: Refusal = Refusal::new(
    "TRYAGAIN this node has not heard since its start which tables there are; is the meta service reachable?",
);

pub struct Shared {
    pub settings: SettingsCell,
    pub commands: Specs,
    pub map: Map,
    /// The log and the store, of a durable node.
    pub durable: Option<Durable>,
    /// The peers and the routes, of a cluster node.
    pub cluster: Option<Arc<Cluster>>,
    /// Which tables there are.
    pub catalogue: ArcSwap<Catalogue>,
    catalogue_version: AtomicU64,
    /// Held by who changes the catalogue.
    pub catalogue_change: tokio::sync::Mutex<()>,
    /// The databases behind tables.
    pub sql: Sql,
    pub clients: Clients,
    /// Who there is, and what they may do.
    pub users: UsersCell,
    pub acl_log: AclLog,
    /// By core.
    pub stats: Box<[CoreStats]>,
    pub slowlog: SlowLog,
    pub latency: Latency,
    /// Sampled every 100 ms by core 0.
    pub rates: Rates,
    /// Forty hexadecimal digits, new at every start.
    pub run_id: String,
    /// As `run_id`; changed by DEBUG CHANGE-REPL-ID.
    replication_id: Mutex<String>,
    pub saving: SaveStatus,
    /// Memory in use when the server had started and held no key.
    pub memory_at_start: AtomicU64,
    /// By core.
    pub mailboxes: Box<[Arc<Mailbox>]>,
    pub started: Instant,
    pub started_at_ms: u64,
    /// The port for HTTP in use; 0: there is none.
    pub http_port: std::sync::atomic::AtomicU16,
    /// What the ports for TLS show and ask for.
    pub tls: tls::Tls,
    /// The sockets on which clients are accepted, for whoever closes them.
    pub listening: Mutex<Listening>,
    /// CLIENT PAUSE: no writes (or no commands at all) before this Unix time in ms.
    pub paused_writes_until_ms: AtomicU64,
    pub paused_all_until_ms: AtomicU64,
    /// By core.
    pub evictions: Box<[Evictions]>,
    /// How large the data are, of a durable node.
    pub data_set: Arc<DataSet>,
    /// Seeds hash tables and random choices.
    pub seed: u64,
    pub shutdown: Shutdown,
    /// Turns a difference of two [`quanta::Clock::raw`] readings into time.
    pub clock: quanta::Clock,
}

/// Listening sockets, by what is spoken on them.
#[derive(Default)]
pub struct Listening {
    pub plain: Vec<std::net::TcpListener>,
    pub tls: Vec<std::net::TcpListener>,
}

impl Shared {
    /// Of a node in memory.
    pub fn new(settings: Settings, commands: Specs) -> Self {
        let map = Map::new(settings.num_shards.max(1));
        Shared::with(settings, map, commands, None)
    }

    /// Of a durable node, or of another with a map of its own.
    pub fn with(
        mut settings: Settings,
        map: Map,
        commands: Specs,
        durable: Option<Durable>,
    ) -> Self {
        settings.tuning.hash_seed = random_seed();
        let (cores, regions) = (map.cores(), map.regions());
        Shared {
            map,
            durable,
            cluster: None,
            stats: (0..cores)
                .map(|_| CoreStats::new(commands.stat_count()))
                .collect(),
            mailboxes: (0..cores).map(|_| Arc::new(Mailbox::default())).collect(),
            catalogue: ArcSwap::default(),
            catalogue_version: AtomicU64::new(0),
            catalogue_change: tokio::sync::Mutex::new(()),
            sql: Sql::new(&settings.tables.sql),
            clients: Clients::default(),
            users: UsersCell::new(&commands, &settings.requirepass),
            acl_log: AclLog::default(),
            slowlog: SlowLog::default(),
            latency: Latency::default(),
            rates: Rates::default(),
            run_id: random_id(),
            replication_id: Mutex::new(random_id()),
            saving: SaveStatus::new(now_ms(), regions),
            memory_at_start: AtomicU64::new(stats::memory::used_memory() as u64),
            started: Instant::now(),
            started_at_ms: now_ms(),
            http_port: 0.into(),
            tls: tls::Tls::default(),
            listening: Mutex::default(),
            paused_writes_until_ms: AtomicU64::new(0),
            paused_all_until_ms: AtomicU64::new(0),
            evictions: (0..cores).map(|_| Evictions::default()).collect(),
            data_set: Arc::default(),
            seed: random_seed(),
            shutdown: Shutdown::default(),
            clock: quanta::Clock::new(),
            commands,
            settings: SettingsCell::new(settings),
        }
    }

    /// The sum of one counter over all cores.
    pub fn total(&self, counter: impl Fn(&CoreStats) -> u64) -> u64 {
        self.stats.iter().map(counter).sum()
    }

    pub fn replication_id(&self) -> String {
        let id = self.replication_id.lock();
        id.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn change_replication_id(&self) {
        let id = self.replication_id.lock();
        *id.unwrap_or_else(PoisonError::into_inner) = random_id();
    }

    /// Of the catalogue of tables; 0: there has never been one.
    #[inline]
    pub fn catalogue_version(&self) -> u64 {
        self.catalogue_version.load(Ordering::Acquire)
    }

    /// The catalogue, for who asks about a table by name. A cluster node that has just started may have slept while it was changed: it
    /// waits a moment for what meta says.
    pub async fn known_tables(&self) -> Arc<Catalogue> {
        while !self.has_heard_tables() && self.started.elapsed() < HEAR_OF_TABLES {
            tokio::time::sleep(LISTEN).await;
        }
        self.catalogue.load_full()
    }

    /// What is said instead of "no such table" by a node that cannot know.
    pub fn unheard_or(&self, refusal: Refusal) -> Refusal {
        match self.has_heard_tables() {
            true => refusal,
            false => UNHEARD,
        }
    }

    /// Whether this node may know which tables there are: it is alone, or meta has told it since its start.
    pub fn has_heard_tables(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_none_or(|cluster| cluster.has_heard_tables())
    }

    /// Of the users, as they are kept; 0: there have never been any.
    pub fn users_version(&self) -> u64 {
        self.users.load().version
    }

    /// Makes a catalogue known to all cores, unless they know a newer one.
    pub fn publish_catalogue(&self, catalogue: Catalogue) {
        let catalogue = Arc::new(catalogue);
        self.catalogue
            .rcu(|known| match known.version < catalogue.version {
                true => catalogue.clone(),
                false => known.clone(),
            });
        let version = catalogue.version;
        self.catalogue_version.fetch_max(version, Ordering::AcqRel);
    }

    /// Commands run by all cores.
    pub fn commands_run(&self) -> u64 {
        self.total(|core| {
            core.commands
                .iter()
                .map(|command| command.calls.get())
                .sum()
        })
    }

    /// Nanoseconds and counts of one command over all cores, ascending.
    pub fn histogram_of(&self, number: usize) -> Vec<(u64, u64)> {
        let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
        for core in &self.stats {
            let histogram = core
                .commands
                .get(number)
                .and_then(|stats| stats.histogram());
            for (ticks, count) in histogram.into_iter().flat_map(|h| h.buckets()) {
                *sums.entry(ticks).or_default() += count;
            }
        }
        sums.into_iter()
            .map(|(ticks, count)| (self.clock.delta_as_nanos(0, ticks), count))
            .collect()
    }

    /// Called often, by one core.
    pub fn sample_rates(&self, now_ms: u64) {
        self.rates.sample(now_ms, || {
            [
                self.commands_run(),
                self.total(|core| core.net_input_bytes.get()),
                self.total(|core| core.net_output_bytes.get()),
            ]
        });
    }

    /// Until when CLIENT PAUSE holds commands back; 0 for not at all.
    #[inline]
    pub fn paused_until_ms(&self, writes: bool) -> u64 {
        let all = self.paused_all_until_ms.load(Ordering::Relaxed);
        if writes {
            all.max(self.paused_writes_until_ms.load(Ordering::Relaxed))
        } else {
            all
        }
    }

    /// Whether no key may be removed because its time has come: CLIENT PAUSE keeps the data as it is.
    pub fn is_expiry_paused(&self, now_ms: u64) -> bool {
        self.paused_until_ms(true) > now_ms
    }
}

/// Forty random hexadecimal digits.
pub fn random_id() -> String {
    let mut rng = fastrand::Rng::with_seed(random_seed());
    (0..40)
        .filter_map(|_| char::from_digit(rng.u32(0..16), 16))
        .collect()
}

pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
