//! A session with redis-rs: typed commands, pipelines, transactions, blocking pops, scans, RESP3.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{Client, Commands, Connection, RedisResult};

pub fn session(port: u16) {
    for url in [
        format!("redis://127.0.0.1:{port}/"),
        format!("redis://127.0.0.1:{port}/?protocol=resp3"),
    ] {
        let client = Client::open(url).expect("a client");
        let mut con = client.get_connection().expect("a connection");
        let _: () = redis::cmd("FLUSHALL").query(&mut con).expect("FLUSHALL");
        plain(&mut con).expect("plain commands");
        pipelines(&mut con).expect("pipelines");
        transactions(&client).expect("transactions");
        blocking(&client).expect("blocking pops");
        scans(&mut con).expect("scans");
    }
}

fn plain(con: &mut Connection) -> RedisResult<()> {
    let _: () = con.set_ex("k", "v", 100)?;
    assert_eq!(con.get::<_, String>("k")?, "v");
    assert!((1..=100).contains(&con.ttl::<_, i64>("k")?));
    assert_eq!(con.get::<_, Option<String>>("none")?, None);
    assert_eq!(con.incr::<_, _, i64>("n", 5)?, 5);
    let blob: Vec<u8> = (0..3_000_000u32).map(|n| ((n * 31) >> 3) as u8).collect();
    let _: () = con.set("blob", &blob)?;
    assert_eq!(con.get::<_, Vec<u8>>("blob")?, blob);
    let _: () = con.mset(&[("a", 1), ("b", 2), ("c", 3)])?;
    assert_eq!(con.mget::<_, Vec<i64>>(&["a", "b", "c"])?, [1, 2, 3]);

    let _: () = con.hset_multiple("h", &[("name", "x"), ("age", "3")])?;
    let map: HashMap<String, String> = con.hgetall("h")?;
    assert_eq!(map["age"], "3");
    let _: () = con.rpush("l", &[1, 2, 3])?;
    assert_eq!(con.lrange::<_, Vec<i64>>("l", 0, -1)?, [1, 2, 3]);
    let _: () = con.sadd("s", &["x", "y"])?;
    let set: HashSet<String> = con.smembers("s")?;
    assert_eq!(set.len(), 2);
    let _: () = con.zadd_multiple("z", &[(1.5, "one"), (2.0, "two")])?;
    let scored: Vec<(String, f64)> = con.zrange_withscores("z", 0, -1)?;
    assert_eq!(scored, [("one".to_owned(), 1.5), ("two".to_owned(), 2.0)]);

    let refused: RedisResult<i64> = con.lpush("k", "x");
    let code = refused
        .expect_err("a list command on a string")
        .code()
        .map(str::to_owned);
    assert_eq!(code.as_deref(), Some("WRONGTYPE"));
    Ok(())
}

fn pipelines(con: &mut Connection) -> RedisResult<()> {
    let mut pipe = redis::pipe();
    for n in 0..1000 {
        pipe.set(format!("p:{n}"), n).ignore();
        pipe.get(format!("p:{n}"));
    }
    let got: Vec<i64> = pipe.query(con)?;
    assert_eq!(got, (0..1000).collect::<Vec<_>>());
    let (a, b): (i64, String) = redis::pipe()
        .atomic()
        .incr("atomic", 1)
        .get("atomic")
        .query(con)?;
    assert_eq!((a, b.as_str()), (1, "1"));
    Ok(())
}

/// Four clients count together by read, compute, write under WATCH: nothing is lost.
fn transactions(client: &Client) -> RedisResult<()> {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut con = client.get_connection().expect("a connection");
            std::thread::spawn(move || {
                for _ in 0..50 {
                    let keys = ["tx:a", "tx:b"];
                    let _: () = redis::transaction(&mut con, &keys, |con, pipe| {
                        let n: i64 = con.get::<_, Option<i64>>(keys[0])?.unwrap_or(0);
                        pipe.set(keys[0], n + 1).ignore();
                        pipe.set(keys[1], n + 1).ignore();
                        pipe.query(con)
                    })
                    .expect("a transaction");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a client");
    }
    let mut con = client.get_connection()?;
    assert_eq!(con.mget::<_, Vec<i64>>(&["tx:a", "tx:b"])?, [200, 200]);
    Ok(())
}

fn blocking(client: &Client) -> RedisResult<()> {
    let mut waiting = client.get_connection()?;
    let waiter = std::thread::spawn(move || {
        let got: RedisResult<(String, String)> = waiting.blpop(&["never", "queue"], 10.0);
        got
    });
    let mut con = client.get_connection()?;
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let info: String = redis::cmd("INFO").arg("clients").query(&mut con)?;
        if info.contains("blocked_clients:1") {
            break;
        }
        assert!(Instant::now() < deadline, "the client does not block");
        std::thread::sleep(Duration::from_millis(5));
    }
    let _: () = con.rpush("queue", "job")?;
    let got = waiter.join().expect("the waiting client")?;
    assert_eq!(got, ("queue".to_owned(), "job".to_owned()));
    let nothing: Option<(String, String)> = con.blpop("never", 0.01)?;
    assert_eq!(nothing, None);
    Ok(())
}

fn scans(con: &mut Connection) -> RedisResult<()> {
    let keys: RedisResult<HashSet<String>> = con.scan_match::<_, String>("p:*")?.collect();
    assert_eq!(keys?.len(), 1000);
    let _: () = con.sadd("members", (0..500).collect::<Vec<i64>>())?;
    let members: RedisResult<HashSet<i64>> = con.sscan::<_, i64>("members")?.collect();
    assert_eq!(members?.len(), 500);
    Ok(())
}

/// The cluster client: it learns the slots from one node and goes straight from then on.
pub fn cluster_session(address: &str) {
    let client = ClusterClient::new(vec![format!("redis://{address}/")]).expect("a client");
    let mut con = client.get_connection().expect("a connection");
    let run = |con: &mut ClusterConnection| -> RedisResult<()> {
        for n in 0..100 {
            let _: () = con.set(format!("k:{n}"), n)?;
            assert_eq!(con.get::<_, i64>(format!("k:{n}"))?, n);
        }
        let _: () = con.mset(&[("{t}a", 1), ("{t}b", 2)])?;
        assert_eq!(con.mget::<_, Vec<i64>>(&["{t}a", "{t}b"])?, [1, 2]);
        let mut pipe = redis::cluster::cluster_pipe();
        for n in 0..100 {
            pipe.cmd("INCR").arg(format!("k:{n}"));
        }
        let counted: Vec<i64> = pipe.query(con)?;
        assert!(counted.into_iter().eq(1..=100));
        Ok(())
    };
    run(&mut con).expect("a cluster session");
}

/// A plain client at a cluster that forwards.
pub fn forwarded_session(address: &str) {
    let client = Client::open(format!("redis://{address}/?protocol=resp3")).expect("a client");
    let mut con = client.get_connection().expect("a connection");
    let run = |con: &mut Connection| -> RedisResult<()> {
        for n in 0..100 {
            let _: () = con.set(format!("k:{n}"), n)?;
            assert_eq!(con.get::<_, i64>(format!("k:{n}"))?, n);
        }
        let found: HashSet<String> = con.scan_match("k:*")?.collect::<RedisResult<_>>()?;
        assert_eq!(found.len(), 100);
        let (set, got): (String, i64) = redis::pipe()
            .atomic()
            .cmd("SET")
            .arg("tx")
            .arg(7)
            .cmd("GET")
            .arg("tx")
            .query(con)?;
        assert_eq!((&*set, got), ("OK", 7));
        Ok(())
    };
    run(&mut con).expect("a session");
}
