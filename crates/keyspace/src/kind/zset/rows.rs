//! Sorted sets in rows: what is written. Reading them in place is in `on_rows.rs`.
//!
//! ```text
//!   data    member              → score, IEEE 754 bits, big-endian
//!   score   score8  member      → nothing, or '-' for −0
//! ```

use base::IntText;

use super::{Look, Shape, Zset, on_rows};
use crate::Tuning;
use crate::kind::{InRows, Part};
use crate::rows::layout::score8;
use crate::rows::{Family, Handle, Recorder};
use crate::weight::{ELEMENT, PACKED, PACKED_MOST, SCORE};

/// The value of a row in the order of scores: whether its score is the zero that is below zero.
#[inline]
pub(super) fn sign(score: f64) -> &'static [u8] {
    if score == 0.0 && score.is_sign_negative() {
        b"-"
    } else {
        b""
    }
}

/// A score as the value of a row of `data`.
#[inline]
pub(super) fn score_value(score: f64) -> [u8; 8] {
    score.to_bits().to_be_bytes()
}

#[inline]
pub(super) fn score_from_value(value: &[u8]) -> Option<f64> {
    let bits = value.try_into().ok()?;
    Some(f64::from_bits(u64::from_be_bytes(bits)))
}

impl Recorder<'_> {
    /// A member's score, and the row in the order of scores, where it is new; that of the former score
    /// goes.
    pub(super) fn put_score(&mut self, member: &[u8], former: Option<f64>, score: f64) {
        if let Some(former) = former {
            self.delete_in(Family::Score, [&score8(former), member]);
        }
        self.put(member, &score_value(score));
        self.put_new_in(Family::Score, [&score8(score), member], sign(score));
    }

    pub(super) fn delete_score(&mut self, member: &[u8], former: f64) {
        self.delete(member);
        self.delete_in(Family::Score, [&score8(former), member]);
    }
}

impl InRows for Zset {
    const ORDER: Family = Family::Score;

    #[inline]
    fn generation(&self) -> u64 {
        self.generation
    }

    fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
    }

    fn handle_mut(&mut self) -> Option<&mut Handle> {
        self.shape.handle_mut()
    }

    fn of_metadata(generation: u64, _extra: &[u8]) -> Self {
        Zset {
            generation,
            ..Zset::new()
        }
    }

    fn with_handle(&self, handle: Handle) -> Self {
        Zset {
            shape: Shape::on_rows(handle),
            generation: self.generation,
        }
    }

    fn add_row(&mut self, sub: &[u8], value: &[u8], tuning: &Tuning) -> bool {
        let Some(score) = score_from_value(value) else {
            return false;
        };
        self.insert(sub, score, tuning);
        true
    }

    fn remove_row(&mut self, sub: &[u8]) {
        self.remove(sub);
    }

    fn record(&self, rows: &mut Recorder<'_>) {
        if let Look::Rows(handle) = self.shape.look() {
            return on_rows::record(handle, rows);
        }
        let mut text = IntText::default();
        for (member, score) in self.iter() {
            rows.put_score(member.bytes(&mut text), None, score);
        }
    }

    /// The value of a part is the score, as in the row of `data`.
    fn import(part: Part<'_>, _index: u64, rows: &mut Recorder<'_>, _extra: &mut Vec<u8>) {
        if let Some(score) = score_from_value(part.value) {
            rows.put_score(part.name, None, score);
        }
    }

    fn overhead(size: u64) -> i64 {
        if size <= PACKED_MOST {
            PACKED as i64
        } else {
            (ELEMENT + SCORE) as i64
        }
    }
}
