//! Group commit, order, failure.

use super::*;
use crate::{FaultyFiles, Log, LogSettings};
use raft::eraftpb::Entry;
use std::sync::mpsc;

fn job(token: u64, region: u64, index: u64) -> Job {
    let entry = Entry {
        term: 1,
        index,
        data: vec![1; 64].into(),
        ..Entry::default()
    };
    Job {
        writes: vec![LogWrite {
            region,
            number: token,
            entries: vec![entry],
            hard_state: None,
        }],
        token,
    }
}

fn started(log: Arc<dyn LogStore>, mode: SyncMode) -> (LogWriter, mpsc::Receiver<Done>) {
    let (tell, told) = mpsc::channel();
    let done = Box::new(move |done| tell.send(done).unwrap());
    (LogWriter::start(log, mode, done).unwrap(), told)
}

#[test]
fn jobs_are_done_in_order_and_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path(), &LogSettings::default()).unwrap();
    let (writer, told) = started(log.clone(), SyncMode::Always);
    for token in 0..5000 {
        let mut waiting = job(token, token % 7, token / 7 + 1);
        while let Err(back) = writer.submit(waiting) {
            waiting = back;
            std::thread::yield_now();
        }
    }
    drop(writer);
    let done: Vec<Done> = told.iter().collect();
    let tokens: Vec<u64> = done.iter().flat_map(|done| done.tokens.clone()).collect();
    assert_eq!(tokens, (0..5000).collect::<Vec<_>>());
    let numbers: Vec<u64> = done
        .iter()
        .flat_map(|d| d.writes.iter().map(|w| w.number))
        .collect();
    assert_eq!(numbers, tokens);
    assert!(done.iter().all(|done| done.result.is_ok()));
    assert!(done.len() < 2500, "groups: {}", done.len());
    assert_eq!(log.span(0), Some((1, 715)));
}

#[test]
fn the_mode_changes_while_it_runs_and_everysec_syncs_within_a_second() {
    let dir = tempfile::tempdir().unwrap();
    let files = FaultyFiles::default();
    let settings = LogSettings::default();
    let log = Log::open_with(dir.path(), &settings, Arc::new(files.clone())).unwrap();
    let (writer, told) = started(log.clone(), SyncMode::No);
    files.fail_syncs();
    writer.submit(job(1, 1, 1)).unwrap();
    assert_eq!(told.recv().unwrap().result, Ok(()), "nobody syncs");
    writer.set_mode(SyncMode::EverySecond);
    writer.submit(job(2, 1, 2)).unwrap();
    assert_eq!(told.recv().unwrap().result, Ok(()));
    assert!(!writer.failed());
    let late = told.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(late.result.is_err() && late.tokens.is_empty(), "{late:?}");
    assert!(writer.failed());
    writer.submit(job(3, 1, 3)).unwrap();
    let done = told.recv().unwrap();
    assert_eq!(done.tokens, [3]);
    assert!(done.result.is_err());
}

/// A log that stands still until it is let go.
struct Stuck(Mutex<mpsc::Receiver<()>>);

impl LogStore for Stuck {
    fn write(&self, _: &[LogWrite], _: bool) -> Result<(), LogError> {
        let _ = self.0.lock().unwrap().recv();
        Ok(())
    }
    fn sync(&self) -> Result<(), LogError> {
        Ok(())
    }
    fn regions(&self) -> Vec<u64> {
        vec![]
    }
    fn hard_state(&self, _: u64) -> Result<Option<raft::eraftpb::HardState>, LogError> {
        Ok(None)
    }
    fn span(&self, _: u64) -> Option<(u64, u64)> {
        None
    }
    fn entries(&self, _: u64, _: u64, _: u64, _: usize) -> Result<Vec<Entry>, LogError> {
        Ok(vec![])
    }
    fn truncate(&self, _: u64, _: u64) -> Result<(), LogError> {
        Ok(())
    }
    fn size_bytes(&self) -> u64 {
        0
    }
}

#[test]
fn a_full_queue_gives_jobs_back() {
    let (go, stuck) = mpsc::channel();
    let (writer, told) = started(Arc::new(Stuck(Mutex::new(stuck))), SyncMode::Always);
    let mut accepted = 0;
    let back = loop {
        match writer.submit(job(accepted, 1, accepted)) {
            Ok(()) => accepted += 1,
            Err(back) => break back,
        }
    };
    assert_eq!(back.token, accepted);
    assert!(accepted >= QUEUE_JOBS as u64);
    drop(go);
    drop(writer);
    let told: usize = told.iter().map(|done| done.tokens.len()).sum();
    assert_eq!(told as u64, accepted);
}
