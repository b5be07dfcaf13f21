//! Log lines: one per event, as text or as JSON, on standard output or in a file.
//!
//! Code says `tracing::info!(region, term, "…")`; this module decides which events are written
//! ([`levels`], changed by `CONFIG SET loglevel` while the server runs) and how ([`writer`]). The
//! settings are documented in `docs/operations/logging.md`.
//!
//! Levels, Redis' names on the left: `warning` is `warn!` and `error!`, `notice` is `info!`,
//! `verbose` is `debug!`, `debug` is `trace!`.
//!
//! Invariants: an event never waits for whoever reads the log, and nothing that happens to the log
//! ends the server. Commands are not logged.

mod levels;
mod writer;

use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::Settings;

pub use levels::{Level, Levels};
use writer::Lines;

/// How long the end of the process waits for the last lines to be taken.
const FLUSH: Duration = Duration::from_secs(1);

static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// The log while it is open; dropping it writes what is left.
pub struct Log {
    lines: Lines,
}

/// Opens the log of this process. In one line why not: the file cannot be written.
pub fn open(settings: &Settings) -> Result<Log, String> {
    let lines = Lines::start(settings.logfile.as_deref()).map_err(|error| {
        let file = settings.logfile.as_deref().unwrap_or(Path::new(""));
        format!("--logfile {}: {error}", file.display())
    })?;
    let (filter, handle) = reload::Layer::new(settings.log_levels.targets());
    let layer = fmt::layer()
        .with_writer(lines.clone())
        // Otherwise it would complain on standard error.
        .log_internal_errors(false);
    let layer: Box<dyn Layer<_> + Send + Sync> = match settings.log_format {
        Format::Text => Box::new(layer),
        Format::Json => Box::new(
            layer
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false),
        ),
    };
    let all = tracing_subscriber::registry().with(filter).with(layer);
    all.try_init().map_err(|error| error.to_string())?;
    let _ = FILTER.set(handle);
    let last = lines.clone();
    std::panic::set_hook(Box::new(move |panic| on_panic(panic, &last)));
    Ok(Log { lines })
}

/// From now on, in all threads. Without an open log (tests of this crate) nothing happens.
pub fn set_levels(levels: &Levels) {
    if let Some(filter) = FILTER.get() {
        let _ = filter.reload(levels.targets());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.lines.flush(FLUSH);
    }
}

/// Says so, and ends the process unless the panic is contained: what its thread was doing is half done, and others wait
/// for it. A process that has ended is seen by everybody; the other nodes go on, and a start begins with what the disk
/// has (decision 42).
fn on_panic(panic: &PanicHookInfo<'_>, lines: &Lines) {
    let is_contained = base::is_contained();
    let thread = std::thread::current();
    let trace = std::backtrace::Backtrace::capture();
    let is_traced = trace.status() == std::backtrace::BacktraceStatus::Captured;
    tracing::error!(
        thread = thread.name(),
        location = panic.location().map(tracing::field::display),
        backtrace = is_traced.then(|| tracing::field::display(&trace)),
        "panicked: {}{}",
        panic.payload_as_str().unwrap_or("no text"),
        match is_contained {
            true => "",
            false => "; this is a bug, and the process ends: nothing half done is kept",
        }
    );
    if !is_contained {
        lines.flush(FLUSH);
        std::process::abort();
    }
}
