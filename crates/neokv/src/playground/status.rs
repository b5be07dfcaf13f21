//! `cluster status`: what runs, and what meta knows of it.

use std::path::Path;

use serde_json::json;

use super::book::{Book, Node};
use super::probe::{self, View};
use crate::table::Table;

/// A node as both see it.
struct Row<'a> {
    node: &'a Node,
    pid: Option<u32>,
    state: String,
    /// Number, regions it leads, replicas and slots, if meta answers.
    known: Option<Known>,
}

struct Known {
    id: u64,
    leaders: u64,
    replicas: u64,
    slots: usize,
}

pub fn status(dir: &Path, as_json: bool) -> Result<(), String> {
    let book = Book::read(dir)?;
    match as_json {
        true => print_json(&book),
        false => print(&book),
    }
}

/// The table, and a line on the whole.
pub fn print(book: &Book) -> Result<(), String> {
    let view = view(book)?;
    let mut table = Table::new(&[
        "node", "id", "address", "pid", "state", "leaders", "replicas", "slots",
    ]);
    for row in rows(book, view.as_ref()) {
        let known = |value: fn(&Known) -> u64| {
            let value = row.known.as_ref().map(value);
            value.map_or("-".to_owned(), |it| it.to_string())
        };
        table.row([
            row.node.number.to_string(),
            known(|it| it.id),
            row.node.redis(),
            row.pid.map_or("-".into(), |pid| pid.to_string()),
            row.state,
            known(|it| it.leaders),
            known(|it| it.replicas),
            known(|it| it.slots as u64),
        ]);
    }
    print!("{table}");
    match &view {
        Some(view) => println!(
            "{} of {} slots served; {} of {} regions have a leader",
            view.slots_served(),
            base::SLOT_COUNT,
            view.led(),
            view.regions.len()
        ),
        None if any_runs(book) => println!("the meta service does not answer"),
        None => println!(
            "nothing runs: `neokv cluster up{}` starts it",
            book.dir_flag()
        ),
    }
    Ok(())
}

fn print_json(book: &Book) -> Result<(), String> {
    let view = view(book)?;
    let nodes = rows(book, view.as_ref()).into_iter().map(|row| {
        let known = row.known.as_ref();
        json!({
            "node": row.node.number,
            "id": known.map(|it| it.id),
            "redis": row.node.redis(),
            "peer": row.node.peer(),
            "pid": row.pid,
            "up": row.state == "up",
            "state": row.state,
            "leaders": known.map(|it| it.leaders),
            "replicas": known.map(|it| it.replicas),
            "slots": known.map(|it| it.slots),
            "data": book.data(row.node.number),
            "log": book.log(row.node.number),
        })
    });
    let nodes: Vec<_> = nodes.collect();
    let shown = json!({
        "folder": book.folder,
        "nodes": nodes,
        "slots_served": view.as_ref().map(View::slots_served),
        "regions": view.as_ref().map(|view| view.regions.len()),
        "regions_led": view.as_ref().map(View::led),
    });
    println!("{shown:#}");
    Ok(())
}

fn any_runs(book: &Book) -> bool {
    book.nodes.iter().any(|node| book.running(node).is_some())
}

fn view(book: &Book) -> Result<Option<View>, String> {
    match any_runs(book) {
        true => Ok(View::patient(&probe::line(book)?)),
        false => Ok(None),
    }
}

fn rows<'a>(book: &'a Book, view: Option<&View>) -> Vec<Row<'a>> {
    let row = |node: &'a Node| {
        let process = book.running(node);
        let heard = view.and_then(|view| view.at(node.peer_port));
        let was_removed = view.is_some_and(|view| view.was_removed(node.peer_port));
        let state = match (process, heard) {
            (_, None) if was_removed => "removed",
            (None, _) => "stopped",
            (Some(process), _) if process.is_paused() => "paused",
            (Some(_), Some(row)) => row.state.as_str(),
            (Some(_), None) if view.is_none() => "running",
            (Some(_), None) => "starting",
        };
        let known = view.zip(heard).map(|(view, row)| Known {
            id: row.node,
            leaders: row.leaders,
            replicas: row.replicas,
            slots: view.slots_led_by(row.node),
        });
        Row {
            node,
            pid: process.map(|process| process.pid),
            state: state.to_owned(),
            known,
        }
    };
    book.nodes.iter().map(row).collect()
}
