//! The log on real files, and on files that fail.

use super::*;
use crate::{Cut, FaultyFiles};
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

fn open(dir: &TempDir) -> Arc<Log> {
    Log::open(dir.path(), &settings()).unwrap()
}

fn open_faulty(dir: &TempDir) -> (Arc<Log<FaultyFiles>>, FaultyFiles) {
    let files = FaultyFiles::default();
    let log = Log::open_with(dir.path(), &settings(), Arc::new(files.clone())).unwrap();
    (log, files)
}

/// The last file of the log.
fn last_file(dir: &TempDir) -> PathBuf {
    let files = fs::read_dir(dir.path()).unwrap().flatten();
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
    let refused = Log::open(dir.path(), &settings()).err().unwrap();
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
        files.cut_power(cut).unwrap();
        drop(log);
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
        files.cut_power(Cut::Pages(seed)).unwrap();
        drop(log);
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
        match Log::open(dir.path(), &settings()) {
            Ok(log) => {
                // Only the very last record may be taken for a torn one.
                assert_eq!(log.span(1), Some((1, 18)), "byte {at} of {}", good.len());
                assert!(at > good.len() * 9 / 10);
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
                assert!(error.to_string().contains(".raftlog"), "{error}");
                assert_eq!(fs::read(&path).unwrap(), bad, "nothing was changed");
            }
        }
        fs::write(&path, &good).unwrap();
    }
    assert!(refused > 90, "{refused}");
    for len in [good.len() - 1, good.len() - 300] {
        fs::write(&path, &good[..len]).unwrap();
        assert_eq!(open(&dir).span(1), Some((1, 18)));
        fs::write(&path, &good).unwrap();
    }
    fs::write(&path, [&good[..], &[0; 10_000]].concat()).unwrap();
    assert_eq!(open(&dir).span(1), Some((1, 19)), "space allocated ahead");
}

#[test]
fn damage_in_an_older_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir);
    for n in 1..200 {
        log.write(&[write(1, n..n + 1, 1000)], true).unwrap();
    }
    drop(log);
    let path = dir.path().join("0000000000000001.raftlog");
    let good = fs::read(&path).unwrap();
    for at in [10, 1000, good.len() - 50, good.len() - 500] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, &bad).unwrap();
        let refused = Log::open(dir.path(), &settings()).err().unwrap();
        assert!(
            refused.to_string().contains("0000000000000001.raftlog"),
            "{refused}"
        );
    }
    fs::write(&path, &good[..good.len() / 2]).unwrap();
    assert!(Log::open(dir.path(), &settings()).is_err());
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
    files.cut_power(Cut::All).unwrap();
    drop(log);
    // A failed log is not closed (that would sync); its process ends, here its lock goes.
    fs::remove_file(dir.path().join("LOCK")).unwrap();
    assert_eq!(open(&dir).span(1), Some((1, 1)));
}

#[test]
fn a_full_disk_is_final_and_loses_nothing_acknowledged() {
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
                    assert!(matches!(error, LogError::Failed(_)));
                    break;
                }
            }
        }
        assert!(acknowledged < 200, "{free}");
        assert!(log.write(&[write(1, 1000..1001, 1)], true).is_err());
        files.cut_power(Cut::All).unwrap();
        drop(log);
        fs::remove_file(dir.path().join("LOCK")).unwrap();
        assert_eq!(open(&dir).span(1), Some((1, acknowledged)), "{free}");
    }
}

#[test]
fn a_file_whose_head_was_torn_keeps_what_is_written_to_it_later() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir));
    let made = fs::read(last_file(&dir)).unwrap();
    let torn = [
        vec![],
        made[..20].to_vec(),
        vec![0; 4096],
        [&made[..20], &[0; 4096]].concat(),
    ];
    for torn in torn {
        fs::write(last_file(&dir), torn).unwrap();
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
        dir: dir.path().to_string_lossy().into(),
        format_version: raft_engine::Version::V1,
        enable_log_recycle: false,
        ..raft_engine::Config::default()
    };
    fs::write(last_file(&dir), b"").unwrap();
    let engine = Engine::open(raw).unwrap();
    let mut batch = LogBatch::default();
    batch.put(7, b"k".to_vec(), b"v".to_vec()).unwrap();
    engine.write(&mut batch, true).unwrap();
    drop(engine);
    let before = fs::read(last_file(&dir)).unwrap();
    records::check(dir.path()).unwrap();
    assert_eq!(fs::read(last_file(&dir)).unwrap(), before);
    let mut torn = before.clone();
    torn.extend_from_slice(&[1; 30]);
    fs::write(last_file(&dir), torn).unwrap();
    records::check(dir.path()).unwrap();
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
