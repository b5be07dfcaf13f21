//! Messages as bytes, for whoever carries them.

use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::{Message, MessageType};

use crate::step::Unfit;

/// Appends the message to `out`.
pub fn encode_message(message: &Message, out: &mut Vec<u8>) {
    // Writing to a vector does not fail.
    let _ = message.write_to_vec(out);
}

/// Bytes of the entries in it.
pub fn payload_bytes(message: &Message) -> usize {
    message.entries.iter().map(|entry| entry.data.len()).sum()
}

/// Whether it must not come before those that were sent before it: it would be refused, and they sent again.
pub fn keeps_order(message: &Message) -> bool {
    matches!(
        message.get_msg_type(),
        MessageType::MsgAppend | MessageType::MsgSnapshot
    )
}

/// Payloads are parts of `bytes`, not copies. Any bytes may be given.
pub fn decode_message(bytes: &Bytes) -> Result<Message, Unfit> {
    Message::parse_from_carllerche_bytes(bytes).map_err(|_| Unfit("not a message"))
}
