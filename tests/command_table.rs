//! `COMMAND INFO` and `COMMAND DOCS` beside those of redis-server 7.0: equal for every command that both have, but for the
//! differences listed here, each with its reason. A difference that is gone has to leave the list.

mod process;
mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use process::Server;
use trio::{Link, show};
use wire::Value;

/// What may differ: command, field, why.
const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "client|kill",
        "arguments",
        "filters may be given together; Redis 7.0 calls them alternatives",
    ),
    (
        "client|list",
        "arguments",
        "ID is one argument, not a block of one",
    ),
    ("config|get", "arguments", "a block of one is its argument"),
    (
        "command|getkeys",
        "arguments",
        "Redis 7.0 says nothing of them",
    ),
    (
        "command|getkeysandflags",
        "arguments",
        "Redis 7.0 says nothing of them",
    ),
];

fn link(server: &Server) -> Link {
    Link::open(&format!("127.0.0.1:{}", server.port)).expect("connected")
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("no list: {other:?}"),
    }
}

fn sorted(value: &Value) -> String {
    let mut words: Vec<String> = items(value.clone()).iter().map(show).collect();
    words.sort();
    words.join(" ")
}

/// Pairs of a reply to RESP2.
fn pairs(value: &Value) -> BTreeMap<String, Value> {
    let items = items(value.clone());
    let pairs = items.chunks(2).map(|it| (show(&it[0]), it[1].clone()));
    pairs.collect()
}

/// A key specification without its remark.
fn spec(value: &Value) -> String {
    let mut parts = pairs(value);
    parts.remove("notes");
    let flags = parts.remove("flags").map(|it| sorted(&it));
    let rest: Vec<String> = parts
        .iter()
        .map(|(name, it)| format!("{name}={}", show(it)))
        .collect();
    format!("{} {}", flags.unwrap_or_default(), rest.join(" "))
}

type Fields = BTreeMap<&'static str, String>;

/// The rows of COMMAND INFO by name, subcommands among them.
fn rows(value: Value, found: &mut BTreeMap<String, Fields>) {
    for row in items(value) {
        let row = items(row);
        let specs: Vec<String> = items(row[8].clone()).iter().map(spec).collect();
        let fields = Fields::from([
            ("arity", show(&row[1])),
            ("flags", sorted(&row[2])),
            (
                "keys",
                format!("{} {} {}", show(&row[3]), show(&row[4]), show(&row[5])),
            ),
            ("categories", sorted(&row[6])),
            ("tips", sorted(&row[7])),
            ("specs", specs.join("; ")),
        ]);
        found.insert(show(&row[0]), fields);
        rows(row[9].clone(), found);
    }
}

/// An argument of COMMAND DOCS. Groups and words to be typed are known by their parts and by the word.
fn argument(value: &Value) -> String {
    let parts = pairs(value);
    let text = |name| parts.get(name).map(show).unwrap_or_default();
    let kind = text("type");
    let flags = parts.get("flags").map(sorted).unwrap_or_default();
    let inner = parts.get("arguments").map(arguments).unwrap_or_default();
    let name = match &*kind {
        "oneof" | "block" | "pure-token" => String::new(),
        _ => text("name"),
    };
    let (token, spec) = (text("token"), text("key_spec_index"));
    format!("({name}:{kind} {token} {spec} {flags}{inner})")
}

fn arguments(value: &Value) -> String {
    items(value.clone()).iter().map(argument).collect()
}

fn docs(value: &Value, found: &mut BTreeMap<String, Fields>) {
    for (name, entry) in pairs(value) {
        let entry = pairs(&entry);
        let text = |name| entry.get(name).map(show).unwrap_or_default();
        let inner = entry.get("arguments").map(arguments).unwrap_or_default();
        assert!(!text("summary").is_empty(), "{name}");
        let fields = Fields::from([
            ("since", text("since")),
            ("group", text("group")),
            ("arguments", inner),
        ]);
        found.entry(name).or_default().extend(fields);
        if let Some(subcommands) = entry.get("subcommands") {
            docs(subcommands, found);
        }
    }
}

fn table(server: &Server) -> BTreeMap<String, Fields> {
    let mut link = link(server);
    let mut found = BTreeMap::new();
    rows(link.ask(&["COMMAND"]).expect("a reply"), &mut found);
    docs(
        &link.ask(&["COMMAND", "DOCS"]).expect("a reply"),
        &mut found,
    );
    found
}

#[test]
fn rows_are_those_of_redis() {
    let Some(redis) = Server::redis_7_0() else {
        return;
    };
    let (theirs, ours) = (table(&redis), table(&Server::neokv(1)));
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<_> = ALLOWED.iter().map(|it| (it.0, it.1)).collect();
    let mut common = 0;
    for (name, fields) in &ours {
        let Some(expected) = theirs.get(name) else {
            continue;
        };
        common += 1;
        for (field, value) in fields {
            if expected.get(field) == Some(value) || unused.remove(&(&**name, *field)) {
                continue;
            }
            let expected = expected.get(field).cloned().unwrap_or_default();
            wrong.push(format!(
                "{name} {field}\n  redis {expected}\n  ours  {value}"
            ));
        }
    }
    assert!(common > 200, "{common} commands compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(unused.is_empty(), "no difference any more: {unused:?}");
}
