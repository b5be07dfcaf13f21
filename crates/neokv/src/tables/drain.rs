//! `table drain`: waits until SQL has everything, and shows how far it is.
//!
//! Every node waits for its own regions, all at the same time. A region that changes its leader meanwhile is asked for again:
//! it is over when the answers of one round are about all slots.

use std::io::{IsTerminal, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use base::SLOT_COUNT;
use serde_json::Value;

use super::client::Client;
use super::nodes::Nodes;
use super::show::{number, time_of};

/// Unless told.
pub const SECONDS: u64 = 600;

const LOOK: Duration = Duration::from_millis(500);

/// What is said in the end; refused if SQL does not have everything (of one table).
pub fn run(
    nodes: &mut Nodes,
    table: Option<&str>,
    seconds: u64,
    quiet: bool,
) -> Result<String, String> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        let drained = round(nodes, table, deadline, quiet)?;
        let slots: u64 = drained.iter().map(|it| number(it, "slots")).sum();
        if slots >= u64::from(SLOT_COUNT) {
            return told(&drained);
        }
        if Instant::now() > deadline {
            return Err(format!(
                "only {slots} of {SLOT_COUNT} slots have a leader that answers; see `neokv ctl regions`"
            ));
        }
        std::thread::sleep(LOOK);
    }
}

fn told(drained: &[Value]) -> Result<String, String> {
    let dead: u64 = drained.iter().map(|it| number(it, "dead")).sum();
    if dead == 0 {
        return Ok("SQL has everything".into());
    }
    let letters = drained
        .iter()
        .filter_map(|it| it.get("letters")?.as_array());
    let named = letters.flatten().filter_map(Value::as_str);
    let named: Vec<&str> = named.take(5).collect();
    Err(format!(
        "SQL has everything but {dead} dead letter{}: {}{}; see `neokv table dead list`",
        if dead == 1 { "" } else { "s" },
        named.join(", "),
        if dead as usize > named.len() {
            ", …"
        } else {
            ""
        },
    ))
}

/// All nodes drain; meanwhile it is shown what is left.
fn round(
    nodes: &mut Nodes,
    table: Option<&str>,
    deadline: Instant,
    quiet: bool,
) -> Result<Vec<Value>, String> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = left.as_millis().max(1).to_string();
    let mut words = vec!["DRAIN".to_owned(), "TIMEOUT".into(), timeout];
    words.extend(table.map(|_| "TABLE".into()));
    words.extend(table.map(str::to_owned));
    let (to, from) = mpsc::channel();
    let addresses = nodes.addresses();
    let count = addresses.len();
    for (address, password) in addresses {
        let (to, words) = (to.clone(), words.clone());
        std::thread::spawn(move || {
            let drained = Client::connect(&address, password.as_deref())
                .and_then(|mut client| client.table(&words))
                .map_err(|why| match why.strip_prefix("TIMEOUT ") {
                    Some(_) => format!(
                        "{address}: SQL still lacks rows; see `neokv table status` and `neokv table backends`"
                    ),
                    None => format!("{address}: {why}"),
                });
            let _ = to.send(drained);
        });
    }
    let mut line = Line::new(quiet);
    let mut drained = Vec::new();
    while drained.len() < count {
        match from.recv_timeout(LOOK) {
            Ok(one) => drained.push(one?),
            Err(mpsc::RecvTimeoutError::Timeout) => line.show(nodes),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err("interrupted".into()),
        }
    }
    Ok(drained)
}

/// Progress, on standard error.
struct Line {
    shown: bool,
    on: bool,
}

impl Line {
    fn new(quiet: bool) -> Line {
        Line {
            shown: false,
            on: !quiet && std::io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, nodes: &mut Nodes) {
        if !self.on {
            return;
        }
        let Ok(status) = nodes.ask_all(&["STATUS"]) else {
            return;
        };
        let sum = |name| status.iter().map(|(_, it)| number(it, name)).sum::<u64>();
        let lag = status.iter().map(|(_, it)| number(it, "lag_ms")).max();
        let left = sum("dirty");
        let oldest = time_of(lag.unwrap_or(0));
        let mut out = std::io::stderr();
        let _ = write!(
            out,
            "\r\x1b[K{left} rows to go, the oldest changed {oldest} ago"
        );
        let _ = out.flush();
        self.shown = true;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
