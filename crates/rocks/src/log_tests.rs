//! The log on real files, and on files that fail.

use super::*;
use crate::{Cut, DataDir, FaultyFiles};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

fn settings() -> LogSettings {
    LogSettings {
        file_bytes: 64 << 10,
        keep_bytes: 128 << 10,
        ..LogSettings::default()
    }
}

fn entry(index: u64, size: usize) -> Entry {
    Entry {
        term: 3,
        index,
        data: vec![index as u8; size].into(),
        ..Entry::default()
    }
}

fn write(region: u64, indices: std::ops::Range<u64>, size: usize) -> LogWrite {
    let last = indices.end - 1;
    LogWrite {
        replica: 1,
        region,
        number: 0,
        reset: None,
        entries: indices.map(|index| entry(index, size)).collect(),
        hard_state: Some(HardState {
            term: 3,
            commit: last,
            ..HardState::default()
        }),
    }
}

/// The log; its watermark is beside it.
fn log_in(dir: &TempDir) -> PathBuf {
    dir.path().join("log")
}

fn open(dir: &TempDir) -> Arc<Log> {
    Log::open(&log_in(dir), &settings()).unwrap()
}

fn open_faulty(dir: &TempDir) -> (Arc<Log<FaultyFiles>>, FaultyFiles) {
    let files = FaultyFiles::default();
    let log = Log::open_with(&log_in(dir), &settings(), Arc::new(files.clone())).unwrap();
    (log, files)
}

/// What the dying process still does reaches nothing, its watermark neither.
fn cut_power(dir: &TempDir, files: &FaultyFiles, log: Arc<Log<FaultyFiles>>, cut: Cut) {
    files.cut_power(cut).unwrap();
    let path = watermark::path_of(&log_in(dir));
    let mark = fs::read(&path).unwrap();
    drop(log);
    fs::write(path, mark).unwrap();
}

/// The last file of the log.
fn last_file(dir: &TempDir) -> PathBuf {
    let files = fs::read_dir(log_in(dir)).unwrap().flatten();
    let mut files: Vec<_> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|e| e == "raftlog"))
        .collect();
    files.sort();
    files.pop().unwrap()
}

#[test]
fn what_was_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    {
        let log = open(&dir);
        assert_eq!(log.regions(), []);
        log.write(&[write(1, 1..11, 10), write(2, 5..6, 100)], true)
            .unwrap();
        // A new leader's entries replace those from their first index on.
        log.write(&[write(1, 8..9, 20)], true).unwrap();
        assert_eq!(log.span(1), Some((1, 8)));
        log.truncate(1, 4).unwrap();
        log.sync().unwrap();
    }
    let log = open(&dir);
    assert_eq!(log.regions(), [1, 2]);
    assert_eq!(log.span(1), Some((4, 8)));
    assert_eq!(log.span(3), None);
    assert_eq!(log.hard_state(1).unwrap().unwrap().commit, 8);
    assert_eq!(log.hard_state(3).unwrap(), None);
    let entries = log.entries(1, 4, 100, usize::MAX).unwrap();
    assert_eq!(
        entries.iter().map(|e| e.index).collect::<Vec<_>>(),
        [4, 5, 6, 7, 8]
    );
    assert_eq!(entries[4].data.len(), 20);
    assert_eq!(log.entries(1, 4, 8, 1).unwrap().len(), 1, "at least one");
    assert_eq!(log.entries(1, 9, 20, 1).unwrap().len(), 0);
    assert_eq!(log.entries(1, 2, 8, 1).unwrap().len(), 0, "forgotten");
    log.truncate(1, 9).unwrap();
    assert_eq!(log.span(1), None);
    assert_eq!(log.regions(), [1, 2], "its hard state is there");
    log.write(&[write(1, 9..10, 1)], true).unwrap();
    assert_eq!(log.span(1), Some((9, 9)));
}

#[test]
fn two_cannot_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let _log = open(&dir);
    let refused = Log::open(&log_in(&dir), &settings()).err().unwrap();
    assert!(matches!(refused, OpenError::InUse(_)), "{refused:?}");
}

#[test]
fn space_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir);
    for n in 0..2000 {
        let first = n * 10 + 1;
        log.write(&[write(1, first..first + 10, 100)], false)
            .unwrap();
        log.write(&[write(2, n + 1..n + 2, 10)], false).unwrap();
        log.truncate(1, first).unwrap();
        if n % 100 == 0 {
            log.tidy().unwrap();
        }
    }
    // Region 2 is never truncated. It is named first, and when that does not help, copied.
    assert_eq!(log.tidy().unwrap(), [2]);
    for _ in 0..12 {
        log.tidy().unwrap();
    }
    assert!(log.size_bytes() < 1 << 20, "{}", log.size_bytes());
    drop(log);
    let log = open(&dir);
    assert_eq!(log.span(2), Some((1, 2000)));
    assert_eq!(log.entries(2, 1, 2001, usize::MAX).unwrap().len(), 2000);
}

#[test]
fn a_power_cut_takes_only_what_was_not_synced() {
    for cut in [
        Cut::All,
        Cut::Torn(0),
        Cut::Torn(40),
        Cut::Pages(1),
        Cut::Pages(2),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (log, files) = open_faulty(&dir);
        for n in 1..200 {
            // Crosses the borders of files.
            log.write(&[write(1, n..n + 1, 1000), write(2, n..n + 1, 10)], true)
                .unwrap();
        }
        log.write(&[write(1, 200..201, 9000), write(2, 200..201, 9000)], false)
            .unwrap();
        cut_power(&dir, &files, log, cut);
        let log = open(&dir);
        let span = log.span(1).unwrap();
        assert!(span.1 >= 199, "{cut:?}: acknowledged");
        assert_eq!(
            log.span(2),
            Some(span),
            "{cut:?}: of a write all or nothing"
        );
        assert_eq!(
            log.entries(1, 1, 1000, usize::MAX).unwrap().len() as u64,
            span.1
        );
        assert_eq!(
            log.entries(2, 1, 1000, usize::MAX).unwrap().len() as u64,
            span.1
        );
        log.write(&[write(1, span.1 + 1..span.1 + 2, 10)], true)
            .unwrap();
        drop(log);
        assert_eq!(open(&dir).span(1), Some((1, span.1 + 1)), "{cut:?}");
    }
}

#[test]
fn unsynced_writes_may_arrive_in_any_order() {
    let mut cut_short = 0;
    for seed in 0..40 {
        let dir = tempfile::tempdir().unwrap();
        let (log, files) = open_faulty(&dir);
        log.write(&[write(1, 1..5, 1000)], true).unwrap();
        for n in 5..15 {
            log.write(&[write(1, n..n + 1, 3000)], false).unwrap();
        }
        // The truncation of another region is not synced on its own either.
        log.truncate(1, 2).unwrap();
        cut_power(&dir, &files, log, Cut::Pages(seed));
        let log = open(&dir);
        let (first, last) = log.span(1).unwrap();
        assert!(last >= 4, "what was synced is there");
        let entries = log.entries(1, first, last + 1, usize::MAX).unwrap();
        assert_eq!(entries.len() as u64, last + 1 - first);
        cut_short += u32::from(last < 14);
    }
    assert!(cut_short > 20, "the test cuts: {cut_short}");
}

#[test]
fn damage_before_the_tail_is_refused_and_the_tail_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir);
    for n in 1..20 {
        log.write(&[write(1, n..n + 1, 500)], true).unwrap();
    }
    drop(log);
    let path = last_file(&dir);
    let good = fs::read(&path).unwrap();
    let mut refused = 0;
    for at in (100..good.len()).step_by(97) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(&path, &bad).unwrap();
        match Log::open(&log_in(&dir), &settings()) {
            Ok(log) => panic!("byte {at} of {}: {:?}", good.len(), log.span(1)),
            Err(error) => {
                refused += 1;
                assert!(matches!(error, OpenError::LostLog { .. }), "{error}");
                assert!(error.to_string().contains(".raftlog"), "{error}");
                assert_eq!(fs::read(&path).unwrap(), bad, "nothing was changed");
            }
        }
        fs::write(&path, &good).unwrap();
    }
    assert!(refused > 90, "{refused}");
    for len in [good.len() - 1, good.len() - 300, 0] {
        fs::write(&path, &good[..len]).unwrap();
        let refused = Log::open(&log_in(&dir), &settings()).err().unwrap();
        assert!(matches!(refused, OpenError::LostLog { .. }), "{refused}");
    }
    fs::remove_file(&path).unwrap();
    let refused = Log::open(&log_in(&dir), &settings()).err().unwrap();
    assert!(refused.to_string().contains("is missing"), "{refused}");
    fs::write(&path, [&good[..], &[0; 10_000]].concat()).unwrap();
    assert_eq!(open(&dir).span(1), Some((1, 19)), "space allocated ahead");
    // Torn writes of what was never acknowledged.
    fs::write(&path, [&good[..], &good[100..300]].concat()).unwrap();
    assert_eq!(open(&dir).span(1), Some((1, 19)));
    assert_eq!(fs::read(&path).unwrap(), good, "the tail is cut");
    // A log of before there were marks: only the very last record may be taken for a torn one.
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    watermark::remove(&log_in(&dir)).unwrap();
    assert_eq!(open(&dir).span(1), Some((1, 18)));
}

/// A log of several files, and its folder.
fn long_log(dir: &TempDir) -> PathBuf {
    DataDir::open(dir.path()).unwrap();
    let log = open(dir);
    for n in 1..400 {
        log.write(&[write(1, n..n + 1, 1000)], true).unwrap();
    }
    drop(log);
    log_in(dir)
}

#[test]
fn what_is_lost_is_accepted_once_and_set_aside() {
    for (name, lose) in [
        ("3 is missing", 3),
        ("5 ends at a record", 5),
        ("the last is damaged", 0),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let log = long_log(&dir);
        let path = |seq: u64| log.join(format!("{seq:016}.raftlog"));
        match lose {
            3 => fs::remove_file(path(3)).unwrap(),
            5 => {
                // Whole records, so that only the noted length tells.
                let mut bytes = fs::read(path(5)).unwrap();
                bytes.pop();
                let record = records::first_bad(&bytes, 5).unwrap();
                bytes.truncate(record);
                fs::write(path(5), bytes).unwrap();
            }
            _ => {
                let last = last_file(&dir);
                let mut bytes = fs::read(&last).unwrap();
                let at = bytes.len() - 100;
                bytes[at] ^= 4;
                fs::write(&last, bytes).unwrap();
            }
        }
        let refused = Log::open(&log, &settings()).err().unwrap();
        let command = format!("neokv accept-lost-log --data-dir {}", dir.path().display());
        assert!(refused.to_string().contains(&command), "{name}: {refused}");
        let data = DataDir::open(dir.path()).unwrap();
        let accepted = data.accept_lost_log().unwrap().unwrap();
        assert_eq!(accepted.lost.len(), 1, "{name}: {accepted:?}");
        assert!(accepted.kept_in.is_dir());
        assert!(data.accept_lost_log().unwrap().is_none(), "{name}");
        let (first, last) = open(&dir).span(1).unwrap();
        assert_eq!(first, 1, "{name}");
        assert!(last < 399, "{name}: {last}");
        let log = open(&dir);
        log.write(&[write(1, last + 1..last + 2, 10)], true)
            .unwrap();
        drop(log);
        assert_eq!(open(&dir).span(1), Some((1, last + 1)), "{name}");
    }
}

/// Whatever moment a process dies at, the mark is not ahead of the log: files come, go and are used again meanwhile.
#[test]
fn a_copy_of_the_log_at_any_moment_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir);
    for n in 0..300 {
        let first = n * 10 + 1;
        log.write(&[write(1, first..first + 10, 100)], true)
            .unwrap();
        log.write(&[write(2, n + 1..n + 2, 10)], n % 3 == 0)
            .unwrap();
        log.truncate(1, first).unwrap();
        if n % 20 == 0 {
            log.tidy().unwrap();
        }
        if n % 7 == 0 {
            let copy = tempfile::tempdir().unwrap();
            fs::create_dir(log_in(&copy)).unwrap();
            for file in fs::read_dir(log_in(&dir)).unwrap().flatten() {
                fs::copy(file.path(), log_in(&copy).join(file.file_name())).unwrap();
            }
            let mark = watermark::path_of(&log_in(&dir));
            fs::copy(mark, watermark::path_of(&log_in(&copy))).unwrap();
            assert_eq!(open(&copy).span(2), Some((1, n + 1)), "{n}");
        }
    }
}

#[test]
fn damage_in_an_older_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir);
    for n in 1..200 {
        log.write(&[write(1, n..n + 1, 1000)], true).unwrap();
    }
    drop(log);
    let path = log_in(&dir).join("0000000000000001.raftlog");
    let good = fs::read(&path).unwrap();
    for at in [10, 1000, good.len() - 50, good.len() - 500] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, &bad).unwrap();
        let refused = Log::open(&log_in(&dir), &settings()).err().unwrap();
        assert!(
            refused.to_string().contains("0000000000000001.raftlog"),
            "{refused}"
        );
    }
    fs::write(&path, &good[..good.len() / 2]).unwrap();
    assert!(Log::open(&log_in(&dir), &settings()).is_err());
    fs::write(&path, &good).unwrap();
    assert_eq!(open(&dir).span(1), Some((1, 199)));
}

#[test]
fn a_failed_sync_is_final() {
    let dir = tempfile::tempdir().unwrap();
    let (log, files) = open_faulty(&dir);
    log.write(&[write(1, 1..2, 10)], true).unwrap();
    files.fail_syncs();
    let failed = log.write(&[write(1, 2..3, 10)], true).unwrap_err();
    assert!(
        matches!(&failed, LogError::Failed(why) if why.contains("injected")),
        "{failed:?}"
    );
    assert_eq!(log.write(&[write(1, 2..3, 10)], false), Err(failed.clone()));
    assert_eq!(log.sync(), Err(failed.clone()));
    assert_eq!(log.truncate(1, 2), Err(failed.clone()));
    assert_eq!(log.tidy(), Err(failed));
    assert!(log.failure().is_some());
    cut_power(&dir, &files, log, Cut::All);
    // A failed log is not closed (that would sync); its process ends, here its lock goes.
    fs::remove_file(log_in(&dir).join("LOCK")).unwrap();
    assert_eq!(open(&dir).span(1), Some((1, 1)));
}

#[test]
fn a_full_disk_loses_nothing_acknowledged_and_passes() {
    for free in [0, 500, 5_000, 70_000] {
        let dir = tempfile::tempdir().unwrap();
        let (log, files) = open_faulty(&dir);
        log.write(&[write(1, 1..2, 1000)], true).unwrap();
        files.fill_disk(free);
        let mut acknowledged = 1;
        for n in 2..1000 {
            match log.write(&[write(1, n..n + 1, 1000)], true) {
                Ok(()) => acknowledged = n,
                Err(error) => {
                    assert!(matches!(error, LogError::Full(_)), "{error}");
                    break;
                }
            }
        }
        assert!(acknowledged < 200, "{free}");
        for _ in 0..3 {
            let refused = log.write(
                &[write(1, acknowledged + 1..acknowledged + 2, 70_000)],
                true,
            );
            assert!(matches!(refused, Err(LogError::Full(_))), "{refused:?}");
        }
        assert!(log.failure().is_none());
        // There is room again.
        files.fill_disk(u64::MAX);
        log.write(&[write(1, acknowledged + 1..acknowledged + 9, 1000)], true)
            .unwrap();
        acknowledged += 8;
        log.write(&[write(1, acknowledged + 1..acknowledged + 2, 10)], false)
            .unwrap();
        cut_power(&dir, &files, log, Cut::All);
        assert_eq!(open(&dir).span(1), Some((1, acknowledged)), "{free}");
    }
}

#[test]
fn a_file_whose_head_was_torn_keeps_what_is_written_to_it_later() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir));
    let made = fs::read(last_file(&dir)).unwrap();
    // As if it had never been synced.
    let forget_mark = || watermark::remove(&log_in(&dir)).unwrap();
    let torn = [
        vec![],
        made[..20].to_vec(),
        vec![0; 4096],
        [&made[..20], &[0; 4096]].concat(),
    ];
    for torn in torn {
        fs::write(last_file(&dir), torn).unwrap();
        forget_mark();
        let log = open(&dir);
        log.write(&[write(1, 1..6, 100)], true).unwrap();
        // Killed: nothing is closed.
        let bytes = fs::read(last_file(&dir)).unwrap();
        drop(log);
        fs::write(last_file(&dir), &bytes).unwrap();
        assert_eq!(open(&dir).span(1), Some((1, 5)));
        assert_eq!(made[..], bytes[..made.len()], "the head it had");
    }
    // As raft-engine left them before we wrote the head.
    let raw = raft_engine::Config {
        dir: log_in(&dir).to_string_lossy().into(),
        format_version: raft_engine::Version::V1,
        enable_log_recycle: false,
        ..raft_engine::Config::default()
    };
    fs::write(last_file(&dir), b"").unwrap();
    forget_mark();
    let engine = Engine::open(raw).unwrap();
    let mut batch = LogBatch::default();
    batch.put(7, b"k".to_vec(), b"v".to_vec()).unwrap();
    engine.write(&mut batch, true).unwrap();
    drop(engine);
    let before = fs::read(last_file(&dir)).unwrap();
    records::check(&log_in(&dir), None).unwrap();
    assert_eq!(fs::read(last_file(&dir)).unwrap(), before);
    let mut torn = before.clone();
    torn.extend_from_slice(&[1; 30]);
    fs::write(last_file(&dir), torn).unwrap();
    records::check(&log_in(&dir), None).unwrap();
    assert_eq!(fs::read(last_file(&dir)).unwrap(), before);
}

#[test]
fn a_log_begins_anew_behind_a_snapshot() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir);
    log.write(&[write(1, 1..20, 100), write(2, 1..5, 100)], true)
        .unwrap();
    // Files come and go, so that what is old is written again elsewhere.
    let mut next = 5;
    let mut churn = |log: &Log| {
        for _ in 0..40 {
            log.write(&[write(2, next..next + 10, 1000)], true).unwrap();
            log.truncate(2, next).unwrap();
            log.tidy().unwrap();
            next += 10;
        }
    };
    churn(&log);
    let hard_state = HardState {
        term: 7,
        commit: 1000,
        ..HardState::default()
    };
    let reset = LogWrite {
        region: 1,
        reset: Some(1000),
        hard_state: Some(hard_state.clone()),
        ..LogWrite::default()
    };
    log.write(std::slice::from_ref(&reset), true).unwrap();
    let check = |log: &Log| {
        assert_eq!(log.span(1), None);
        assert_eq!(log.hard_state(1).unwrap(), Some(hard_state.clone()));
        assert!(log.span(2).is_some());
        assert_eq!(log.entries(1, 1, 20, usize::MAX).unwrap(), []);
    };
    check(&log);
    churn(&log);
    check(&log);
    drop(log);
    let log = open(&dir);
    check(&log);
    log.write(&[write(1, 1001..1011, 100)], true).unwrap();
    // Together with entries, over what is there, and backwards (a damaged replica begins again).
    let mut again = write(1, 501..505, 100);
    again.reset = Some(500);
    log.write(&[again], true).unwrap();
    assert_eq!(log.span(1), Some((501, 504)));
    churn(&log);
    drop(log);
    let log = open(&dir);
    assert_eq!(log.span(1), Some((501, 504)));
    assert_eq!(log.entries(1, 501, 505, usize::MAX).unwrap().len(), 4);
    assert_eq!(
        log.hard_state(1).unwrap().map(|hard| hard.commit),
        Some(504)
    );
}
