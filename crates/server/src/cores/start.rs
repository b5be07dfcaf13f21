//! Starting and stopping a node: one pinned thread per core, each with an event loop of its own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keyspace::{Keyspace, rdb};
use tokio::net::TcpStream;

use super::mailbox::Message;
use super::{Core, CoreId, Map, OwnedRegions, Region};
use crate::Commands;
use crate::clients::is_local;
use crate::durable::{self, Checkpoints, Durable, RecoverError, Stores};
use crate::http::{Door, Http};
use crate::listener::{self, ListenError};
use crate::settings::Settings;
use crate::shared::{now_ms, random_seed};
use crate::tables::catalogue_change;
use crate::{Shared, loading, session};

/// Why a node did not start: one line for whoever started it.
#[derive(Debug)]
pub enum StartError {
    Listen(ListenError),
    /// The dump is there and cannot be used.
    Load {
        path: PathBuf,
        error: rdb::Error,
    },
    Thread(std::io::Error),
    /// The data directory is there and cannot be used.
    Recover(RecoverError),
    /// It cannot be a node of a cluster.
    Cluster(String),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Listen(error) => error.fmt(f),
            StartError::Load { path, error } => write!(
                f,
                "{}: {error}; put back a good copy, or move the file away to start empty",
                path.display()
            ),
            StartError::Recover(error) => write!(
                f,
                "{error}; nothing was changed. Put back a good copy of the data directory, or start \
                 with another one (--data-dir)"
            ),
            StartError::Cluster(line) => f.write_str(line),
            StartError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

/// How long a stopping node waits for a save that only needs the disk.
const LAST_SAVE: Duration = Duration::from_secs(10);

/// A running node.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Of a cluster node: those that are no cores.
    others: Vec<JoinHandle<()>>,
    checkpoints: Option<Checkpoints>,
    http: Option<Http>,
}

/// Loads the dump, listens, starts the cores, and returns while they serve.
pub fn start(settings: Settings) -> Result<Server, StartError> {
    let listen = |settings: &Settings| listener::listen(settings).map_err(StartError::Listen);
    // A port that is in use is better told before a long load than after it. While the dump is
    // loaded nobody listens: a client is refused rather than left without an answer.
    drop(listen(&settings)?);
    let door = Door::open(&settings).map_err(StartError::Listen)?;
    let shared = Arc::new(Shared::new(settings));
    let mut homes = homes(&shared);
    load_dump(&shared, &mut homes)?;
    serve(shared, homes, None, Vec::new(), door)
}

/// Brings the regions up to the end of their logs, listens, starts the cores, and returns while
/// they serve.
pub fn start_durable(settings: Settings, stores: Stores) -> Result<Server, StartError> {
    drop(listener::listen(&settings).map_err(StartError::Listen)?);
    let door = Door::open(&settings).map_err(StartError::Listen)?;
    let (commands, seed) = (Commands::new(), random_seed());
    let cores = settings.num_shards.max(1);
    let mut progress = |entries| {
        tracing::info!(entries, "replaying the log: {entries} entries so far");
    };
    let (tuning, progress) = (&settings.tuning, &mut progress);
    let recovered = durable::recover(&stores, cores, seed, &commands, tuning, progress)
        .map_err(StartError::Recover)?;
    if recovered.replayed > 0 {
        let (entries, took) = (recovered.replayed, recovered.took);
        tracing::info!(entries, ?took, "replayed the end of the log");
    }
    let catalogue = catalogue_change::kept(&*stores.rows).map_err(StartError::Recover)?;
    let map = Map::of_regions(recovered.regions.len(), cores);
    let durable = Durable::start(stores, settings.log_sync, recovered.progress);
    let durable = durable.map_err(StartError::Thread)?;
    durable.regions_known(recovered.regions.iter().map(|(space, _)| space));
    let mut regions = recovered
        .regions
        .into_iter()
        .enumerate()
        .map(|(id, (space, member))| Box::new(Region::durable(id, space, member)));
    let homes = (0..cores)
        .map(|core| {
            let own = map.regions_of(core).count();
            OwnedRegions::of(&map, core, regions.by_ref().take(own).collect())
        })
        .collect();
    let shared = Arc::new(Shared::with(settings, map, commands, Some(durable)));
    shared.publish_catalogue(catalogue);
    let checkpoints = Checkpoints::start(shared.clone()).map_err(StartError::Thread)?;
    serve(shared, homes, Some(checkpoints), Vec::new(), door)
}

/// Listens and starts the cores.
pub(crate) fn serve(
    shared: Arc<Shared>,
    homes: Vec<OwnedRegions>,
    checkpoints: Option<Checkpoints>,
    others: Vec<JoinHandle<()>>,
    door: Option<Door>,
) -> Result<Server, StartError> {
    let listen = |settings: &Settings| listener::listen(settings).map_err(StartError::Listen);
    let (listeners, port) = listen(&shared.settings.current())?;
    shared.port.store(port, Ordering::Relaxed);
    let mut threads = Vec::new();
    for (id, (listeners, home)) in listeners.into_iter().zip(homes).enumerate() {
        let shared = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("core-{id}"))
            .spawn(move || {
                if let Err(error) = run(id, shared, home, listeners) {
                    tracing::error!(core = id, "core {id} stopped: {error}");
                }
            })
            .map_err(StartError::Thread)?;
        threads.push(thread);
    }
    let http = Http::start(&shared, door).map_err(StartError::Thread)?;
    Ok(Server {
        shared,
        threads,
        others,
        checkpoints,
        http,
    })
}

impl Server {
    pub fn port(&self) -> u16 {
        self.shared.port.load(Ordering::Relaxed)
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Serves until SHUTDOWN or a signal asks to stop.
    pub fn wait(self) {
        self.shared.shutdown.wait();
        self.stop();
    }

    /// Ends all sessions and threads.
    pub fn stop(mut self) {
        self.shared.shutdown.ask();
        if let Some(http) = self.http.take() {
            http.stop();
        }
        if let Some(cluster) = &self.shared.cluster {
            cluster.stop();
        }
        for thread in self.others.drain(..) {
            let _ = thread.join();
        }
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Message::Stop);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.shared.sql.stop();
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.stop();
        }
        if let Some(durable) = &self.shared.durable
            && let Err(error) = durable.stores.log.sync()
        {
            tracing::error!("the end of the log may not be on disk: {error}");
        }
        // A save that ends with the cores removes its file; one that is whole is finished.
        let asked = Instant::now();
        while self.shared.saving.is_running() && asked.elapsed() < LAST_SAVE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The empty regions of every core.
fn homes(shared: &Shared) -> Vec<OwnedRegions> {
    (0..shared.map.cores())
        .map(|id| {
            let mut rng = fastrand::Rng::with_seed(shared.seed.wrapping_add(id as u64));
            OwnedRegions::new(&shared.map, id, || rng.u64(..))
        })
        .collect()
}

/// Fills the regions with what was saved last.
fn load_dump(shared: &Shared, homes: &mut [OwnedRegions]) -> Result<(), StartError> {
    let settings = shared.settings.current();
    let path = settings.dir.join(&settings.dbfilename);
    let name = path.display().to_string();
    let mut spaces: Vec<&mut Keyspace> = homes
        .iter_mut()
        .flat_map(|home| home.present().map(|region| &mut region.space))
        .collect();
    let mut progress = |keys| tracing::info!(keys, "loading {name}: {keys} keys so far");
    let (map, tuning) = (&shared.map, &settings.tuning);
    let restored = loading::restore(&path, map, &mut spaces, tuning, now_ms(), &mut progress);
    let restored = match restored {
        Ok(Some(restored)) => restored,
        Ok(None) => return Ok(()),
        Err(error) => return Err(StartError::Load { path, error }),
    };
    let status = &shared.saving;
    let changes = spaces.iter().map(|space| space.changes()).sum();
    status
        .changes_at_last_save
        .store(changes, Ordering::Relaxed);
    for (region, space) in spaces.iter().enumerate() {
        status.note_changes(region, space.changes());
    }
    status.loaded_keys.store(restored.keys, Ordering::Relaxed);
    let expired = &status.loaded_expired;
    expired.store(restored.expired, Ordering::Relaxed);
    crate::memory::publish();
    tracing::info!(keys = restored.keys, "loaded {name}: {restored}");
    loading::warn_of_skipped(&settings, &path, &restored.summary);
    Ok(())
}

/// The life of one core's thread.
fn run(
    id: CoreId,
    shared: Arc<Shared>,
    home: OwnedRegions,
    listeners: Vec<TcpListener>,
) -> std::io::Result<()> {
    let mailbox = shared.mailboxes[id].clone();
    let (before, after) = (mailbox.clone(), mailbox);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || before.before_park())
        .on_thread_unpark(move || after.after_unpark())
        .build_local(tokio::runtime::LocalOptions::default())?;
    runtime.block_on(async move {
        let core = Core::new(id, shared, home);
        for listener in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::task::spawn_local(accept(core.clone(), listener));
        }
        tokio::task::spawn_local(core.clone().run_upkeep());
        if core.shared.cluster.is_some() {
            tokio::task::spawn_local(core.clone().run_ticks());
        }
        if core.shared.durable.is_some() {
            tokio::task::spawn_local(core.clone().run_composer());
            tokio::task::spawn_local(core.clone().run_tables());
        }
        if id == 0 {
            tokio::task::spawn_local(core.clone().run_save_points());
        }
        // Ends when the node stops.
        tokio::task::spawn_local(core.clone().run_inbox())
            .await
            .map_err(std::io::Error::other)?;
        core.last_words().await;
        Ok(())
    })
}

impl Core {
    /// Lets sessions write what they have, for a moment.
    async fn last_words(&self) {
        for _ in 0..50 {
            if self.clients.borrow().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn accept(core: Rc<Core>, listener: tokio::net::TcpListener) {
    while !core.is_stopping() {
        match listener.accept().await {
            Ok((stream, _)) => on_connection(&core, stream),
            // Out of descriptors, most likely: connections wait in the backlog meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What a client from another machine reads while `protected-mode` is on and no password set:
/// Redis' words, which clients and people know.
const PROTECTED: &str = "-DENIED Redis is running in protected mode because protected mode is \
enabled and no password is set for the default user. In this mode connections are only accepted \
from the loopback interface. If you want to connect from external computers to Redis you may adopt \
one of the following solutions: 1) Just disable protected mode sending the command 'CONFIG SET \
protected-mode no' from the loopback interface by connecting to Redis from the same host the server \
is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use \
CONFIG REWRITE to make this change permanent. 2) Alternatively you can just disable the protected \
mode by editing the Redis configuration file, and setting the protected mode option to 'no', and \
then restarting the server. 3) If you started the server manually just for testing, restart it with \
the '--protected-mode no' option. 4) Setup a an authentication password for the default user. NOTE: \
You only need to do one of the above things in order for the server to start accepting connections \
from the outside.\r\n";

fn on_connection(core: &Rc<Core>, stream: TcpStream) {
    core.refresh_settings();
    let settings = core.settings().clone();
    let refusal = if core.shared.clients.count() >= settings.maxclients {
        Some("-ERR max number of clients reached\r\n")
    } else if settings.protected_mode
        && settings.requirepass.is_empty()
        && !stream.peer_addr().is_ok_and(is_local)
    {
        Some(PROTECTED)
    } else {
        None
    };
    if let Some(text) = refusal {
        core.stats().rejected_connections.add(1);
        let _ = stream.try_write(text.as_bytes());
        return;
    }
    core.stats().connections.add(1);
    listener::prepare(&stream, settings.tcp_keepalive_seconds);
    tokio::task::spawn_local(session::serve(core.clone(), stream));
}
