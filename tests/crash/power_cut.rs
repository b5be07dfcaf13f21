//! Power cuts, a failing fsync and a full disk, for the unmodified server (see `power_cut/shim.c`).
//!
//! The library that does it is compiled by the test and preloaded into the server; it is told what to do through a file
//! of numbers. Each test ends with a cut and the verification of `verify.rs`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::kill::refused;
use crate::node::{Folder, Node, Settings, Sync, is_redis};
use crate::round::Histories;
use crate::verify::Questions;
use crate::wire::Value;
use crate::{Dice, deaths, seed};

/// The numbers of the control file, as in the library.
#[derive(Clone, Copy)]
enum Control {
    Writes = 0,
    Syncs = 1,
    Failures = 2,
    Ended = 3,
    CutAtWrite = 4,
    CutAtSync = 5,
    CutNow = 6,
    FailAtSync = 7,
    DiskFull = 8,
    Mode = 9,
    Seed = 10,
    CutAtEnd = 11,
}
const CONTROLS: u64 = 64;

/// What is left of writes that were not synced: nothing, the first ones and a part of the next, or some pages.
const MODES: [(u64, &str); 3] = [(0, "drop"), (1, "tear"), (2, "patchy")];

/// The library, and the file through which it is told.
struct Power {
    library: PathBuf,
    control_path: PathBuf,
    control: File,
}

impl Power {
    fn new(folder: &Folder) -> Power {
        let source = Path::new("../../tests/crash/power_cut/shim.c");
        let library = folder.beside("power_cut.so");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(source);
        let compiled = compiler.args(["-ldl", "-lpthread"]).status().expect("cc");
        assert!(compiled.success(), "the library does not compile");
        std::fs::create_dir_all(folder.beside("graves")).expect("a folder");
        let control_path = folder.beside("control");
        let control = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&control_path);
        let power = Power {
            library,
            control_path,
            control: control.expect("the control file"),
        };
        power.reset(0, 0);
        power
    }

    fn get(&self, which: Control) -> u64 {
        let mut bytes = [0; 8];
        self.control
            .read_exact_at(&mut bytes, which as u64 * 8)
            .expect("control");
        u64::from_le_bytes(bytes)
    }

    fn set(&self, which: Control, value: u64) {
        self.control
            .write_all_at(&value.to_le_bytes(), which as u64 * 8)
            .expect("control");
    }

    /// Before a server starts.
    fn reset(&self, mode: u64, seed: u64) {
        self.control
            .write_all_at(&[0; CONTROLS as usize * 8], 0)
            .expect("control");
        self.set(Control::Mode, mode);
        self.set(Control::Seed, seed + 1);
    }

    fn settings(&self, folder: &Folder, sync: Sync) -> Settings {
        let mut settings = Settings::new(sync);
        for (name, path) in [
            ("LD_PRELOAD", &self.library),
            ("NEOKV_CUT_FOLDER", &folder.data()),
            ("NEOKV_CUT_GRAVES", &folder.beside("graves")),
            ("NEOKV_CUT_CONTROL", &self.control_path),
        ] {
            settings
                .environment
                .push((name.into(), path.display().to_string()));
        }
        settings
    }

    /// Waits for the cut, or makes it when the time is over. With `CutAtEnd` a server that gave up had its cut there.
    fn cut(&self, node: &mut Node, after: Duration) -> Result<(), String> {
        if !node.ends_within(after) {
            self.set(Control::CutNow, 1);
        }
        match node.ends_within(Duration::from_secs(30)) {
            true if self.get(Control::Ended) == 1 => Ok(()),
            true => Err(format!("the server ended before the cut\n{}", node.tail())),
            false => Err("no power cut happened".into()),
        }
    }
}

/// One history under power cuts; the last verification is that of the last cut.
fn cut_often(seed: u64, deaths: u64, sync: Sync) -> Result<String, String> {
    let folder = Folder::new();
    let power = Power::new(&folder);
    let mut dice = Dice::new(seed);
    let mut histories = Histories::new(6, seed);
    // Only the plainest where losses are wanted. Redis survives no other: its append-only file has no checksums, and a
    // transaction torn inside a command is not cut off whole.
    let modes = if sync == Sync::Always && !is_redis() {
        3
    } else {
        1
    };
    let mut before = "nothing";
    for _ in 0..deaths {
        let (mode, name) = MODES[dice.roll(modes) as usize];
        let mut settings = power.settings(&folder, sync);
        settings.vary(&mut dice);
        // Some recoveries are cut, too.
        if dice.roll(3) == 0 {
            power.reset(mode, dice.roll(1 << 30));
            power.set(Control::CutAtWrite, 1 + dice.roll(40));
            let mut node = Node::spawn(&folder, &settings);
            power.cut(&mut node, Duration::from_millis(dice.roll(1500)))?;
        }
        power.reset(mode, dice.roll(1 << 30));
        let context = |wrong| format!("after a cut ({before}): {wrong}");
        let mut node = histories.restart(&folder, &settings).map_err(context)?;
        let port = node.port;
        let time = match dice.roll(3) {
            0 => {
                power.set(
                    Control::CutAtWrite,
                    power.get(Control::Writes) + 1 + dice.roll(400),
                );
                Duration::from_secs(2)
            }
            1 => {
                power.set(
                    Control::CutAtSync,
                    power.get(Control::Syncs) + 1 + dice.roll(300),
                );
                Duration::from_secs(2)
            }
            _ => Duration::from_millis(20 + dice.roll(500)),
        };
        histories.write(port, || power.cut(&mut node, time))??;
        before = name;
        refused(&histories)?;
    }
    power.reset(0, 0);
    let node = histories.restart(&folder, &power.settings(&folder, sync));
    node.map_err(|wrong| format!("after the last cut ({before}): {wrong}"))?;
    Ok(format!("{deaths} power cuts: {}", histories.summary()))
}

fn check(seed: u64, result: Result<String, String>) {
    match result {
        Ok(told) => println!("{told}"),
        Err(wrong) => panic!("NEOKV_SEED={seed}: {wrong}"),
    }
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    let seed = seed();
    check(seed, cut_often(seed, deaths(), Sync::Always));
}

/// The test of the test: without fsync a power cut does lose writes, and that is seen.
#[test]
fn without_fsync_a_power_cut_loses_writes() {
    let seed = seed();
    let result = cut_often(seed, 3, Sync::Never);
    assert!(
        result.is_err(),
        "NEOKV_SEED={seed}: nothing lost: {result:?}"
    );
}

/// Writes to keys that nothing else uses, one at a time; those that were answered OK.
fn probe(port: u16, life: u64) -> Vec<String> {
    let mut kept = Vec::new();
    let Ok(mut questions) = Questions::new(port) else {
        return kept;
    };
    for n in 0..16 {
        let key = format!("probe{life}:{n}");
        match questions.ask(&["SET", &key, &key]) {
            Value::Simple(_) => kept.push(key),
            Value::Closed => break,
            _ => {}
        }
    }
    kept
}

fn verify_probes(port: u16, probes: &[String]) -> Result<(), String> {
    let mut questions = Questions::new(port).map_err(|error| error.to_string())?;
    for key in probes {
        let found = questions.ask(&["GET", key]);
        if found != Value::Bulk(key.clone().into_bytes()) {
            return Err(format!(
                "{key} was acknowledged after the failure and is {found:?}"
            ));
        }
    }
    Ok(())
}

/// A history on a disk that fails in every life of the server, and what was written after the failures.
struct Failing {
    folder: Folder,
    power: Power,
    dice: Dice,
    histories: Histories,
    probes: Vec<String>,
    /// How often the server gave up.
    ended: u64,
}

impl Failing {
    fn new(seed: u64) -> Failing {
        let folder = Folder::new();
        let power = Power::new(&folder);
        Failing {
            folder,
            power,
            dice: Dice::new(seed),
            histories: Histories::new(6, seed),
            probes: Vec::new(),
            ended: 0,
        }
    }

    /// A server on a healthy disk: everything is there.
    fn start(&mut self) -> Result<Node, String> {
        self.power.reset(0, self.dice.roll(1 << 30));
        let mut settings = self.power.settings(&self.folder, Sync::Always);
        settings.vary(&mut self.dice);
        let node = self.histories.restart(&self.folder, &settings)?;
        verify_probes(node.port, &self.probes)?;
        Ok(node)
    }

    /// Writes, makes the disk bad, and goes on for a moment after the first failure.
    fn write(
        &mut self,
        node: &Node,
        fail: impl FnOnce(&Power),
        moment: Duration,
    ) -> Result<(), String> {
        let power = &self.power;
        let written = self.histories.write(node.port, || {
            fail(power);
            // A log that writes into space it has reserved goes on for a while.
            let deadline = Instant::now() + Duration::from_secs(180);
            while power.get(Control::Failures) == 0 && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(moment);
        });
        written.map_err(|wrong| format!("{wrong}\n{}", node.tail()))?;
        match self.power.get(Control::Failures) {
            0 => Err("nothing failed: too few writes".into()),
            _ => Ok(()),
        }
    }

    fn cut(&mut self, node: &mut Node) -> Result<(), String> {
        self.ended += u64::from(node.ended().is_some());
        self.power.cut(node, Duration::ZERO)
    }
}

fn fail_syncs(seed: u64, deaths: u64) -> Result<String, String> {
    let mut failing = Failing::new(seed);
    let mut refusals = 0;
    for life in 0..deaths {
        let mut node = failing.start()?;
        let sync = 1 + failing.dice.roll(150);
        let fail = |power: &Power| {
            power.set(Control::CutAtEnd, 1);
            power.set(Control::FailAtSync, power.get(Control::Syncs) + sync);
        };
        failing.write(&node, fail, Duration::from_millis(100))?;
        failing.probes.extend(probe(node.port, life));
        let loud = node.tail().to_lowercase();
        if !["sync", "i/o", "input/output"]
            .iter()
            .any(|word| loud.contains(word))
        {
            return Err(format!(
                "an fsync failed and nothing was said\n{}",
                node.tail()
            ));
        }
        let clients = &failing.histories.clients;
        refusals += u64::from(clients.iter().any(|client| client.refused.is_some()));
        failing.cut(&mut node)?;
    }
    failing.start()?;
    Ok(format!(
        "{deaths} failed fsyncs: the server ended {} times, refused writes {refusals} times, took {} more writes; {}",
        failing.ended,
        failing.probes.len(),
        failing.histories.summary()
    ))
}

#[test]
fn a_failed_fsync_loses_nothing_that_was_acknowledged() {
    let seed = seed();
    check(seed, fail_syncs(seed, deaths().div_ceil(2)));
}

fn fill_disk(seed: u64, deaths: u64) -> Result<String, String> {
    let mut failing = Failing::new(seed);
    let mut recovered = 0;
    for life in 0..deaths {
        let mut node = failing.start()?;
        let before = Duration::from_millis(failing.dice.roll(200));
        let fail = |power: &Power| {
            thread::sleep(before);
            power.set(Control::CutAtEnd, 1);
            power.set(Control::DiskFull, 1);
        };
        failing.write(&node, fail, Duration::from_millis(200))?;
        failing.probes.extend(probe(node.port, 2 * life));
        failing.power.set(Control::DiskFull, 0);
        if node.ended().is_none() {
            let deadline = Instant::now() + Duration::from_secs(5);
            let before = failing.probes.len();
            while failing.probes.len() == before && Instant::now() < deadline {
                failing.probes.extend(probe(node.port, 2 * life + 1));
                thread::sleep(Duration::from_millis(100));
            }
            recovered += u64::from(failing.probes.len() > before);
        }
        failing.cut(&mut node)?;
    }
    failing.start()?;
    Ok(format!(
        "{deaths} times a full disk: the server ended {} times, took writes again by itself {recovered} times; {}",
        failing.ended,
        failing.histories.summary()
    ))
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let seed = seed();
    check(seed, fill_disk(seed, deaths().div_ceil(2)));
}

/// What a process does to files before the power goes: half of it synced, half not.
fn change_files(data: &Path, control: &Path) {
    let at = |name: &str| data.join(name);
    let sync_names = || File::open(data).unwrap().sync_all().unwrap();
    for name in [
        "written",
        "moved",
        "replaced",
        "removed",
        "cut short",
        "synced",
    ] {
        std::fs::write(at(name), name.repeat(3)).unwrap();
        File::open(at(name)).unwrap().sync_all().unwrap();
    }
    sync_names();
    let open = |name: &str| File::options().write(true).open(at(name)).unwrap();
    open("synced").write_all_at(b"SYNCED", 0).unwrap();
    open("synced").sync_data().unwrap();
    std::fs::write(at("new and synced"), "x").unwrap();
    open("new and synced").sync_all().unwrap();
    std::fs::rename(at("removed"), at("removed later")).unwrap();
    sync_names();

    open("synced")
        .write_all_at(b"lost, and longer than before", 3)
        .unwrap();
    open("written").write_all_at(b"lost", 2).unwrap();
    open("cut short").set_len(1).unwrap();
    std::fs::write(at("new"), "x").unwrap();
    std::fs::write(at("new name"), "x").unwrap();
    open("new name").sync_all().unwrap();
    std::fs::remove_file(at("removed later")).unwrap();
    std::fs::rename(at("moved"), at("replaced")).unwrap();

    let control = File::options().write(true).open(control).unwrap();
    control
        .write_all_at(&[1], Control::CutNow as u64 * 8)
        .unwrap();
    thread::sleep(Duration::from_secs(60));
}

/// The library itself: this test starts itself as the process whose power is cut.
#[test]
fn the_library_takes_back_what_was_not_synced() {
    if let Ok(control) = std::env::var("NEOKV_CUT_CONTROL") {
        let data = std::env::var("NEOKV_CUT_FOLDER").unwrap();
        return change_files(Path::new(&data), Path::new(&control));
    }
    let folder = Folder::new();
    let power = Power::new(&folder);
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "power_cut::the_library_takes_back_what_was_not_synced",
        ])
        .envs(power.settings(&folder, Sync::Always).environment)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(86));
    assert_eq!(power.get(Control::Ended), 1);
    let mut found: Vec<(String, String)> = std::fs::read_dir(folder.data())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), text)
        })
        .collect();
    found.sort();
    let wanted = [
        ("cut short", "cut shortcut shortcut short"),
        ("moved", "movedmovedmoved"),
        ("new and synced", "x"),
        ("removed later", "removedremovedremoved"),
        ("replaced", "replacedreplacedreplaced"),
        ("synced", "SYNCEDsyncedsynced"),
        ("written", "writtenwrittenwritten"),
    ];
    let wanted = wanted.map(|(name, text)| (name.to_string(), text.to_string()));
    assert_eq!(found, wanted);
}
