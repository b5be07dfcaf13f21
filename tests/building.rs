//! `scripts/rocksdb`, run on a library of three small files instead of RocksDB's 348: what happens to a build that meets no network, a
//! full disk, a damaged or foreign cache, a conflict between files, or another build at the same time. Each time the message says
//! what to do, and the next run succeeds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A cache, a lock file, and sources in the layout of the crate that carries RocksDB.
struct Workshop {
    folder: TempDir,
}

impl Workshop {
    fn new() -> Workshop {
        let folder = tempfile::tempdir().unwrap();
        let workshop = Workshop { folder };
        workshop.version("1.0.0");
        let sources = workshop.path("sources");
        fs::create_dir_all(sources.join("rocksdb/include/rocksdb")).unwrap();
        fs::write(sources.join("rocksdb/include/rocksdb/c.h"), "").unwrap();
        fs::write(sources.join("rocksdb_lib_sources.txt"), "a.cc\nb.cc\n").unwrap();
        workshop.source("rocksdb/a.cc", "int a() { return 1; }");
        workshop.source("rocksdb/b.cc", "int b() { return 2; }");
        workshop.source("build_version.cc", "int version() { return 3; }");
        workshop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn source(&self, name: &str, text: &str) {
        fs::write(self.path("sources").join(name), text).unwrap();
    }

    fn version(&self, version: &str) {
        let text =
            format!("[[package]]\nname = \"rust-librocksdb-sys\"\nversion = \"{version}\"\n");
        fs::write(self.path("Cargo.lock"), text).unwrap();
    }

    fn script(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(repository().join("scripts/rocksdb"));
        command
            .args(arguments)
            .env("NEOKV_CACHE", self.path("cache"))
            .env("NEOKV_LOCK", self.path("Cargo.lock"))
            .env("NEOKV_SOURCES", self.path("sources"))
            .env("NEOKV_UNIT_FILES", "2")
            .env("NEOKV_LEAST_KB", "1000")
            .env_remove("ROCKSDB_LIB_DIR")
            .env_remove("CXX")
            .stdin(Stdio::null());
        command
    }

    fn run(&self) -> Output {
        self.script(&[]).output().unwrap()
    }

    /// A compiler that notes each call before it works, or does what else `body` says.
    fn compiler(&self, body: &str) -> PathBuf {
        let path = self.path("compiler");
        let calls = self.path("calls");
        let note = format!(
            "#!/bin/sh\ncase \"$*\" in *--version*) ;; *) echo call >>{} ;; esac\n{body}\n",
            calls.display()
        );
        fs::write(&path, note).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.path("calls")).map_or(0, |text| text.lines().count())
    }

    fn home(&self) -> PathBuf {
        let output = self.script(&["--where"]).output().unwrap();
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
    }

    fn library(&self) -> PathBuf {
        self.home().join("lib/librocksdb.a")
    }

    /// The functions in the library.
    fn functions(&self) -> Vec<String> {
        let output = Command::new("nm")
            .args(["-C", "--defined-only"])
            .arg(self.library())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let name = |line: &str| line.split_once(" T ").map(|(_, name)| name.to_owned());
        let mut names: Vec<_> = text.lines().filter_map(name).collect();
        names.sort();
        names
    }
}

fn repository() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| Path::new("../..").canonicalize().unwrap());
    &ROOT
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_built(workshop: &Workshop, output: &Output) {
    assert!(
        output.status.success(),
        "{}{}",
        stdout(output),
        stderr(output)
    );
    assert_eq!(workshop.functions(), ["a()", "b()", "version()"]);
}

#[test]
fn a_library_is_compiled_once() {
    let workshop = Workshop::new();
    let missing = workshop.script(&["--missing"]).output().unwrap();
    assert_eq!(stdout(&missing), "missing\n");
    let first = workshop.run();
    assert_built(&workshop, &first);
    assert!(
        stdout(&first).contains("3 files in 2 units"),
        "{}",
        stdout(&first)
    );
    assert!(workshop.home().join("include/rocksdb/c.h").exists());
    assert_eq!(
        stdout(&workshop.run()),
        "",
        "the second run has nothing to do"
    );
    let missing = workshop.script(&["--missing"]).output().unwrap();
    assert_eq!(stdout(&missing), "");
}

#[test]
fn headers_come_without_the_library() {
    let workshop = Workshop::new();
    let headers = workshop.script(&["--headers"]).output().unwrap();
    assert!(headers.status.success(), "{}", stderr(&headers));
    assert!(workshop.home().join("include/rocksdb/c.h").exists());
    assert!(!workshop.library().exists());
    assert_built(&workshop, &workshop.run());
}

#[test]
fn a_truncated_library_is_compiled_again() {
    let workshop = Workshop::new();
    assert_built(&workshop, &workshop.run());
    let whole = fs::read(workshop.library()).unwrap();
    fs::write(workshop.library(), &whole[..whole.len() / 2]).unwrap();
    assert_built(&workshop, &workshop.run());
}

#[test]
fn a_library_of_another_version_is_left_alone_and_not_used() {
    let workshop = Workshop::new();
    assert_built(&workshop, &workshop.run());
    let old = workshop.library();
    workshop.version("1.0.1");
    assert_ne!(workshop.library(), old);
    assert_built(&workshop, &workshop.run());
    assert!(old.exists());
}

#[test]
fn files_that_do_not_fit_together_are_compiled_one_by_one() {
    let workshop = Workshop::new();
    workshop.source(
        "rocksdb/a.cc",
        "static int twice = 1; int a() { return twice; }",
    );
    workshop.source(
        "rocksdb/b.cc",
        "static int twice = 2; int b() { return twice; }",
    );
    assert_built(&workshop, &workshop.run());
}

#[test]
fn a_file_that_does_not_compile_is_named_and_the_next_run_goes_on() {
    let workshop = Workshop::new();
    workshop.source("rocksdb/b.cc", "int b() { return nothing_of_that_name; }");
    let failed = workshop.run();
    assert!(!failed.status.success());
    let said = stderr(&failed);
    assert!(said.contains("nothing_of_that_name"), "{said}");
    assert!(said.contains("What is compiled is kept"), "{said}");
    assert!(!workshop.library().exists());
    workshop.source("rocksdb/b.cc", "int b() { return 2; }");
    assert_built(&workshop, &workshop.run());
}

#[test]
fn what_was_compiled_before_a_failure_is_not_compiled_again() {
    let workshop = Workshop::new();
    // The compiler works until a file named `full` appears, as a disk does.
    let full = workshop.path("full");
    let body = format!(
        "case \"$*\" in *unit2*|*build_version*) [ ! -e {0} ] || {{ echo 'error: No space left on device' >&2; exit 1; }} ;; esac\nexec c++ \"$@\"",
        full.display()
    );
    let compiler = workshop.compiler(&body);
    fs::write(&full, "").unwrap();
    let failed = workshop.script(&[]).env("CXX", &compiler).output().unwrap();
    assert!(!failed.status.success());
    let said = stderr(&failed);
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("MB free"), "{said}");
    let before = workshop.calls();
    fs::remove_file(&full).unwrap();
    let next = workshop.script(&[]).env("CXX", &compiler).output().unwrap();
    assert_built(&workshop, &next);
    assert!(
        stdout(&next).contains("1 compiled before"),
        "{}",
        stdout(&next)
    );
    assert_eq!(workshop.calls() - before, 1, "only the second unit");
}

#[test]
fn two_builds_at_once_compile_it_once() {
    let workshop = Workshop::new();
    // Each compilation waits until both builds have begun.
    let go = workshop.path("go");
    let body = format!(
        "case \"$*\" in *--version*) ;; *) while [ ! -e {} ]; do sleep 0.05; done ;; esac\nexec c++ \"$@\"",
        go.display()
    );
    let compiler = workshop.compiler(&body);
    let start = |name: &str| {
        let output = fs::File::create(workshop.path(name)).unwrap();
        let errors = output.try_clone().unwrap();
        let mut command = workshop.script(&[]);
        command.env("CXX", &compiler).stdout(output).stderr(errors);
        command.spawn().unwrap()
    };
    let text = |name: &str| fs::read_to_string(workshop.path(name)).unwrap();
    let mut first = start("first");
    wait_until("the first build compiles", || workshop.calls() > 0);
    let mut second = start("second");
    wait_until("the second build waits", || {
        text("second").contains("waiting for it")
    });
    fs::write(&go, "").unwrap();
    assert!(first.wait().unwrap().success(), "{}", text("first"));
    assert!(second.wait().unwrap().success(), "{}", text("second"));
    assert_eq!(workshop.calls(), 2, "each unit once");
    assert_eq!(workshop.functions(), ["a()", "b()", "version()"]);
}

#[test]
fn an_interrupted_build_ends_its_compilers_and_goes_on_later() {
    let workshop = Workshop::new();
    // The second unit is compiled for as long as a file is there.
    let hold = workshop.path("hold");
    fs::write(&hold, "").unwrap();
    let pid = workshop.path("compiler-pid");
    let body = format!(
        "case \"$*\" in *unit2*) echo $$ >{1}; while [ -e {0} ]; do sleep 0.05; done ;; esac\nexec c++ \"$@\"",
        hold.display(),
        pid.display()
    );
    let compiler = workshop.compiler(&body);
    let start = || {
        let mut command = workshop.script(&[]);
        command.env("CXX", &compiler).env("NEOKV_JOBS", "1");
        command
    };
    let mut build = start()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the second unit is compiled", || {
        fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'))
    });
    let signal = |signal: &str, pid: &str| {
        let mut kill = Command::new("kill");
        kill.args([signal, pid]).stderr(Stdio::null());
        kill.status().unwrap().success()
    };
    assert!(signal("-TERM", &build.id().to_string()));
    assert!(!build.wait().unwrap().success());
    let compiler_pid = fs::read_to_string(&pid).unwrap();
    wait_until("its compiler has ended", || {
        !signal("-0", compiler_pid.trim())
    });
    fs::remove_file(&hold).unwrap();
    let next = start().output().unwrap();
    assert_built(&workshop, &next);
    assert!(
        stdout(&next).contains("1 compiled before"),
        "{}",
        stdout(&next)
    );
}

#[test]
fn an_object_that_a_power_cut_left_empty_is_compiled_again() {
    let workshop = Workshop::new();
    workshop.source("rocksdb/b.cc", "int b() { return nothing_of_that_name; }");
    assert!(!workshop.run().status.success());
    let folder = fs::read_dir(workshop.home()).unwrap();
    let mut objects = folder.flat_map(|entry| {
        let path = entry.unwrap().path();
        fs::read_dir(&path)
            .into_iter()
            .flatten()
            .map(|it| it.unwrap().path())
    });
    let object = objects
        .find(|path| path.extension().is_some_and(|it| it == "o"))
        .expect("the other file's object is kept");
    fs::write(object, "").unwrap();
    workshop.source("rocksdb/b.cc", "int b() { return 2; }");
    assert_built(&workshop, &workshop.run());
}

#[test]
fn without_a_network_the_message_says_so() {
    let workshop = Workshop::new();
    let home = workshop.path("cargo-home");
    fs::create_dir(&home).unwrap();
    let output = workshop
        .script(&[])
        .env_remove("NEOKV_SOURCES")
        .env("CARGO_HOME", &home)
        .env("CARGO_NET_OFFLINE", "true")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(said.contains("If there is no network now"), "{said}");
    assert_built(&workshop, &workshop.run());
}

#[test]
fn a_disk_without_room_is_told_before_it_is_filled() {
    let workshop = Workshop::new();
    let cache = workshop.path("cache");
    fs::create_dir(&cache).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=10m", "tmpfs"])
        .arg(&cache)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    }
    let output = workshop
        .script(&[])
        .env_remove("NEOKV_LEAST_KB")
        .output()
        .unwrap();
    let unmounted = Command::new("umount").arg(&cache).status().unwrap();
    assert!(unmounted.success());
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(said.contains("RocksDB needs 400 MB"), "{said}");
    assert!(said.contains("run the same command again"), "{said}");
    assert_built(&workshop, &workshop.run());
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
