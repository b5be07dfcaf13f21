//! What waits to be written to one connection: filled from any thread, emptied by the peer thread.
//!
//! A sender never waits. It counts its bytes in, pushes a whole batch to a lock-free queue, and
//! wakes the writer only if nobody has since the writer last looked. When the bounds are reached,
//! or there is no connection to wait for, the batch is dropped: Raft sends again. Large messages
//! are counted apart, so that one of them takes nobody else's place.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;
use tokio::sync::Notify;

use crate::wire::{Answer, Call, OVERHEAD_BYTES, RaftMessage};

#[derive(Default)]
pub struct Outbox {
    pub(crate) raft: SegQueue<Vec<RaftMessage>>,
    pub(crate) calls: SegQueue<Call>,
    pub(crate) answers: SegQueue<Answer>,
    /// Of `raft`, what the writer holds included.
    bytes: AtomicUsize,
    messages: AtomicUsize,
    /// Likewise, of messages that go in parts, until their last part is in a frame.
    large_bytes: AtomicUsize,
    pub(crate) answer_bytes: AtomicUsize,
    open: AtomicBool,
    pub(crate) signalled: AtomicBool,
    wake: Notify,
}

/// How much may wait.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Of large messages as much again.
    pub bytes: usize,
    pub messages: usize,
    /// A longer message is large.
    pub large: usize,
}

fn cost(message: &RaftMessage) -> usize {
    message.body.len() + OVERHEAD_BYTES
}

impl Bounds {
    pub fn is_large(&self, message: &RaftMessage) -> bool {
        message.body.len() > self.large
    }
}

impl Outbox {
    /// From here on things may wait: a connection is there or being made.
    pub fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    /// There is no connection: drops all that waits; how many Raft messages that were.
    pub fn close(&self, bounds: Bounds) -> usize {
        self.open.store(false, Ordering::SeqCst);
        let mut dropped = 0;
        while let Some(batch) = self.raft.pop() {
            dropped += batch.len();
            batch.iter().for_each(|it| self.uncount(it, bounds));
        }
        while self.calls.pop().is_some() {}
        while self.answers.pop().is_some() {}
        self.answer_bytes.store(0, Ordering::Relaxed);
        dropped
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    /// How many are dropped. The small ones go together or not at all, each large one for itself. What alone
    /// exceeds the bounds goes if nothing waits.
    pub fn push_raft(&self, mut batch: Vec<RaftMessage>, bounds: Bounds) -> usize {
        let count = batch.len();
        if !self.is_open() {
            return count;
        }
        if batch.iter().any(|message| bounds.is_large(message)) {
            batch.retain(|message| !bounds.is_large(message) || self.count_large(message, bounds));
        }
        let small = || batch.iter().filter(|message| !bounds.is_large(message));
        let (bytes, messages) = (small().map(cost).sum::<usize>(), small().count());
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let messages_before = self.messages.fetch_add(messages, Ordering::Relaxed);
        let full = bytes_before.saturating_add(bytes) > bounds.bytes
            || messages_before.saturating_add(messages) > bounds.messages;
        if full && messages_before > 0 {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.messages.fetch_sub(messages, Ordering::Relaxed);
            batch.retain(|message| bounds.is_large(message));
        }
        let dropped = count - batch.len();
        if !batch.is_empty() {
            self.raft.push(batch);
            self.signal();
        }
        dropped
    }

    fn count_large(&self, message: &RaftMessage, bounds: Bounds) -> bool {
        let bytes = cost(message);
        let before = self.large_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before == 0 || before.saturating_add(bytes) <= bounds.bytes;
        if !fits {
            self.large_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Whether a message of so many bytes would be taken now, as far as its size goes.
    pub fn has_room(&self, bytes: usize, bounds: Bounds) -> bool {
        let before = self.large_bytes.load(Ordering::Relaxed);
        before == 0 || before.saturating_add(bytes) <= bounds.bytes
    }

    pub fn push_call(&self, call: Call) {
        self.calls.push(call);
        self.signal();
    }

    /// False if too much waits already for a reader that does not read.
    pub fn push_answer(&self, answer: Answer, bytes_max: usize) -> bool {
        if !self.is_open() {
            return true; // nobody to tell
        }
        let bytes = answer.body.len();
        let before = self.answer_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before > 0 && before.saturating_add(bytes) > bytes_max {
            self.answer_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.answers.push(answer);
        self.signal();
        true
    }

    fn signal(&self) {
        if !self.signalled.swap(true, Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// It is in a frame, or dropped.
    pub(crate) fn uncount(&self, message: &RaftMessage, bounds: Bounds) {
        let bytes = cost(message);
        if bounds.is_large(message) {
            self.large_bytes.fetch_sub(bytes, Ordering::Relaxed);
        } else {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.messages.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    pub fn waiting_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.large_bytes.load(Ordering::Relaxed)
    }
}
