//! The state as bytes, for snapshots and checkpoints.
//!
//! ```text
//! "NKMETA" | format: u16 LE | body: protobuf | CRC-64 of all before: u64 LE
//! ```
//!
//! All maps are ordered, so the same state gives the same bytes on every member.

use base::cluster::Malformed;
use prost::Message;

use super::State;

const MAGIC: &[u8; 6] = b"NKMETA";

/// Raised when an older version could not make sense of the body.
pub const FORMAT: u16 = 3;
/// What has no tables is written as before there were any.
const WITHOUT_TABLES: u16 = 1;
/// What has no users, likewise.
const WITHOUT_USERS: u16 = 2;

impl State {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len() + 16);
        bytes.extend_from_slice(MAGIC);
        let format = match (&self.users, &self.tables) {
            (Some(_), _) => FORMAT,
            (None, Some(_)) => WITHOUT_USERS,
            (None, None) => WITHOUT_TABLES,
        };
        bytes.extend_from_slice(&format.to_le_bytes());
        bytes.extend_from_slice(&self.encode_to_vec());
        let sum = crate::checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<State, Malformed> {
        let bad = |text: &str| Malformed(format!("state of meta: {text}"));
        let (rest, sum) = bytes
            .split_last_chunk::<8>()
            .ok_or_else(|| bad("too short"))?;
        let body = rest
            .strip_prefix(MAGIC.as_slice())
            .ok_or_else(|| bad("something else"))?;
        let (format, body) = body
            .split_first_chunk::<2>()
            .ok_or_else(|| bad("too short"))?;
        if crate::checksum(rest) != u64::from_le_bytes(*sum) {
            return Err(bad("wrong checksum"));
        }
        match u16::from_le_bytes(*format) {
            WITHOUT_TABLES | WITHOUT_USERS | FORMAT => Ok(<State as Message>::decode(body)?),
            newer => Err(bad(&format!("written by another version (format {newer})"))),
        }
    }

    /// Equal on all members at equal index.
    pub fn hash(&self) -> u64 {
        crate::checksum(&self.encode_to_vec())
    }
}
