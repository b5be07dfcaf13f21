//! The picture of DESIGN §3 as a test: crates depend downwards only, and pure crates on nothing
//! that has a clock, a thread, a socket or a source of randomness.
//!
//! A new crate or a new dependency of a pure crate is a decision: it fails here until it is
//! written into one of the two tables below.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Our crates, bottom first: what each may see (normal and build dependencies).
const MAY_SEE: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("resp", &["base"]),
    ("table", &["base"]),
    ("rdb", &["base"]),
    ("keyspace", &["base", "table", "rdb"]),
    ("command", &["base", "resp", "table", "keyspace"]),
    ("acl", &["base", "resp", "command"]),
    ("replica", &["base"]),
    ("meta", &["base"]),
    (
        "node",
        &[
            "base", "resp", "table", "keyspace", "command", "replica", "meta",
        ],
    ),
    ("rocks", &["base", "keyspace", "replica"]),
    ("transport", &["base"]),
    // made from `proto/`
    ("rowapi", &[]),
    ("rowclient", &["base", "rowapi"]),
    ("settings", &["base", "table", "keyspace"]),
    ("tls", &["settings"]),
    ("sqldb", &["base", "table", "settings"]),
    (
        "stats",
        &[
            "base", "resp", "table", "keyspace", "command", "node", "settings",
        ],
    ),
    (
        "runtime",
        &[
            "base",
            "resp",
            "table",
            "keyspace",
            "command",
            "acl",
            "replica",
            "meta",
            "node",
            "settings",
            "stats",
            "tls",
            "transport",
            "sqldb",
        ],
    ),
    (
        "dump",
        &["base", "rdb", "keyspace", "settings", "stats", "runtime"],
    ),
    (
        "session",
        &[
            "base", "resp", "keyspace", "command", "acl", "node", "settings", "stats", "tls",
            "runtime",
        ],
    ),
    (
        "admin",
        &[
            "base", "resp", "table", "keyspace", "command", "acl", "meta", "node", "settings",
            "stats", "sqldb", "runtime", "dump", "session",
        ],
    ),
    (
        "gateway",
        &[
            "base", "table", "acl", "node", "settings", "stats", "tls", "sqldb", "runtime",
            "session", "rowapi",
        ],
    ),
    (
        "server",
        &[
            "keyspace", "settings", "stats", "tls", "sqldb", "runtime", "dump", "session", "admin",
            "gateway",
        ],
    ),
    (
        "neokv",
        &[
            "base",
            "resp",
            "keyspace",
            "command",
            "replica",
            "meta",
            "transport",
            "tls",
            "rocks",
            "server",
        ],
    ),
    (
        "sim",
        &[
            "base", "resp", "table", "keyspace", "command", "replica", "meta", "node",
        ],
    ),
    // the load generator of `make bench`: no part of the product
    ("load", &["base", "rowclient"]),
    // throw-away PostgreSQL and MariaDB servers for tests
    ("databases", &[]),
];

/// The pure crates, and everything from outside that may be linked into them, however deep.
const PURE: &[&str] = &[
    "base", "resp", "rdb", "keyspace", "command", "acl", "replica", "meta", "table", "node",
];
const PURE_MAY_LINK: &[&str] = &[
    "bitflags",
    "crc",
    "crc-catalog",
    // a checksum is a function of its bytes, whichever instruction makes it; the other two run at build time only
    "crc32c",
    "rustc_version",
    "semver",
    "fastrand",
    "foldhash",
    "itoa",
    // digests of rows
    "xxhash-rust",
    // SHA-256 of passwords, and what it is made of; the last one asks the CPU what it can
    "sha2",
    "block-buffer",
    "crypto-common",
    "digest",
    "generic-array",
    "typenum",
    "cfg-if",
    "cpufeatures",
    "libc",
    "version_check",
    // comparisons that take the same time
    "subtle",
    // sqlx turns on this feature of bitflags, for all who link it
    "serde",
    "serde_core",
    "serde_derive",
    // protobuf on plain structs
    "bytes",
    "prost",
    // run at build time only: what prost's derive macro is made of
    "anyhow",
    "either",
    "itertools",
    "prost-derive",
    "proc-macro2",
    "quote",
    "syn",
    "unicode-ident",
];

/// What raft-rs brings along, for `replica` and `node`, which drives it. It links `rand` for its election timeouts; ours
/// are seeded and replace every one it draws before it is compared (`replica/src/election.rs`),
/// which `replica/tests/three_voters.rs` proves: same seed, same trace. `slog` is compiled to nothing.
const RAFT_LINKS: &[&str] = &[
    "bytes",
    "cfg-if",
    "fxhash",
    "byteorder",
    "protobuf",
    "raft",
    "raft-proto",
    "slog",
    "thiserror",
    // rand and what it is made of
    "getrandom",
    "libc",
    "ppv-lite86",
    "rand",
    "rand_chacha",
    "rand_core",
    "wasi",
    "zerocopy",
    // run at build time only: derive macros and the protobuf code generator
    "aho-corasick",
    "anyhow",
    "getset",
    "memchr",
    "proc-macro2",
    "protobuf-build",
    "protobuf-codegen",
    "quote",
    "regex",
    "regex-automata",
    "regex-syntax",
    "rustversion",
    "syn",
    "thiserror-impl",
    "unicode-ident",
    "zerocopy-derive",
    // behind features that are off, or for other systems; named by `cargo metadata` all the same
    "erased-serde",
    "r-efi",
    "serde",
    "serde_core",
    "serde_derive",
];

#[test]
fn crates_depend_downwards_only() {
    let tree = Tree::read();
    let allowed: BTreeMap<_, _> = MAY_SEE.iter().copied().collect();
    let mut wrong = Vec::new();
    for name in &tree.ours {
        let Some(may_see) = allowed.get(name.as_str()) else {
            wrong.push(format!("{name}: has no place in the picture"));
            continue;
        };
        for seen in tree.normal[name].intersection(&tree.ours) {
            if !may_see.contains(&seen.as_str()) {
                wrong.push(format!("{name} must not see {seen}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_crates_link_nothing_impure() {
    let tree = Tree::read();
    let mut wrong = Vec::new();
    for name in PURE {
        for linked in tree.closure(name) {
            let raft = ["replica", "node"].contains(name) && RAFT_LINKS.contains(&linked.as_str());
            if !tree.ours.contains(&linked) && !PURE_MAY_LINK.contains(&linked.as_str()) && !raft {
                wrong.push(format!("{name} is pure but links {linked}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `cargo metadata` knows of the workspace: which package needs which, tests left out.
struct Tree {
    ours: BTreeSet<String>,
    /// By name, for our crates.
    normal: BTreeMap<String, BTreeSet<String>>,
    /// By id: of one name there may be several versions, which need different things.
    needs: BTreeMap<String, BTreeSet<String>>,
    names: BTreeMap<String, String>,
}

impl Tree {
    fn read() -> Tree {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        // For this system only: crates for others are not downloaded by a build.
        let host = format!(
            "{}-unknown-{}-gnu",
            std::env::consts::ARCH,
            std::env::consts::OS
        );
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--offline"])
            .args(["--filter-platform", &host])
            .output()
            .expect("cargo metadata runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();

        let names: BTreeMap<String, String> = list(&json["packages"])
            .iter()
            .map(|package| (text(&package["id"]), text(&package["name"])))
            .collect();
        let ours = list(&json["workspace_members"])
            .iter()
            .map(|id| names[&text(id)].clone())
            .collect();
        let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in list(&json["resolve"]["nodes"]) {
            let needed = needs.entry(text(&node["id"])).or_default();
            for dep in list(&node["deps"]) {
                // A kind of null is a normal dependency; "dev" is for tests and does not ship.
                let ships = list(&dep["dep_kinds"])
                    .iter()
                    .any(|kind| kind["kind"].as_str() != Some("dev"));
                if ships {
                    needed.insert(text(&dep["pkg"]));
                }
            }
        }
        let normal = needs
            .iter()
            .map(|(id, needed)| {
                let needed = needed.iter().map(|id| names[id].clone());
                (names[id].clone(), needed.collect())
            })
            .collect();
        Tree {
            ours,
            normal,
            needs,
            names,
        }
    }

    /// Names of all that one of our crates links.
    fn closure(&self, of: &str) -> BTreeSet<String> {
        let named = |id: &&String| self.names[*id] == of;
        let mut open: Vec<&String> = self.needs.keys().filter(named).collect();
        assert_eq!(open.len(), 1, "{of} is one crate");
        let mut found = BTreeSet::new();
        while let Some(id) = open.pop() {
            for next in self.needs.get(id).into_iter().flatten() {
                if found.insert(next) {
                    open.push(next);
                }
            }
        }
        found.into_iter().map(|id| self.names[id].clone()).collect()
    }
}
