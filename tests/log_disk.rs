//! A node whose log disk fails, hangs or is slow: others lead its regions, quiet ones too; clients are answered within a
//! bound; it says so to everybody; and when the disk is well again it takes part as before.

mod faulty_disk;
mod process;
mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::process::Command;
use std::time::{Duration, Instant};

use process::{Server, free_port};
use trio::{Link, Trio};

const REGIONS: usize = 6;
const KEYS: usize = 60;
/// Nobody waits longer for an answer; far more than it takes, for the machine may be busy.
const ANSWERED: Duration = Duration::from_secs(15);

fn start() -> Trio {
    let environment = faulty_disk::environment("/data/log/", "fault");
    let environment: Vec<_> = environment.iter().map(|(k, v)| (&**k, &**v)).collect();
    Trio::start_in(&[], &environment)
}

fn key(n: usize) -> String {
    format!("key:{n}")
}

fn slot(n: usize) -> u16 {
    base::slot::slot_of(key(n).as_bytes())
}

/// A key whose slot this node leads, as another one says.
fn key_led_by(trio: &Trio, node: usize, seen_by: usize) -> usize {
    let mut found = None;
    trio.until("it leads something", |trio| {
        found = (0..KEYS).find(|&n| trio.leader_of(slot(n), seen_by) == Some(node));
        found.is_some()
    });
    found.expect("a key")
}

/// Writes every key at whoever leads it now, as this node says; none of them may be led by `not`.
fn write_all(trio: &Trio, seen_by: usize, not: Option<usize>, round: usize) {
    for n in 0..KEYS {
        let mut said = String::new();
        trio.until("a write is taken by another node", |trio| {
            let Some(leader) = trio.leader_of(slot(n), seen_by) else {
                return false;
            };
            if Some(leader) == not {
                return false;
            }
            let Ok(mut link) = trio.try_link(leader) else {
                return false;
            };
            said = link.say(&format!("SET {} {round}", key(n)));
            said == "OK"
        });
    }
}

fn info(trio: &Trio, node: usize, field: &str) -> String {
    let mut link = trio.link(node);
    let text = link.say("INFO everything");
    let line = text
        .lines()
        .find_map(|it| it.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field}: {text}"))
        .trim()
        .to_owned()
}

/// What `neokv ctl nodes` says of the states, asked at this node.
fn states(trio: &Trio, asked: usize) -> String {
    let shown = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["ctl", "nodes", "--json", "--cluster-secret-file"])
        .arg(trio.secret())
        .arg("--peer")
        .arg(format!("{}:{}", trio.host(asked), trio::PORT + 10_000))
        .output()
        .expect("neokv ctl");
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

fn until_quiet(trio: &Trio) {
    trio.until("all regions are quiet", |trio| {
        (0..3).all(|node| info(trio, node, "regions_quiet") == REGIONS.to_string())
    });
}

/// Asks for a write, wherever it leads; how long the answer took, and the answer.
fn timed(link: &mut Link, line: &str) -> (Duration, String) {
    let begin = Instant::now();
    link.set_timeout(Duration::from_secs(60));
    let said = link.say(line);
    (begin.elapsed(), said)
}

/// The disk fails while all regions are quiet: one write finds that out, and all other regions of the node, which nobody
/// has touched, are led by others, too.
#[test]
fn a_failed_disk_leads_nothing() {
    let mut trio = start();
    write_all(&trio, 0, None, 1);
    until_quiet(&trio);
    let (sick, other) = (1, 2);
    let n = key_led_by(&trio, sick, other);
    faulty_disk::set(&trio.file(sick, "fault"), "sync fail 5\nwrite fail 5\n");
    let (took, said) = timed(&mut trio.link(sick), &format!("SET {} 2", key(n)));
    assert!(took < ANSWERED, "{took:?}: {said}");
    write_all(&trio, other, Some(sick), 2);
    assert_eq!(info(&trio, sick, "log_disk"), "failed");
    trio.until("meta knows why", |trio| {
        let states = states(trio, other);
        states.contains("\"down: ") && states.contains("cannot be written")
    });
    // Somebody who asks there is sent to where it is led.
    trio.until("it redirects", |trio| {
        let (took, said) = timed(&mut trio.link(sick), &format!("GET {}", key(n)));
        assert!(took < ANSWERED, "{took:?}: {said}");
        said.starts_with("-MOVED")
    });
    // On a disk that is well it comes back with all it had.
    trio.kill(sick);
    faulty_disk::heal(&trio.file(sick, "fault"));
    trio.restart(sick, &[]);
    write_all(&trio, other, None, 3);
    trio.until("all are up", |trio| !states(trio, other).contains("down"));
    until_quiet(&trio);
}

/// A disk that hangs gives no error. It hangs, goes on, and all is as before.
#[test]
fn a_hung_disk_leads_nothing_until_it_goes_on() {
    let trio = start();
    write_all(&trio, 0, None, 1);
    let (sick, other) = (1, 2);
    let n = key_led_by(&trio, sick, other);
    let fault = trio.file(sick, "fault");
    faulty_disk::set(&fault, "sync hang\n");
    let (took, said) = timed(&mut trio.link(sick), &format!("SET {} 2", key(n)));
    assert!(took < ANSWERED, "{took:?}: {said}");
    write_all(&trio, other, Some(sick), 2);
    assert_eq!(info(&trio, sick, "log_disk"), "stalled");
    let waiting: u64 = info(&trio, sick, "log_disk_waiting_ms").parse().unwrap();
    assert!(waiting >= 1_500, "{waiting}");
    trio.until("meta knows why", |trio| {
        states(trio, other).contains("\"down: the disk of the log does not answer")
    });
    // Whatever is asked there is answered.
    for line in [
        "SET K 2",
        "GET K",
        "SPOP {K}",
        "MSET K 1 {K}a 2",
        "BLPOP {K}b 1",
    ] {
        let line = line.replace('K', &key(n));
        let (took, said) = timed(&mut trio.link(sick), &line);
        assert!(
            took < ANSWERED && said.starts_with("-MOVED"),
            "{took:?}: {said}"
        );
    }
    faulty_disk::heal(&fault);
    trio.until("it is well again", |trio| {
        info(trio, sick, "log_disk") == "ok" && !states(trio, other).contains("down")
    });
    // Meta balances the leaders, and it leads as before.
    key_led_by(&trio, sick, other);
    write_all(&trio, other, None, 3);
}

/// Nobody else can lead the regions of this node: clients are told, and when the disk goes on all is as before.
#[test]
fn a_node_alone_answers_while_its_disk_hangs() {
    let environment = faulty_disk::environment("/data/log/", "fault");
    let environment: Vec<_> = environment.iter().map(|(k, v)| (&**k, &**v)).collect();
    let server = Server::durable_in(1, &[], &environment);
    let open = || Link::open(&format!("127.0.0.1:{}", server.port)).unwrap();
    assert_eq!(open().say("SET a 1"), "OK");
    faulty_disk::set(&server.file("fault"), "sync hang\n");
    let (took, said) = timed(&mut open(), "SET a 2");
    assert!(
        took < ANSWERED && said.starts_with("-INDOUBT"),
        "{took:?}: {said}"
    );
    let (took, said) = timed(&mut open(), "SET a 3");
    assert!(took < ANSWERED, "{took:?}: {said}");
    assert!(
        said.starts_with("-MISCONF") || said.starts_with("-INDOUBT"),
        "{said}"
    );
    assert_eq!(open().say("GET a"), "1");
    faulty_disk::heal(&server.file("fault"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while open().say("SET a 4") != "OK" {
        assert!(Instant::now() < deadline, "it never goes on");
    }
    assert_eq!(open().say("GET a"), "4");
}

/// A node whose log fails and whose regions nobody else can lead ends: somebody who starts it again has a chance.
#[test]
fn a_failed_node_that_is_in_the_way_ends() {
    let environment = faulty_disk::environment("/data/log/", "fault");
    let environment: Vec<_> = environment.iter().map(|(k, v)| (&**k, &**v)).collect();
    let port = free_port().to_string();
    let settings = [
        "--cluster-init",
        "yes",
        "--replicas",
        "1",
        "--peer-port",
        &port,
    ];
    let mut server = Server::durable_in(1, &settings, &environment);
    let open = |server: &Server| Link::open(&format!("127.0.0.1:{}", server.port)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while open(&server).say("SET a 1") != "OK" {
        assert!(Instant::now() < deadline, "it never leads");
    }
    faulty_disk::set(&server.file("fault"), "sync fail 5\nwrite fail 5\n");
    open(&server).say("SET a 2");
    assert!(!server.ended(), "it ends, and not as if all were well");
    assert!(server.log().contains("nobody else leads its regions"));
}

/// A disk whose every sync takes long does not lead either, though none takes as long as the limit.
#[test]
fn a_slow_disk_leads_nothing() {
    let trio = start();
    write_all(&trio, 0, None, 1);
    let (sick, other) = (1, 2);
    faulty_disk::set(&trio.file(sick, "fault"), "sync slow 1200\n");
    let mut round = 2;
    trio.until("it is left", |trio| {
        if let Some(n) = (0..KEYS).find(|&n| trio.leader_of(slot(n), other) == Some(sick)) {
            let (took, said) = timed(&mut trio.link(sick), &format!("SET {} {round}", key(n)));
            assert!(took < ANSWERED, "{took:?}: {said}");
        }
        round += 1;
        info(trio, sick, "log_disk") == "stalled"
    });
    let p99: u64 = info(&trio, sick, "log_disk_p99_us").parse().unwrap();
    assert!(p99 >= 1_200_000, "{p99}");
    write_all(&trio, other, Some(sick), round);
}
