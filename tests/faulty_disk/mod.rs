//! A disk that fails, hangs or is slow, for real processes: a library that replaces `fsync`, `pwrite`, `pread` and
//! their relatives (`shim.c`, compiled by the test with `cc`, loaded with `LD_PRELOAD`) and is told by a file what to
//! do. It says itself which words it knows.
//!
//! ```text
//!   let environment = faulty_disk::environment("/data/log/", "fault");   // for the processes to be started
//!   faulty_disk::set(&folder.join("fault"), "sync hang");                // folder: the one the process started in
//!   faulty_disk::heal(&folder.join("fault"));
//! ```
#![allow(dead_code)] // not every test file needs all of it

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SHIM: &str = include_str!("shim.c");

/// The error numbers of a broken and of a full disk.
pub const EIO: i32 = 5;
pub const ENOSPC: i32 = 28;

/// Variables for a process whose files with `part` in their path are on such a disk. `control`: the file that says
/// what it does, in the folder where the process starts.
pub fn environment(part: &str, control: &str) -> Vec<(String, String)> {
    let library = library().to_string_lossy().into_owned();
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        variable("LD_PRELOAD", &library),
        variable("FAULTY_DISK", control),
        variable("FAULTY_PATH", part),
    ]
}

/// From now on the disk does this: lines of `sync|write|read` and `fail ERRNO|hang|slow MILLISECONDS`.
pub fn set(control: &Path, faults: &str) {
    // All of it at once: the process may be looking.
    let new = control.with_extension("new");
    std::fs::write(&new, faults).expect("a file");
    std::fs::rename(&new, control).expect("a file");
}

/// The disk is well again.
pub fn heal(control: &Path) {
    let _ = std::fs::remove_file(control);
}

/// Compiled once per test process.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("neokv-faulty-disk-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
        std::fs::write(&source, SHIM).expect("a file");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .output()
            .expect("a C compiler (cc)");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{said}");
        library
    })
}
