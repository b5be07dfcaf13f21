//! What must hold when everything works again: every key is read once more by a client and on every replica, the
//! replicas of each region are equal (`neokv ctl digest`), and the history has one order that explains it.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use sim::check;
use sim::history::{Action, Fate as End, History, Seen};

use crate::client::{Fate, text};
use crate::nodes::Cluster;
use crate::wire::Value;

/// What the keys hold at the end.
pub type Last = BTreeMap<String, Option<String>>;

/// All of it. The nodes run and reach each other, and nobody writes.
pub fn all(cluster: &Cluster, history: &mut History, keys: &[String]) {
    cluster.until_healthy();
    let last = read(cluster, history, keys);
    compare_values(cluster, &last);
    digest(cluster);
    judge(history, &last);
}

/// One more read of each key, part of the history.
fn read(cluster: &Cluster, history: &mut History, keys: &[String]) -> Last {
    let mut client = cluster.client();
    let mut last = Last::new();
    for key in keys {
        let deadline = Instant::now() + Duration::from_secs(20);
        let value = loop {
            let call = history.call(u32::MAX, vec![(key.clone(), Action::Get)]);
            match client.ask(key, &["GET", key]) {
                Fate::Done(replies) => {
                    let value = text(&replies[0]);
                    let seen = match (is_counter(key), value.as_deref()) {
                        (true, Some(text)) => Seen::Number(text.parse().expect("a counter")),
                        (_, value) => Seen::Text(value.map(str::to_owned)),
                    };
                    history.done(call, vec![seen]);
                    break value;
                }
                why => {
                    history.unknown(call);
                    assert!(Instant::now() < deadline, "{key} cannot be read: {why:?}");
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        last.insert(key.clone(), value);
    }
    last
}

/// Counters have keys that say so.
pub fn is_counter(key: &str) -> bool {
    key.ends_with('c') || key.ends_with('n')
}

/// Every replica has what clients saw.
fn compare_values(cluster: &Cluster, last: &Last) {
    let mut compared = 0;
    for number in cluster.answering() {
        cluster.until("its replicas answer", |cluster| {
            let mut session = cluster.session(number).map_err(|e| e.to_string())?;
            session.ask(&["READONLY"]).map_err(|e| e.to_string())?;
            for (key, expected) in last {
                let found = match session.ask(&["GET", key]).map_err(|e| e.to_string())? {
                    Value::Error(error) if error.starts_with(b"MOVED") => continue,
                    Value::Error(error) => {
                        return Err(String::from_utf8_lossy(&error).into_owned());
                    }
                    value => text(&value),
                };
                compared += 1;
                assert_eq!(&found, expected, "{key} on node {number}");
            }
            Ok(())
        });
    }
    assert!(compared >= last.len(), "no replica was read");
}

/// `neokv ctl digest`: all rows of all replicas of a region, at one index of its log.
pub fn digest(cluster: &Cluster) {
    let mut said = String::new();
    cluster.until("all replicas can be compared", |cluster| {
        let peers: Vec<String> = cluster
            .answering()
            .iter()
            .map(|&it| cluster.peer_address(it))
            .collect();
        let asked = Command::new(env!("CARGO_BIN_EXE_neokv"))
            .args(["ctl", "digest", "--json", "--peer", &peers.join(",")])
            .args(cluster.ctl_settings())
            .output()
            .map_err(|error| error.to_string())?;
        let table = String::from_utf8_lossy(&asked.stdout).into_owned();
        assert!(!table.contains("different"), "replicas differ:\n{table}");
        match asked.status.success() {
            true => {
                said = table;
                Ok(())
            }
            // A leader may have changed just now.
            false => Err(String::from_utf8_lossy(&asked.stderr).into_owned() + &table),
        }
    });
    let table: Json = serde_json::from_str(&said).expect("JSON");
    let regions = table["regions"].as_array().expect("regions");
    assert_eq!(regions.len(), cluster.regions(), "{table:#}");
    for region in regions {
        let replicas = region["replicas"].as_array().expect("replicas");
        let same = |what: &str| replicas.iter().all(|it| it[what] == replicas[0][what]);
        assert!(
            region["verdict"] == "equal" && same("index") && same("digest"),
            "{region:#}"
        );
        assert_eq!(replicas.len(), cluster.replicas(), "{region:#}");
    }
}

fn judge(history: &History, last: &Last) {
    if let Err(broken) = check::kept::check(history, last) {
        panic!("{}: {}", broken.checker, broken.what);
    }
    match check::linear::check(history) {
        Ok(0) => {}
        Ok(undecided) => eprintln!("{undecided} keys could not be decided in time"),
        Err(broken) => panic!("{}: {}", broken.checker, broken.what),
    }
}

/// A history in one line.
pub fn summary(history: &History) -> String {
    format!(
        "{} calls: {} done, {} not happened, {} unknown",
        history.calls.len(),
        history.count(End::Done),
        history.count(End::Refused),
        history.count(End::Unknown),
    )
}
