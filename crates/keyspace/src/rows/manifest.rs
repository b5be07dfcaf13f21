//! What a region snapshot consists of: the files, and of which region at which moment they are.
//!
//! ```text
//!   "NKRS"  1:u8  region:u64  applied_index:u64  applied_term:u64
//!   rows:u64  bytes:u64
//!   length:u32  state row of that moment
//!   count:u32  { home:u64  first_slot:u16  last_slot:u16 } …
//!   count:u32  { family:u8  length:u16  name  bytes:u64  rows:u64  crc32c:u32 } …
//!   crc32c:u32 of all that
//! ```
//!
//! Numbers are big-endian. It comes from another node, so nothing in it is believed before it was looked
//! at: names of files are names only, never ways to somewhere else.

use base::cluster::{RegionId, Segment};
use crc::{CRC_32_ISCSI, Crc, Table};

use super::{Family, RegionError, State};

const WORD: &[u8; 4] = b"NKRS";
const VERSION: u8 = 1;
static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// A snapshot of one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub region: RegionId,
    pub segments: Vec<Segment>,
    /// The entry behind which the moment was, and its term.
    pub applied_index: u64,
    pub applied_term: u64,
    /// The value of the state row.
    pub state: Vec<u8>,
    /// By family, in the order of their rows.
    pub files: Vec<RegionFile>,
    /// Sums over the files.
    pub rows: u64,
    pub bytes: u64,
}

/// One file of rows of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionFile {
    pub family: Family,
    pub name: String,
    pub bytes: u64,
    pub rows: u64,
    pub crc32c: u32,
}

impl Manifest {
    /// Without files yet; `None` if that is not a state row.
    pub fn new(region: RegionId, segments: &[Segment], state: Vec<u8>) -> Option<Manifest> {
        let parsed = State::parse(&state)?;
        Some(Manifest {
            region,
            segments: segments.to_vec(),
            applied_index: parsed.applied_index,
            applied_term: parsed.applied_term,
            state,
            files: Vec::new(),
            rows: 0,
            bytes: 0,
        })
    }

    pub fn add(&mut self, file: RegionFile) {
        self.rows += file.rows;
        self.bytes += file.bytes;
        self.files.push(file);
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = WORD.to_vec();
        out.push(VERSION);
        let words = [
            self.region,
            self.applied_index,
            self.applied_term,
            self.rows,
            self.bytes,
        ];
        words
            .iter()
            .for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
        push_len(&mut out, self.state.len());
        out.extend_from_slice(&self.state);
        push_len(&mut out, self.segments.len());
        for segment in &self.segments {
            out.extend_from_slice(&segment.home.to_be_bytes());
            for slot in [segment.first_slot, segment.last_slot] {
                out.extend_from_slice(&(slot as u16).to_be_bytes());
            }
        }
        push_len(&mut out, self.files.len());
        for file in &self.files {
            out.push(file.family as u8);
            out.extend_from_slice(&(file.name.len() as u16).to_be_bytes());
            out.extend_from_slice(file.name.as_bytes());
            out.extend_from_slice(&file.bytes.to_be_bytes());
            out.extend_from_slice(&file.rows.to_be_bytes());
            out.extend_from_slice(&file.crc32c.to_be_bytes());
        }
        let sum = CRC32C.checksum(&out);
        out.extend_from_slice(&sum.to_be_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Manifest, RegionError> {
        let refused = |what: &str| RegionError::Refused(format!("the manifest {what}"));
        let (content, sum) = bytes
            .split_last_chunk()
            .ok_or_else(|| refused("is cut short"))?;
        if CRC32C.checksum(content) != u32::from_be_bytes(*sum) {
            return Err(refused("has a wrong checksum"));
        }
        let content = content
            .strip_prefix(WORD)
            .ok_or_else(|| refused("is something else"))?;
        match content.split_first() {
            Some((&VERSION, rest)) => parse(rest).ok_or_else(|| refused("contradicts itself")),
            _ => Err(refused("is of a later version")),
        }
    }
}

fn push_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&(len as u32).to_be_bytes());
}

fn parse(mut rest: &[u8]) -> Option<Manifest> {
    let rest = &mut rest;
    let region = word(rest)?;
    let (applied_index, applied_term) = (word(rest)?, word(rest)?);
    let (rows, bytes) = (word(rest)?, word(rest)?);
    let len = take(rest).map(u32::from_be_bytes)?;
    let state = part(rest, len as usize)?.to_vec();
    let mut segments = Vec::new();
    for _ in 0..take(rest).map(u32::from_be_bytes)? {
        segments.push(Segment {
            home: word(rest)?,
            first_slot: u32::from(take(rest).map(u16::from_be_bytes)?),
            last_slot: u32::from(take(rest).map(u16::from_be_bytes)?),
        });
    }
    let mut manifest = Manifest::new(region, &segments, state)?;
    for _ in 0..take(rest).map(u32::from_be_bytes)? {
        let [family] = take(rest)?;
        let len = take(rest).map(u16::from_be_bytes)?;
        let name = std::str::from_utf8(part(rest, usize::from(len))?).ok()?;
        manifest.add(RegionFile {
            family: *Family::ALL.get(usize::from(family))?,
            name: is_name(name).then(|| name.into())?,
            bytes: word(rest)?,
            rows: word(rest)?,
            crc32c: take(rest).map(u32::from_be_bytes)?,
        });
    }
    let agrees = (manifest.applied_index, manifest.applied_term) == (applied_index, applied_term)
        && (manifest.rows, manifest.bytes) == (rows, bytes);
    (agrees && rest.is_empty()).then_some(manifest)
}

/// Of a file beside the manifest.
fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(letter)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (chunk, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*chunk)
}

fn word(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_be_bytes)
}

fn part<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (part, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_come_back_and_damage_is_refused() {
        let mut state = Vec::new();
        State {
            applied_index: 77,
            applied_term: 3,
            ..State::default()
        }
        .push(&mut state);
        let segments = [Segment::new(7, 0..=16383), Segment::new(9, 5..=6)];
        let mut manifest = Manifest::new(7, &segments, state).unwrap();
        for (family, name) in [(Family::Metadata, "a-1.sst"), (Family::Feed, "b.sst")] {
            manifest.add(RegionFile {
                family,
                name: name.into(),
                bytes: 10,
                rows: 2,
                crc32c: 99,
            });
        }
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes), Ok(manifest.clone()));
        assert_eq!((manifest.applied_index, manifest.applied_term), (77, 3));
        for cut in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Manifest::decode(&damaged).is_err(), "{at}");
        }
        for name in ["../etc", "", ".hidden", "a/b"] {
            manifest.files[0].name = name.into();
            assert!(Manifest::decode(&manifest.encode()).is_err(), "{name}");
        }
    }
}
