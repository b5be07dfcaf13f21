//! What happened with each peer, in numbers that only grow.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A reading of the numbers of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub sent_bytes: u64,
    pub sent_frames: u64,
    /// Raft messages.
    pub sent_messages: u64,
    pub received_bytes: u64,
    pub received_frames: u64,
    pub received_messages: u64,
    /// Raft messages that did not leave: queue full, no connection, or too large.
    pub dropped_messages: u64,
    pub calls_made: u64,
    pub calls_received: u64,
    /// Answers to calls nobody waited for any more.
    pub late_answers: u64,
    /// Times the connection to the peer was made, the first included.
    pub connects: u64,
    /// Attempts that failed, refusals included.
    pub connect_failures: u64,
    /// Now: the connection to the peer stands.
    pub connected: bool,
    /// Now: it is heard.
    pub up: bool,
    /// Now: bytes that wait to be sent.
    pub waiting_bytes: u64,
}

/// The live numbers.
#[derive(Default)]
pub struct Tally {
    pub sent_bytes: AtomicU64,
    pub sent_frames: AtomicU64,
    pub sent_messages: AtomicU64,
    pub received_bytes: AtomicU64,
    pub received_frames: AtomicU64,
    pub received_messages: AtomicU64,
    pub dropped_messages: AtomicU64,
    pub calls_made: AtomicU64,
    pub calls_received: AtomicU64,
    pub late_answers: AtomicU64,
    pub connects: AtomicU64,
    pub connect_failures: AtomicU64,
}

pub fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Relaxed);
}

impl Tally {
    pub fn read(&self) -> Counters {
        Counters {
            sent_bytes: self.sent_bytes.load(Relaxed),
            sent_frames: self.sent_frames.load(Relaxed),
            sent_messages: self.sent_messages.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
            received_frames: self.received_frames.load(Relaxed),
            received_messages: self.received_messages.load(Relaxed),
            dropped_messages: self.dropped_messages.load(Relaxed),
            calls_made: self.calls_made.load(Relaxed),
            calls_received: self.calls_received.load(Relaxed),
            late_answers: self.late_answers.load(Relaxed),
            connects: self.connects.load(Relaxed),
            connect_failures: self.connect_failures.load(Relaxed),
            connected: false,
            up: false,
            waiting_bytes: 0,
        }
    }
}
