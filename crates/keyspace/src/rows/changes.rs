//! Row changes in the order they were made: what one log entry does to the store.
//!
//! One buffer for all keys and values: a change more costs no allocation.
//!
//! ```text
//!   bytes     { family|new|delete:u8  klen:u32LE  key  [vlen:u32LE  value] } …    in the log without `new`
//! ```
//!
//! **New rows.** Who moves a row (a member to another score, a key to another deadline) knows that there was none at its new place,
//! and says so. Should it move on before the store has it, nothing needs to be written of the place between: no row, and
//! nothing that deletes it ([`Change::is_nothing`]). A leaderboard or a session whose deadline is put off all the time would
//! otherwise leave one deletion in the store per move.

use super::Family;

const DELETE: u8 = 0x80;
/// There was no such row.
const NEW: u8 = 0x40;

/// A larger buffer is not kept for the next changes.
const KEPT_BYTES: usize = 2 << 20;
/// From this many elements on, a collection that goes is remembered by name.
const BIG_ELEMENTS: u64 = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    bytes: Vec<u8>,
    count: usize,
    orphans: Orphans,
}

/// Element rows that these changes leave without a metadata row of their generation. Nothing deletes
/// them (that is what makes DEL of a big collection fast): the store drops them when it tidies up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orphans {
    /// How many, those of big collections left out.
    pub count: u64,
    /// Metadata keys of big collections that are gone.
    pub big: Vec<Box<[u8]>>,
}

impl Orphans {
    pub fn append(&mut self, other: &mut Orphans) {
        self.count += std::mem::take(&mut other.count);
        self.big.append(&mut other.big);
    }
}

impl Changes {
    pub fn new() -> Self {
        Changes::default()
    }

    /// With room for this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Changes {
            bytes: Vec::with_capacity(bytes),
            ..Changes::default()
        }
    }

    pub fn put(&mut self, family: Family, key: &[u8], value: &[u8]) {
        self.bytes.push(family as u8);
        self.part(key);
        self.part(value);
        self.count += 1;
    }

    /// As [`Changes::put`], of a row that is not there before this change.
    pub fn put_new(&mut self, family: Family, key: &[u8], value: &[u8]) {
        self.bytes.push(family as u8 | NEW);
        self.part(key);
        self.part(value);
        self.count += 1;
    }

    pub fn delete(&mut self, family: Family, key: &[u8]) {
        self.bytes.push(family as u8 | DELETE);
        self.part(key);
        self.count += 1;
    }

    pub fn push(&mut self, change: Change<'_>) {
        let Change { family, key, .. } = change;
        match change.value {
            Some(value) if change.is_new => self.put_new(family, key, value),
            Some(value) => self.put(family, key, value),
            None => self.delete(family, key),
        }
    }

    /// Adds the changes of another behind its own.
    pub fn extend(&mut self, other: &Changes) {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self.add_orphans(other);
    }

    /// Adds what another leaves without an owner, not its changes.
    pub fn add_orphans(&mut self, other: &Changes) {
        self.orphans.append(&mut other.orphans.clone());
    }

    /// Takes over all changes of another, behind its own.
    pub fn append(&mut self, other: &mut Changes) {
        if self.count == 0 {
            std::mem::swap(&mut self.bytes, &mut other.bytes);
            std::mem::swap(&mut self.count, &mut other.count);
            self.orphans.append(&mut other.orphans);
        } else {
            self.extend(other);
        }
        other.clear();
    }

    /// A collection of `elements` at this metadata key is gone.
    pub(super) fn orphan(&mut self, elements: u64, metadata_key: impl FnOnce() -> Vec<u8>) {
        if elements < BIG_ELEMENTS {
            self.orphans.count += elements;
        } else {
            self.orphans.big.push(metadata_key().into());
        }
    }

    pub fn orphans(&self) -> &Orphans {
        &self.orphans
    }

    fn part(&mut self, part: &[u8]) {
        self.bytes
            .extend_from_slice(&(part.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(part);
    }

    pub fn iter(&self) -> impl Iterator<Item = Change<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || take(&mut rest))
    }

    /// Where each change is, for [`Changes::at`].
    pub fn places(&self) -> impl Iterator<Item = usize> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let place = self.bytes.len() - rest.len();
            take(&mut rest).map(|_| place)
        })
    }

    /// The change at a place that [`Changes::places`] gave.
    pub fn at(&self, place: usize) -> Option<Change<'_>> {
        take(&mut self.bytes.get(place..)?)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Ready for other changes: the room is kept, unless it was exceptionally much.
    pub fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.count = 0;
        self.orphans = Orphans::default();
    }

    /// How many bytes there is room for.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Its room, all of it, for other changes.
    pub fn into_room(mut self) -> Changes {
        self.bytes.clear();
        Changes {
            bytes: self.bytes,
            ..Changes::default()
        }
    }

    /// For a log entry that carries rows. Which of them are new is this store's to know, not the log's.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let base = out.len();
        out.extend_from_slice(&self.bytes);
        for place in self.places() {
            if let Some(tag) = out.get_mut(base + place) {
                *tag &= !NEW;
            }
        }
    }

    /// `None` if these are not bytes [`Changes::encode`] made.
    pub fn decode(bytes: &[u8]) -> Option<Changes> {
        let mut rest = bytes;
        let mut count = 0;
        while !rest.is_empty() {
            if take(&mut rest)?.is_new {
                return None;
            }
            count += 1;
        }
        Some(Changes {
            bytes: bytes.into(),
            count,
            orphans: Orphans::default(),
        })
    }
}

/// What becomes of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    pub family: Family,
    pub key: &'a [u8],
    /// `None` for a row that goes.
    pub value: Option<&'a [u8]>,
    /// There was no such row before.
    pub is_new: bool,
}

impl<'a> Change<'a> {
    /// What rows are ordered by.
    pub fn row(&self) -> (Family, &'a [u8]) {
        (self.family, self.key)
    }

    /// This and a later change of the same row as one.
    pub fn replaced_by(self, later: Change<'a>) -> Change<'a> {
        Change {
            is_new: self.is_new,
            ..later
        }
    }

    /// There was no such row, and there is none.
    pub fn is_nothing(&self) -> bool {
        self.is_new && self.value.is_none()
    }
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<Change<'a>> {
    let (&tag, behind) = rest.split_first()?;
    let family = *Family::ALL.get(usize::from(tag & !(DELETE | NEW)))?;
    let mut behind = behind;
    let key = take_part(&mut behind)?;
    let value = match tag & DELETE {
        0 => Some(take_part(&mut behind)?),
        _ => None,
    };
    *rest = behind;
    Some(Change {
        family,
        key,
        value,
        is_new: tag & NEW != 0,
    })
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, behind) = rest.split_first_chunk()?;
    let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *rest = behind;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_damage_is_refused() {
        let mut changes = Changes::new();
        changes.put(Family::Metadata, b"k", b"v");
        changes.delete(Family::Score, b"");
        changes.put_new(Family::Info, b"state", b"");
        let mut bytes = Vec::new();
        changes.encode(&mut bytes);
        let decoded = Changes::decode(&bytes).unwrap();
        let known =
            |change: Change<'_>| (change.family, change.key.to_vec(), change.value.is_some());
        assert!(decoded.iter().map(known).eq(changes.iter().map(known)));
        assert!(decoded.iter().all(|change| !change.is_new));
        let rows: Vec<_> = changes.iter().collect();
        let read = |at: usize| (rows[at].row(), rows[at].value, rows[at].is_new);
        let (metadata, score) = ((Family::Metadata, &b"k"[..]), (Family::Score, &b""[..]));
        assert_eq!(read(0), (metadata, Some(&b"v"[..]), false));
        assert_eq!(read(1), (score, None, false));
        assert_eq!(
            read(2),
            ((Family::Info, &b"state"[..]), Some(&b""[..]), true)
        );
        let mut again = Changes::new();
        rows.iter().for_each(|&change| again.push(change));
        assert_eq!(again, changes);
        let by_place: Vec<_> = changes.places().filter_map(|at| changes.at(at)).collect();
        assert_eq!(by_place, rows);
        for cut in [1, 3, bytes.len() - 1] {
            assert_eq!(Changes::decode(&bytes[..cut]), None);
        }
        assert_eq!(Changes::decode(&[0x3f]), None);
        assert_eq!(Changes::decode(&[NEW, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn a_row_that_came_and_went_was_never_there() {
        let change = |value, is_new| Change {
            family: Family::Score,
            key: b"k",
            value,
            is_new,
        };
        let (new, put, gone) = (
            change(Some(&b"v"[..]), true),
            change(Some(b"w"), false),
            change(None, false),
        );
        assert!(new.replaced_by(gone).is_nothing());
        assert_eq!(new.replaced_by(gone).replaced_by(new), new);
        assert_eq!(new.replaced_by(put), change(Some(b"w"), true));
        assert_eq!(put.replaced_by(gone), gone);
        assert!(!gone.is_nothing());
        // It was there, went, and is there again.
        assert_eq!(gone.replaced_by(new), change(Some(b"v"), false));
    }
}
