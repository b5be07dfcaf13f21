//! Values from their rows: on a reader thread, or on a core as far as the rows are in memory.

use std::sync::Arc;

use super::handle::{Handle, Place};
use super::layout::{self, Body, Metadata};
use super::{Family, RowError, RowSource, State, Tier};
use crate::memory::SaveEntry;
use crate::memory::entry::Entry;
use crate::weight::Counted;
use crate::{Kind, Owned, Tuning, Value, ValueRef};

/// A key to be loaded: owned, for another thread.
///
/// Its ticket is shared by all requests of one key until one of them is answered; an answer that
/// comes later finds no such ticket and is dropped, for the key may have changed by then.
#[derive(Debug, Clone)]
pub struct LoadRequest {
    pub(super) home: u64,
    pub(super) index_id: u64,
    pub(super) key: Box<[u8]>,
    pub(super) ticket: u64,
    pub(super) tuning: Arc<Tuning>,
}

impl LoadRequest {
    pub(super) fn nowhere(key: &[u8]) -> Self {
        LoadRequest {
            home: 0,
            index_id: 0,
            key: key.into(),
            ticket: 0,
            tuning: Arc::default(),
        }
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

/// What the rows say of a key; made by [`load`], taken by [`crate::Keyspace::insert_loaded`].
pub enum Loaded {
    Absent,
    Value(Owned),
    /// A collection too big to be loaded: it stays in its rows.
    Rows(Rows),
    /// The disk failed, or rows do not fit together: read while they changed, or damaged.
    Unreadable(String),
}

/// What the metadata row of a big collection says.
pub struct Rows {
    pub(super) kind: Kind,
    pub(super) expire_at_ms: Option<u64>,
    pub(super) generation: u64,
    pub(super) len: usize,
    /// The extra bytes of its metadata row.
    pub(super) extra: Box<[u8]>,
}

impl Rows {
    /// The value that stays in the rows at `place`.
    pub(super) fn at(&self, place: Place, counted: Option<Counted>, tuning: &Tuning) -> Value {
        let order = self.kind.order();
        let mut handle = Handle::new(place, self.len, order, tuning.rows_from_elements);
        if let Some(counted) = counted {
            handle.set_counted(counted);
        }
        let empty = Value::of_metadata(self.kind, self.generation, &self.extra);
        empty.borrow().with_handle(handle).unwrap_or(empty)
    }
}

/// Reads the rows of a key: all of them, unless it is a collection of more elements than
/// [`Tuning::rows_from_elements`]. An error is [`RowError::Cold`]: what failed is [`Loaded::Unreadable`].
pub fn load(source: &dyn RowSource, request: &LoadRequest, tier: Tier) -> Result<Loaded, RowError> {
    match read(source, request, tier) {
        Err(RowError::Failed(why)) => Ok(Loaded::Unreadable(why)),
        result => result,
    }
}

fn read(source: &dyn RowSource, request: &LoadRequest, tier: Tier) -> Result<Loaded, RowError> {
    let row = layout::metadata_key(request.home, request.index_id, &request.key);
    let mut head = None;
    let mut text = None;
    source.get(Family::Metadata, &row, tier, &mut |value| {
        text = Some(value.to_vec());
    })?;
    if let Some(value) = &text {
        head = Metadata::parse(value);
        if head.is_none() {
            return Ok(Loaded::Unreadable(torn(&request.key, "its metadata")));
        }
    }
    match head {
        None => Ok(Loaded::Absent),
        Some(Metadata {
            kind,
            expire_at_ms,
            body:
                Body::Collection {
                    generation,
                    size,
                    extra,
                },
        }) if size > request.tuning.rows_from_elements as u64 => Ok(Loaded::Rows(Rows {
            kind,
            expire_at_ms,
            generation,
            len: size as usize,
            extra: extra.into(),
        })),
        Some(head) => value(source, &row, &request.key, head, &request.tuning, tier),
    }
}

fn torn(key: &[u8], what: &str) -> String {
    format!("rows of key '{}' are damaged: {what}", key.escape_ascii())
}

/// The value a metadata row is the head of.
fn value(
    source: &dyn RowSource,
    row: &[u8],
    key: &[u8],
    head: Metadata<'_>,
    tuning: &Tuning,
    tier: Tier,
) -> Result<Loaded, RowError> {
    let expire_at_ms = head.expire_at_ms;
    let (generation, size, extra) = match head.body {
        Body::String(bytes) => {
            return Ok(Loaded::Value(Owned {
                value: Value::String(bytes.into()),
                expire_at_ms,
            }));
        }
        Body::Collection {
            generation,
            size,
            extra,
        } => (generation, size, extra),
    };
    let mut base = row.to_vec();
    base.extend_from_slice(&generation.to_be_bytes());
    let mut made = Value::of_metadata(head.kind, generation, extra);
    let mut sound = true;
    let mut count = 0u64;
    source.scan(
        Family::Data,
        &base,
        &layout::behind(&base),
        false,
        tier,
        &mut |row, value| {
            count += 1;
            sound = row
                .get(base.len()..)
                .is_some_and(|sub| made.add_row(sub, value, tuning));
            sound
        },
    )?;
    if !sound || count != size {
        let what = format!("{count} of {size} elements of generation {generation}");
        return Ok(Loaded::Unreadable(torn(key, &what)));
    }
    Ok(Loaded::Value(Owned {
        value: made,
        expire_at_ms,
    }))
}

/// Calls `each` with database, key, value and deadline of every key that the rows of a region hold
/// at one moment; `state` is the value of its state row of that moment. For saving.
pub fn for_each_value(
    source: &dyn RowSource,
    home: u64,
    state: &[u8],
    each: &mut SaveEntry<'_>,
) -> Result<(), RowError> {
    let tuning = Tuning::default();
    let Some(state) = State::parse(state) else {
        return Err(RowError::Failed("a state row that cannot be read".into()));
    };
    for (number, db) in (0..).zip(&state.dbs) {
        let mut from = Vec::new();
        layout::push_prefix(&mut from, home, db.index_id);
        let to = layout::behind(&from);
        let mut failure = None;
        let each = &mut *each;
        source.scan(
            Family::Metadata,
            &from,
            &to,
            false,
            Tier::All,
            &mut |row, bytes| {
                let handed_out = hand_out(source, row, bytes, &tuning, |key, value, deadline| {
                    each(number, key, value, deadline);
                });
                failure = handed_out.err();
                failure.is_none()
            },
        )?;
        if let Some(failure) = failure {
            return Err(failure);
        }
    }
    Ok(())
}

fn hand_out(
    source: &dyn RowSource,
    row: &[u8],
    bytes: &[u8],
    tuning: &Tuning,
    each: impl FnOnce(&[u8], ValueRef<'_>, Option<u64>),
) -> Result<(), RowError> {
    let parts = layout::parse_metadata_key(row).zip(Metadata::parse(bytes));
    let Some((at, head)) = parts else {
        return Err(RowError::Failed(torn(row, "its metadata")));
    };
    match value(source, row, at.key, head, tuning, Tier::All)? {
        Loaded::Value(owned) => {
            let birth = crate::memory::entry::Birth {
                deadline_ms: owned.expire_at_ms,
                clock: 0,
                parity: false,
                marked: false,
            };
            let entry = Entry::value(at.key, owned.value, birth);
            each(at.key, entry.borrow().value(), owned.expire_at_ms);
            Ok(())
        }
        Loaded::Unreadable(what) => Err(RowError::Failed(what)),
        Loaded::Absent | Loaded::Rows(_) => Ok(()),
    }
}
