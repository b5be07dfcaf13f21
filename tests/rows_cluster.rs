//! Rows over gRPC in a cluster of three: one node answers for a row, the others name it, the client finds it, and goes on
//! when it dies. SQLite stands for the database that all nodes share.

mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::process::Command;
use std::time::Duration;

use rowapi::table_client::TableClient;
use rowapi::{GetRequest, Status};
use rowclient::{Client, Written};
use tonic::transport::Endpoint;
use trio::Trio;

const HTTP: u16 = 8379;

fn run<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

/// A cluster with the table, known to every node.
fn cluster(folder: &tempfile::TempDir) -> (Trio, Vec<String>) {
    let path = folder.path().join("shared.db");
    let backend = format!("sqlite://{}", path.display());
    let settings = ["--table-backend", &backend].map(str::to_owned);
    let words: Vec<&str> = settings.iter().map(String::as_str).collect();
    let trio = Trio::start(&words);
    let said = trio
        .link(0)
        .say("ROW.TABLE CREATE users FIELDS age:int64=18,gold:uint64=0");
    assert_eq!(said, "OK");
    trio.until("every node knows the table", |trio| {
        (0..3).all(|node| trio.link(node).say("ROW.TABLE LIST").contains("users"))
    });
    (trio, settings.into())
}

fn http(trio: &Trio, node: usize) -> String {
    format!("{}:{HTTP}", trio.host(node))
}

fn keys() -> Vec<String> {
    (0..30).map(|n| format!("k{n}")).collect()
}

#[test]
fn the_leader_answers_and_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (trio, _) = cluster(&folder);
    run(async {
        let client = Client::new([http(&trio, 0)]).unwrap();
        let client = client.with_timeout(Duration::from_secs(20));
        let users = client.table("users");
        for (n, key) in keys().iter().enumerate() {
            assert_eq!(users.set(key, [("age", n as i64)]).await.unwrap(), 1);
        }
        // Every row has one node that answers; the others name it.
        let mut leads = [0; 3];
        for key in keys() {
            let mut answered = Vec::new();
            let mut named = Vec::new();
            for node in 0..3 {
                let address = Endpoint::from_shared(format!("http://{}", http(&trio, node)));
                let mut raw = TableClient::new(address.unwrap().connect_lazy());
                let request = GetRequest {
                    table: "users".into(),
                    key: key.clone(),
                    ..GetRequest::default()
                };
                let reply = raw.get(request).await.unwrap().into_inner();
                match reply.status() {
                    Status::Ok => answered.push(node),
                    Status::NotLeader => named.push(reply.leader),
                    other => panic!("{other:?}: {}", reply.error),
                }
            }
            assert_eq!(answered.len(), 1, "{key}");
            let leader = http(&trio, answered[0]);
            assert_eq!(named, [leader.clone(), leader], "{key}");
            leads[answered[0]] += 1;
        }
        assert!(leads.iter().all(|count| *count > 0), "{leads:?}");
        // Rows of all slots at once.
        let keys = keys();
        let named: Vec<&str> = keys.iter().map(String::as_str).collect();
        let rows = users.mget(&named).await.unwrap();
        for (n, row) in rows.iter().enumerate() {
            assert_eq!(row.as_ref().unwrap().int("age"), Some(n as i64));
        }
        let version = users.wait_sql("k7", None).await.unwrap();
        assert_eq!(version, 1);
    });
}

#[test]
fn a_scan_has_every_row_once_whoever_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let (trio, _) = cluster(&folder);
    run(async {
        let client = Client::new([http(&trio, 1)]).unwrap();
        let users = client.with_timeout(Duration::from_secs(20)).table("users");
        for key in keys() {
            users.set(&key, [("age", 1)]).await.unwrap();
        }
        let mut expected = keys();
        expected.sort();
        for node in 0..3 {
            let client = Client::new([http(&trio, node)]).unwrap();
            let rows = client.table("users").scan().pages_of(7).all().await;
            let mut found: Vec<String> = rows.unwrap().into_iter().map(|row| row.key).collect();
            found.sort();
            assert_eq!(found, expected, "asked node {node}");
        }
    });
}

/// `neokv ctl` of node 0.
fn ctl(trio: &Trio, words: &str) -> Option<serde_json::Value> {
    let peer = format!("{}:{}", trio.host(0), trio::PORT + 10_000);
    let output = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .arg("ctl")
        .args(words.split(' '))
        .args(["--json", "--peer", &peer, "--cluster-secret-file"])
        .arg(trio.secret())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let done = output.status.success();
    done.then(|| serde_json::from_str(&text).unwrap_or_default())
}

fn leader(trio: &Trio, region: usize) -> Option<u64> {
    ctl(trio, &format!("region {region}"))?["leader_node"].as_u64()
}

#[test]
fn a_scan_has_every_row_once_while_leaders_change() {
    let folder = tempfile::tempdir().unwrap();
    let (trio, _) = cluster(&folder);
    run(async {
        let client = Client::new((0..3).map(|node| http(&trio, node))).unwrap();
        let users = client.with_timeout(Duration::from_secs(20)).table("users");
        let mut expected = keys();
        expected.sort();
        for key in &expected {
            users.set(key, [("age", 1)]).await.unwrap();
        }
        for key in expected.iter().step_by(2) {
            users.wait_sql(key, None).await.unwrap();
            users.kick(key).await.unwrap();
        }
        let mut scan = users.scan().pages_of(2);
        let (mut found, mut regions) = (Vec::new(), 1..=6);
        while let Some(page) = scan.next_page().await.unwrap() {
            found.extend(page.into_iter().map(|row| row.key));
            // Regions come in the order of the walk: those behind it, and before it.
            let Some(region) = regions.next() else {
                continue;
            };
            let old = leader(&trio, region);
            trio.until("another leads", |trio| {
                let old = old.unwrap_or_default();
                let _ = ctl(trio, &format!("transfer-leader {region} {}", old % 3 + 1));
                leader(trio, region).is_some_and(|it| it != old)
            });
        }
        assert!(regions.next().is_none(), "all of them have moved");
        found.sort();
        assert_eq!(found, expected);
    });
}

#[test]
fn nothing_is_done_twice_or_lost_when_a_leader_dies() {
    let folder = tempfile::tempdir().unwrap();
    let (mut trio, settings) = cluster(&folder);
    let nodes: Vec<String> = (0..3).map(|node| http(&trio, node)).collect();
    let client = Client::new(nodes).unwrap();
    let users = client.with_timeout(Duration::from_secs(60)).table("users");
    const EACH: u64 = 60;
    let adding = std::thread::spawn({
        let users = users.clone();
        move || {
            run(async {
                let tasks: Vec<_> = (0..6)
                    .map(|n| {
                        let users = users.clone();
                        tokio::spawn(async move {
                            for _ in 0..EACH {
                                let key = format!("k{n}");
                                users.incr_by(&key, "gold", 1).await.unwrap();
                                tokio::time::sleep(Duration::from_millis(20)).await;
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        }
    });
    std::thread::sleep(Duration::from_millis(400));
    trio.kill(2);
    std::thread::sleep(Duration::from_millis(2500));
    let words: Vec<&str> = settings.iter().map(String::as_str).collect();
    trio.restart(2, &words);
    adding.join().unwrap();
    run(async {
        for n in 0..6 {
            let key = format!("k{n}");
            let row = users.get(&key).await.unwrap().unwrap();
            assert_eq!(
                (row.uint("gold"), row.version),
                (Some(EACH), EACH as i64),
                "{key}"
            );
            let gone = users.del(&key).await.unwrap();
            assert!(matches!(gone, Written::Ok(_)), "{gone:?}");
        }
    });
}
