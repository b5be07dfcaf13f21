//! What waits to be written to one connection: filled from any thread, emptied by the peer thread.
//!
//! A sender never waits. It counts its bytes in, pushes a whole batch to a lock-free queue, and
//! wakes the writer only if nobody has since the writer last looked. When the bounds are reached,
//! or there is no connection to wait for, the batch is dropped: Raft sends again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::vec::IntoIter;

use crossbeam_queue::SegQueue;
use tokio::sync::Notify;

use crate::wire::{self, Answer, Call, FrameWriter, OVERHEAD_BYTES, RaftMessage};

#[derive(Default)]
pub struct Outbox {
    raft: SegQueue<Vec<RaftMessage>>,
    calls: SegQueue<Call>,
    answers: SegQueue<Answer>,
    /// Of `raft`, what the writer holds included.
    bytes: AtomicUsize,
    messages: AtomicUsize,
    answer_bytes: AtomicUsize,
    open: AtomicBool,
    signalled: AtomicBool,
    wake: Notify,
}

/// How much may wait.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub bytes: usize,
    pub messages: usize,
}

fn cost(message: &RaftMessage) -> usize {
    message.body.len() + OVERHEAD_BYTES
}

impl Outbox {
    /// From here on things may wait: a connection is there or being made.
    pub fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    /// There is no connection: drops all that waits; how many Raft messages that were.
    pub fn close(&self) -> usize {
        self.open.store(false, Ordering::SeqCst);
        let mut dropped = 0;
        while let Some(batch) = self.raft.pop() {
            dropped += batch.len();
            self.uncount(&batch);
        }
        while self.calls.pop().is_some() {}
        while self.answers.pop().is_some() {}
        self.answer_bytes.store(0, Ordering::Relaxed);
        dropped
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    /// All of the batch, or nothing. A batch that alone exceeds the bounds goes if nothing waits.
    pub fn push_raft(&self, batch: Vec<RaftMessage>, bounds: Bounds) -> bool {
        if !self.is_open() {
            return false;
        }
        let bytes = batch.iter().map(cost).sum::<usize>();
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let messages_before = self.messages.fetch_add(batch.len(), Ordering::Relaxed);
        let full = bytes_before.saturating_add(bytes) > bounds.bytes
            || messages_before.saturating_add(batch.len()) > bounds.messages;
        if full && messages_before > 0 {
            self.uncount(&batch);
            return false;
        }
        self.raft.push(batch);
        self.signal();
        true
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

    fn uncount(&self, batch: &[RaftMessage]) {
        let bytes = batch.iter().map(cost).sum::<usize>();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.messages.fetch_sub(batch.len(), Ordering::Relaxed);
    }

    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    pub fn waiting_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The emptying end. Keeps the tail of a batch that did not fit into a frame.
pub struct Drain {
    tail: IntoIter<RaftMessage>,
    /// Did not fit behind what was in the frame already.
    call: Option<Call>,
    answer: Option<Answer>,
}

impl Drain {
    pub fn new() -> Drain {
        Drain {
            tail: Vec::new().into_iter(),
            call: None,
            answer: None,
        }
    }

    /// Puts what waits into the frame until `batch_bytes` are in it; how many Raft messages.
    /// Calls that nobody waits for any more are left out. Never makes a frame longer than `frame_bytes_max`: nothing that large got into the outbox.
    pub fn fill(
        &mut self,
        outbox: &Outbox,
        frame: &mut FrameWriter,
        wanted: impl Fn(u64) -> bool,
        batch_bytes: usize,
        frame_bytes_max: usize,
    ) -> usize {
        // Before looking: who pushes behind our look wakes us again.
        outbox.signalled.store(false, Ordering::SeqCst);
        let fits = |frame: &FrameWriter, bytes: usize| {
            frame.len() == 0 || frame.len() + bytes + OVERHEAD_BYTES <= frame_bytes_max
        };
        let mut fields = 0;
        let go_on = |frame: &FrameWriter, fields: usize| {
            frame.len() < batch_bytes && fields < wire::FIELDS_MAX - 1
        };
        while go_on(frame, fields) {
            let Some(answer) = self.answer.take().or_else(|| outbox.answers.pop()) else {
                break;
            };
            if !fits(frame, answer.body.len()) {
                self.answer = Some(answer);
                return 0;
            }
            let bytes = answer.body.len();
            frame.put(wire::ANSWERS, &answer);
            outbox.answer_bytes.fetch_sub(bytes, Ordering::Relaxed);
            fields += 1;
        }
        while go_on(frame, fields) {
            let Some(call) = self.call.take().or_else(|| outbox.calls.pop()) else {
                break;
            };
            if !fits(frame, call.body.len()) {
                self.call = Some(call);
                return 0;
            }
            if !wanted(call.id) {
                continue;
            }
            frame.put(wire::CALLS, &call);
            fields += 1;
        }
        let (mut bytes, mut messages) = (0, 0);
        while go_on(frame, fields) {
            match self.tail.as_slice().first() {
                Some(next) if !fits(frame, next.body.len()) => break,
                Some(_) => {}
                None => match outbox.raft.pop() {
                    Some(batch) => {
                        self.tail = batch.into_iter();
                        continue;
                    }
                    None => break,
                },
            }
            let Some(message) = self.tail.next() else {
                continue;
            };
            frame.put(wire::RAFT, &message);
            bytes += cost(&message);
            messages += 1;
            fields += 1;
        }
        outbox.bytes.fetch_sub(bytes, Ordering::Relaxed);
        outbox.messages.fetch_sub(messages, Ordering::Relaxed);
        messages
    }

    /// The connection is gone: what was kept back is lost. How many Raft messages.
    pub fn abandon(self, outbox: &Outbox) -> usize {
        outbox.uncount(self.tail.as_slice());
        self.tail.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn batch(count: usize, bytes: usize) -> Vec<RaftMessage> {
        (0..count)
            .map(|at| RaftMessage {
                region: at as u64,
                body: Bytes::from(vec![0; bytes]),
            })
            .collect()
    }

    #[test]
    fn bounds_hold_and_room_comes_back() {
        let outbox = Outbox::default();
        let bounds = Bounds {
            bytes: 10_000,
            messages: 10,
        };
        assert!(!outbox.push_raft(batch(1, 1), bounds), "closed");
        outbox.open();
        assert!(outbox.push_raft(batch(6, 10), bounds));
        assert!(!outbox.push_raft(batch(5, 10), bounds), "too many");
        assert!(outbox.push_raft(batch(4, 10), bounds));
        let (mut drain, mut frame) = (Drain::new(), FrameWriter::new());
        let mut sent = 0;
        while sent < 10 {
            frame.begin(1000);
            sent += drain.fill(&outbox, &mut frame, |_| true, 30, 1000);
        }
        assert_eq!((sent, outbox.waiting_bytes()), (10, 0));
        assert!(outbox.push_raft(batch(1, 20_000), bounds), "alone");
        assert!(!outbox.push_raft(batch(1, 1), bounds));
        assert_eq!(outbox.close(), 1);
        assert_eq!(outbox.waiting_bytes(), 0);
    }

    #[test]
    fn no_frame_is_longer_than_allowed() {
        let outbox = Outbox::default();
        let bounds = Bounds {
            bytes: 1 << 20,
            messages: 1000,
        };
        outbox.open();
        assert!(outbox.push_raft(batch(30, 400), bounds));
        for id in 0..5 {
            let body = Bytes::from(vec![0; 500]);
            outbox.push_call(Call {
                id,
                method: 1,
                body: body.clone(),
            });
            outbox.push_answer(
                Answer {
                    id,
                    status: 0,
                    body,
                },
                1 << 20,
            );
        }
        let (mut drain, mut frame) = (Drain::new(), FrameWriter::new());
        let mut sent = 0;
        loop {
            frame.begin(1000);
            sent += drain.fill(&outbox, &mut frame, |_| true, 900, 1000);
            assert!(frame.len() <= 1000);
            if frame.len() == 0 {
                break;
            }
        }
        assert_eq!(sent, 30);
    }
}
