//! What our heartbeats carry beside Raft's: the field raft-rs calls `context`, which followers
//! send back as it is.
//!
//! ```text
//!  0       1          9              13            21
//!  ├───────┼──────────┼──────────────┼──────────────┤
//!  │ flags │ beat     │ generation   │ last index   │   little endian
//!  └───────┴──────────┴──────────────┴──────────────┘
//! ```
//!
//! *beat* numbers the rounds of heartbeats of a leader: an answer says which one it answers, so
//! the leader knows when that was sent (`lease`, `read`). *generation* counts the transfers of
//! leadership that came to nothing (`transfer`). *last index* and the flags are for `quiet`.
//!
//! A request to hand over (`MsgTimeoutNow`) carries the generation alone, and so does a vote
//! request that follows from it, behind Raft's own word.

/// The leader asks to go quiet.
pub(crate) const ASKS_QUIET: u8 = 1;
/// In an answer: the follower is quiet.
pub(crate) const IS_QUIET: u8 = 2;

const MARK_BYTES: usize = 21;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) flags: u8,
    pub(crate) beat: u64,
    pub(crate) generation: u32,
    pub(crate) last_index: u64,
}

impl Mark {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MARK_BYTES);
        out.push(self.flags);
        out.extend_from_slice(&self.beat.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.last_index.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Mark> {
        let (&flags, rest) = bytes.split_first()?;
        let (beat, rest) = rest.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let last_index = rest.try_into().ok()?;
        Some(Mark {
            flags,
            beat: u64::from_le_bytes(*beat),
            generation: u32::from_le_bytes(*generation),
            last_index: u64::from_le_bytes(last_index),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Mark;

    #[test]
    fn marks_come_back() {
        let mark = Mark {
            flags: 3,
            beat: 1 << 40,
            generation: 7,
            last_index: 99,
        };
        assert_eq!(Mark::decode(&mark.encode()), Some(mark));
        let encoded = mark.encode();
        for len in 0..encoded.len() {
            assert_eq!(Mark::decode(&encoded[..len]), None);
        }
        assert_eq!(Mark::decode(&[&encoded[..], &[0]].concat()), None);
    }
}
