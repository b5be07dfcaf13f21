//! What travels between two nodes, byte for byte.
//!
//! A connection opens with a preface of eight raw bytes in each direction, so that a stranger (a
//! Redis client, a TLS client, a newer NeoKV) is recognized before anything is parsed. A byte says whether
//! the connection is under the cluster secret; if so, both sides prove it (`seal`), and all that follows is sealed.
//! That are frames: four bytes of length, big-endian, then one protobuf message.
//!
//! ```text
//!            0        6       8      9              57
//!  dialler:  | NEOKVP | vers. | mode | (handshake) | len | Hello { cluster, from, to, purpose, incarnation } |
//!  acceptor: | NEOKVP | vers. | may  | (handshake) | len | Welcome { node, cluster, refusal, reason }        |
//!
//!  then, both ways, for peers and calls:
//!            | len | Frame: raft* calls* answers* beat part |
//!                      │     │      │        │    └ 5: { region, left, body }
//!                      │     │      │        └ 4: said when nothing else was for a while
//!                      │     │      └ 3: { id, status, body }
//!                      │     └ 2: { id, method, body }
//!                      └ 1: { region, body, overtakes }
//!  or, for a snapshot: | len | Parcel: offer | answer | chunk | finish | verdict | alive |
//! ```
//!
//! Fields are only ever added: an older node skips those it does not know. What an older node
//! could not live with raises [`VERSION`].
//!
//! Whatever comes in is bounded before it is parsed: the length by the codec, the number of fields
//! by [`decode_frame`], since two bytes of an empty message would become forty in memory.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};

pub const MAGIC: &[u8; 6] = b"NEOKVP";
/// 2: connections are under the cluster secret.
pub const VERSION: u16 = 2;
pub const PREFACE_BYTES: usize = 8;

/// What a dialler opens with, behind the preface: nothing protects the bytes that follow, or only TLS around them.
pub const MODE_OPEN: u8 = 0;
/// The first message of the handshake under the cluster secret follows.
pub const MODE_SECRET: u8 = 1;

/// What an acceptor says to that: go on. In `MODE_SECRET` its message of the handshake follows.
pub const MAY_GO_ON: u8 = 0;
/// It closes the connection, because: a secret is needed; it is another one; none is in use here.
pub const NEEDS_SECRET: u8 = 1;
pub const OTHER_SECRET: u8 = 2;
pub const NO_SECRET_HERE: u8 = 3;

/// A Hello is never longer: strangers get no more memory than this.
pub const HELLO_BYTES_MAX: usize = 256;
/// Nor a Welcome, which may have a reason in words.
pub const WELCOME_BYTES_MAX: usize = 4096;

/// Messages, calls and answers in one frame.
pub const FIELDS_MAX: usize = 1 << 16;

/// What one frame costs beside its bodies, at most, per message: two keys, two lengths, a region.
pub const OVERHEAD_BYTES: usize = 40;

#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// 0: has joined no cluster yet
    #[prost(fixed64, tag = "1")]
    pub cluster: u64,
    /// 0: has no node id yet, or is no node
    #[prost(uint64, tag = "2")]
    pub from: u64,
    /// 0: whoever answers at this address
    #[prost(uint64, tag = "3")]
    pub to: u64,
    #[prost(enumeration = "Purpose", tag = "4")]
    pub purpose: i32,
    /// Random per process: tells a restart and a second process with the same id apart.
    #[prost(fixed64, tag = "5")]
    pub incarnation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Purpose {
    Unknown = 0,
    /// The one connection from node to node: Raft messages, calls, heartbeats.
    Peer = 1,
    /// Calls to an address; the caller may have no id.
    Calls = 2,
    /// One transfer of a snapshot.
    Snapshot = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct Welcome {
    #[prost(uint64, tag = "1")]
    pub node: u64,
    #[prost(fixed64, tag = "2")]
    pub cluster: u64,
    /// 0: welcome; else a `RefusalKind`
    #[prost(uint32, tag = "3")]
    pub refusal: u32,
    #[prost(string, tag = "4")]
    pub reason: String,
}

/// One Raft message as the transport sees it: for which region, and bytes.
///
/// A received body is a slice of its frame; keep a copy, not the slice, if it is to stay long.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RaftMessage {
    #[prost(uint64, tag = "1")]
    pub region: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub body: Bytes,
    /// It need not wait for a large message of its region that was sent before it (heartbeats).
    #[prost(bool, tag = "3")]
    pub overtakes: bool,
}

/// A part of a Raft message that is too large to hold up all others. Those of one message come one to a frame,
/// in order, and no other message's between them.
#[derive(Clone, PartialEq, Message)]
pub struct Part {
    #[prost(uint64, tag = "1")]
    pub region: u64,
    /// Bytes that come after these.
    #[prost(uint64, tag = "2")]
    pub left: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Call {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint32, tag = "2")]
    pub method: u32,
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(enumeration = "Status", tag = "2")]
    pub status: i32,
    /// What was asked for, or why not, as text.
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Status {
    Done = 0,
    Rejected = 1,
    Busy = 2,
    Unanswered = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct Frame {
    #[prost(message, repeated, tag = "1")]
    pub raft: Vec<RaftMessage>,
    #[prost(message, repeated, tag = "2")]
    pub calls: Vec<Call>,
    #[prost(message, repeated, tag = "3")]
    pub answers: Vec<Answer>,
    #[prost(uint64, tag = "4")]
    pub beat: u64,
    #[prost(message, optional, tag = "5")]
    pub part: Option<Part>,
}

pub const RAFT: u32 = 1;
pub const CALLS: u32 = 2;
pub const ANSWERS: u32 = 3;
pub const BEAT: u32 = 4;
pub const PART: u32 = 5;

/// A frame is written in place: room for its length, fields one by one, then the length. What the
/// `LengthDelimited` codec would write, without the copy it makes.
pub struct FrameWriter {
    buffer: BytesMut,
}

impl FrameWriter {
    pub fn new() -> FrameWriter {
        FrameWriter {
            buffer: BytesMut::with_capacity(64 * 1024),
        }
    }

    pub fn begin(&mut self, room_bytes: usize) {
        // A rare large frame should not be remembered for ever.
        if self.buffer.capacity() > 2 * room_bytes.max(64 * 1024) {
            self.buffer = BytesMut::with_capacity(64 * 1024);
        }
        self.buffer.clear();
        self.buffer.put_u32(0);
    }

    pub fn len(&self) -> usize {
        self.buffer.len().saturating_sub(4)
    }

    pub fn put<M: Message>(&mut self, tag: u32, message: &M) {
        prost::encoding::message::encode(tag, message, &mut self.buffer);
    }

    pub fn put_beat(&mut self) {
        prost::encoding::uint64::encode(BEAT, &1, &mut self.buffer);
    }

    pub fn finish(&mut self) -> &[u8] {
        let length = u32::try_from(self.len()).unwrap_or(u32::MAX);
        if let Some(head) = self.buffer.first_chunk_mut::<4>() {
            *head = length.to_be_bytes();
        }
        &self.buffer
    }
}

/// One message as a frame of its own.
pub fn framed<M: Message>(message: &M) -> BytesMut {
    let length = message.encoded_len();
    let mut buffer = BytesMut::with_capacity(4 + length);
    buffer.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut buffer);
    buffer
}

pub fn preface() -> [u8; PREFACE_BYTES] {
    let mut bytes = [0; PREFACE_BYTES];
    let (magic, version) = bytes.split_at_mut(MAGIC.len());
    magic.copy_from_slice(MAGIC);
    version.copy_from_slice(&VERSION.to_be_bytes());
    bytes
}

/// The version of the other side, or what it seems to be instead.
pub fn read_preface(bytes: &[u8; PREFACE_BYTES]) -> Result<u16, &'static str> {
    if let Some(version) = bytes.strip_prefix(MAGIC) {
        return match version {
            [high, low] => Ok(u16::from_be_bytes([*high, *low])),
            _ => Err("sent a broken preface"),
        };
    }
    Err(match bytes {
        [0x14..=0x17, 0x03, ..] => {
            "speaks TLS, this node does not (or its certificate was not accepted)"
        }
        [b'*', b'0'..=b'9', ..] => "is a Redis client; this is the port for peers",
        [b'G', b'E', b'T', b' ', ..] | [b'P', b'O', b'S', b'T', ..] => {
            "is an HTTP client; this is the port for peers"
        }
        _ => "is not a NeoKV node",
    })
}

/// Parses a frame whose length the codec has bounded already.
pub fn decode_frame(bytes: Bytes) -> Result<Frame, &'static str> {
    count_fields(&bytes)?;
    Frame::decode(bytes).map_err(|_| "a frame that cannot be parsed")
}

fn count_fields(bytes: &Bytes) -> Result<(), &'static str> {
    const BROKEN: &str = "a frame that cannot be parsed";
    let mut rest: &[u8] = bytes;
    let mut count = 0;
    while !rest.is_empty() {
        count += 1;
        if count > FIELDS_MAX {
            return Err("a frame of too many messages");
        }
        let (_, kind) = decode_key(&mut rest).map_err(|_| BROKEN)?;
        let skip = match kind {
            WireType::Varint => {
                decode_varint(&mut rest).map_err(|_| BROKEN)?;
                0
            }
            WireType::LengthDelimited => decode_varint(&mut rest).map_err(|_| BROKEN)?,
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::StartGroup | WireType::EndGroup => return Err(BROKEN),
        };
        rest = usize::try_from(skip)
            .ok()
            .and_then(|skip| rest.get(skip..))
            .ok_or(BROKEN)?;
    }
    Ok(())
}

/// One step of a transfer; exactly one of the fields is there.
#[derive(Clone, PartialEq, Message)]
pub struct Parcel {
    #[prost(message, optional, tag = "1")]
    pub offer: Option<Offer>,
    #[prost(message, optional, tag = "2")]
    pub have: Option<Have>,
    #[prost(message, optional, tag = "3")]
    pub chunk: Option<Chunk>,
    /// All was sent.
    #[prost(bool, tag = "4")]
    pub finish: bool,
    #[prost(message, optional, tag = "5")]
    pub verdict: Option<Verdict>,
    /// Nothing to say, still there.
    #[prost(bool, tag = "6")]
    pub alive: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Offer {
    #[prost(uint64, tag = "1")]
    pub region: u64,
    #[prost(string, tag = "2")]
    pub id: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub meta: Bytes,
    #[prost(message, repeated, tag = "4")]
    pub files: Vec<OfferedFile>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct OfferedFile {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub size: u64,
    #[prost(fixed32, tag = "3")]
    pub crc32c: u32,
}

/// What the receiver has of each file, in the order of the offer.
#[derive(Clone, PartialEq, Message)]
pub struct Have {
    #[prost(message, repeated, tag = "1")]
    pub files: Vec<Prefix>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Prefix {
    #[prost(uint64, tag = "1")]
    pub size: u64,
    #[prost(fixed32, tag = "2")]
    pub crc32c: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Chunk {
    #[prost(uint32, tag = "1")]
    pub file: u32,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(fixed32, tag = "3")]
    pub crc32c: u32,
    #[prost(bytes = "bytes", tag = "4")]
    pub data: Bytes,
}

/// The end of a transfer, or of an attempt.
#[derive(Clone, PartialEq, Message)]
pub struct Verdict {
    #[prost(enumeration = "Outcome", tag = "1")]
    pub outcome: i32,
    #[prost(string, tag = "2")]
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Outcome {
    Unknown = 0,
    /// All files are there, verified, on disk, and the handler has taken them.
    Complete = 1,
    /// Do not try again.
    Refused = 2,
    /// Try again later: busy, or something arrived damaged.
    Again = 3,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn in_place_is_what_the_derive_writes() {
        let message = RaftMessage {
            region: 7,
            body: Bytes::from_static(b"abc"),
            overtakes: true,
        };
        let frame = Frame {
            raft: vec![message.clone(), message.clone()],
            beat: 1,
            ..Frame::default()
        };
        let mut writer = FrameWriter::new();
        writer.begin(1024);
        writer.put(RAFT, &message);
        writer.put(RAFT, &message);
        writer.put_beat();
        let bytes = Bytes::copy_from_slice(writer.finish());
        assert_eq!(bytes, framed(&frame));
        assert_eq!(decode_frame(bytes.slice(4..)).unwrap(), frame);
    }

    #[test]
    fn a_frame_of_tiny_messages_is_refused() {
        let bytes: Vec<u8> = [0x0a, 0x00].repeat(FIELDS_MAX + 1);
        assert_eq!(
            decode_frame(Bytes::from(bytes)),
            Err("a frame of too many messages")
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = decode_frame(Bytes::from(bytes.clone()));
            let _ = Parcel::decode(Bytes::from(bytes.clone()));
            let _ = Hello::decode(Bytes::from(bytes));
        }
    }
}
