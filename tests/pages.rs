//! The generated pages of the documentation are what the program prints, and the sample of a configuration is one.
//! After a change: `NEOKV_WRITE_PAGES=1 cargo test -p neokv --test pages`.

#[allow(dead_code)] // not every test needs all of it
mod node;

use std::path::Path;
use std::process::Command;

fn check(page: &str, file: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["page", page])
        .output()
        .unwrap();
    assert!(output.status.success());
    let fresh = String::from_utf8(output.stdout).unwrap();
    let path = Path::new("../..").join(file);
    if std::env::var_os("NEOKV_WRITE_PAGES").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == fresh,
        "{file} is stale; run: NEOKV_WRITE_PAGES=1 cargo test -p neokv --test pages"
    );
}

#[test]
fn commands_page() {
    check("commands", "docs/commands.md");
}

#[test]
fn configuration_page() {
    check("configuration", "docs/operations/configuration.md");
}

/// A node starts with every line of the sample, not commented out any more: the defaults are what they are said to be.
#[test]
fn sample_configuration() {
    let output = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["page", "sample"])
        .output()
        .unwrap();
    let sample = String::from_utf8(output.stdout).unwrap();
    let folder = node::Folder::new();
    let port = node::free_port();
    let start = |text: &str| {
        let config = folder.0.join("neokv.toml");
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
        command
            .args(["server", "--config", "neokv.toml", "--http-port", "0"])
            .args(["--redis-port", &port.to_string()])
            .current_dir(&folder.0);
        let node = node::Node::of(command, port);
        let shown: Vec<(String, String)> = node::call(&mut node.client(), "CONFIG GET *");
        assert!(node.terminate());
        shown
    };
    let untouched = start(&sample);
    let is_setting = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
    let lines: Vec<&str> = sample.lines().filter(is_setting).collect();
    assert!(lines.len() > 50, "{}", lines.len());
    let all: String = lines
        .iter()
        .map(|line| format!("{}\n", &line[1..]))
        .collect();
    assert_eq!(start(&all), untouched);
    assert!(folder.0.join("neokv-data/FORMAT").exists());
}
