//! `neokv ctl unsafe-recover`: regions whose majority is lost for good go on with the replica of this node.
//!
//! On the data directory of a node that does not run. Without `--execute` it only says what it would do. What it does is
//! printed, and kept in `unsafe-recovery.log` in the data directory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::cluster::META_REGION;
use clap::{Arg, ArgAction, ArgMatches, Command};
use rocks::{DataDir, Log, LogSettings, Store, StoreSettings};
use server::Stores;
use server::cluster::recovery::{Choice, Remains, Survey, recover, survey};

use super::tables::slots;
use crate::table::Table;

/// Kept beside the data.
const JOURNAL: &str = "unsafe-recovery.log";

pub struct Options {
    dir: PathBuf,
    choice: Choice,
    execute: bool,
}

pub fn command() -> Command {
    let list = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .value_delimiter(',')
            .value_parser(clap::value_parser!(u64))
            .help(help)
    };
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    Command::new("unsafe-recover")
        .about("A majority is lost for good: go on with what this node has. LOSES DATA")
        .long_about(
            "Regions whose majority was on nodes that are lost for good go on with the replica of this node alone; what \
             only the lost nodes had is lost. On the data directory of a node that does not run. Stop all nodes that are \
             left, ask on each of them, start them, and remove the lost nodes with `ctl remove-node`. The lost nodes must \
             never be started again with the data they had.",
        )
        .arg(
            Arg::new("data-dir")
                .long("data-dir")
                .value_name("DIR")
                .required(true)
                .help("Data directory of this node, which must not run"),
        )
        .arg(list("lost", "NODE[,…]", "Nodes that never come back with their data").required(true))
        .arg(list(
            "take",
            "REGION[,…]",
            "Recover these here, although other nodes have a replica, too",
        ))
        .arg(list("skip", "REGION[,…]", "Another node recovers these"))
        .arg(flag(
            "drop-member-changes",
            "Drop changes of members of which nobody knows whether they happened",
        ))
        .arg(flag("execute", "Do it; else only say what would be done"))
}

pub fn options(matches: &ArgMatches) -> Options {
    let numbers = |name: &str| -> BTreeSet<u64> {
        matches
            .get_many(name)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    };
    let dir = matches.get_one::<String>("data-dir").cloned();
    Options {
        dir: dir.unwrap_or_default().into(),
        choice: Choice {
            lost: numbers("lost"),
            take: numbers("take"),
            skip: numbers("skip"),
            drop_changes: matches.get_flag("drop-member-changes"),
        },
        execute: matches.get_flag("execute"),
    }
}

/// Prints what is left and, if it is asked for, recovers it; in one line why not.
pub fn run(options: &Options) -> Result<(), String> {
    let choice = &options.choice;
    // Locked until the end.
    let (_data, stores) = open(&options.dir)?;
    let found = survey(&stores, choice)?;
    print!("{}", shown(&found, choice));
    let wanted = |it: &&Remains| !choice.skip.contains(&it.region());
    let wanted: Vec<&Remains> = found.regions.iter().filter(wanted).collect();
    if wanted.is_empty() {
        println!("Nothing is to be recovered on node {}.", found.node);
        return Ok(());
    }
    if !options.execute {
        println!(
            "This was a dry run: nothing has changed. With --execute the regions above go on with what node {} has of them. \
             Writes that were acknowledged behind their last entry are LOST.",
            found.node
        );
        return Ok(());
    }
    let stuck = wanted
        .iter()
        .filter(|it| it.obstacle(choice).is_some())
        .count();
    if stuck > 0 {
        return Err(format!(
            "nothing has changed: {stuck} regions cannot be recovered as they are, see above"
        ));
    }
    let mut journal = Journal::open(&options.dir)?;
    let lost: Vec<String> = choice.lost.iter().map(u64::to_string).collect();
    journal.note(&format!(
        "node {} begins to recover without nodes {}",
        found.node,
        lost.join(", ")
    ))?;
    for remains in &wanted {
        recover(&stores, remains)?;
        let (region, last) = (remains.region(), remains.tail.last);
        journal.note(&format!(
            "region {region} has one member now, replica {} on node {}, from its entry {} of term {}",
            remains.record.replica, found.node, last.index, last.term
        ))?;
    }
    journal.note("done")?;
    println!(
        "{} regions were recovered; {JOURNAL} in the data directory says which. Now: recover the other nodes that are left, \
         start them, then `neokv ctl remove-node` for nodes {}, and let new nodes join. Never start the lost ones again with \
         the data they had.",
        wanted.len(),
        lost.join(", ")
    );
    Ok(())
}

fn open(dir: &Path) -> Result<(DataDir, Stores), String> {
    if !dir.join("FORMAT").exists() {
        return Err(format!("{} is not a data directory", dir.display()));
    }
    let data = DataDir::open(dir).map_err(|error| error.to_string())?;
    let rows = Store::open(&data.rows(), &StoreSettings::default());
    let log = Log::open(&data.log(), &LogSettings::default());
    let stores = Stores {
        rows: rows.map_err(|error| error.to_string())? as Arc<_>,
        log: log.map_err(|error| error.to_string())? as Arc<_>,
        feed: false,
    };
    Ok((data, stores))
}

fn shown(found: &Survey, choice: &Choice) -> String {
    let mut table = Table::new(&[
        "region",
        "slots",
        "lost",
        "also on",
        "applied",
        "last entry",
        "what happens",
    ]);
    let list = |nodes: &[u64]| {
        nodes
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    for it in &found.regions {
        let what = match it.obstacle(choice) {
            _ if choice.skip.contains(&it.region()) => "left as it is".into(),
            Some(why) => format!("NOT RECOVERED: {why}"),
            None => format!("replica {} becomes the only one", it.record.replica),
        };
        table.row([
            it.region().to_string(),
            match it.region() {
                META_REGION => "meta".into(),
                _ => slots(&it.record.descriptor),
            },
            list(&it.lost),
            list(&it.others),
            it.applied.index.to_string(),
            format!("{} of term {}", it.tail.last.index, it.tail.last.term),
            what,
        ]);
    }
    let mut text = format!(
        "node {} of cluster {:016x}: {} replicas have a majority, {} do not\n",
        found.node,
        found.cluster,
        found.sound,
        found.regions.len()
    );
    if !found.regions.is_empty() {
        text += &table.to_string();
    }
    if !found.gone.is_empty() {
        let gone = list(&found.gone);
        text += &format!(
            "regions {gone} had no replica but on the lost nodes: their data is gone and cannot be recovered\n"
        );
    }
    text
}

/// What was done, for whoever asks later.
struct Journal(File);

impl Journal {
    fn open(dir: &Path) -> Result<Journal, String> {
        let path = dir.join(JOURNAL);
        let file = File::options().create(true).append(true).open(&path);
        file.map(Journal)
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    fn note(&mut self, what: &str) -> Result<(), String> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seconds = now.map_or(0, |since| since.as_secs());
        eprintln!("unsafe-recover: {what}");
        let written = writeln!(self.0, "{seconds} {what}").and_then(|()| self.0.sync_all());
        written.map_err(|error| format!("{JOURNAL}: {error}"))
    }
}
