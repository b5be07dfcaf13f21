//! The library that cuts the power, that of the server's crash tests: it takes back what was written and not
//! synced, files and names alike, and ends the process at the n-th write or sync.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Numbers of the control file, as in the library.
pub const WRITES: u64 = 0;
pub const SYNCS: u64 = 1;
pub const FAILURES: u64 = 2;
const ENDED: u64 = 3;
const CUT_AT_WRITE: u64 = 4;
const CUT_AT_SYNC: u64 = 5;
pub const FAIL_AT_SYNC: u64 = 7;
const MODE: u64 = 9;
const SEED: u64 = 10;
pub const CUT_AT_END: u64 = 11;

/// The library, and what it is told.
pub struct Power {
    folder: tempfile::TempDir,
    control: File,
}

impl Power {
    pub fn new() -> Power {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new("../../tests/crash/power_cut/shim.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
        compiler.arg(folder.path().join("power_cut.so")).arg(source);
        assert!(
            compiler
                .args(["-ldl", "-lpthread"])
                .status()
                .unwrap()
                .success()
        );
        fs::create_dir(folder.path().join("graves")).unwrap();
        let control = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(folder.path().join("control"))
            .unwrap();
        Power { folder, control }
    }

    fn set(&self, which: u64, value: u64) {
        let bytes = value.to_le_bytes();
        self.control.write_all_at(&bytes, which * 8).unwrap();
    }

    pub fn get(&self, which: u64) -> u64 {
        let mut bytes = [0; 8];
        self.control.read_exact_at(&mut bytes, which * 8).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Runs the test `child` on `place`, with these numbers set; whether the power was cut.
    pub fn run(
        &self,
        child: &str,
        place: &Path,
        cut: impl IntoIterator<Item = (u64, u64)>,
        dice: &mut fastrand::Rng,
    ) -> bool {
        self.control.write_all_at(&[0; 512], 0).unwrap();
        self.set(MODE, dice.u64(0..3));
        self.set(SEED, dice.u64(1..1 << 30));
        for (which, number) in cut {
            self.set(which, number);
        }
        let beside = |name: &str| self.folder.path().join(name);
        let mut process = Command::new(std::env::current_exe().unwrap());
        process
            .args(["--exact", child, "--ignored", "--test-threads=1"])
            .env("LD_PRELOAD", beside("power_cut.so"))
            .env("NEOKV_PLACE", place)
            // The files of a snapshot are outside: folders that are removed are not put back.
            .env("NEOKV_CUT_FOLDER", place.join("rows"))
            .env("NEOKV_CUT_GRAVES", beside("graves"))
            .env("NEOKV_CUT_CONTROL", beside("control"));
        let output = process.output().unwrap();
        let is_cut = self.get(ENDED) == 1;
        let text =
            [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
        assert!(
            is_cut || output.status.success() && text[0].contains("1 passed"),
            "{} {text:?}",
            output.status
        );
        is_cut
    }

    /// Somewhere in what a whole run does.
    pub fn somewhere(&self, whole: (u64, u64), dice: &mut fastrand::Rng) -> Option<(u64, u64)> {
        Some(match dice.bool() {
            true => (CUT_AT_WRITE, dice.u64(1..=whole.0)),
            false => (CUT_AT_SYNC, dice.u64(1..=whole.1)),
        })
    }
}

/// How many: `NEOKV_CUTS`.
pub fn cuts() -> u64 {
    let wanted = std::env::var("NEOKV_CUTS").ok();
    wanted.and_then(|it| it.parse().ok()).unwrap_or(20)
}

/// Which: `NEOKV_SEED`.
pub fn seed() -> u64 {
    let seed = std::env::var("NEOKV_SEED").ok();
    seed.and_then(|it| it.parse().ok()).unwrap_or(1)
}
