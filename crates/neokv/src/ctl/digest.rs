//! `ctl digest`: are all replicas of a region the same?
//!
//! One node is asked; it lets the region's log carry the question, so that every replica computes
//! the hash of its rows at the same index, and gathers what they found.

use std::time::Duration;

use base::cluster::META_REGION;
use meta::wire::Ask;
use prost::Message;
use serde_json::{Value, json};
use server::cluster::METHOD_DIGEST;

use super::{Line, TIMEOUT, Unanswered};
use crate::table::Table;

/// A hash goes over all rows of a region.
const DIGEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The answer of `METHOD_DIGEST`, which is asked with the region as eight bytes, the highest first:
/// one row for each replica.
#[derive(Clone, PartialEq, Message)]
struct Found {
    #[prost(message, repeated, tag = "1")]
    replicas: Vec<Fingerprint>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Fingerprint {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(uint64, tag = "2")]
    replica: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
    #[prost(bytes = "vec", tag = "4")]
    digest: Vec<u8>,
    /// Why there is none.
    #[prost(string, tag = "5")]
    error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Equal,
    Different,
    /// Nothing differs, but not all were heard.
    Incomplete,
}

impl Verdict {
    fn of(found: &Found) -> Verdict {
        let heard = || found.replicas.iter().filter(|it| it.error.is_empty());
        let differs = |a: &Fingerprint| heard().any(|b| a.index == b.index && a.digest != b.digest);
        if heard().any(differs) {
            return Verdict::Different;
        }
        let first = heard().next().map(|it| it.index);
        let same_index = heard().all(|it| Some(it.index) == first);
        match !found.replicas.is_empty() && heard().count() == found.replicas.len() && same_index {
            true => Verdict::Equal,
            false => Verdict::Incomplete,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Verdict::Equal => "equal",
            Verdict::Different => "DIFFERENT",
            Verdict::Incomplete => "incomplete",
        }
    }
}

/// Compares the replicas of a region, or of all; an error unless all are equal.
pub fn run(line: &Line, of: Option<u64>, as_json: bool) -> Result<(), String> {
    let told = |why: Unanswered| why.to_string();
    let regions = match of {
        Some(region) => vec![region],
        None => {
            let tables = line.patient_tables(Ask::Regions(true), TIMEOUT);
            let tables = tables.map_err(told)?;
            let ids = tables.regions.iter().map(|row| row.descriptor.region);
            ids.filter(|&id| id != META_REGION).collect()
        }
    };
    let mut all = Vec::new();
    for region in regions {
        let answer = line.call(METHOD_DIGEST, &region.to_be_bytes(), DIGEST_TIMEOUT);
        let found = answer.and_then(|bytes| {
            Found::decode(bytes).map_err(|error| Unanswered::Garbled(error.to_string()))
        });
        let found = found.map_err(|why| format!("region {region}: {why}"))?;
        all.push((region, Verdict::of(&found), found));
    }
    match as_json {
        true => println!("{:#}", in_json(&all)),
        false => print!("{}", in_table(&all)),
    }
    let count = |wanted| all.iter().filter(|(_, it, _)| *it == wanted).count();
    let (different, incomplete) = (count(Verdict::Different), count(Verdict::Incomplete));
    match (different, incomplete) {
        (0, 0) => Ok(()),
        (0, n) => Err(format!(
            "{n} of {} regions could not be compared in full; try again when all nodes are up",
            all.len()
        )),
        (n, _) => Err(format!("the replicas of {n} regions are DIFFERENT")),
    }
}

fn in_table(all: &[(u64, Verdict, Found)]) -> String {
    let mut table = Table::new(&["region", "verdict", "node", "replica", "index", "digest"]);
    for (region, verdict, found) in all {
        let mut region = region.to_string();
        let mut verdict = verdict.name().to_owned();
        for it in &found.replicas {
            // Said once for all replicas of the region.
            let (region, verdict) = (std::mem::take(&mut region), std::mem::take(&mut verdict));
            let (index, digest) = match it.error.is_empty() {
                true => (it.index.to_string(), hex(&it.digest)),
                false => ("-".into(), it.error.clone()),
            };
            let (node, replica) = (it.node.to_string(), it.replica.to_string());
            table.row([region, verdict, node, replica, index, digest]);
        }
        if found.replicas.is_empty() {
            let nobody = "nobody answered".to_owned();
            table.row([region, verdict, "-".into(), "-".into(), "-".into(), nobody]);
        }
    }
    table.to_string()
}

fn in_json(all: &[(u64, Verdict, Found)]) -> Value {
    let regions = all.iter().map(|(region, verdict, found)| {
        let replicas = found.replicas.iter().map(|it| {
            let is_heard = it.error.is_empty();
            json!({
                "node": it.node,
                "replica": it.replica,
                "index": is_heard.then_some(it.index),
                "digest": is_heard.then(|| hex(&it.digest)),
                "error": (!is_heard).then_some(&it.error),
            })
        });
        json!({
            "region": region,
            "verdict": verdict.name().to_ascii_lowercase(),
            "replicas": replicas.collect::<Vec<_>>(),
        })
    });
    json!({ "regions": regions.collect::<Vec<_>>() })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(rows: &[(u64, u8, &str)]) -> Verdict {
        let replicas = rows.iter().map(|&(index, digest, error)| Fingerprint {
            index,
            digest: vec![digest],
            error: error.into(),
            ..Fingerprint::default()
        });
        Verdict::of(&Found {
            replicas: replicas.collect(),
        })
    }

    #[test]
    fn only_what_all_say_is_equal() {
        assert_eq!(verdict(&[(5, 1, ""), (5, 1, "")]), Verdict::Equal);
        assert_eq!(verdict(&[(5, 1, ""), (5, 2, "")]), Verdict::Different);
        assert_eq!(verdict(&[(5, 1, ""), (0, 0, "gone")]), Verdict::Incomplete);
        // Other indices may well have other hashes.
        assert_eq!(verdict(&[(5, 1, ""), (6, 2, "")]), Verdict::Incomplete);
        assert_eq!(
            verdict(&[(5, 1, ""), (0, 0, "gone"), (5, 2, "")]),
            Verdict::Different
        );
        assert_eq!(verdict(&[]), Verdict::Incomplete);
    }
}
