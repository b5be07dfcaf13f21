//! Where lines go: through a bounded queue to one thread, which writes them.
//!
//! A pipe that nobody empties or a disk that hangs makes that thread wait, never a core: when the queue
//! is full, lines are left out, and how many is told once the thread can write again. That note does not
//! go through the queue, which is full just then. A closed pipe and a full disk are ignored.
//!
//! A file is opened anew for every batch of lines, so that whoever rotates logs only has to rename it.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const WAITING: usize = 1024;
/// Written at once.
const BATCH_BYTES: usize = 64 << 10;
/// Between two tries to put something into a full queue.
const PAUSE: Duration = Duration::from_millis(1);

thread_local! {
    /// Lines of the thread that writes; only there it is `Some`.
    static NOTES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

enum Job {
    Line(Vec<u8>),
    /// Answered when all lines before it are written.
    Flush(SyncSender<()>),
}

/// The entrance to the queue.
#[derive(Clone)]
pub struct Lines {
    queue: SyncSender<Job>,
    left_out: Arc<AtomicU64>,
}

impl Lines {
    /// Starts the thread that writes to `file`, or to standard output.
    pub fn start(file: Option<&Path>) -> io::Result<Lines> {
        file.map(open).transpose()?;
        let file = file.map(std::path::absolute).transpose()?;
        let (queue, jobs) = sync_channel(WAITING);
        let left_out = Arc::new(AtomicU64::new(0));
        let count = left_out.clone();
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || run(&jobs, file, &count))?;
        Ok(Lines { queue, left_out })
    }

    /// Waits until all lines are written, but not longer than `most`.
    pub fn flush(&self, most: Duration) {
        let deadline = Instant::now() + most;
        let (done, is_done) = sync_channel(1);
        let mut job = Job::Flush(done);
        while let Err(error) = self.queue.try_send(job) {
            match error {
                TrySendError::Full(again) if Instant::now() < deadline => job = again,
                _ => return,
            }
            std::thread::sleep(PAUSE);
        }
        let _ = is_done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> &'a Lines {
        self
    }
}

impl Write for &Lines {
    /// One call is one event, and becomes one line whatever is in it.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = one_line(event);
        let is_note = NOTES.with_borrow_mut(|notes| match notes {
            Some(notes) => {
                notes.extend_from_slice(&line);
                true
            }
            None => false,
        });
        if !is_note && self.queue.try_send(Job::Line(line)).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run(jobs: &Receiver<Job>, file: Option<PathBuf>, left_out: &AtomicU64) {
    NOTES.set(Some(Vec::new()));
    let mut batch = Vec::new();
    while let Ok(first) = jobs.recv() {
        batch.clear();
        let mut next = Some(first);
        let mut flushed = None;
        while let Some(job) = next.take() {
            match job {
                Job::Line(line) => batch.extend_from_slice(&line),
                Job::Flush(done) => flushed = Some(done),
            }
            if flushed.is_none() && batch.len() < BATCH_BYTES {
                next = jobs.try_recv().ok();
            }
        }
        write(file.as_deref(), &batch);
        let lines = left_out.swap(0, Ordering::Relaxed);
        if lines > 0 {
            tracing::warn!(
                lines,
                "log lines were left out: they were not taken in time"
            );
        }
        let notes = NOTES.with_borrow_mut(|notes| notes.replace(Vec::new()));
        if let Some(notes) = notes.filter(|notes| !notes.is_empty()) {
            write(file.as_deref(), &notes);
        }
        if let Some(done) = flushed {
            let _ = done.send(());
        }
    }
}

/// A log that nobody takes is no reason to stop.
fn write(file: Option<&Path>, lines: &[u8]) {
    let _ = match file {
        Some(path) => open(path).and_then(|mut file| file.write_all(lines)),
        None => to_stdout(lines),
    };
}

/// Ends of lines inside as `\n`: a name that a client chose must not look like an event.
fn one_line(event: &[u8]) -> Vec<u8> {
    let event = event.strip_suffix(b"\n").unwrap_or(event);
    let mut line = Vec::with_capacity(event.len() + 1);
    for &byte in event {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            _ => line.push(byte),
        }
    }
    line.push(b'\n');
    line
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn to_stdout(batch: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(batch)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_renamed_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let (log, old) = (folder.path().join("log"), folder.path().join("log.1"));
        let lines = Lines::start(Some(&log)).unwrap();
        (&lines).write_all(b"one\n").unwrap();
        lines.flush(Duration::from_secs(60));
        std::fs::rename(&log, &old).unwrap();
        (&lines).write_all(b"two\n").unwrap();
        (&lines).write_all(b"three\nfour").unwrap();
        lines.flush(Duration::from_secs(60));
        assert_eq!(std::fs::read(&old).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&log).unwrap(), b"two\nthree\\nfour\n");
        assert!(Lines::start(Some(folder.path())).is_err());
    }

    /// A pipe and its reader, who has not read yet. It has both ends, so that opening it does not wait.
    fn pipe(folder: &Path) -> (PathBuf, File) {
        let pipe = folder.join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the name is a C string that lives through the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let reader = OpenOptions::new().read(true).write(true).open(&pipe);
        (pipe, reader.unwrap())
    }

    #[test]
    fn who_writes_never_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, _reader) = pipe(folder.path());
        let lines = Lines::start(Some(&pipe)).unwrap();
        for _ in 0..4 * WAITING {
            (&lines).write_all(&[b'x'; 1000]).unwrap();
        }
        assert!(lines.left_out.load(Ordering::Relaxed) > 0);
        // The end of the process does not wait for ever, either.
        lines.flush(PAUSE);
    }

    #[test]
    fn a_flush_waits_for_room_in_the_queue() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, reader) = pipe(folder.path());
        let lines = Lines::start(Some(&pipe)).unwrap();
        while lines.left_out.load(Ordering::Relaxed) == 0 {
            (&lines).write_all(&[b'x'; 1000]).unwrap();
        }
        let (seen, is_seen) = sync_channel(1);
        std::thread::spawn(move || {
            let mut text = io::BufRead::lines(io::BufReader::new(reader));
            let _ = seen.send(text.any(|line| line.unwrap() == "the end"));
        });
        lines.flush(Duration::from_secs(60));
        // All is written, so there is room.
        (&lines).write_all(b"the end").unwrap();
        assert_eq!(is_seen.recv_timeout(Duration::from_secs(60)), Ok(true));
    }
}
