//! Lists in rows: `data` has a row per element at consecutive positions, `head` being the first.
//!
//! ```text
//!   data      i64(position)  → the element
//!   metadata  extra bytes: head:i64  tail:i64
//! ```

use base::IntText;

use super::{List, Shape, on_rows};
use crate::Tuning;
use crate::kind::{InRows, Part};
use crate::rows::layout::i64_bytes;
use crate::rows::{Handle, Recorder};
use crate::weight::PACKED;

/// Bytes of the row of an element that are no part of it.
const POSITION_BYTES: i64 = 8;
/// Bytes of `head` and `tail`.
const EXTRA_BYTES: usize = 16;

fn push_extra(head: i64, size: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&head.to_be_bytes());
    out.extend_from_slice(&head.wrapping_add(size as i64).to_be_bytes());
}

impl Recorder<'_> {
    #[inline]
    pub(super) fn put_at(&mut self, position: i64, element: &[u8]) {
        self.put(&i64_bytes(position), element);
    }

    #[inline]
    pub(super) fn delete_at(&mut self, position: i64) {
        self.delete(&i64_bytes(position));
    }
}

impl List {
    /// The position of an element.
    pub(super) fn position(&self, index: usize) -> i64 {
        self.head.wrapping_add(index as i64)
    }

    /// Writes the rows of these elements.
    pub(super) fn record_range(&self, rows: &mut Recorder<'_>, start: usize, end: usize) {
        let mut text = IntText::default();
        let elements = self.iter_from(start).take(end.saturating_sub(start));
        for (index, element) in (start..).zip(elements) {
            rows.put_at(self.position(index), element.bytes(&mut text));
        }
    }
}

impl InRows for List {
    /// A push reads no row, so there is little to gain.
    const COMES_WHOLE: bool = false;

    #[inline]
    fn generation(&self) -> u64 {
        self.generation
    }

    /// The new rows begin at position 0.
    fn set_generation(&mut self, generation: u64) {
        let head = std::mem::take(&mut self.head);
        self.generation = generation;
        if let Some(handle) = self.handle_mut() {
            handle.shift(head);
        }
    }

    fn handle_mut(&mut self) -> Option<&mut Handle> {
        match &mut self.shape {
            Shape::Rows(handle) => Some(handle),
            _ => None,
        }
    }

    fn is_extra(extra: &[u8]) -> bool {
        extra.len() == EXTRA_BYTES
    }

    fn push_extra(&self, out: &mut Vec<u8>) {
        push_extra(self.head, self.len() as u64, out);
    }

    fn of_metadata(generation: u64, extra: &[u8]) -> Self {
        List {
            generation,
            head: extra
                .first_chunk()
                .map_or(0, |head| i64::from_be_bytes(*head)),
            ..List::new()
        }
    }

    fn with_handle(&self, handle: Handle) -> Self {
        List {
            shape: Shape::Rows(Box::new(handle)),
            generation: self.generation,
            head: self.head,
        }
    }

    fn add_row(&mut self, sub: &[u8], value: &[u8], tuning: &Tuning) -> bool {
        if sub != i64_bytes(self.position(self.len())) {
            return false;
        }
        self.push_back(value, tuning);
        true
    }

    /// Positions have no gap: no single row goes.
    fn remove_row(&mut self, _sub: &[u8]) {}

    fn record(&self, rows: &mut Recorder<'_>) {
        match &self.shape {
            Shape::Rows(handle) => on_rows::record(handle, self.head, rows),
            _ => self.record_range(rows, 0, self.len()),
        }
    }

    fn import(part: Part<'_>, index: u64, rows: &mut Recorder<'_>, extra: &mut Vec<u8>) {
        rows.put_at(index as i64, part.value);
        extra.clear();
        push_extra(0, index + 1, extra);
    }

    fn overhead(_size: u64) -> i64 {
        PACKED as i64 - POSITION_BYTES
    }
}
