//! `neokv cli`: prints what redis-cli prints, follows redirects, and survives whatever answers.

mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;

use process::Server;

fn neokv(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command.arg("cli").args(args).stdin(Stdio::null());
    for name in ["NEOKV_PASSWORD", "REDISCLI_AUTH", "NEOKV_REQUIREPASS"] {
        command.env_remove(name);
    }
    command
}

fn run(port: u16, args: &[&str]) -> Output {
    let port = port.to_string();
    neokv(&[&["-p", &port], args].concat()).output().unwrap()
}

/// Exit status, standard output, standard error.
fn said(port: u16, args: &[&str]) -> (i32, String, String) {
    let output = run(port, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let status = output.status.code().unwrap();
    (status, text(&output.stdout), text(&output.stderr))
}

fn piped(port: u16, args: &[&str], input: &[u8]) -> Output {
    let port = port.to_string();
    let mut child = neokv(&[&["-p", &port], args].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn prints_what_redis_cli_prints() {
    let Some(redis) = Server::redis_7_0() else {
        return;
    };
    if !process::is_7_0("redis-cli") {
        return;
    }
    let port = redis.port.to_string();
    let fill = b"set text hello\nrpush list a 'b c' \"x\\ty\\x01\\xff\\\"\\\\\"\nhset hash f v g w\nzadd zset 1.5 m 2 n\nsadd set one\n\
                 rpush long 1 2 3 4 5 6 7 8 9 10 11\n";
    assert!(piped(redis.port, &[], fill).status.success());
    let commands = [
        "ping",
        "get text",
        "get none",
        "strlen text",
        "lrange list 0 -1",
        "lrange long 0 -1",
        "lrange none 0 -1",
        "hgetall hash",
        "hgetall none",
        "zrange zset 0 -1 withscores",
        "zscore zset m",
        "smembers set",
        "smembers none",
        "nonsense -1 --raw",
        "get",
        "command info get",
        "config get maxmemory*",
        "debug protocol string",
        "debug protocol integer",
        "debug protocol double",
        "debug protocol null",
        "debug protocol array",
        "debug protocol set",
        "debug protocol map",
        "debug protocol true",
        "debug protocol false",
        "debug protocol verbatim",
        "eval return{1,{2,{3,'x',{}}},redis.error_reply('no'),'y'} 0",
    ];
    for mode in [
        &["--raw"][..],
        &["--no-raw"],
        &["--raw", "-3"],
        &["--no-raw", "-3"],
    ] {
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            let theirs = Command::new("redis-cli")
                .args(["-p", &port])
                .args(mode)
                .args(&words)
                .output()
                .unwrap();
            let ours = run(redis.port, &[mode, &words].concat());
            assert_eq!(
                String::from_utf8_lossy(&ours.stdout),
                String::from_utf8_lossy(&theirs.stdout),
                "{mode:?} {command}"
            );
        }
    }
}

#[test]
fn one_command_and_its_exit_status() {
    let server = Server::neokv(1);
    assert_eq!(
        said(server.port, &["ping"]),
        (0, "PONG\n".into(), "".into())
    );
    let (status, out, err) = said(server.port, &["nope"]);
    assert_eq!((status, err.as_str()), (1, ""));
    assert!(out.starts_with("ERR unknown command"), "{out}");
    // Arguments are the command's, whatever they look like.
    assert_eq!(said(server.port, &["set", "k", "--a_b"]).1, "OK\n");
    assert_eq!(said(server.port, &["get", "k"]).1, "--a_b\n");
    assert_eq!(said(server.port, &["set", "-p", "-c"]).1, "OK\n");
    assert_eq!(said(server.port, &["get", "-p"]).1, "-c\n");
    assert_eq!(
        said(server.port, &["-n", "3", "set", "k", "three"]).1,
        "OK\n"
    );
    assert_eq!(said(server.port, &["-n", "3", "get", "k"]).1, "three\n");
    let (status, _, err) = said(server.port, &["-n", "99", "get", "k"]);
    assert_eq!(status, 1);
    assert!(
        err.contains("SELECT 99 failed: ERR DB index is out of range"),
        "{err}"
    );
    // Nothing goes to another database than the one asked for.
    let (status, out, _) = said(server.port, &["-n", "99", "flushdb"]);
    assert_eq!((status, out.as_str()), (1, ""));
    assert_eq!(said(server.port, &["get", "k"]).1, "--a_b\n");
    // Bytes that are no text, as the last argument.
    let output = piped(server.port, &["-x", "set", "bytes"], b"\xff\0\n");
    assert_eq!(output.stdout, b"OK\n");
    assert_eq!(run(server.port, &["get", "bytes"]).stdout, b"\xff\0\n\n");
}

#[test]
fn wrong_command_lines_are_told_in_one_line() {
    for (args, expected) in [
        (&["--nope"][..], "unexpected argument '--nope'"),
        (&["-p", "0", "ping"], "invalid value '0'"),
        (&["-n", "x", "ping"], "invalid value 'x'"),
        (&["-x"], "-x: of which command?"),
        (&["-p", "1", "ping"], "127.0.0.1:1 does not answer"),
        (&["-h", "no.such.host.invalid", "ping"], "does not answer"),
    ] {
        let output = neokv(args).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let help = neokv(&["--help"]).output().unwrap();
    assert!(help.status.success());
    assert!(String::from_utf8(help.stdout).unwrap().contains("--host"));
}

#[test]
fn commands_from_a_pipe() {
    let server = Server::neokv(1);
    let input = b"set a 'x y'\n\n  get a\nset \"open\nincr a\nselect 2\nget a\nmulti\nget a\nexec\nquit\nget a\n";
    let output = piped(server.port, &[], input);
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "OK\nx y\nInvalid argument(s)\nERR value is not an integer or out of range\n\nOK\n\nOK\nQUEUED\n\n"
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(piped(server.port, &[], b"ping\n").status.success());
    // The last line needs no end.
    assert_eq!(piped(server.port, &[], b"ping").stdout, b"PONG\n");
}

/// What a terminal shows when a person types these lines and `quit`.
fn typed(port: u16, args: &[&str], lines: &str) -> String {
    let program = env!("CARGO_BIN_EXE_neokv");
    let command = format!("{program} cli -p {port} {}", args.join(" "));
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` is part of every Debian");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    stdin.write_all(b"quit\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_prompt_on_a_terminal() {
    let server = Server::neokv(1);
    let text = typed(
        server.port,
        &[],
        "set a 'x y'\nget a\nselect 1\nmulti\ndiscard\nhelp\n",
    );
    let port = server.port;
    for expected in [
        format!("127.0.0.1:{port}> "),
        "\"x y\"\r\n".into(),
        format!("127.0.0.1:{port}[1]> "),
        format!("127.0.0.1:{port}[1](TX)> "),
        "docs/commands.md".into(),
    ] {
        assert!(text.contains(&expected), "{expected}:\n{text}");
    }
}

#[test]
fn passwords() {
    let server = Server::neokv_with(1, &["--bind", "127.0.0.1", "--requirepass", "-secret"]);
    let (status, out, _) = said(server.port, &["get", "a"]);
    assert_eq!(status, 1);
    assert!(out.starts_with("NOAUTH"), "{out}");
    for more in [
        &["-a", "-secret"][..],
        &["-3", "-a", "-secret"],
        &["-a", "-secret", "--user", "default"],
    ] {
        assert_eq!(said(server.port, &[more, &["ping"]].concat()).1, "PONG\n");
    }
    for more in [&[][..], &["-3"]] {
        let (status, out, err) = said(
            server.port,
            &[more, &["-a", "wrong", "get", "a"][..]].concat(),
        );
        assert_eq!(status, 1);
        assert!(out.starts_with("NOAUTH"), "{out}");
        assert!(err.contains("AUTH failed: WRONGPASS"), "{err}");
        assert!(!err.contains("wrong"), "{err}");
    }
    let port = server.port.to_string();
    // From the first of them that is set.
    let names = ["NEOKV_PASSWORD", "REDISCLI_AUTH", "NEOKV_REQUIREPASS"];
    for (at, name) in names.iter().enumerate() {
        let later = names[at + 1..].iter().map(|name| (name, "wrong"));
        let output = neokv(&["-p", &port, "ping"])
            .env(name, "-secret")
            .envs(later)
            .output();
        let output = output.unwrap();
        assert_eq!(
            (&*output.stdout, &*output.stderr),
            (&b"PONG\n"[..], &b""[..])
        );
    }
    // A wrong one leaves the connection to those who know the right one.
    let output = piped(server.port, &["-a", "wrong"], b"auth -secret\nping\n");
    assert_eq!(output.stdout, b"OK\nPONG\n");
    assert!(output.status.success());
    let text = typed(
        server.port,
        &["-a", "wrong", "-n", "3"],
        "auth -secret\nselect 2\nping\n",
    );
    for expected in [
        "AUTH failed: WRONGPASS",
        "SELECT 3 failed: NOAUTH",
        "[2]> ",
        "PONG",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    // Where none is needed, it is told, and no more.
    let open = Server::neokv(1);
    let (status, out, err) = said(open.port, &["-a", "x", "ping"]);
    assert_eq!((status, out.as_str()), (0, "PONG\n"));
    assert!(err.contains("AUTH failed: ERR AUTH <password>"), "{err}");
    assert_eq!(
        piped(server.port, &[], b"auth -secret\nping\n").stdout,
        b"OK\nPONG\n"
    );
}

#[test]
fn shutdown_is_no_error() {
    let server = Server::neokv(1);
    let (status, out, err) = said(server.port, &["shutdown", "nosave"]);
    assert_eq!((status, out.as_str(), err.as_str()), (0, "", ""));
}

/// A node that answers each command of each connection with the next of these texts, and then hangs up.
fn scripted(connections: Vec<Vec<String>>) -> (u16, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = thread::spawn(move || {
        let mut asked = Vec::new();
        for answers in connections {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                asked.push(request(&mut stream));
                // It may have hung up over the last one.
                let _ = stream.write_all(answer.as_bytes());
            }
        }
        asked
    });
    (port, asked)
}

/// The words of one command.
fn request(stream: &mut TcpStream) -> String {
    let mut line = || {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            match stream.read(&mut byte) {
                Ok(1) => line.push(byte[0]),
                _ => return String::new(),
            }
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    };
    let count: usize = line().trim_start_matches('*').parse().unwrap_or(0);
    let words: Vec<String> = (0..count).map(|_| (line(), line()).1).collect();
    words.join(" ")
}

#[test]
fn redirects_are_followed() {
    let (there, asked) = scripted(vec![vec!["+OK\r\n".into(), "+there\r\n".into()]]);
    let (here, _) = scripted(vec![
        vec![format!("-ASK 7 127.0.0.1:{there}\r\n")],
        vec!["-MOVED 7 :1\r\n".into()],
    ]);
    let (status, out, _) = said(here, &["-c", "--no-raw", "get", "k"]);
    let redirected = format!("-> Redirected to slot [7] located at 127.0.0.1:{there}\nthere\n");
    assert_eq!((status, out), (0, redirected));
    assert_eq!(asked.join().unwrap(), ["ASKING", "get k"]);
    // Without -c it is an answer like others.
    let (status, out, _) = said(here, &["get", "k"]);
    assert_eq!((status, out.as_str()), (1, "MOVED 7 :1\n\n"));
}

/// The node that is said to have the key is dead; a moment later the first has it.
#[test]
fn a_redirect_to_a_dead_node_is_asked_for_again() {
    let (here, _) = scripted(vec![
        vec!["-MOVED 7 127.0.0.1:1\r\n".into()],
        vec!["-MOVED 7 127.0.0.1:1\r\n".into()],
        vec!["+mine\r\n".into()],
    ]);
    assert_eq!(said(here, &["-c", "get", "k"]).1, "mine\n");
}

/// While a leader is being chosen there is no answer yet; outside of a cluster it is one like others.
#[test]
fn a_slot_without_a_leader_is_asked_for_again() {
    let down = "-CLUSTERDOWN no leader\r\n";
    let (here, asked) = scripted(vec![
        vec![
            down.into(),
            "-TRYAGAIN the leader is changing\r\n".into(),
            "$1\r\nv\r\n".into(),
        ],
        vec![down.into()],
        // Of a transaction there is nothing left to send again.
        vec!["+OK\r\n".into(), down.into()],
    ]);
    assert_eq!(
        said(here, &["-c", "get", "k"]),
        (0, "v\n".into(), "".into())
    );
    assert_eq!(said(here, &["get", "k"]).1, "CLUSTERDOWN no leader\n\n");
    let output = piped(here, &["-c"], b"multi\nexec\n");
    assert_eq!(output.stdout, b"OK\nCLUSTERDOWN no leader\n\n");
    let all = ["get k", "get k", "get k", "get k", "multi", "exec"];
    assert_eq!(asked.join().unwrap(), all);
}

#[test]
fn whatever_answers() {
    let nested = "*1\r\n".repeat(1_000_000);
    for (answer, expected) in [
        ("", "closed the connection"),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "no Redis server"),
        ("\0\0\0\0\r\n", "no Redis server"),
        ("$9223372036854775807\r\nx", "no Redis server"),
        ("$4294967290\r\nx", "closed the connection"),
        ("*9223372036854775807\r\n+a\r\n", "closed the connection"),
        ("$3\r\nabcdef\r\n", "no Redis server"),
        (":one\r\n", "no Redis server"),
        (&nested, "nested too deep"),
    ] {
        let (port, _) = scripted(vec![vec![answer.into()]]);
        let (status, out, err) = said(port, &["get", "k"]);
        assert_eq!((status, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(expected), "{expected}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    // From node to node for ever: it says so, and ends.
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            request(&mut stream);
            let _ = stream.write_all(format!("-MOVED 1 127.0.0.1:{port}\r\n").as_bytes());
        }
    });
    let (status, _, err) = said(port, &["-c", "get", "k"]);
    assert_eq!(status, 1);
    assert!(err.contains("redirected 16 times"), "{err}");
}

/// What nobody asked for is shown, and is not taken for the answer.
#[test]
fn messages_between_answers() {
    let (port, _) = scripted(vec![vec![
        "%0\r\n".into(),
        ">2\r\n+invalidate\r\n*1\r\n+k\r\n$1\r\nv\r\n".into(),
    ]]);
    let (status, out, _) = said(port, &["-3", "--no-raw", "get", "k"]);
    assert_eq!(
        (status, out.as_str()),
        (0, "1) invalidate\n2) 1) k\n\"v\"\n")
    );
}

/// Also if a command before it was refused.
#[test]
fn monitor_goes_on_until_the_node_ends() {
    for before in ["", "nope\n"] {
        let mut server = Server::neokv(1);
        let port = server.port.to_string();
        let mut child = neokv(&["-p", &port])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        write!(input, "{before}monitor\nping\n").unwrap();
        drop(input);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line != "OK\n" {
            line.clear();
            assert_ne!(out.read_line(&mut line).unwrap(), 0);
        }
        run(server.port, &["set", "watched", "1"]);
        server.kill_and_restart();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("\"set\" \"watched\" \"1\""), "{rest}");
        assert!(!rest.contains("\"ping\""), "{rest}");
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
}

/// Within a transaction it waits for EXEC, as any command.
#[test]
fn a_queued_command_is_answered() {
    let answers = ["+OK\r\n", "+QUEUED\r\n", "+OK\r\n"];
    let (port, _) = scripted(vec![answers.map(String::from).into()]);
    let output = piped(port, &[], b"multi\nsubscribe c\ndiscard\n");
    assert_eq!(output.stdout, b"OK\nQUEUED\nOK\n");
}
