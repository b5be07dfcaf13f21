//! `docs/internals/layout.md`: its tables are printed here, so they cannot go stale.
//!
//! To write the page anew after a change: `NEOKV_BLESS=1 cargo test -p keyspace the_page`.

use super::*;
use crate::Expire;
use crate::rows::feed;
use crate::rows::layout::Metadata;

const PAGE: &str = "../../docs/internals/layout.md";
const BEGIN: &str = "<!-- printed by crates/keyspace/src/rows/tests/page.rs: do not edit -->\n";
const END: &str = "<!-- end of what is printed -->\n";

/// Hexadecimal with a gap between the parts of a row.
fn spaced(bytes: &[u8], lens: &[usize]) -> String {
    let mut parts = Vec::new();
    let mut rest = bytes;
    for &len in lens {
        let (part, behind) = rest.split_at(len.min(rest.len()));
        parts.push(part);
        rest = behind;
    }
    parts.push(rest);
    let text = |part: &&[u8]| part.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let parts: Vec<String> = parts.iter().map(text).filter(|t| !t.is_empty()).collect();
    match parts.is_empty() {
        true => "(nothing)".into(),
        false => parts.join(" "),
    }
}

/// Where the parts of a row's key begin: prefix in two, slot, length, key, generation, rest.
fn key_parts(family: Family, row: &[u8]) -> Vec<usize> {
    match family {
        Family::Info => vec![1, 8],
        Family::Feed => vec![8, 8],
        Family::Metadata => vec![8, 8, 2, 4],
        Family::Expiry => vec![8, 8, 8, 2, 4],
        Family::Tables if row.get(15) == Some(&0) => vec![8, 8, 1],
        Family::Tables => vec![8, 8, 2, 1, 4],
        Family::Data | Family::Score => {
            let (metadata, _, _) = layout::split_sub_key(row).unwrap();
            let score = if family == Family::Score { 8 } else { 0 };
            vec![8, 8, 2, 4, metadata.len() - 22, 8, score]
        }
    }
}

fn value_parts(family: Family, value: &[u8]) -> Vec<usize> {
    match family {
        Family::Info => vec![1, 8, 8, 8, 8, 1, 8, 8, 8],
        Family::Metadata => match Metadata::parse(value).unwrap().generation() {
            None => vec![1, 8],
            Some(_) => vec![1, 8, 8, 8, 8, 8],
        },
        _ => vec![],
    }
}

fn tables() -> String {
    let mut durable = Durable::new();
    let deadline_ms = 1_800_000_000_000;
    durable.entry(3, 1_700_000_000_000, |txn| {
        txn.put_string(b"greeting", b"hello", Expire::At(deadline_ms));
        let mut user = txn.hash_or_new(b"user").unwrap();
        user.insert(b"name", b"Ada");
        drop(user);
        let mut queue = txn.list_or_new(b"queue").unwrap();
        queue.push_back(b"first");
        queue.push_front(b"before");
        drop(queue);
        txn.set_or_new(b"tags").unwrap().insert(b"red");
        txn.zset_or_new(b"board").unwrap().insert(b"ada", 1.5);
        txn.apply_table_entry(super::tables::users());
        txn.apply_table_entry(super::tables::loaded("grace"));
    });
    // Before it a leader began its term; what commands are in the log, this crate does not know.
    let mut changes = Changes::new();
    feed::note(&mut changes, HOME, 2, b"");
    durable.store.write(&[&changes]).unwrap();
    let mut out = String::new();
    for family in Family::ALL {
        out += &format!("### `{}`\n\n```text\n", family.name());
        for (row, value) in durable.store.all(family) {
            let text = String::from_utf8_lossy(&row).into_owned();
            let name = ["greeting", "user", "queue", "tags", "board", "grace"]
                .into_iter()
                .find(|name| text.contains(name))
                .unwrap_or("region 7");
            out += &format!(
                "{name}\n  key    {}\n  value  {}\n",
                spaced(&row, &key_parts(family, &row)),
                spaced(&value, &value_parts(family, &value))
            );
        }
        out += "```\n\n";
    }
    out
}

#[test]
fn the_page_shows_the_rows_as_they_are() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (printed, after) = rest.split_once(END).unwrap();
    let tables = tables();
    #[allow(
        clippy::disallowed_methods,
        reason = "a tool for whoever edits the page"
    )]
    let bless = std::env::var("NEOKV_BLESS").is_ok();
    if bless {
        std::fs::write(PAGE, format!("{before}{BEGIN}{tables}{END}{after}")).unwrap();
    } else {
        assert_eq!(printed, tables, "docs/internals/layout.md is out of date");
    }
}
