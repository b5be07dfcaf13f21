//! Users of the running binary: categories as in redis-server, rights that are kept, a cluster whose nodes agree, HTTP.
//! What replies say is compared with redis-server in `transcripts/acl.txt`.

#[allow(dead_code)] // shared with other tests, which use the rest
mod node;
#[allow(dead_code)]
mod process;
mod trio;
#[path = "transcript/wire.rs"]
#[allow(dead_code)]
mod wire;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use node::{Folder, Node, free_port};
use process::Server;
use trio::{Link, Trio};

fn open(port: u16) -> Link {
    Link::open(&format!("127.0.0.1:{port}")).unwrap()
}

/// Waits until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: never");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the server has closed the connection.
fn is_closed(reply: std::io::Result<wire::Value>) -> bool {
    reply.map_or(true, |value| value == wire::Value::Closed)
}

fn words(reply: &str) -> BTreeSet<String> {
    let marks: &[char] = &['[', ']', ',', ' ', '"', '\n'];
    let words = reply.split(marks).filter(|it| !it.is_empty());
    words.map(str::to_owned).collect()
}

/// Every category has the commands that it has in Redis, of those that are here.
#[test]
fn categories_are_those_of_redis() {
    let Some(redis) = Server::redis_7_0() else {
        return;
    };
    let neokv = Server::neokv(1);
    let (mut theirs, mut ours) = (open(redis.port), open(neokv.port));
    let known = words(&ours.say("COMMAND LIST"));
    let listed = words(&theirs.say("ACL CAT"));
    let own: BTreeSet<String> = words(&ours.say("ACL CAT"));
    let more: Vec<&String> = own.difference(&listed).collect();
    assert_eq!(more, ["row", "table"]);
    let everywhere = words(&theirs.say("COMMAND LIST"));
    for category in &listed {
        let line = format!("ACL CAT {category}");
        let expected = words(&theirs.say(&line));
        let expected: BTreeSet<String> = expected.intersection(&known).cloned().collect();
        let found = words(&ours.say(&line));
        let found: BTreeSet<String> = found.intersection(&everywhere).cloned().collect();
        let differ: Vec<_> = expected.symmetric_difference(&found).collect();
        assert!(differ.is_empty(), "{category}: {differ:?}");
        let filtered = words(&ours.say(&format!("COMMAND LIST FILTERBY ACLCAT {category}")));
        assert_eq!(filtered, words(&ours.say(&line)), "{category}");
    }
    assert!(words(&ours.say("ACL CAT row")).contains("row.get"));
    assert!(words(&ours.say("ACL CAT table")).contains("row.table|create"));
}

/// What was answered with OK is there after kill -9.
#[test]
fn users_are_durable() {
    let mut server = Server::durable(2, &[]);
    let mut link = open(server.port);
    assert_eq!(
        link.say("ACL SETUSER alice on >secret ~app:* +@read +set"),
        "OK"
    );
    assert_eq!(link.say("ACL SETUSER bob on >x +@all ~*"), "OK");
    assert_eq!(link.say("ACL DELUSER bob"), "1");
    let list = link.say("ACL LIST");
    server.kill_and_restart();
    let mut link = open(server.port);
    assert_eq!(link.say("ACL LIST"), list);
    assert!(link.say("AUTH bob x").contains("WRONGPASS"));
    assert_eq!(link.say("AUTH alice secret"), "OK");
    assert_eq!(link.say("SET app:1 x"), "OK");
    assert!(link.say("SET other x").contains("NOPERM"));
    assert!(link.say("DEL app:1").contains("NOPERM"));
    // The default user, once it was changed by rules, is kept as well.
    let mut link = open(server.port);
    assert_eq!(link.say("ACL SETUSER default resetpass >root"), "OK");
    assert!(
        link.say("CONFIG SET requirepass other")
            .contains("ACL SETUSER default")
    );
    assert!(open(server.port).say("GET a").contains("NOAUTH"));
    server.kill_and_restart();
    let mut link = open(server.port);
    assert!(link.say("GET a").contains("NOAUTH"));
    assert_eq!(link.say("AUTH root"), "OK");
    assert_eq!(link.say("ACL WHOAMI"), "default");
}

/// `aclfile`: users are those of the file; changes are kept by ACL SAVE only.
#[test]
fn a_file_of_users() {
    let folder = Folder::new();
    let path = folder.0.join("users.acl");
    std::fs::write(
        &path,
        "user alice on >secret ~* +@all\nuser default on nopass ~* &* +@all\n",
    )
    .unwrap();
    let name = path.display().to_string();
    let mut server = Server::durable(1, &["--aclfile", &name]);
    let mut link = open(server.port);
    assert_eq!(link.say("ACL SETUSER bob on >x"), "OK");
    let mut alice = open(server.port);
    assert_eq!(alice.say("AUTH alice secret"), "OK");
    assert_eq!(link.say("ACL LOAD"), "OK");
    assert!(!link.say("ACL USERS").contains("bob"), "it was not saved");
    until("sessions end, as in Redis 7.0", || {
        is_closed(alice.ask(&["PING"]))
    });
    assert_eq!(link.say("ACL SETUSER carol on >x ~c* +get"), "OK");
    assert_eq!(link.say("ACL SAVE"), "OK");
    assert_eq!(link.say("ACL DELUSER carol"), "1");
    server.kill_and_restart();
    let mut link = open(server.port);
    assert!(link.say("ACL USERS").contains("carol"), "it was saved");
    // A file with errors changes nothing.
    std::fs::write(&path, "user dave on +nosuch\nuser carol\n").unwrap();
    let told = link.say("ACL LOAD");
    assert!(
        told.contains("Unknown command or category name in ACL"),
        "{told}"
    );
    assert!(link.say("ACL USERS").contains("carol"));
    std::fs::write(&path, "user dave on nopass +@all ~*\n").unwrap();
    let mut carol = open(server.port);
    assert_eq!(carol.say("AUTH carol x"), "OK");
    assert_eq!(link.say("ACL LOAD"), "OK");
    until("who is gone is disconnected", || {
        is_closed(carol.ask(&["PING"]))
    });
    assert_eq!(open(server.port).say("AUTH dave any"), "OK");
}

/// Users of the configuration, beside those that are kept.
#[test]
fn users_of_the_configuration() {
    let folder = Folder::new();
    let port = free_port();
    let start = |user: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
        command
            .args(["server", "--bind", "127.0.0.1", "--http-port", "0"])
            .args(["--redis-port", &port.to_string(), "--num-shards", "1"])
            .args(["--block-cache-size", "32mb", "--user", user])
            .arg("--data-dir")
            .arg(folder.0.join("data"));
        command
    };
    let node = Node::of(start("alice on >one ~* +@all"), port);
    assert_eq!(open(port).say("AUTH alice one"), "OK");
    assert_eq!(open(port).say("ACL SETUSER bob on >b"), "OK");
    node.kill();
    let node = Node::of(start("alice on >two ~* +@all\nuser carol on >c"), port);
    assert!(open(port).say("AUTH alice one").contains("WRONGPASS"));
    for line in ["AUTH alice two", "AUTH carol c", "AUTH bob b"] {
        assert_eq!(open(port).say(line), "OK", "{line}");
    }
    node.kill();
    let output = start("alice on +nosuch").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && told.contains("+nosuch"),
        "{told}"
    );
}

/// Sessions notice at once what happens to their user.
#[test]
fn sessions_follow_their_user() {
    let server = Server::neokv(2);
    let mut admin = open(server.port);
    assert_eq!(admin.say("ACL SETUSER u on >p ~* +@all"), "OK");
    let mut user = open(server.port);
    assert_eq!(user.say("AUTH u p"), "OK");
    assert!(admin.say("CLIENT LIST").contains("user=u "));
    assert_eq!(user.say("SET k v"), "OK");
    assert_eq!(admin.say("ACL SETUSER u -set"), "OK");
    assert!(
        user.say("SET k v")
            .contains("NOPERM this user has no permissions to run the 'set' command")
    );
    assert_eq!(user.say("GET k"), "v");
    // Within one batch too: a user may take rights from itself.
    let lines = [
        "SET k 1",
        "ACL SETUSER u +set",
        "SET k 2",
        "ACL SETUSER u -get",
        "GET k",
    ];
    let replies = user.pipeline(&lines.map(str::to_owned));
    assert!(
        replies[0].contains("NOPERM") && replies[4].contains("NOPERM"),
        "{replies:?}"
    );
    assert_eq!(replies[1..4], ["OK", "OK", "OK"]);
    // Off: nobody new, those who are there stay.
    assert_eq!(admin.say("ACL SETUSER u off"), "OK");
    assert!(open(server.port).say("AUTH u p").contains("WRONGPASS"));
    assert_eq!(user.say("PING"), "PONG");
    // One that waits is disconnected as well.
    assert_eq!(admin.say("ACL SETUSER w on nopass ~* +@all"), "OK");
    let mut waits = open(server.port);
    assert_eq!(waits.say("AUTH w x"), "OK");
    waits.send(&["BLPOP", "nothing", "0"]).unwrap();
    until("it waits", || {
        admin.say("INFO clients").contains("blocked_clients:1")
    });
    assert_eq!(admin.say("ACL DELUSER u w"), "2");
    assert!(is_closed(waits.receive()), "its connection is closed");
    until("it is closed", || is_closed(user.ask(&["PING"])));
    // Who deletes itself hears so.
    assert_eq!(admin.say("ACL SETUSER me on nopass +@all"), "OK");
    let mut me = open(server.port);
    assert_eq!(me.say("AUTH me x"), "OK");
    assert_eq!(me.say("ACL DELUSER me"), "1");
    assert!(is_closed(me.ask(&["PING"])));
    let log = admin.say("ACL LOG");
    for part in ["command", "toplevel", "auth", "set", "get"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert_eq!(admin.say("CONFIG SET acllog-max-len 1"), "OK");
    assert!(open(server.port).say("AUTH x y").contains("WRONGPASS"));
    assert_eq!(admin.say("ACL LOG").matches("age-seconds").count(), 1);
}

/// Passwords do not show in MONITOR and SLOWLOG.
#[test]
fn secrets_are_not_shown() {
    let server = Server::neokv(1);
    let mut admin = open(server.port);
    assert_eq!(admin.say("CONFIG SET slowlog-log-slower-than 0"), "OK");
    let mut monitor = open(server.port);
    assert_eq!(monitor.say("MONITOR"), "OK");
    assert_eq!(admin.say("ACL SETUSER u on >hushhush"), "OK");
    assert_eq!(admin.say("AUTH u hushhush"), "OK");
    assert_eq!(open(server.port).say("ECHO end"), "end");
    loop {
        let line = trio::show(&monitor.receive().unwrap());
        assert!(!line.contains("hushhush"), "{line}");
        if line.contains("end") {
            break;
        }
    }
    assert!(
        !open(server.port)
            .say("SLOWLOG GET 128")
            .contains("hushhush")
    );
}

/// Too many wrong passwords from one address have to wait.
#[test]
fn failed_logins_are_limited() {
    let server = Server::neokv_with(
        1,
        &["--bind", "127.0.0.1", "--auth-failures-per-minute", "6"],
    );
    let mut link = open(server.port);
    assert_eq!(link.say("ACL SETUSER u on >p +@all"), "OK");
    for _ in 0..6 {
        assert!(link.say("AUTH u wrong").contains("WRONGPASS"));
    }
    let told = link.say("AUTH u p");
    assert!(
        told.contains("too many failed logins from 127.0.0.1"),
        "{told}"
    );
    assert_eq!(link.say("CONFIG SET auth-failures-per-minute 0"), "OK");
    assert_eq!(link.say("AUTH u p"), "OK");
}

/// SETUSER at one node, AUTH at another at once; a node that was away; the loss of a leader.
#[test]
fn users_of_a_cluster() {
    let mut trio = Trio::start(&[]);
    for round in 0..5 {
        let rules = format!("ACL SETUSER u{round} on >p{round} ~app* +@all");
        assert_eq!(trio.link(round % 3).say(&rules), "OK");
        for node in 0..3 {
            let mut link = trio.link(node);
            assert_eq!(link.say(&format!("AUTH u{round} p{round}")), "OK");
            assert!(link.say("GET secret").contains("NOPERM"));
        }
    }
    let mut session = trio.link(2);
    assert_eq!(session.say("AUTH u1 p1"), "OK");
    // A node is away while users change.
    trio.kill(0);
    trio.until("users can be changed again", |trio| {
        trio.link(1).say("ACL SETUSER late on >late +@all ~*") == "OK"
    });
    trio.until("they can be deleted", |trio| {
        let _ = trio.link(1).say("ACL DELUSER u0 u1");
        !trio.link(1).say("ACL USERS").contains("u1")
    });
    trio.until("sessions of the deleted end, at all nodes", |_| {
        is_closed(session.ask(&["PING"]))
    });
    trio.restart(0, &[]);
    // It lets nobody in by what it knew before.
    let mut link = trio.link(0);
    assert!(link.say("AUTH u0 p0").contains("WRONGPASS"));
    assert_eq!(link.say("AUTH late late"), "OK");
    assert_eq!(trio.link(0).say("ACL LIST"), trio.link(2).say("ACL LIST"));
    // All restart.
    (0..3).for_each(|node| trio.kill(node));
    (0..3).for_each(|node| trio.restart(node, &[]));
    trio.until("everybody knows the users", |trio| {
        (0..3).all(|node| trio.link(node).say("AUTH late late") == "OK")
    });
    trio.until("users can be changed", |trio| {
        trio.link(2).say("ACL SETUSER last on >x") == "OK"
    });
    assert_eq!(trio.link(0).say("AUTH last x"), "OK");
}

/// Nodes that forward for plain clients are trusted by others, whatever the default user may do; users are not.
#[test]
fn forwarding_checks_where_the_client_is() {
    let trio = Trio::start(&["--redis-cluster-enabled", "no"]);
    let mut admin = trio.link(0);
    for at in 0..20 {
        assert_eq!(admin.say(&format!("SET app{at} {at}")), "OK");
    }
    assert_eq!(admin.say("ACL SETUSER u on >p ~app* +@all"), "OK");
    assert_eq!(admin.say("ACL SETUSER boss on >b ~* &* +@all"), "OK");
    assert_eq!(admin.say("ACL SETUSER default off"), "OK");
    for node in 0..3 {
        let mut link = trio.link(node);
        assert!(link.say("AUTH default any").contains("WRONGPASS"));
        assert!(link.say("GET app1").contains("NOAUTH"));
        assert!(link.say("CLUSTER REDIRECTS").contains("NOAUTH"));
        assert!(link.say("CLUSTER REDIRECTS 00").contains("NOAUTH"));
        assert_eq!(link.say("AUTH u p"), "OK");
        for at in 0..20 {
            assert_eq!(link.say(&format!("GET app{at}")), at.to_string());
            assert!(link.say(&format!("SET other{at} x")).contains("NOPERM"));
        }
        assert_eq!(link.say("DBSIZE"), "20");
        // A transaction goes to the node that leads.
        let lines = ["MULTI", "INCR appx", "GET appx", "DEL appx", "EXEC"];
        let replies = link.pipeline(&lines.map(str::to_owned));
        assert_eq!(replies[4], "[1 1 1]", "{replies:?}");
    }
}

/// Status and body of a page.
fn get(port: u16, path: &str, authorization: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let timeout = Some(Duration::from_secs(20));
    stream.set_read_timeout(timeout).unwrap();
    let header = match authorization {
        "" => String::new(),
        it => format!("Authorization: {it}\r\n"),
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect(&text);
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    (status.expect(head), body.to_owned())
}

#[test]
fn http_asks_for_the_same_users() {
    let (folder, http, port) = (Folder::new(), free_port(), free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .args(["server", "--bind", "127.0.0.1", "--num-shards", "1"])
        .args(["--redis-port", &port.to_string()])
        .args([
            "--http-port",
            &http.to_string(),
            "--block-cache-size",
            "32mb",
        ])
        .arg("--data-dir")
        .arg(folder.0.join("data"));
    let _node = Node::of(command, port);
    let mut link = open(port);
    assert_eq!(get(http, "/metrics", "").0, 200, "there is no password yet");
    assert_eq!(link.say("ACL SETUSER prom on >pm +info +ping"), "OK");
    assert_eq!(link.say("ACL SETUSER app on >pa +ping"), "OK");
    assert_eq!(link.say("CONFIG SET requirepass root"), "OK");
    let (prom, app) = ("Basic cHJvbTpwbQ==", "Basic YXBwOnBh");
    for (path, authorization, status) in [
        ("/metrics", "", 401),
        ("/healthz", "", 401),
        ("/", "", 401),
        ("/nosuch", "", 401),
        ("/metrics", "Bearer wrong", 401),
        ("/metrics", "Basic cHJvbTp4", 401),
        ("/metrics", "Basic !!", 401),
        ("/metrics", "Bearer root", 200),
        ("/metrics", prom, 200),
        ("/metrics", app, 403),
        ("/healthz", app, 200),
        ("/nosuch", prom, 404),
    ] {
        let (found, body) = get(http, path, authorization);
        assert_eq!(found, status, "{path} {authorization}: {body}");
    }
    assert_eq!(link.say("CONFIG SET http-open-pages yes"), "OK");
    assert_eq!(get(http, "/metrics", "").0, 200);
    assert_eq!(get(http, "/healthz", "").0, 200);
    assert_eq!(get(http, "/", "").0, 401);
    assert_eq!(link.say("CONFIG SET auth-failures-per-minute 1"), "OK");
    assert_eq!(get(http, "/", "Bearer wrong").0, 401);
    let (status, body) = get(http, "/", "Bearer root");
    assert!(
        status == 401 && body.contains("too many failed logins"),
        "{body}"
    );
}
