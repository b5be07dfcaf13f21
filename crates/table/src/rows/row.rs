//! One cached row, and its bytes.

use std::cell::Cell;

use crate::entry::{Dead, DeadKind, RowId, WHY_BYTES_MAX};
use crate::image::Image;
use crate::wire::{Corrupt, Reader, Writer};

const FORMAT: u8 = 1;
/// What a row costs beside its contents: the entry in the tree, its counts, its place in an index.
const OVERHEAD: usize = 160;
/// Turns of the clock's hand a row survives after it was read.
pub(super) const HOT: u8 = 3;
/// The same for one that was only loaded.
const WARM: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Known to be missing or deleted.
    Absent,
    Present,
    /// Not cached: the next load decides. Kept only so that the count of versions goes on from here (`image.version`).
    Forgotten,
}

#[derive(Debug, Clone)]
pub struct Row {
    pub state: State,
    pub image: Image,
    /// The version, without sign, that SQL is known to have; 0: none.
    pub sql: u64,
    /// Stamp of the first change that SQL lacks; 0 while clean.
    pub since: u64,
    /// Boxed: few rows ever have one.
    pub dead: Option<Box<DeadLetter>>,
    /// How recently it was read here. Not replicated, not stored, not compared.
    pub(crate) heat: Cell<u8>,
    /// It is noted to be stored. Likewise.
    pub(super) unsaved: bool,
}

/// Why SQL does not have a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The version SQL did not take; the row may have a newer one by now.
    pub version: i64,
    pub kind: DeadKind,
    pub why: Box<str>,
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.state == other.state
            && self.image == other.image
            && self.sql == other.sql
            && self.since == other.since
            && self.dead == other.dead
    }
}

impl DeadLetter {
    pub(super) fn of(dead: Dead) -> DeadLetter {
        let mut end = dead.why.len().min(WHY_BYTES_MAX);
        while !dead.why.is_char_boundary(end) {
            end -= 1;
        }
        DeadLetter {
            version: dead.version,
            kind: dead.kind,
            why: dead.why.get(..end).unwrap_or_default().into(),
        }
    }
}

impl Row {
    /// As SQL has it.
    pub(super) fn clean(state: State, image: Image) -> Row {
        Row {
            sql: image.version.unsigned_abs(),
            state,
            image,
            since: 0,
            dead: None,
            heat: Cell::new(WARM),
            unsaved: false,
        }
    }

    /// Without sign.
    pub fn version(&self) -> u64 {
        self.image.version.unsigned_abs()
    }

    pub fn is_dirty(&self) -> bool {
        self.state != State::Forgotten && self.sql < self.version()
    }

    /// SQL has it as it is.
    pub(crate) fn may_be_kicked(&self) -> bool {
        self.state != State::Forgotten && !self.is_dirty()
    }

    pub fn size(&self, id: &RowId) -> usize {
        let why = self.dead.as_ref().map_or(0, |dead| dead.why.len() + 48);
        id.key.len() + self.image.size() + why + OVERHEAD
    }

    pub(super) fn warm(&self) {
        self.heat.set(HOT);
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_to(&mut bytes);
        bytes
    }

    /// In the place of what was there.
    pub(super) fn encode_to(&self, room: &mut Vec<u8>) {
        let mut to = Writer::over(std::mem::take(room), FORMAT);
        to.byte(match self.state {
            State::Absent => 0,
            State::Present => 1,
            State::Forgotten => 2,
        });
        to.uint(self.sql);
        to.uint(self.since);
        to.sized(|to| self.image.write(to));
        match &self.dead {
            None => to.byte(0),
            Some(dead) => {
                to.byte(1);
                to.dead(dead.version, dead.kind, &dead.why);
            }
        }
        *room = to.done();
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Row, Corrupt> {
        let mut from = Reader::new(bytes, FORMAT)?;
        let state = match from.byte()? {
            0 => State::Absent,
            1 => State::Present,
            2 => State::Forgotten,
            _ => return Err(Corrupt("a row in no known state")),
        };
        let sql = from.uint()?;
        let since = from.uint()?;
        let image = Image::decode(from.bytes()?)?;
        let dead = match from.byte()? {
            0 => None,
            1 => {
                let (version, kind, why) = from.dead()?;
                Some(Box::new(DeadLetter { version, kind, why }))
            }
            _ => return Err(Corrupt("neither dead nor alive")),
        };
        from.end()?;
        let row = Row {
            state,
            image,
            sql,
            since,
            dead,
            heat: Cell::new(WARM),
            unsaved: false,
        };
        let shown = row.image.version < 0 && row.state == State::Present;
        if row.sql > row.version() || shown || (row.dead.is_some() && !row.is_dirty()) {
            return Err(Corrupt("a row whose parts do not fit"));
        }
        Ok(row)
    }
}
