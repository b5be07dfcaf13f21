//! What users install: the packages of `make dist`, `make install`, and what `make` says where there is no Rust.
//!
//! The payload is the program of this test instead of an optimized one; the packages are real.

#[allow(dead_code)] // not every test needs all of it
mod node;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use node::{Folder, Node, free_port};

const PROGRAM: &str = env!("CARGO_BIN_EXE_neokv");
/// In the packages whatever else there is; further man pages are counted.
const TAR: &[&str] = &[
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "bin/neokv",
    "neokv.service",
    "neokv.toml",
    "share/bash-completion/completions/neokv",
    "share/fish/vendor_completions.d/neokv.fish",
    "share/man/man1/neokv-cli.1",
    "share/man/man1/neokv-server.1",
    "share/man/man1/neokv.1",
    "share/zsh/site-functions/_neokv",
];
const DEB: &[&str] = &[
    "/etc/neokv/neokv.toml",
    "/usr/bin/neokv",
    "/usr/lib/systemd/system/neokv.service",
    "/usr/share/bash-completion/completions/neokv",
    "/usr/share/doc/neokv/README.md",
    "/usr/share/doc/neokv/changelog.gz",
    "/usr/share/doc/neokv/copyright",
    "/usr/share/fish/vendor_completions.d/neokv.fish",
    "/usr/share/man/man1/neokv-cli.1.gz",
    "/usr/share/man/man1/neokv-server.1.gz",
    "/usr/share/man/man1/neokv.1.gz",
    "/usr/share/zsh/vendor-completions/_neokv",
];

fn root() -> PathBuf {
    Path::new("../..").canonicalize().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a program prints; it succeeds.
fn said(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> String {
    let output = Command::new(program.as_ref()).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{:?}: {error}", program.as_ref()));
    let all = text(&[output.stdout.clone(), output.stderr.clone()].concat());
    assert!(
        output.status.success(),
        "{:?} {args:?}: {all}",
        program.as_ref()
    );
    text(&output.stdout)
}

fn dist(args: &[&str]) -> String {
    said(
        root().join("scripts/dist"),
        &[&["--binary", PROGRAM], args].concat(),
    )
}

fn has_tools() -> bool {
    let missing = ["dpkg-deb", "dpkg-shlibdeps", "objcopy"]
        .into_iter()
        .find(|tool| Command::new(tool).arg("--version").output().is_err());
    if let Some(tool) = missing {
        assert!(
            std::env::var_os("CI").is_none(),
            "{tool} is not installed and CI is set"
        );
        eprintln!("SKIPPED: {tool} is not installed; `make test` installs it");
    }
    missing.is_none()
}

fn only(folder: &Path, suffix: &str) -> PathBuf {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found: Vec<PathBuf> = entries
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    assert_eq!(found.len(), 1, "{suffix}: {found:?}");
    found[0].clone()
}

fn contains(list: &BTreeSet<String>, expected: &[&str]) {
    for file in expected {
        assert!(list.contains(*file), "{file} is missing: {list:#?}");
    }
    let pages = list.iter().filter(|file| file.contains("/man1/")).count();
    assert!(pages > 10, "{pages} man pages");
    let expected_pages = expected
        .iter()
        .filter(|file| file.contains("/man1/"))
        .count();
    assert_eq!(
        list.len() - pages,
        expected.len() - expected_pages,
        "something else: {list:#?}"
    );
}

#[test]
fn packages_hold_what_is_promised_and_run() {
    if !has_tools() {
        return;
    }
    let folder = Folder::new();
    let out = folder.0.join("out");
    dist(&["--quick", "--out", out.to_str().unwrap()]);
    let (tar, deb) = (only(&out, ".tar.gz"), only(&out, ".deb"));
    let name = tar.file_name().unwrap().to_str().unwrap();
    let name = name.strip_suffix(".tar.gz").unwrap();
    assert!(
        name.starts_with(&format!("neokv-{}-", env!("CARGO_PKG_VERSION"))),
        "{name}"
    );

    // What --dry-run lists is what is there.
    let planned = dist(&["--dry-run", "--out", "/nowhere"]);
    let mut sections: Vec<(String, BTreeSet<String>)> = Vec::new();
    for line in planned.lines() {
        match line.strip_prefix("  ") {
            Some(file) => sections.last_mut().unwrap().1.insert(file.into()),
            None => {
                sections.push((line.into(), BTreeSet::new()));
                true
            }
        };
    }
    let names: Vec<&str> = sections.iter().map(|(name, _)| name.as_str()).collect();
    let file_name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(
        names,
        [
            file_name(&tar),
            file_name(&deb),
            file_name(&only(&out, ".debug"))
        ]
    );
    let listed = said("tar", &["-tzf", tar.to_str().unwrap()]);
    let listed: BTreeSet<String> = listed
        .lines()
        .filter(|it| !it.ends_with('/'))
        .map(Into::into)
        .collect();
    assert_eq!(listed, sections[0].1);
    let prefix = format!("{name}/");
    let listed = listed
        .iter()
        .map(|file| file.strip_prefix(&prefix).unwrap().to_owned());
    contains(&listed.collect(), TAR);
    let listed = said("dpkg-deb", &["--contents", deb.to_str().unwrap()]);
    let listed = listed.lines().filter(|it| !it.starts_with('d'));
    let listed: BTreeSet<String> = listed
        .map(|line| {
            assert!(line.contains(" root/root "), "{line}");
            line.split(" ./")
                .nth(1)
                .map(|path| format!("/{path}"))
                .unwrap()
        })
        .collect();
    assert_eq!(listed, sections[1].1);
    contains(&listed, DEB);

    // What apt reads.
    let control = said("dpkg-deb", &["--field", deb.to_str().unwrap()]);
    for expected in [
        "Package: neokv\n",
        "libc6 (>= ",
        ", adduser\n",
        concat!("Version: ", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(control.contains(expected), "{expected}: {control}");
    }
    let tree = folder.0.join("tree");
    said(
        "dpkg-deb",
        &[
            "--raw-extract",
            deb.to_str().unwrap(),
            tree.to_str().unwrap(),
        ],
    );
    assert_eq!(
        fs::read_to_string(tree.join("DEBIAN/conffiles")).unwrap(),
        "/etc/neokv/neokv.toml\n"
    );
    for script in ["postinst", "prerm", "postrm"] {
        said(
            "sh",
            &["-n", tree.join("DEBIAN").join(script).to_str().unwrap()],
        );
    }

    // The extracted program with the extracted configuration, to a first PONG.
    let program = tree.join("usr/bin/neokv");
    let config = tree.join("etc/neokv/neokv.toml");
    let set = fs::read_to_string(&config).unwrap();
    let set: Vec<&str> = set
        .lines()
        .filter(|it| !it.starts_with('#') && !it.is_empty())
        .collect();
    assert_eq!(set, ["data-dir = \"/var/lib/neokv\""]);
    pong(&program, &config, &folder.0.join("of the deb"));
    said(
        "tar",
        &[
            "-C",
            folder.0.to_str().unwrap(),
            "-xzf",
            tar.to_str().unwrap(),
        ],
    );
    let unpacked = folder.0.join(name);
    pong(
        &unpacked.join("bin/neokv"),
        &unpacked.join("neokv.toml"),
        &folder.0.join("of the tar"),
    );

    // Debuggers find the debug information by the link in the stripped program.
    let sections = said("objdump", &["-h", program.to_str().unwrap()]);
    assert!(
        sections.contains(".gnu_debuglink") && !sections.contains(".debug_line"),
        "{sections}"
    );
    let sections = said("objdump", &["-h", only(&out, ".debug").to_str().unwrap()]);
    assert!(sections.contains(".debug_line"), "{sections}");

    verify_unit(&tree.join("usr/lib/systemd/system/neokv.service"), &program);
}

/// A node with this configuration answers its own client.
fn pong(program: &Path, config: &Path, data: &Path) {
    let port = free_port();
    let number = port.to_string();
    let mut command = Command::new(program);
    command
        .args([
            "server",
            "--redis-port",
            &number,
            "--http-port",
            "0",
            "--config",
        ])
        .arg(config)
        .arg("--data-dir")
        .arg(data);
    let node = Node::of(command, port);
    assert_eq!(said(program, &["cli", "-p", &number, "ping"]), "PONG\n");
    assert!(node.terminate());
}

/// systemd reads the unit without a complaint, if it is installed.
fn verify_unit(unit: &Path, program: &Path) {
    let unit_text = fs::read_to_string(unit).unwrap();
    for expected in [
        "StateDirectory=neokv\n",
        "LimitNOFILE=",
        "Restart=on-failure\n",
        "User=neokv\n",
    ] {
        assert!(unit_text.contains(expected), "{expected}");
    }
    // The program is not installed here, and neither is its man page.
    let here = unit.with_file_name("neokv-here.service");
    let adapted = unit_text.replace("/usr/bin/neokv", program.to_str().unwrap());
    let adapted = adapted.replace("Documentation=man:neokv-server(1)\n", "");
    assert_ne!(adapted, unit_text);
    fs::write(&here, adapted).unwrap();
    let Ok(output) = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&here)
        .output()
    else {
        eprintln!("SKIPPED: systemd-analyze is not installed");
        return;
    };
    // Units of this machine are none of our business.
    let complaints = text(&output.stderr);
    let complaints: Vec<&str> = complaints
        .lines()
        .filter(|line| line.contains("neokv"))
        .collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn install_and_uninstall() {
    let folder = Folder::new();
    let to = folder.0.join("stage");
    let place = root().join("packaging/place");
    let (place, to_text) = (place.to_str().unwrap(), to.to_str().unwrap());
    let stale = to.join("opt/neokv/share/man/man1/neokv-of-an-older-version.1");
    fs::create_dir_all(stale.parent().unwrap()).unwrap();
    fs::write(&stale, "").unwrap();
    let other = to.join("opt/neokv/share/man/man1/other.1");
    fs::write(&other, "").unwrap();
    said(place, &[PROGRAM, "/opt/neokv", to_text]);
    let share = to.join("opt/neokv/share");
    assert!(!stale.exists());
    let shown = said(to.join("opt/neokv/bin/neokv"), &["--version"]);
    assert_eq!(shown, format!("neokv {}\n", env!("CARGO_PKG_VERSION")));

    let page = fs::read_to_string(share.join("man/man1/neokv-server.1")).unwrap();
    for expected in [
        r"\-\-redis\-port",
        r"\-\-data\-dir",
        r"[default: neokv\-data]",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    let page = fs::read_to_string(share.join("man/man1/neokv.1")).unwrap();
    assert!(
        page.contains(r"neokv\-cli(1)") && !page.contains("generate"),
        "{page}"
    );

    // bash completes commands and flags.
    let completions = share.join("bash-completion/completions/neokv");
    let script = format!(
        "source '{}'; COMP_WORDS=(neokv server --redis-po); COMP_CWORD=2; _neokv neokv --redis-po server; echo ${{COMPREPLY[@]}}",
        completions.display()
    );
    assert_eq!(said("bash", &["-c", &script]), "--redis-port\n");
    for (shell, file) in [
        ("zsh", share.join("zsh/site-functions/_neokv")),
        ("fish", share.join("fish/vendor_completions.d/neokv.fish")),
    ] {
        assert!(fs::read_to_string(&file).unwrap().contains("redis-port"));
        if Command::new(shell).arg("--version").output().is_ok() {
            said(shell, &["-n", file.to_str().unwrap()]);
        }
    }

    said(place, &["--remove", "/opt/neokv", to_text]);
    let left = said("find", &[to_text, "!", "-type", "d"]);
    assert_eq!(left.trim(), other.to_str().unwrap());
    let relative = Command::new(place)
        .args([PROGRAM, "opt", to_text])
        .output()
        .unwrap();
    assert!(!relative.status.success());
}

/// Programs of this machine without Rust and without apt, unless it is a fake.
fn without_rust(folder: &Path) -> PathBuf {
    let tools = folder.join("tools");
    fs::create_dir(&tools).unwrap();
    for entry in fs::read_dir("/usr/bin").unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        let shown = name.to_string_lossy();
        if !["cargo", "rustc", "rustup", "sudo"].contains(&&*shown) && !shown.starts_with("apt") {
            symlink(entry.path(), tools.join(name)).unwrap();
        }
    }
    tools
}

fn fake(tools: &Path, name: &str, script: &str) {
    let path = tools.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    said("chmod", &["+x", path.to_str().unwrap()]);
}

fn install_build(folder: &Path, tools: &Path) -> Output {
    Command::new(root().join("scripts/install"))
        .arg("build")
        .env_remove("CARGO_HOME")
        .env("HOME", folder)
        .env("NEOKV_CACHE", folder.join("cache"))
        .env("PATH", tools)
        .output()
        .unwrap()
}

/// `make run` on a machine without Rust gets it, or says what is needed.
#[test]
fn rust_is_installed_or_asked_for() {
    let folder = Folder::new();
    let tools = without_rust(&folder.0);
    let refused = |expected: &[&str]| {
        let output = install_build(&folder.0, &tools);
        let all = text(&[output.stdout, output.stderr].concat());
        assert_eq!(output.status.code(), Some(1), "{all}");
        for line in expected {
            assert!(all.contains(line), "{line}: {all}");
        }
    };
    let needed = "Get it by the rustup installer (see the Rust project's home page)";
    refused(&["Building needs Rust 1.", "found here: none", needed]);
    // One that is too old, and is left alone.
    fake(&tools, "apt-get", "echo apt was asked for: \"$@\"; exit 1");
    fake(&tools, "cargo", "echo cargo 1.63.0");
    refused(&["found here: 1.63.0", needed]);
    fs::remove_file(tools.join("cargo")).unwrap();
    // The system has no package.
    fake(&tools, "apt-cache", "exit 100");
    refused(&["found here: none", needed]);
    // It has one, but there is no network for the toolchain.
    fake(&tools, "rustup", "echo no network >&2; exit 1");
    refused(&["no network", "found here: none", needed]);
    // rustup brings a toolchain.
    let cargo = tools.join("cargo");
    let cargo = cargo.display();
    fake(
        &tools,
        "rustup",
        &format!(
            "echo \"$@\" >>'{}'; printf '#!/bin/sh\\necho cargo 1.999.0\\n' >{cargo}; chmod +x {cargo}",
            folder.0.join("asked").display()
        ),
    );
    for (name, script) in [("cc", ""), ("c++", ""), ("clang", "")] {
        if !tools.join(name).exists() {
            fake(&tools, name, script);
        }
    }
    let output = install_build(&folder.0, &tools);
    let all = text(&[output.stdout, output.stderr].concat());
    assert!(output.status.success(), "{all}");
    let asked = fs::read_to_string(folder.0.join("asked")).unwrap();
    assert!(asked.starts_with("toolchain install 1."), "{asked}");
}
