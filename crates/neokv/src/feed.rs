//! `neokv feed`: prints the change feed of a data directory on which no node runs.
//!
//! ```text
//!   region:index  stamp_ms  db  "SET" "key" "value"              a command, as it was given
//!   region:index  stamp_ms  db  EXPIRED "key"                    its time had come
//!   region:index  stamp_ms  -   PUT family "row" "value"         of what ran over several regions:
//!   region:index  stamp_ms  -   DELETE family "row"              the rows it changed
//!   region:index  -         -   TERM                             nothing changed
//! ```
//!
//! The position to go on from is that of the last line, with one added to its index.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keyspace::rows::{Changes, RowError, feed};
use replica::entry::{self, Body};
use rocks::{DataDir, Store, StoreSettings};

/// What to print.
pub struct Wanted {
    pub dir: PathBuf,
    /// Region and the first index wanted of it; all of the regions that are not here.
    pub from: Vec<(u64, u64)>,
}

/// `region:index`.
pub fn parse_position(text: &str) -> Option<(u64, u64)> {
    let (region, index) = text.split_once(':')?;
    Some((region.parse().ok()?, index.parse().ok()?))
}

/// Prints the feed; in one line why not.
pub fn print(wanted: &Wanted) -> Result<(), String> {
    // Locked until the end.
    let (_data, rows) = open(&wanted.dir)?;
    let mut out = BufWriter::new(io::stdout().lock());
    for (region, first) in feed::regions(&*rows).map_err(unreadable)? {
        let from = wanted.from.iter().find(|(it, _)| *it == region);
        let from = from.map_or(first, |&(_, index)| index);
        let mut next = from;
        let mut result = Ok(());
        feed::read(&*rows, region, from, &mut |index, payload| {
            if index != next {
                eprintln!(
                    "neokv: entries {region}:{next} to {region}:{} are not in the feed",
                    index - 1
                );
            }
            next = index + 1;
            result = print_entry(&mut out, region, index, payload);
            result.is_ok()
        })
        .map_err(unreadable)?;
        match result {
            // Whoever reads has had enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error.to_string()),
            Ok(()) => {}
        }
    }
    match out.flush() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn open(dir: &Path) -> Result<(DataDir, Arc<Store>), String> {
    if !dir.join("FORMAT").exists() {
        return Err(format!("{} is not a data directory", dir.display()));
    }
    let data = DataDir::open(dir).map_err(|error| error.to_string())?;
    let rows = Store::open(&data.rows(), &StoreSettings::default());
    Ok((data, rows.map_err(|error| error.to_string())?))
}

fn print_entry(out: &mut impl Write, region: u64, index: u64, payload: &[u8]) -> io::Result<()> {
    if payload.is_empty() {
        return writeln!(out, "{region}:{index} - - TERM");
    }
    let place = format_args!("{region}:{index}");
    let entry =
        entry::decode(payload).map_err(|error| io::Error::other(format!("{place}: {error}")))?;
    let stamp = entry.stamp_ms;
    match entry.body {
        Body::Commands(commands) => {
            for command in commands {
                write!(out, "{region}:{index} {stamp} {}", command.db)?;
                for arg in command.args() {
                    write!(out, " \"{}\"", arg.escape_ascii())?;
                }
                writeln!(out)?;
            }
        }
        Body::Expire(keys) => {
            for it in keys {
                let key = it.key.escape_ascii();
                writeln!(out, "{region}:{index} {stamp} {} EXPIRED \"{key}\"", it.db)?;
            }
        }
        Body::Digest(id) => writeln!(out, "{region}:{index} {stamp} - DIGEST {id}")?,
        Body::Rows(bytes) => {
            let changes = Changes::decode(bytes)
                .ok_or_else(|| io::Error::other(format!("{place}: rows cannot be read")))?;
            for change in changes.iter() {
                let (family, row) = (change.family.name(), change.key.escape_ascii());
                match change.value {
                    Some(value) => writeln!(
                        out,
                        "{region}:{index} {stamp} - PUT {family} \"{row}\" \"{}\"",
                        value.escape_ascii()
                    )?,
                    None => writeln!(out, "{region}:{index} {stamp} - DELETE {family} \"{row}\"")?,
                }
            }
        }
    }
    Ok(())
}

fn unreadable(error: RowError) -> String {
    match error {
        RowError::Cold => "a row is not in memory".into(),
        RowError::Failed(what) => what,
    }
}
