//! One phase of load: connect, fill, warm up, measure. The same for every target.
//!
//! ```text
//! thread 0 ── clients 0, T, 2T …    each: loop { key = random; begin; one operation; note(begin.elapsed()) }
//! thread 1 ── clients 1, T+1 …
//! main     ── waits until all have connected and filled; GO; warm; CPU; COUNT; seconds; CPU; STOP
//! ```
//!
//! An operation counts when it ends within the measured time. Latencies are kept one by one (4 bytes each), so
//! percentiles are exact. A failed operation is an error, not an operation; its client pauses for a moment and goes on.

use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use load::cpu;
use serde_json::{Value, json};

use crate::{Op, Settings};

/// Where a phase is; clients look after each operation.
const WAIT: u8 = 0;
const WARM: u8 = 1;
const COUNT: u8 = 2;
const STOP: u8 = 3;
static STATE: AtomicU8 = AtomicU8::new(WAIT);

/// An operation that did not succeed, in words.
pub type Failed = String;

/// How a target is asked. One value per client; `Shared` is made once per thread.
pub trait Client: Sized + 'static {
    type Shared: 'static;

    /// What the `clients` of one thread have in common: a slot map, connections.
    async fn share(settings: &Settings, clients: usize) -> Result<Self::Shared, Failed>;

    /// The n-th client of its thread.
    async fn connect(shared: &Rc<Self::Shared>, n: usize) -> Result<Self, Failed>;

    async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failed>;

    async fn get(&mut self, key: &[u8]) -> Result<(), Failed>;

    /// Answers so far that sent it elsewhere.
    fn redirects(&self) -> u64 {
        0
    }
}

/// What one client saw while it counted.
#[derive(Default)]
struct Seen {
    micros: Vec<u32>,
    errors: u64,
    redirects: u64,
    first_error: Option<Failed>,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.micros.extend(other.micros);
        self.errors += other.errors;
        self.redirects += other.redirects;
        if self.first_error.is_none() {
            self.first_error = other.first_error;
        }
    }
}

pub fn run<C: Client>(settings: &Settings) -> Result<Value, Failed> {
    let threads = settings.threads.min(settings.clients);
    let (ready, connected) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for thread in 0..threads {
            let ready = ready.clone();
            running.push(
                scope.spawn(move || thread_of_clients::<C>(settings, thread, threads, ready)),
            );
        }
        drop(ready);
        let mut refused = None;
        for _ in 0..threads {
            match connected.recv() {
                Ok(Ok(())) => {}
                Ok(Err(why)) => refused = Some(why),
                Err(_) => refused = refused.or(Some("a thread ended early".to_string())),
            }
        }
        if let Some(why) = refused {
            STATE.store(STOP, Ordering::Relaxed);
            return Err(why);
        }
        let measured = conduct(settings);
        let mut seen = Seen::default();
        for thread in running {
            seen.add(thread.join().map_err(|_| "a thread panicked".to_string())?);
        }
        Ok(report(settings, seen, measured))
    })
}

/// What the servers and the client itself spent in the measured time.
struct Measured {
    seconds: f64,
    own: f64,
    servers: Vec<(u32, Option<f64>)>,
}

fn conduct(settings: &Settings) -> Measured {
    let spent = || -> Vec<Option<f64>> {
        let pids = settings.pids.iter();
        pids.map(|pid| cpu::seconds_of(*pid)).collect()
    };
    let own = || cpu::seconds_of(std::process::id()).unwrap_or(0.0);
    STATE.store(WARM, Ordering::Relaxed);
    std::thread::sleep(Duration::from_secs_f64(settings.warm));
    let (servers_before, own_before, begin) = (spent(), own(), Instant::now());
    STATE.store(COUNT, Ordering::Relaxed);
    std::thread::sleep(Duration::from_secs_f64(settings.seconds));
    STATE.store(STOP, Ordering::Relaxed);
    let seconds = begin.elapsed().as_secs_f64();
    let (servers_after, own_after) = (spent(), own());
    let servers = settings
        .pids
        .iter()
        .zip(servers_before.iter().zip(&servers_after));
    Measured {
        seconds,
        own: own_after - own_before,
        servers: servers
            .map(|(pid, (before, after))| {
                (
                    *pid,
                    after.zip(*before).map(|(after, before)| after - before),
                )
            })
            .collect(),
    }
}

fn report(settings: &Settings, mut seen: Seen, measured: Measured) -> Value {
    seen.micros.sort_unstable();
    let operations = seen.micros.len();
    let at = |share: f64| {
        let place = ((operations as f64 * share) as usize).min(operations.saturating_sub(1));
        seen.micros
            .get(place)
            .map(|micros| f64::from(*micros) / 1000.0)
    };
    let per_op = |seconds: f64| seconds * 1e6 / operations.max(1) as f64;
    let servers = measured.servers.iter().map(
        |(pid, seconds)| json!({"pid": pid, "cpu_seconds": seconds, "cpu_us": seconds.map(per_op)}),
    );
    let servers: Vec<Value> = servers.collect();
    let total: f64 = measured
        .servers
        .iter()
        .filter_map(|(_, seconds)| *seconds)
        .sum();
    json!({
        "target": format!("{:?}", settings.target),
        "op": format!("{:?}", settings.op).to_lowercase(),
        "clients": settings.clients,
        "streams": settings.streams(),
        "seconds": measured.seconds,
        "operations": operations,
        "ops": operations as f64 / measured.seconds,
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "max_ms": at(1.0),
        "errors": seen.errors,
        "first_error": seen.first_error,
        "redirects": seen.redirects,
        "client_cpu_seconds": measured.own,
        "client_cpu_us": per_op(measured.own),
        "cpu_us": per_op(total),
        "servers": servers,
    })
}

/// One thread: its clients side by side on one event loop.
fn thread_of_clients<C: Client>(
    settings: &Settings,
    thread: usize,
    threads: usize,
    ready: mpsc::Sender<Result<(), Failed>>,
) -> Seen {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match built {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(error.to_string()));
            return Seen::default();
        }
    };
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let mut seen = Seen::default();
        let clients = match connect_and_fill::<C>(settings, thread, threads).await {
            Ok(clients) => clients,
            Err(why) => {
                let _ = ready.send(Err(why));
                return seen;
            }
        };
        let mut tasks = Vec::new();
        for (n, client) in clients.into_iter().enumerate() {
            let dice = fastrand::Rng::with_seed((n * threads + thread) as u64 + 1);
            let (op, keys, value) = (settings.op, settings.keys, settings.value);
            tasks.push(tokio::task::spawn_local(repeat(
                client, op, keys, value, dice,
            )));
        }
        let _ = ready.send(Ok(()));
        for task in tasks {
            if let Ok(of_one) = task.await {
                seen.add(of_one);
            }
        }
        seen
    })
}

async fn connect_and_fill<C: Client>(
    settings: &Settings,
    thread: usize,
    threads: usize,
) -> Result<Vec<C>, Failed> {
    let count = (thread..settings.clients).step_by(threads).len();
    let shared = Rc::new(C::share(settings, count).await?);
    let mut clients = Vec::new();
    for n in 0..count {
        clients.push(C::connect(&shared, n).await?);
    }
    if !settings.fill {
        return Ok(clients);
    }
    let mut tasks = Vec::new();
    for (n, mut client) in clients.into_iter().enumerate() {
        let (keys, first, value) = (
            settings.keys,
            (n * threads + thread) as u64,
            vec![b'x'; settings.value],
        );
        let step = settings.clients;
        tasks.push(tokio::task::spawn_local(async move {
            for key in (first..keys).step_by(step) {
                client.put(&name_of(key), &value).await?;
            }
            Ok::<_, Failed>(client)
        }));
    }
    let mut filled = Vec::new();
    for task in tasks {
        filled.push(task.await.map_err(|error| error.to_string())??);
    }
    Ok(filled)
}

/// Sixteen bytes, the same for every target.
fn name_of(key: u64) -> Vec<u8> {
    format!("key:{key:012}").into_bytes()
}

/// The loop of one client.
async fn repeat<C: Client>(
    mut client: C,
    op: Op,
    keys: u64,
    value: usize,
    mut dice: fastrand::Rng,
) -> Seen {
    let mut seen = Seen::default();
    let mut value: Vec<u8> = (0..value).map(|_| dice.alphanumeric() as u8).collect();
    while STATE.load(Ordering::Relaxed) == WAIT {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut redirects_before = None;
    loop {
        let key = name_of(dice.u64(0..keys));
        if let Some(first) = value.first_mut() {
            *first = dice.alphanumeric() as u8;
        }
        let begin = Instant::now();
        let outcome = match op {
            Op::Put => client.put(&key, &value).await,
            Op::Get => client.get(&key).await,
        };
        let micros = begin.elapsed().as_micros();
        match STATE.load(Ordering::Relaxed) {
            STOP => break,
            COUNT => {
                redirects_before.get_or_insert(client.redirects());
                match &outcome {
                    Ok(()) => seen.micros.push(u32::try_from(micros).unwrap_or(u32::MAX)),
                    Err(_) => seen.errors += 1,
                }
            }
            _ => {}
        }
        if let Err(why) = outcome {
            seen.first_error.get_or_insert(why);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    seen.redirects = client.redirects() - redirects_before.unwrap_or(client.redirects());
    seen
}
