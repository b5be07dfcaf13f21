//! Starting and stopping a node.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dump::{importing, loading, run_save_points};
use gateway::{Door, Http};
use keyspace::Keyspace;
use keyspace::rows::RowStore;
use runtime::cluster::open_cluster;
use runtime::cores::{Core, Message, OwnedRegions, start_cores};
use runtime::durable::{Checkpoints, Stores};
use runtime::open::{OpenError, Opened, open_durable, open_memory};
use runtime::{Shared, now_ms};
use session::listener::{self, ListenError, Port};
use session::{Commands, SessionRuns, accept};
use settings::Settings;

/// Why a node did not start: one line for whoever started it.
#[derive(Debug)]
pub enum StartError {
    Listen(ListenError),
    /// Certificates or ciphers cannot be used.
    Tls(tls::TlsError),
    /// The dump is there and cannot be used.
    Load {
        path: PathBuf,
        error: dump::Error,
    },
    /// The data directory is there and cannot be used, or a thread does not start.
    Open(OpenError),
    /// The users cannot be read.
    Users(String),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Listen(error) => error.fmt(f),
            StartError::Tls(error) => write!(f, "TLS: {error}"),
            StartError::Load { path, error } => write!(
                f,
                "{}: {error}; put back a good copy, or move the file away to start empty",
                path.display()
            ),
            StartError::Open(error) => error.fmt(f),
            StartError::Users(why) => f.write_str(why),
        }
    }
}

fn no_thread(error: std::io::Error) -> StartError {
    StartError::Open(OpenError::Thread(error))
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

/// All commands there are.
pub fn commands() -> Commands {
    Commands::new(admin::ALL)
}

/// Loads the dump, listens, starts the cores, and returns while they serve.
pub fn start(settings: Settings) -> Result<Server, StartError> {
    // While the dump is loaded nobody listens: a client is refused rather than left without an answer.
    let door = open_ports(&settings)?;
    let Commands { specs, runs } = commands();
    let mut opened = open_memory(settings, specs);
    load_dump(&opened.shared, &mut opened.owned_by_core)?;
    serve(opened, runs, door)
}

/// Brings the regions up to the end of their logs, listens, starts the cores, and returns while
/// they serve.
pub fn start_durable(settings: Settings, stores: Stores) -> Result<Server, StartError> {
    let door = open_ports(&settings)?;
    let Commands { specs, runs } = commands();
    let opened = open_durable(settings, specs, stores).map_err(StartError::Open)?;
    serve(opened, runs, door)
}

/// Starts a node of a cluster, and returns while it serves.
pub fn start_cluster(settings: Settings, stores: Stores) -> Result<Server, StartError> {
    let door = open_ports(&settings)?;
    let http_port = door.as_ref().map_or(0, Door::port);
    let Commands { specs, runs } = commands();
    let opened = open_cluster(settings, specs, stores, http_port).map_err(StartError::Open)?;
    serve(opened, runs, door)
}

/// Imports a dump into the rows of a new data directory ([`importing`]). In one line why not.
pub fn import(settings: &Settings, rows: &dyn RowStore, path: &Path) -> Result<(), String> {
    // A port that is in use is better told before a long import than after it.
    drop(listener::listen(settings).map_err(|error| error.to_string())?);
    importing::import(settings, rows, path)
}

/// A port that is in use is better told before a long load than after it. That of HTTP stays open.
fn open_ports(settings: &Settings) -> Result<Option<Door>, StartError> {
    drop(listener::listen(settings).map_err(StartError::Listen)?);
    // The same for certificates.
    let tls = tls::Tls::default();
    tls.apply(&settings.tls).map_err(StartError::Tls)?;
    Door::open(settings).map_err(StartError::Listen)
}

/// Listens and starts the cores.
fn serve(opened: Opened, runs: Arc<SessionRuns>, door: Option<Door>) -> Result<Server, StartError> {
    let shared = opened.shared;
    runtime::users::open(&shared).map_err(StartError::Users)?;
    let settings = shared.settings.current();
    shared.tls.apply(&settings.tls).map_err(StartError::Tls)?;
    let listeners = listener::listen(&settings).map_err(StartError::Listen)?;
    listener::replace(&shared, &[Port::Plain, Port::Tls], &listeners);
    let begin = listeners.into_iter().map(|listeners| {
        let runs = runs.clone();
        move |core: &Rc<Core>| begin(core, &runs, listeners)
    });
    let threads = start_cores(&shared, opened.owned_by_core, begin).map_err(no_thread)?;
    let http = Http::start(&shared, &runs, door).map_err(no_thread)?;
    if let Some(peers) = opened.peers {
        peers.open(shared.clone());
    }
    Ok(Server {
        shared,
        threads,
        others: opened.threads,
        checkpoints: opened.checkpoints,
        http,
    })
}

/// What a core begins with, besides what it does for itself.
fn begin(
    core: &Rc<Core>,
    runs: &Arc<SessionRuns>,
    listeners: Vec<(Port, TcpListener)>,
) -> std::io::Result<()> {
    for (port, listener) in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::task::spawn_local(accept(core.clone(), runs.clone(), listener, port));
    }
    if core.id == 0 {
        tokio::task::spawn_local(run_save_points(core.clone()));
    }
    Ok(())
}

impl Server {
    /// Of Redis clients without TLS; 0: none.
    pub fn port(&self) -> u16 {
        self.shared.settings.current().redis_port
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
        listener::replace(&self.shared, &[Port::Plain, Port::Tls], &Vec::new());
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

/// Fills the regions with what was saved last.
fn load_dump(shared: &Shared, owned_by_core: &mut [OwnedRegions]) -> Result<(), StartError> {
    let settings = shared.settings.current();
    let path = settings.dir.join(&settings.dbfilename);
    let name = path.display().to_string();
    let mut spaces: Vec<&mut Keyspace> = owned_by_core
        .iter_mut()
        .flat_map(|owned| owned.present().map(|region| &mut region.space))
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
    stats::memory::publish();
    tracing::info!(keys = restored.keys, "loaded {name}: {restored}");
    loading::warn_of_skipped(&settings, &path, &restored.summary);
    Ok(())
}
