//! Frames cut out of what arrives: four bytes of length, then as many bytes.
//!
//! Memory grows with what has arrived, never with what a length announces.

use std::io;

use bytes::{Buf, BytesMut};
use tokio_util::codec::Decoder;

const HEAD_BYTES: usize = 4;
/// Room for the next read, at least.
const ROOM_BYTES: usize = 64 << 10;

pub struct Frames {
    pub bytes_max: usize,
}

impl Decoder for Frames {
    type Item = BytesMut;
    type Error = io::Error;

    fn decode(&mut self, arrived: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        let Some(head) = arrived.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length > self.bytes_max {
            let words = format!("a frame of {length} bytes, more than {}", self.bytes_max);
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        let missing = (HEAD_BYTES + length).saturating_sub(arrived.len());
        if missing > 0 {
            // As much again as is here: a long frame is copied a few times at most.
            let room = arrived.len().max(ROOM_BYTES);
            arrived.reserve(missing.min(room));
            return Ok(None);
        }
        arrived.advance(HEAD_BYTES);
        Ok(Some(arrived.split_to(length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_in_pieces() {
        let mut frames = Frames { bytes_max: 1 << 20 };
        let mut bytes = 100_000_u32.to_be_bytes().to_vec();
        bytes.extend(vec![7; 100_000]);
        bytes.extend([0, 0, 0, 1, 9, 0, 0]);
        let (mut arrived, mut found) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(777) {
            arrived.extend_from_slice(piece);
            while let Some(frame) = frames.decode(&mut arrived).unwrap() {
                found.push(frame);
            }
        }
        assert_eq!((found.len(), found[0].len()), (2, 100_000));
        assert_eq!(found[1], [9][..]);
        assert_eq!(arrived, [0, 0][..]);
    }

    #[test]
    fn a_length_alone_takes_no_memory() {
        let mut frames = Frames {
            bytes_max: 640 << 20,
        };
        let mut arrived = BytesMut::from(&(600_u32 << 20).to_be_bytes()[..]);
        arrived.extend_from_slice(&[0; 1000]);
        assert!(frames.decode(&mut arrived).unwrap().is_none());
        assert!(arrived.capacity() < 4 * ROOM_BYTES);
        let mut arrived = BytesMut::from(&[0xff; 4][..]);
        assert!(frames.decode(&mut arrived).is_err());
    }
}
