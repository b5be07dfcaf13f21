//! Answers for people.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::table::{Table, bytes, time};

/// A number of an answer; 0 if it has none of this name.
pub fn number(of: &Value, name: &str) -> u64 {
    of.get(name)
        .and_then(Value::as_i64)
        .unwrap_or(0)
        .unsigned_abs()
}

fn text(of: &Value, name: &str) -> String {
    match of.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".into(),
        Some(other) => other.to_string(),
    }
}

pub fn time_of(ms: u64) -> String {
    time(ms)
}

fn micros(us: u64) -> String {
    match us {
        0 => "-".into(),
        1..1000 => format!("{us} us"),
        _ => time(us / 1000),
    }
}

fn rows(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

pub fn list(list: &Value) -> String {
    if rows(list).next().is_none() {
        return "no tables: `neokv table create users --fields 'age:int64,name:string'` declares one\n".into();
    }
    let mut table = Table::new(&["table", "backend", "SQL table", "epoch", "fields"]);
    for it in rows(list) {
        let cells = ["name", "backend", "sqlname", "epoch", "declaration"];
        table.row(cells.map(|name| text(it, name)));
    }
    table.to_string()
}

pub fn table(it: &Value) -> String {
    let mut table = Table::new(&["field", "kind", "default"]);
    for field in it.get("fields").into_iter().flat_map(rows) {
        let part = |at: usize| field.get(at).and_then(Value::as_str).unwrap_or_default();
        table.row([part(0).into(), part(1).into(), part(2).into()]);
    }
    format!(
        "table {} · SQL table {} of backend {} · epoch {}{}\nrows are the keys {}:…\n\n{table}",
        text(it, "name"),
        text(it, "sqlname"),
        text(it, "backend"),
        text(it, "epoch"),
        match number(it, "closed") {
            0 => "",
            _ => " · closed: being dropped, or `neokv table open` it",
        },
        text(it, "name"),
    )
}

pub fn backends(nodes: &[(String, Value)]) -> String {
    let mut table = Table::new(&[
        "node",
        "backend",
        "is",
        "tables",
        "statements",
        "loads",
        "p99",
        "flushes",
        "p99",
        "rows written",
        "refused",
        "conflicts",
        "faults",
        "URL",
    ]);
    let mut faults = String::new();
    let mut any = false;
    for (node, answer) in nodes {
        for it in rows(answer) {
            any = true;
            let is_up = number(it, "up") == 1;
            table.row([
                node.clone(),
                text(it, "name"),
                if is_up { "up" } else { "DOWN" }.into(),
                text(it, "tables"),
                text(it, "statements"),
                text(it, "loads"),
                micros(number(it, "load_p99_us")),
                text(it, "flushes"),
                micros(number(it, "flush_p99_us")),
                text(it, "flushed_rows"),
                text(it, "refused_rows"),
                text(it, "conflicting_rows"),
                (number(it, "transient_faults") + number(it, "unfit_faults")).to_string(),
                text(it, "url"),
            ]);
            if !is_up {
                let (name, why) = (text(it, "name"), text(it, "error"));
                faults.push_str(&format!("{node} {name}: {why}\n"));
            }
        }
    }
    if !any {
        return "no backends: start the node with --table-backend main=postgres://user@host/database\n".into();
    }
    format!("{table}{faults}")
}

pub fn status(nodes: &[(String, Value)]) -> String {
    let mut table = Table::new(&[
        "node",
        "regions",
        "rows",
        "size",
        "to write",
        "lag",
        "dead",
        "waiting",
        "loads",
        "flushes",
        "rows written",
        "kicked",
        "faults",
    ]);
    let mut notes = String::new();
    for (node, it) in nodes {
        table.row([
            node.clone(),
            text(it, "regions"),
            text(it, "rows"),
            bytes(number(it, "bytes")),
            text(it, "dirty"),
            time(number(it, "lag_ms")),
            text(it, "dead"),
            text(it, "waiting"),
            text(it, "loads"),
            text(it, "flushes"),
            text(it, "flushed"),
            text(it, "kicked"),
            text(it, "faults"),
        ]);
        for trouble in it.get("troubles").into_iter().flat_map(rows) {
            let (name, why) = (text(trouble, "table"), text(trouble, "why"));
            notes.push_str(&format!(
                "{node}: table {name} cannot be written back: {why}\n"
            ));
        }
        for down in it.get("down").into_iter().flat_map(rows) {
            let (name, why) = (text(down, "backend"), text(down, "why"));
            notes.push_str(&format!("{node}: backend {name} does not answer: {why}\n"));
        }
        let (regions, leases) = (number(it, "regions"), number(it, "leases"));
        // Without anything to write a lease is let go.
        if leases < regions && number(it, "queued") > 0 {
            let waiting = regions - leases;
            notes.push_str(&format!(
                "{node}: {waiting} regions wait for their turn to write back, after a change of leader\n"
            ));
        }
    }
    let dead: u64 = nodes.iter().map(|(_, it)| number(it, "dead")).sum();
    if dead > 0 {
        notes.push_str("dead letters are rows that SQL did not take: `neokv table dead list`\n");
    }
    format!("{table}{}{notes}", per_table(nodes))
}

/// The sums of all nodes; nothing if there are no tables.
fn per_table(nodes: &[(String, Value)]) -> String {
    let mut sums: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for of in nodes.iter().filter_map(|(_, it)| it.get("per_table")) {
        for it in rows(of) {
            let sum = sums.entry(text(it, "table")).or_default();
            for (sum, name) in sum.iter_mut().zip(["rows", "dirty", "dead"]) {
                *sum += number(it, name);
            }
        }
    }
    if sums.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["table", "rows", "to write", "dead"]);
    for (name, [rows, dirty, dead]) in sums {
        table.row([name, rows.to_string(), dirty.to_string(), dead.to_string()]);
    }
    format!("\n{table}")
}

pub fn letters(nodes: &[(String, Value)]) -> String {
    let all: Vec<&Value> = nodes
        .iter()
        .filter_map(|(_, it)| it.get("letters"))
        .flat_map(rows)
        .collect();
    if all.is_empty() {
        return "no dead letters: SQL has taken every row, or will\n".into();
    }
    let mut table = Table::new(&["row", "version", "kind", "in SQL", "why"]);
    for it in &all {
        let cells = ["key", "version", "kind", "sql_version", "why"];
        table.row(cells.map(|name| text(it, name)));
    }
    let dead: u64 = nodes.iter().map(|(_, it)| number(it, "dead")).sum();
    let more = dead.saturating_sub(all.len() as u64);
    let mut notes = String::new();
    if more > 0 {
        notes.push_str(&format!("and {more} more\n"));
    }
    notes.push_str(
        "`dead retry ROW` writes one again, after a conflict with `--over` the version in SQL; `dead drop ROW` takes what SQL has\n",
    );
    format!("{table}{notes}")
}
