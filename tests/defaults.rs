//! What a server does that was given no settings: how its threads are scheduled, and how many cores it starts (decision 31).

#[allow(dead_code)] // shared with other tests, which use the rest
mod process;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use process::Server;

/// The lines of INFO that begin so.
fn info(server: &Server, section: &str, name: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    write!(stream, "INFO {section}\r\nQUIT\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}

/// The scheduling policies of all threads of a server: 0 is ordinary, 3 is SCHED_BATCH.
fn policies(server: &Server) -> Vec<u32> {
    let pid = info(server, "server", "process_id");
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let policy = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        // The name, in parentheses, may contain anything; policy is the 41st field, the 39th behind it.
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(38)?.parse().ok()
    };
    tasks.filter_map(|task| policy(task.ok()?)).collect()
}

#[test]
fn threads_are_scheduled_as_any_other_program() {
    for server in [
        Server::durable(1, &[]),
        Server::durable(2, &[]),
        Server::neokv(2),
    ] {
        let found = policies(&server);
        assert!(
            !found.is_empty() && found.iter().all(|&it| it == 0),
            "{found:?}"
        );
    }
}

#[test]
fn one_cpu_in_eight_is_left_to_others() {
    // 0: by the number of CPUs, as if it was not given.
    let server = Server::durable(0, &[]);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let expected = (cpus - cpus.div_ceil(8)).max(1);
    assert_eq!(info(&server, "server", "num_shards"), expected.to_string());
}
