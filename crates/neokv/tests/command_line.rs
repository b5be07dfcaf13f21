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
            "neokv: --redis-port: '0': argument must be between 1 and 65535 inclusive",
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
