//! A wrong configuration is one clear line that names the key, and exit status 1.

use std::process::{Command, Output};

fn neokv(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NEOKV_") {
            command.env_remove(name);
        }
    }
    command.args(args).output().unwrap()
}

/// The single line written to standard error.
fn complaint(args: &[&str]) -> String {
    let output = neokv(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    text.trim_end().to_string()
}

fn file(text: &str) -> (std::path::PathBuf, String) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let path = std::env::temp_dir().join(format!(
        "neokv-{}-{}.toml",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    ));
    std::fs::write(&path, text).unwrap();
    let shown = path.to_str().unwrap().to_string();
    (path, shown)
}

#[test]
fn wrong_flags() {
    for (args, expected) in [
        (
            vec!["--engine", "tape"],
            "neokv: --engine: 'tape': argument(s) must be one of the following: rocksdb, memory",
        ),
        (
            vec!["--redis-port", "0"],
            "neokv: --redis-port 0 closes the plain port, and there is no other: give --tls-port",
        ),
        (
            vec!["--num_shards=x"],
            "neokv: --num-shards: 'x': argument couldn't be parsed into an integer",
        ),
        (
            vec!["--set", "nope=1"],
            "neokv: --set nope: no such setting",
        ),
        (vec!["--set", "hz"], "neokv: --set hz: expected name=value"),
        (
            vec!["--nope"],
            "neokv: unexpected argument '--nope' found (see neokv server --help)",
        ),
        (
            vec!["--appendonly", "yes"],
            "neokv: --appendonly: 'yes': there is no append-only file here; use the engine rocksdb, whose log is always on",
        ),
    ] {
        let args: Vec<&str> = ["server"].into_iter().chain(args).collect();
        assert_eq!(complaint(&args), expected);
    }
}

/// Commands other than `server` point to their own help.
#[test]
fn wrong_words() {
    for (line, expected) in [
        (
            "ctl region",
            "neokv: the following required arguments were not provided: <REGION> (see neokv ctl region --help)",
        ),
        (
            "ctl --peer here nodes",
            "neokv: --peer here: expected host:port",
        ),
        (
            "ctl --peer-tls-key k nodes",
            "neokv: --peer-tls-cert, --peer-tls-key and --peer-tls-ca go together",
        ),
        (
            "cluster kill x",
            "neokv: invalid value 'x' for '<NODE>': invalid digit found in string (see neokv cluster kill --help)",
        ),
        (
            "cluster status --dir /nowhere",
            "neokv: there is no playground in /nowhere: `neokv cluster up` makes one, --dir says where",
        ),
        (
            "store --roles meta",
            "neokv: --roles: `neokv store` is `neokv server --roles store`",
        ),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        assert_eq!(complaint(&args), expected);
    }
    // Nobody is at port 1.
    let line = complaint(&["ctl", "--peer-auth", "no", "--peer", "127.0.0.1:1", "nodes"]);
    assert!(line.contains("127.0.0.1:1: cannot be reached"), "{line}");
    let folder = std::env::temp_dir().join(format!("neokv-meta-{}", std::process::id()));
    let line = complaint(&["meta", "--data-dir", folder.to_str().unwrap()]);
    assert!(line.contains("needs --join host:peer-port"), "{line}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn wrong_files() {
    let (path, shown) = file("maxmemory = \"1gb\"\nmaxmemry = 3\n");
    let line = complaint(&["server", "--config", &shown]);
    assert_eq!(line, format!("neokv: {shown}: maxmemry: no such setting"));
    std::fs::write(&path, "hz = \"often\"\n").unwrap();
    let line = complaint(&["server", "--config", &shown]);
    assert!(
        line.starts_with(&format!("neokv: {shown}: hz: 'often': ")),
        "{line}"
    );
    std::fs::write(&path, "\nhz = = 3\n").unwrap();
    let line = complaint(&["server", "--config", &shown]);
    assert!(
        line.starts_with(&format!("neokv: {shown} line 2: ")),
        "{line}"
    );
    std::fs::remove_file(&path).unwrap();
    let line = complaint(&["server", "--config", &shown]);
    assert!(line.starts_with("neokv: --config: cannot read"), "{line}");
}

#[test]
fn help_of_every_command() {
    for (line, word) in [
        ("cluster", "./neokv-cluster"),
        ("cluster up --help", "in the background"),
        ("cluster up --help", "--replicas"),
        ("ctl", "transfer-leader"),
        ("ctl nodes --help", "127.0.0.1:16379"),
        ("meta --help", "--roles meta"),
        ("store -h", "--redis-port"),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let output = neokv(&args);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && text.contains(word),
            "{line}: {text}"
        );
    }
}

#[test]
fn help_and_version() {
    let output = neokv(&["--version"]);
    assert!(output.status.success());
    assert!(output.stdout.starts_with(b"neokv "));
    for args in [["server", "--help"], ["server", "-h"]] {
        let output = neokv(&args);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        for word in [
            "--redis-port",
            "NEOKV_REDIS_PORT",
            "--config",
            "--maxmemory",
        ] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
}
