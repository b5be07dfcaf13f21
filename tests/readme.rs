//! Every command block of README.md, typed as it stands there.
//!
//! The blocks run one after the other in a network namespace of their own, where the default ports are free, with
//! folders of their own in place of /usr/local and /var/lib. `make` is the real one and the Makefile ours, only that
//! nothing is built: `-o build` and the program of this test. A line that starts a server in the foreground gets a
//! terminal of its own until the next such line, as a person would do it.
//!
//! A block that is not to be run has `<!-- not run: why -->` in the line before; the test counts them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Blocks marked as not run.
const NOT_RUN: usize = 0;
/// What some blocks print at least, by the first words of their first line.
const EXPECTED: &[(&str, &[&str])] = &[
    ("make install", &["OK", "hello"]),
    ("make cluster", &["OK", "hello"]),
    (
        "neokv cli ROW.TABLE CREATE",
        &["OK", "1", "150", "name", "Alice", "gold", "150", "2"],
    ),
    ("sqlite3 ", &["alice|2|Alice|150"]),
];
const INSIDE: &str = "NEOKV_README_FOLDER";
const TIMEOUT: Duration = Duration::from_secs(120);

struct Block {
    line: usize,
    text: String,
    is_run: bool,
}

fn root() -> PathBuf {
    Path::new("../..").canonicalize().unwrap()
}

fn blocks() -> Vec<Block> {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let (mut before, mut open) = ("", false);
    for (at, line) in readme.lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(kind), false) => {
                assert!(
                    matches!(kind, "" | "sh"),
                    "README.md line {}: a block of kind {kind}",
                    at + 1
                );
                blocks.push(Block {
                    line: at + 1,
                    text: String::new(),
                    is_run: !before.starts_with("<!-- not run: "),
                });
                open = true;
            }
            (Some(_), true) => open = false,
            (None, true) => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
        before = line;
    }
    assert!(!open, "README.md ends within a block");
    blocks
}

#[test]
fn every_command_block_runs_as_typed() {
    let blocks = blocks();
    assert!(blocks.len() > 5, "looking in the wrong place");
    let not_run = blocks.iter().filter(|block| !block.is_run).count();
    assert_eq!(not_run, NOT_RUN, "blocks of README.md that are not run");
    for (start, _) in EXPECTED {
        let found = blocks.iter().any(|block| block.text.starts_with(start));
        assert!(found, "README.md has no block that begins with {start}");
    }
    let namespace = [
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    let able = Command::new("unshare")
        .args(namespace)
        .args(["ip", "link", "set", "lo", "up"])
        .output();
    if !able.is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var_os("CI").is_none(),
            "no network namespaces in CI: are we root?"
        );
        eprintln!("SKIPPED: README's commands need a network namespace; run as root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("unshare")
        .args(namespace)
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "inside_the_namespace",
            "--ignored",
            "--nocapture",
        ])
        .env(INSIDE, folder.path())
        .status()
        .unwrap();
    assert!(status.success());
    assert!(folder.path().join("done").exists(), "nothing was run");
}

/// The part of the test above that runs in the namespace.
#[test]
#[ignore = "started by every_command_block_runs_as_typed"]
fn inside_the_namespace() {
    let Some(folder) = std::env::var_os(INSIDE).map(PathBuf::from) else {
        return;
    };
    let mut typist = Typist::sit_down(&folder);
    for block in blocks().iter().filter(|block| block.is_run) {
        typist.block(block);
    }
    typist.close();
    fs::write(folder.join("done"), "").unwrap();
}

/// Types blocks into a shell.
struct Typist {
    folder: PathBuf,
    path: String,
    /// What runs in the foreground of another terminal.
    server: Option<Child>,
}

impl Typist {
    fn sit_down(folder: &Path) -> Typist {
        let ok = |program: &str, args: &[&str]| {
            let status = Command::new(program).args(args).status();
            assert!(status.unwrap().success(), "{program} {args:?}");
        };
        ok("ip", &["link", "set", "lo", "up"]);
        for (name, place) in [("local", "/usr/local"), ("lib", "/var/lib")] {
            fs::create_dir(folder.join(name)).unwrap();
            ok(
                "mount",
                &["--bind", folder.join(name).to_str().unwrap(), place],
            );
        }
        // A clone in which nothing has been built or run.
        let clone = folder.join("clone");
        fs::create_dir(&clone).unwrap();
        for entry in fs::read_dir(root()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            if !["target", "neokv-data", "neokv-cluster", "dist"]
                .contains(&&*name.to_string_lossy())
            {
                symlink(entry.path(), clone.join(name)).unwrap();
            }
        }
        let tools = folder.join("tools");
        fs::create_dir(&tools).unwrap();
        let path = std::env::var("PATH").unwrap();
        let real = path.split(':').map(|it| Path::new(it).join("make"));
        let real = real.into_iter().find(|it| it.exists()).expect("make");
        let program = env!("CARGO_BIN_EXE_neokv");
        let script = format!(
            "#!/bin/sh\nexec {} -o build -o tools NEOKV={program} \"$@\"\n",
            real.display()
        );
        fs::write(tools.join("make"), script).unwrap();
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(tools.join("make"), executable).unwrap();
        Typist {
            folder: folder.into(),
            path: format!("{}:/usr/local/bin:{path}", tools.display()),
            server: None,
        }
    }

    fn block(&mut self, block: &Block) {
        println!("--- README.md line {}\n{}", block.line, block.text);
        let mut said = String::new();
        let mut typed = String::new();
        for line in block.text.lines() {
            if line.starts_with("make run") || line.starts_with("neokv server") {
                said.push_str(&self.typed(block, &std::mem::take(&mut typed)));
                self.serve(block, line);
            } else {
                typed.push_str(line);
                typed.push('\n');
            }
        }
        said.push_str(&self.typed(block, &typed));
        println!("{said}");
        let expected = EXPECTED
            .iter()
            .find(|(start, _)| block.text.starts_with(start));
        let mut lines = said.lines();
        for wanted in expected.map_or(&[][..], |(_, lines)| lines) {
            assert!(
                lines.any(|line| line == *wanted),
                "README.md line {}: {wanted} is not said, or not in this order",
                block.line
            );
        }
    }

    fn shell(&self, text: &str) -> Command {
        let mut shell = Command::new("bash");
        shell
            .args(["-e", "-o", "pipefail", "-c", text])
            .current_dir(self.folder.join("clone"))
            .env("PATH", &self.path)
            .env_remove("MAKEFLAGS")
            .env_remove(INSIDE)
            .stdin(Stdio::null());
        shell
    }

    /// What the lines print; they succeed.
    fn typed(&self, block: &Block, lines: &str) -> String {
        if lines.is_empty() {
            return String::new();
        }
        // Not a pipe: nodes in the background would hold it open.
        let print = self.folder.join("print");
        let file = File::create(&print).unwrap();
        let mut shell = self.shell(lines);
        shell.stdout(file.try_clone().unwrap()).stderr(file);
        let status = shell.status().unwrap();
        let said = fs::read_to_string(print).unwrap();
        assert!(
            status.success(),
            "README.md line {}: {status}\n{said}",
            block.line
        );
        said
    }

    /// A server in the foreground, until it answers.
    fn serve(&mut self, block: &Block, line: &str) {
        self.close();
        let log = self.folder.join("server.log");
        let file = File::create(&log).unwrap();
        let mut shell = self.shell(line);
        shell.stdout(file.try_clone().unwrap()).stderr(file);
        let mut server = shell.process_group(0).spawn().unwrap();
        let port = line
            .split_once("--redis-port ")
            .map_or("6379", |(_, rest)| {
                rest.split(|it: char| !it.is_ascii_digit())
                    .next()
                    .unwrap_or_default()
            });
        let port = port.parse().unwrap();
        let begun = Instant::now();
        while !pongs(port) {
            let ended = server.try_wait().unwrap();
            if ended.is_some() || begun.elapsed() > TIMEOUT {
                let log = fs::read_to_string(log).unwrap();
                panic!("README.md line {}: {line}: {ended:?}\n{log}", block.line);
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.server = Some(server);
    }

    /// Ctrl-C in that terminal.
    fn close(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let group = format!("-{}", server.id());
        let told = Command::new("kill").args(["-INT", "--", &group]).status();
        assert!(told.unwrap().success());
        let begun = Instant::now();
        while server.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < TIMEOUT, "the server does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn pongs(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let mut reply = [0; 7];
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"PING\r\n").is_ok()
        && stream.read_exact(&mut reply).is_ok()
        && reply == *b"+PONG\r\n"
}
