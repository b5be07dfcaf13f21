//! Large messages put together again from their parts, which come one to a frame, in order.
//!
//! Memory grows with what has come, not with what is announced.

use bytes::{BufMut, BytesMut};

use crate::wire::{Frame, RaftMessage};

/// Room for this much of what is announced, at once.
const ROOM_BYTES: u64 = 256 << 10;

#[derive(Default)]
pub struct Assembly {
    /// Of one message: its region, and how much is to come.
    open: Option<(u64, u64)>,
    body: BytesMut,
}

impl Assembly {
    /// Takes the part out of a frame; if it is the last one, the message is behind the others of the frame.
    pub fn take(&mut self, frame: &mut Frame, bytes_max: usize) -> Result<(), &'static str> {
        let Some(part) = frame.part.take() else {
            return Ok(());
        };
        let bytes = part.body.len() as u64;
        let whole = bytes.checked_add(part.left);
        let Some(whole) = whole.filter(|_| bytes > 0) else {
            return Err("a part of nothing");
        };
        match self.open {
            None if whole > bytes_max as u64 => return Err("a message that is too long"),
            None => self.body.reserve(whole.min(ROOM_BYTES) as usize),
            Some(open) if open != (part.region, whole) => {
                return Err("a part that does not follow the one before");
            }
            Some(_) => {}
        }
        self.body.put(part.body);
        self.open = Some((part.region, part.left));
        if part.left == 0 {
            self.open = None;
            frame.raft.push(RaftMessage {
                region: part.region,
                body: std::mem::take(&mut self.body).freeze(),
                overtakes: false,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Part;

    fn frame(region: u64, left: u64, body: &'static [u8]) -> Frame {
        Frame {
            part: Some(Part {
                region,
                left,
                body: body.into(),
            }),
            ..Frame::default()
        }
    }

    #[test]
    fn parts_become_what_they_were() {
        let mut assembly = Assembly::default();
        let mut last = frame(7, 0, b"f");
        assembly.take(&mut frame(7, 3, b"abc"), 6).unwrap();
        assembly.take(&mut Frame::default(), 6).unwrap();
        assembly.take(&mut frame(7, 1, b"de"), 6).unwrap();
        assembly.take(&mut last, 6).unwrap();
        assert_eq!(&last.raft[0].body[..], b"abcdef");
        let mut whole = frame(8, 0, b"x");
        assembly.take(&mut whole, 6).unwrap();
        assert_eq!(
            (whole.raft[0].region, &whole.raft[0].body[..]),
            (8, &b"x"[..])
        );
    }

    #[test]
    fn parts_that_make_no_sense_are_refused() {
        let refused = |frames: &mut [Frame]| {
            let mut assembly = Assembly::default();
            let mut taken = frames.iter_mut().map(|it| assembly.take(it, 100));
            taken.any(|it| it.is_err())
        };
        assert!(refused(&mut [frame(1, 100, b"a")]), "too long");
        assert!(refused(&mut [frame(1, u64::MAX, b"a")]));
        assert!(refused(&mut [frame(1, 5, b"")]), "for ever");
        assert!(refused(&mut [frame(1, 5, b"a"), frame(2, 4, b"a")]));
        assert!(refused(&mut [frame(1, 5, b"a"), frame(1, 5, b"a")]));
        assert!(refused(&mut [frame(1, 5, b"a"), frame(1, 0, b"a")]));
        assert!(!refused(&mut [frame(1, 1, b"a"), frame(1, 0, b"a")]));
    }
}
