//! `bursts`: the load generator of `make bench` for one plain server, as cheap as a closed loop over sockets can be.
//!
//! N connections, each with a burst of P commands on its way: the next leaves when all replies to the last are there. Sending
//! ([`commands`]) and receiving ([`replies`]) allocate nothing and cost one system call each; [`connections`] is the loop. What a
//! generator costs is taken from the server when they share CPUs, and hides differences of servers when
//! it is the slower of the two: that is why this is not `load`, whose clients are tasks of an event loop and can be
//! anything, nor redis-benchmark, which makes five more system calls per request.
//!
//! ```text
//! main      ── connects, PING on each; CPU; WARM ──▶ CPU, COUNT ──▶ CPU, STOP ──▶ waits for the threads; JSON
//! thread 0  ── connections 0, T, 2T …
//! ```
//!
//! The servers' CPU is read when the measured time begins and ends (`cpu_us`), and before the first command (`began`): with that, and
//! all operations from the first to the last, a caller that waits until the server has come to rest knows what
//! they cost it altogether, what it puts off included.

mod commands;
mod connections;
mod replies;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use load::cpu;
use serde_json::{Value, json};

use commands::Burst;
use connections::{COUNT, Connections, STOP, Seen, WARM};

/// What twelve digits can say.
const RANGE_MAX: u64 = 1_000_000_000_000;
/// A server that does not answer a PING for so long is not there.
const PING_MAX: Duration = Duration::from_secs(10);

/// A closed loop of bursts of commands against one RESP server; prints JSON.
#[derive(Parser, Debug)]
#[command(name = "bursts")]
struct Settings {
    /// host:port of the server
    #[arg(long)]
    address: String,
    /// Connections
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Commands of a burst
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Threads that the connections are divided over
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// `__rand_int__` becomes a number below this
    #[arg(long, default_value_t = 1_000_000)]
    range: u64,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Seconds of load before counting begins
    #[arg(long, default_value_t = 0.2)]
    warm: f64,
    /// Processes whose CPU is measured too
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
    /// The command; `__rand_int__` in it becomes twelve random digits, each time others
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Settings {
    /// Why this cannot be run.
    fn refused(&self) -> Option<String> {
        if [self.clients, self.pipeline, self.threads].contains(&0) {
            return Some("clients, pipeline and threads are at least one".to_string());
        }
        if !(1..=RANGE_MAX).contains(&self.range) {
            return Some(format!("the range is 1 to {RANGE_MAX}"));
        }
        if self.seconds.is_nan() || self.seconds <= 0.0 || self.warm.is_nan() || self.warm < 0.0 {
            return Some("seconds are more than none, warm is not less".to_string());
        }
        let gone = |pid: &&u32| cpu::seconds_of(**pid).is_none();
        let gone = self.pids.iter().find(gone)?;
        Some(format!("no process {gone}"))
    }
}

/// CPU seconds so far of the servers and of this process, at one moment.
struct Reading {
    at: Instant,
    own: f64,
    servers: Vec<f64>,
}

impl Reading {
    fn now(settings: &Settings) -> Result<Self, String> {
        let servers = settings.pids.iter();
        let servers: Option<Vec<f64>> = servers.map(|pid| cpu::seconds_of(*pid)).collect();
        Ok(Self {
            at: Instant::now(),
            own: cpu::seconds_of(std::process::id()).ok_or("no CPU clock")?,
            servers: servers.ok_or("a measured process is gone")?,
        })
    }
}

/// A connection whose server has accepted it and answers, if only with an error that it is not ready.
fn connect(address: &str) -> Result<TcpStream, String> {
    let opened = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PING_MAX))?;
        stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
        let mut reply = Vec::new();
        let mut room = [0; 256];
        while !reply.ends_with(b"\n") {
            match stream.read(&mut room)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => reply.extend(room.iter().take(read)),
            }
        }
        Ok((stream, reply))
    };
    let opened: std::io::Result<_> = opened();
    let (stream, reply) = opened.map_err(|error| format!("{address}: {error}"))?;
    if reply.first() == Some(&b'-') {
        let text = String::from_utf8_lossy(&reply);
        return Err(format!("{address}: {}", text.trim_end()));
    }
    Ok(stream)
}

fn run(settings: &Settings) -> Result<Value, String> {
    let threads = settings.threads.min(settings.clients);
    let mut streams: Vec<Vec<TcpStream>> = (0..threads).map(|_| Vec::new()).collect();
    for n in 0..settings.clients {
        if let Some(of_thread) = streams.get_mut(n % threads) {
            of_thread.push(connect(&settings.address)?);
        }
    }
    // Other numbers in every run: the second must not find just the keys of the first.
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = since.map_or(0, |since| since.as_nanos() as u64);
    let state = AtomicU8::new(WARM);
    let mut circles = Vec::new();
    for (n, streams) in streams.into_iter().enumerate() {
        let seed = seed.wrapping_add(n as u64);
        let burst = Burst::new(&settings.command, settings.pipeline, settings.range, seed);
        let made = Connections::new(streams, burst, settings.pipeline as u64, &state);
        circles.push(made.map_err(|error| error.to_string())?);
    }
    std::thread::scope(|scope| {
        let began = Reading::now(settings)?;
        let spawned = circles.into_iter();
        let running: Vec<_> = spawned
            .map(|circle| scope.spawn(move || circle.run()))
            .collect();
        std::thread::sleep(Duration::from_secs_f64(settings.warm));
        let before = Reading::now(settings);
        state.store(COUNT, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs_f64(settings.seconds));
        let after = Reading::now(settings);
        state.store(STOP, Ordering::Relaxed);
        let mut seen = Seen::default();
        for thread in running {
            seen.add(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(report(settings, seen, &began, &before?, &after?))
    })
}

fn report(
    settings: &Settings,
    mut seen: Seen,
    began: &Reading,
    before: &Reading,
    after: &Reading,
) -> Value {
    seen.micros.sort_unstable();
    let at = |share: f64| {
        let bursts = seen.micros.len();
        let place = ((bursts as f64 * share) as usize).min(bursts.saturating_sub(1));
        let micros = seen.micros.get(place);
        micros.map(|micros| f64::from(*micros) / 1000.0)
    };
    let seconds = (after.at - before.at).as_secs_f64();
    let per_op = |seconds: f64| seconds * 1e6 / seen.operations.max(1) as f64;
    let spent = before.servers.iter().zip(&after.servers);
    let spent: Vec<f64> = spent.map(|(before, after)| after - before).collect();
    let servers = settings.pids.iter().zip(spent.iter().zip(&began.servers));
    let servers = servers.map(|(pid, (spent, began))| {
        json!({"pid": pid, "cpu_seconds": spent, "cpu_us": per_op(*spent), "began": began})
    });
    json!({
        "clients": settings.clients,
        "pipeline": settings.pipeline,
        "threads": settings.threads,
        "seconds": seconds,
        "operations": seen.operations,
        "all_operations": seen.all_operations,
        "rps": seen.operations as f64 / seconds,
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "max_ms": at(1.0),
        "errors": seen.errors,
        "first_error": seen.first_error,
        "client_cpu_us": per_op(after.own - before.own),
        "client_busy": (after.own - before.own) / seconds,
        "cpu_us": per_op(spent.iter().sum()),
        "servers": servers.collect::<Vec<Value>>(),
    })
}

fn main() -> ExitCode {
    let settings = Settings::parse();
    if let Some(why) = settings.refused() {
        eprintln!("bursts: {why}");
        return ExitCode::from(2);
    }
    match run(&settings) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("bursts: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> Settings {
        Settings::parse_from(format!("bursts --address h:1 {line}").split_whitespace())
    }

    #[test]
    fn what_cannot_be_run() {
        assert_eq!(settings("-- PING").refused(), None);
        for (line, part) in [
            ("--clients 0 -- PING", "at least one"),
            ("--pipeline 0 -- PING", "at least one"),
            ("--range 0 -- PING", "the range"),
            ("--range 1000000000001 -- PING", "the range"),
            ("--seconds 0 -- PING", "seconds"),
            ("--pids 999999999 -- PING", "no process"),
        ] {
            let refused = settings(line).refused().unwrap_or_default();
            assert!(refused.contains(part), "{line}: {refused:?}");
        }
    }
}
