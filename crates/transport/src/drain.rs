//! The emptying end of an [`Outbox`]: which messages go into the next frame.
//!
//! A large message goes in parts, one to a frame, with whatever else waits: on a slow line the
//! heartbeats of all regions get through beside it. One is under way at a time. Messages of its
//! region wait behind it, since a follower refuses entries that come before their predecessors,
//! and the leader would send the large one again; those that may overtake do not wait.
//!
//! ```text
//!   outbox ─► again, tail ─┬─ small ───────────────────────────► frame
//!                          ├─ large, none is under way ─► large ─► a part
//!                          └─ large, or behind one ─► later ─► again, when the large one is through
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::vec::IntoIter;

use crate::outbox::{Bounds, Outbox};
use crate::wire::{self, Answer, Call, FrameWriter, OVERHEAD_BYTES, Part, RaftMessage};

/// No frame has more of a large message. On a line of a megabyte per second that is 60 ms.
pub const PART_BYTES: usize = 64 << 10;

pub struct Drain {
    bounds: Bounds,
    /// The rest of a batch.
    tail: IntoIter<RaftMessage>,
    /// Did not fit behind what was in the frame already.
    call: Option<Call>,
    answer: Option<Answer>,
    /// Under way, and how much of it is.
    large: Option<(RaftMessage, usize)>,
    /// Wait until it is through, and their regions.
    later: VecDeque<RaftMessage>,
    blocked: BTreeSet<u64>,
    /// Have waited, and go before the tail.
    again: VecDeque<RaftMessage>,
}

impl Drain {
    pub fn new(bounds: Bounds) -> Drain {
        Drain {
            bounds,
            tail: Vec::new().into_iter(),
            call: None,
            answer: None,
            large: None,
            later: VecDeque::new(),
            blocked: BTreeSet::new(),
            again: VecDeque::new(),
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
            frame.len() < batch_bytes && fields < wire::FIELDS_MAX - 2
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
        let mut messages = 0;
        while go_on(frame, fields) {
            let Some(message) = self.next(outbox) else {
                break;
            };
            let Some(message) = self.pass(message) else {
                continue;
            };
            if !fits(frame, message.body.len()) {
                self.again.push_front(message);
                break;
            }
            frame.put(wire::RAFT, &message);
            outbox.uncount(&message, self.bounds);
            messages += 1;
            fields += 1;
        }
        messages + self.put_part(outbox, frame, frame_bytes_max)
    }

    fn next(&mut self, outbox: &Outbox) -> Option<RaftMessage> {
        loop {
            if let Some(message) = self.again.pop_front().or_else(|| self.tail.next()) {
                return Some(message);
            }
            self.tail = outbox.raft.pop()?.into_iter();
        }
    }

    /// A small message that nothing holds back; others are kept.
    fn pass(&mut self, message: RaftMessage) -> Option<RaftMessage> {
        let is_large = self.bounds.is_large(&message);
        let is_behind = !message.overtakes && self.blocked.contains(&message.region);
        if is_large && self.large.is_none() {
            self.blocked.insert(message.region);
            self.large = Some((message, 0));
        } else if is_large || is_behind {
            self.blocked.insert(message.region);
            self.later.push_back(message);
        } else {
            return Some(message);
        }
        None
    }

    /// One more part of the large message that is under way; 1 if it was the last.
    fn put_part(&mut self, outbox: &Outbox, frame: &mut FrameWriter, bytes_max: usize) -> usize {
        let Some((message, sent)) = &mut self.large else {
            return 0;
        };
        let room = bytes_max.saturating_sub(frame.len() + OVERHEAD_BYTES);
        let end = message.body.len().min(*sent + room.min(PART_BYTES));
        if end == *sent {
            return 0; // the next frame
        }
        let part = Part {
            region: message.region,
            left: (message.body.len() - end) as u64,
            body: message.body.slice(*sent..end),
        };
        frame.put(wire::PART, &part);
        *sent = end;
        if part.left > 0 {
            return 0;
        }
        outbox.uncount(message, self.bounds);
        self.large = None;
        self.blocked.clear();
        self.later.append(&mut self.again);
        self.again = std::mem::take(&mut self.later);
        1
    }

    /// The connection is gone: what was kept back is lost. How many Raft messages.
    pub fn abandon(self, outbox: &Outbox) -> usize {
        let large = self.large.as_ref().map(|(message, _)| message);
        let kept = self.again.iter().chain(&self.later).chain(large);
        let lost = kept.chain(self.tail.as_slice());
        lost.map(|message| outbox.uncount(message, self.bounds))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembly::Assembly;
    use crate::wire::decode_frame;
    use bytes::Bytes;

    const BOUNDS: Bounds = Bounds {
        bytes: 10_000,
        messages: 10,
        large: 5_000,
    };

    fn batch(count: usize, bytes: usize) -> Vec<RaftMessage> {
        (0..count)
            .map(|at| RaftMessage {
                region: at as u64,
                body: Bytes::from(vec![0; bytes]),
                overtakes: false,
            })
            .collect()
    }

    fn one(region: u64, bytes: usize, overtakes: bool) -> Vec<RaftMessage> {
        vec![RaftMessage {
            region,
            body: Bytes::from(vec![7; bytes]),
            overtakes,
        }]
    }

    #[test]
    fn bounds_hold_and_room_comes_back() {
        let outbox = Outbox::default();
        assert_eq!(outbox.push_raft(batch(1, 1), BOUNDS), 1, "closed");
        outbox.open();
        assert_eq!(outbox.push_raft(batch(6, 10), BOUNDS), 0);
        assert_eq!(outbox.push_raft(batch(5, 10), BOUNDS), 5, "too many");
        assert_eq!(outbox.push_raft(batch(4, 10), BOUNDS), 0);
        let (mut drain, mut frame) = (Drain::new(BOUNDS), FrameWriter::new());
        let mut sent = 0;
        while sent < 10 {
            frame.begin(1000);
            sent += drain.fill(&outbox, &mut frame, |_| true, 30, 1000);
        }
        assert_eq!((sent, outbox.waiting_bytes()), (10, 0));
        // A large one takes nobody's place, but that of another large one.
        let mut mixed = batch(2, 20_000);
        mixed.extend(batch(9, 1));
        assert_eq!(outbox.push_raft(mixed, BOUNDS), 1);
        assert!(!outbox.has_room(20_000, BOUNDS));
        assert_eq!(outbox.push_raft(batch(1, 1), BOUNDS), 0);
        frame.begin(1000);
        assert_eq!(drain.fill(&outbox, &mut frame, |_| true, 1000, 1000), 8);
        assert_eq!(
            drain.abandon(&outbox),
            3,
            "the large one, and two behind it"
        );
        assert_eq!(outbox.push_raft(batch(3, 1), BOUNDS), 0);
        assert_eq!(outbox.close(BOUNDS), 3);
        assert_eq!(outbox.waiting_bytes(), 0);
        assert!(outbox.has_room(20_000, BOUNDS));
    }

    #[test]
    fn no_frame_is_longer_than_allowed() {
        let outbox = Outbox::default();
        let bounds = Bounds {
            bytes: 1 << 20,
            messages: 1000,
            large: 900,
        };
        outbox.open();
        assert_eq!(outbox.push_raft(batch(30, 400), bounds), 0);
        assert_eq!(outbox.push_raft(batch(3, 5000), bounds), 0);
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
        let (mut drain, mut frame) = (Drain::new(bounds), FrameWriter::new());
        let mut sent = 0;
        loop {
            frame.begin(1000);
            sent += drain.fill(&outbox, &mut frame, |_| true, 900, 1000);
            assert!(frame.len() <= 1000);
            if frame.len() == 0 {
                break;
            }
        }
        assert_eq!((sent, outbox.waiting_bytes()), (33, 0));
    }

    #[test]
    fn only_heartbeats_overtake_a_large_message_of_their_region() {
        let outbox = Outbox::default();
        let bounds = Bounds {
            bytes: 1 << 30,
            messages: 1000,
            large: 100_000,
        };
        outbox.open();
        // Region, bytes, overtakes.
        let sent = [
            (1, 1, false),
            (1, 300_000, false),
            (1, 2, false),
            (2, 3, false),
            (1, 4, true),
            (2, 200_000, false),
            (2, 5, false),
            (1, 250_000, false),
            (3, 6, false),
            (1, 7, false),
        ];
        for (region, bytes, overtakes) in sent {
            outbox.push_raft(one(region, bytes, overtakes), bounds);
        }
        let (mut drain, mut frame) = (Drain::new(bounds), FrameWriter::new());
        let (mut assembly, mut arrived, mut frames) = (Assembly::default(), Vec::new(), 0);
        loop {
            frame.begin(1 << 20);
            drain.fill(&outbox, &mut frame, |_| true, 1 << 20, 1 << 24);
            if frame.len() == 0 {
                break;
            }
            frames += 1;
            let bytes = Bytes::copy_from_slice(&frame.finish()[4..]);
            let mut parsed = decode_frame(bytes).unwrap();
            assembly.take(&mut parsed, 1 << 24).unwrap();
            arrived.extend(parsed.raft.iter().map(|it| (it.region, it.body.len())));
        }
        assert!(frames > 10, "{frames}");
        let first = [(1, 1), (2, 3), (1, 4), (3, 6)];
        let then = [(1, 300_000), (1, 2)];
        assert_eq!(arrived[..4], first);
        assert_eq!(arrived[4..6], then);
        for region in 1..=3 {
            let of = |it: &&(u64, usize)| it.0 == region && it.1 != 4;
            let order: Vec<_> = arrived.iter().filter(of).map(|it| it.1).collect();
            let expected = sent.iter().filter(|it| it.0 == region && it.1 != 4);
            assert_eq!(order, expected.map(|it| it.1).collect::<Vec<_>>());
        }
        assert_eq!(outbox.waiting_bytes(), 0);
    }
}
