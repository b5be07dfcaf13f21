//! The bytes of every row (DESIGN §6). Numbers are big-endian, so that rows sort as they count.
//!
//! ```text
//!   i64             = BE64(v XOR 1<<63)                              negative before positive
//!   prefix          = i64(home region)  i64(index id)                16 bytes
//!   metadata key    = prefix  slot:u16  klen:u32  key                redis_metadata
//!   metadata value  = kind|flags:u8  expire_ms:u64  rest             0: no deadline
//!            rest   = the string's bytes
//!                   | generation:u64  size:u64  extra                all other kinds
//!            extra  = head:i64  tail:i64                             list: elements at head..tail
//!                   | nothing                                        hash, set, sorted set
//!   sub key         = metadata key  generation:u64  sub              data
//!            hash   : sub = field                                    value = the field's value
//!            set    : sub = member                                   value = nothing
//!            zset   : sub = member                                   value = score, IEEE 754 bits
//!            list   : sub = i64(position)                            value = the element
//!   score key       = metadata key  generation:u64  score8  member   redis_zset_score; value = nothing, '-' for −0
//!   expiry key      = prefix  deadline_ms:u64  slot:u16  klen:u32  key   redis_expiry; value = nothing
//!   table state     = prefix  place                                  table_rows; index id 2^40; see `table::rows::Place`
//!   table row       = prefix  slot:u16  place                        table_rows; index id 2^40 + 1; slot of `table:key`
//!   state key       = 'r'  i64(home region)                          metainfo; value: see `state.rs`
//! ```
//!
//! The key's length stands before its bytes, so no key is the beginning of another one's rows.
//! `score8` sorts as scores do: negative numbers have all bits flipped, the others the sign bit;
//! −0 is written as 0, with which it is equal in order; the value of the row tells them apart, and the
//! `data` row keeps either as given.

use base::slot::{Slot, slot_of};

use crate::Kind;

/// Bytes of home region and index id.
pub const PREFIX_LEN: usize = 16;
/// Bytes of a metadata key before the key.
const KEY_AT: usize = PREFIX_LEN + 6;
const KIND_BITS: u8 = 0x0f;
/// Index ids of what a region has of SQL tables: above those of all databases, so nobody takes them for flushed ones.
pub const TABLE_STATE: u64 = 1 << 40;
pub const TABLE_ROWS: u64 = TABLE_STATE + 1;
const STATE_TAG: u8 = b'r';

/// An `i64` that sorts as it counts.
#[inline]
pub fn i64_bytes(value: i64) -> [u8; 8] {
    (value as u64 ^ 1 << 63).to_be_bytes()
}

#[inline]
pub fn i64_from(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ 1 << 63) as i64
}

/// A score that sorts as it counts; never NaN.
#[inline]
pub fn score8(score: f64) -> [u8; 8] {
    let bits = if score == 0.0 { 0 } else { score.to_bits() };
    let sign = 1 << 63;
    let bits = if bits & sign != 0 { !bits } else { bits | sign };
    bits.to_be_bytes()
}

#[inline]
pub fn score_from(bytes: [u8; 8]) -> f64 {
    let bits = u64::from_be_bytes(bytes);
    let sign = 1 << 63;
    f64::from_bits(if bits & sign != 0 { bits ^ sign } else { !bits })
}

#[inline]
pub fn push_prefix(out: &mut Vec<u8>, home: u64, index_id: u64) {
    out.extend_from_slice(&i64_bytes(home as i64));
    out.extend_from_slice(&i64_bytes(index_id as i64));
}

#[inline]
fn push_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(&slot_of(key).to_be_bytes());
    out.extend_from_slice(&(key.len() as u32).to_be_bytes());
    out.extend_from_slice(key);
}

#[inline]
pub fn push_metadata_key(out: &mut Vec<u8>, home: u64, index_id: u64, key: &[u8]) {
    push_prefix(out, home, index_id);
    push_key(out, key);
}

pub fn metadata_key(home: u64, index_id: u64, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(KEY_AT + key.len());
    push_metadata_key(&mut out, home, index_id, key);
    out
}

pub fn push_expiry_key(out: &mut Vec<u8>, home: u64, index_id: u64, deadline_ms: u64, key: &[u8]) {
    push_prefix(out, home, index_id);
    out.extend_from_slice(&deadline_ms.to_be_bytes());
    push_key(out, key);
}

/// Where something of a table is stored; a row by the slot of its `table:key`.
pub fn push_table_key(out: &mut Vec<u8>, home: u64, slot: Option<Slot>, place: &[u8]) {
    match slot {
        None => push_prefix(out, home, TABLE_STATE),
        Some(slot) => {
            push_prefix(out, home, TABLE_ROWS);
            out.extend_from_slice(&slot.to_be_bytes());
        }
    }
    out.extend_from_slice(place);
}

/// Home region and place of a row of `table_rows`.
pub fn split_table_key(row: &[u8]) -> Option<(u64, &[u8])> {
    let (home, index_id, rest) = split_prefix(row)?;
    match index_id {
        TABLE_STATE => Some((home, rest)),
        TABLE_ROWS => Some((home, rest.get(2..)?)),
        _ => None,
    }
}

/// First key of all that a home has of tables, and the first behind them.
pub fn table_keys(home: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut from, mut last) = (Vec::new(), Vec::new());
    push_prefix(&mut from, home, TABLE_STATE);
    push_prefix(&mut last, home, TABLE_ROWS);
    (from, behind(&last))
}

/// What is before every sub key and score key of one collection.
pub fn push_base(out: &mut Vec<u8>, home: u64, index_id: u64, key: &[u8], generation: u64) {
    push_metadata_key(out, home, index_id, key);
    out.extend_from_slice(&generation.to_be_bytes());
}

/// The key of a region's state row.
pub fn state_key(home: u64) -> Vec<u8> {
    let mut out = vec![STATE_TAG];
    out.extend_from_slice(&i64_bytes(home as i64));
    out
}

/// First key of all state rows, and the first behind them.
pub fn state_keys() -> (Vec<u8>, Vec<u8>) {
    (vec![STATE_TAG], vec![STATE_TAG + 1])
}

/// The home region of a state key.
pub fn home_of_state_key(key: &[u8]) -> Option<u64> {
    let home = key.strip_prefix(&[STATE_TAG])?;
    Some(i64_from(home.try_into().ok()?) as u64)
}

/// The first key that does not begin with `prefix`; nothing is behind a prefix of 0xff only,
/// which no row has.
pub fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut out = prefix.to_vec();
    while let Some(last) = out.pop() {
        if last < 0xff {
            out.push(last + 1);
            break;
        }
    }
    out
}

/// Home region and index id of any row but those of `metainfo`.
pub fn split_prefix(row: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (home, rest) = row.split_first_chunk()?;
    let (index_id, rest) = rest.split_first_chunk()?;
    Some((i64_from(*home) as u64, i64_from(*index_id) as u64, rest))
}

/// Slot and key, and what comes behind them.
fn split_key(bytes: &[u8]) -> Option<(Slot, &[u8], &[u8])> {
    let (slot, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (key, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    Some((u16::from_be_bytes(*slot), key, rest))
}

/// What a metadata key is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataKey<'a> {
    pub home: u64,
    pub index_id: u64,
    pub slot: Slot,
    pub key: &'a [u8],
}

pub fn parse_metadata_key(row: &[u8]) -> Option<MetadataKey<'_>> {
    let (home, index_id, rest) = split_prefix(row)?;
    let (slot, key, rest) = split_key(rest)?;
    rest.is_empty().then_some(MetadataKey {
        home,
        index_id,
        slot,
        key,
    })
}

/// Metadata key, generation and the rest of a sub key or a score key.
pub fn split_sub_key(row: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let (_, _, rest) = split_prefix(row)?;
    let (_, _, rest) = split_key(rest)?;
    let (metadata_key, _) = row.split_at(row.len() - rest.len());
    let (generation, sub) = rest.split_first_chunk()?;
    Some((metadata_key, u64::from_be_bytes(*generation), sub))
}

/// Deadline and key of an expiry row.
pub fn parse_expiry_key(row: &[u8]) -> Option<(u64, &[u8])> {
    let (_, _, rest) = split_prefix(row)?;
    let (deadline_ms, rest) = rest.split_first_chunk()?;
    let (_, key, rest) = split_key(rest)?;
    rest.is_empty()
        .then_some((u64::from_be_bytes(*deadline_ms), key))
}

/// The slot of an expiry row.
pub fn slot_of_expiry_key(row: &[u8]) -> Option<Slot> {
    let (_, _, rest) = split_prefix(row)?;
    let (_, rest) = rest.split_first_chunk::<8>()?;
    Some(u16::from_be_bytes(*rest.first_chunk()?))
}

/// What the metadata row of a key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata<'a> {
    pub kind: Kind,
    pub expire_at_ms: Option<u64>,
    pub body: Body<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    String(&'a [u8]),
    Collection {
        generation: u64,
        size: u64,
        /// What only the kind understands.
        extra: &'a [u8],
    },
}

/// Appends the beginning of a metadata row; the body follows.
#[inline]
pub(crate) fn push_metadata_head(out: &mut Vec<u8>, kind: Kind, expire_at_ms: Option<u64>) {
    out.push(kind.code());
    out.extend_from_slice(&expire_at_ms.unwrap_or(0).to_be_bytes());
}

impl Metadata<'_> {
    pub fn push(&self, out: &mut Vec<u8>) {
        push_metadata_head(out, self.kind, self.expire_at_ms);
        match self.body {
            Body::String(bytes) => out.extend_from_slice(bytes),
            Body::Collection {
                generation,
                size,
                extra,
            } => {
                out.extend_from_slice(&generation.to_be_bytes());
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(extra);
            }
        }
    }

    /// `None`: not a metadata value.
    pub fn parse(value: &[u8]) -> Option<Metadata<'_>> {
        let (&code, rest) = value.split_first()?;
        let kind = Kind::from_code(code & KIND_BITS)?;
        let (expire, rest) = rest.split_first_chunk()?;
        let expire_at_ms = Some(u64::from_be_bytes(*expire)).filter(|&ms| ms != 0);
        if kind == Kind::String {
            let body = Body::String(rest);
            return Some(Metadata {
                kind,
                expire_at_ms,
                body,
            });
        }
        let (generation, rest) = rest.split_first_chunk()?;
        let (size, extra) = rest.split_first_chunk()?;
        if !kind.is_extra(extra) {
            return None;
        }
        let body = Body::Collection {
            generation: u64::from_be_bytes(*generation),
            size: u64::from_be_bytes(*size),
            extra,
        };
        Some(Metadata {
            kind,
            expire_at_ms,
            body,
        })
    }

    /// The generation of a collection: what the filter compares with that of a sub row.
    pub fn generation(&self) -> Option<u64> {
        match self.body {
            Body::String(_) => None,
            Body::Collection { generation, .. } => Some(generation),
        }
    }
}

#[cfg(test)]
mod tests;
