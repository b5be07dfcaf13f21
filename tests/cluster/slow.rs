//! A value of many megabytes on a line that needs seconds for it: nobody else waits for it, and no leader is deposed.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::client::Session;
use crate::network::Network;
use crate::nodes::{Cluster, Plan};
use crate::wire::Value;

const BYTES: usize = 6 << 20;
/// Of the leader's line, to both followers together.
const RATE: &str = "16mbit";

/// The term of every region, and who leads it.
fn terms(cluster: &Cluster) -> BTreeMap<u64, (u64, u64)> {
    let shown = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["ctl", "regions", "--json", "--peer"])
        .arg(cluster.peer_address(1))
        .args(cluster.ctl_settings())
        .output()
        .expect("neokv ctl");
    let text = String::from_utf8_lossy(&shown.stdout);
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    let rows = rows.as_array().or_else(|| rows["regions"].as_array());
    let rows = rows.unwrap_or_else(|| panic!("{text}")).iter();
    rows.map(|row| {
        let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{text}"));
        let leader = row["leader_node"].as_u64().unwrap_or_default();
        (number("region"), (number("term"), leader))
    })
    .collect()
}

#[test]
fn a_large_value_on_a_slow_line_deposes_nobody() {
    let Some(network) = Network::new() else {
        return;
    };
    let cluster = Cluster::start_on(Some(network), Plan::default());
    // Before, leaders are moved to where they are fewer by two.
    cluster.until("leaders are spread", |cluster| {
        let mut leaders = terms(cluster);
        leaders.remove(&0);
        let of = |node: u64| leaders.values().filter(|it| it.1 == node).count();
        let counts = [of(1), of(2), of(3)];
        let apart = counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0);
        match of(0) == 0 && apart < 2 {
            true => Ok(()),
            false => Err(format!("{leaders:?}")),
        }
    });
    // What nodes know of the last move may be a moment behind it.
    let mut found = None;
    cluster.until("its leader answers", |cluster| {
        let leader = cluster.leader_of("{big}");
        let session = cluster.session(leader);
        let mut session = session.map_err(|error| error.to_string())?;
        let set = session.ask(&["SET", "{big}small", "1"]);
        match set {
            Ok(Value::Simple(_)) => found = Some((leader, session)),
            other => return Err(format!("{other:?}")),
        }
        Ok(())
    });
    let (leader, mut session) = found.expect("it has answered");
    let network = cluster.network.as_ref().expect("a network");
    if !network.slow(leader, RATE) {
        return;
    }
    let before = terms(&cluster);
    let address = cluster.address(leader);
    let begin = Instant::now();
    let writer = std::thread::spawn(move || {
        let mut session = Session::open(&address, Duration::from_secs(120)).unwrap();
        session.ask(&["SET", "{big}", &"x".repeat(BYTES)]).unwrap()
    });
    let (mut slowest, mut reads) = (Duration::ZERO, 0);
    while !writer.is_finished() {
        let asked = Instant::now();
        let value = session.ask(&["GET", "{big}small"]).unwrap();
        assert_eq!(value, Value::Bulk(b"1".to_vec()));
        slowest = slowest.max(asked.elapsed());
        reads += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = begin.elapsed();
    assert_eq!(writer.join().unwrap(), Value::Simple(b"OK".to_vec()));
    eprintln!("{BYTES} bytes in {took:?}; {reads} reads meanwhile, the slowest took {slowest:?}");
    assert!(took > Duration::from_secs(2), "the line is slow: {took:?}");
    assert_eq!(terms(&cluster), before, "somebody was elected");
    network.fast(leader);
    cluster.until_healthy();
    crate::verify::digest(&cluster);
}
