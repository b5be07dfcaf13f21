//! What the writer tells, in which order, and what it waits for.

use std::sync::mpsc;

use replica::{Entry, LogError, MapLog};

use super::*;

fn write(region: u64, index: u64) -> LogWrite {
    let entry = Entry {
        index,
        term: 1,
        ..Entry::default()
    };
    LogWrite {
        replica: 1,
        region,
        number: index,
        reset: None,
        entries: vec![entry],
        hard_state: None,
    }
}

/// Sends one job per write; what each was told, in the order it was.
fn send(writer: &LogWriter, writes: Vec<LogWrite>) -> Vec<(u64, Result<(), String>)> {
    let (tell, told) = mpsc::channel();
    let count = writes.len();
    for write in writes {
        let tell = tell.clone();
        let done = move |writes: Vec<LogWrite>, result| {
            tell.send((writes[0].number, result)).expect("heard");
            None
        };
        writer.send(Job {
            writes: vec![write],
            done: Box::new(done),
            clients: 0,
        });
    }
    told.iter().take(count).collect()
}

#[test]
fn what_is_told_is_on_disk_and_one_sync_serves_many() {
    let log = Arc::new(MapLog::new());
    let writer = LogWriter::start(log.clone(), LogSync::Always).expect("a thread");
    let told = send(&writer, (1..=1000).map(|index| write(1, index)).collect());
    assert!(told.iter().all(|(_, result)| result.is_ok()));
    assert!(told.iter().map(|(number, _)| *number).eq(1..=1000));
    assert!(log.syncs() <= 1000);
    log.crash();
    assert_eq!(log.span(1), Some((1, 1000)));
}

#[test]
fn without_syncing_a_crash_loses_and_stopping_keeps() {
    let log = Arc::new(MapLog::new());
    let mut writer = LogWriter::start(log.clone(), LogSync::EverySecond).expect("a thread");
    assert!(send(&writer, vec![write(1, 1)])[0].1.is_ok());
    writer.stop();
    log.crash();
    assert_eq!(log.span(1), Some((1, 1)));
}

#[test]
fn what_was_told_before_every_write_is_synced_is_on_disk_a_second_later() {
    let log = Arc::new(MapLog::new());
    let writer = LogWriter::start(log.clone(), LogSync::EverySecond).expect("a thread");
    for later in [LogSync::Always, LogSync::No] {
        writer.set_sync(LogSync::EverySecond);
        let index = log.span(1).map_or(1, |(_, last)| last + 1);
        assert!(send(&writer, vec![write(1, index)])[0].1.is_ok());
        writer.set_sync(later);
        let (began, before) = (Instant::now(), log.syncs());
        while log.syncs() == before {
            assert!(began.elapsed() < Duration::from_secs(60), "{later:?}");
            std::thread::sleep(SHORT);
        }
        log.crash();
        assert_eq!(log.span(1), Some((1, index)), "{later:?}");
    }
}

fn waiting() -> State {
    let job = Job {
        writes: vec![write(1, 1)],
        done: Box::new(|_, _| None),
        clients: 1,
    };
    let queue = Queue {
        jobs: vec![job],
        clients: 1,
        ..Queue::default()
    };
    State {
        queue: Mutex::new(queue),
        filled: Condvar::new(),
        sync: AtomicU8::new(0),
        delay_us: AtomicU64::new(0),
        writing: WritingClients::default(),
        disk: LogDisk::default(),
        writes: AtomicU64::new(0),
        syncs: AtomicU64::new(0),
        synced_writes: AtomicU64::new(0),
        is_sync_ahead: AtomicBool::new(false),
        lacks_room: AtomicBool::new(false),
        room_timeout_ms: AtomicU64::new(u64::MAX),
    }
}

fn for_clients(clients: u32, wait: Duration) -> Option<Wait> {
    let until = Instant::now() + wait;
    Some(Wait { clients, until })
}

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(3600);

/// How many jobs are taken, and whether the wait timed out.
fn taken(state: &State, wait: Option<Wait>) -> (usize, bool) {
    let (jobs, has_timed_out) = state.take(None, wait).expect("not over");
    (jobs.len(), has_timed_out)
}

#[test]
fn a_group_waits_for_clients_but_not_for_long() {
    let began = Instant::now();
    assert_eq!(taken(&waiting(), for_clients(2, SHORT)), (1, true));
    assert!(began.elapsed() >= SHORT);
    assert_eq!(taken(&waiting(), for_clients(1, LONG)), (1, false));
    assert_eq!(taken(&waiting(), None), (1, false));
}

/// Whoever takes a group that waits so, and what it takes after these were sent.
fn taken_after(wait: Option<Wait>, send: impl FnOnce(&LogWriter)) -> usize {
    let writer = LogWriter {
        state: Arc::new(waiting()),
        thread: None,
    };
    let state = writer.state.clone();
    let take = std::thread::spawn(move || taken(&state, wait).0);
    send(&writer);
    take.join().expect("taken")
}

fn job(clients: u32) -> Job {
    Job {
        writes: vec![write(2, 1)],
        done: Box::new(|_, _| None),
        clients,
    }
}

#[test]
fn a_group_goes_when_the_last_client_has_come() {
    let jobs = taken_after(for_clients(3, LONG), |writer| {
        writer.send(job(0));
        writer.send(job(1));
        writer.send(job(1));
    });
    assert_eq!(jobs, 4);
}

#[test]
fn a_failure_is_final() {
    let log = Arc::new(MapLog::new());
    let writer = LogWriter::start(log.clone(), LogSync::Always).expect("a thread");
    assert!(send(&writer, vec![write(1, 1)])[0].1.is_ok());
    log.break_with(LogError::Failed("no disk".into()));
    assert!(send(&writer, vec![write(1, 2)])[0].1.is_err());
    assert!(send(&writer, vec![write(1, 3)])[0].1.is_err());
    assert_eq!(writer.is_synced(writer.position()), None);
}

#[test]
fn who_waits_for_a_sync_knows_whether_one_will_come() {
    let log = Arc::new(MapLog::new());
    let writer = LogWriter::start(log.clone(), LogSync::Always).expect("a thread");
    let sent = |index| {
        assert!(send(&writer, vec![write(1, index)])[0].1.is_ok());
        writer.is_synced(writer.position())
    };
    assert_eq!(sent(1), Some(true));
    writer.set_sync(LogSync::No);
    assert_eq!(sent(2), None);
    // Only with the next write.
    writer.set_sync(LogSync::Always);
    assert_eq!(writer.is_synced(writer.position()), None);
    writer.set_sync(LogSync::EverySecond);
    assert!(sent(3).is_some());
    writer.set_sync(LogSync::No);
    let (position, began) = (writer.position(), Instant::now());
    while writer.is_synced(position) == Some(false) {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(SHORT);
    }
    assert_eq!(writer.is_synced(position), Some(true));
    writer.set_sync(LogSync::EverySecond);
    assert!(sent(4).is_some());
    log.break_with(LogError::Failed("no disk".into()));
    while writer.is_synced(writer.position()).is_some() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(SHORT);
    }
}
