//! Rows that wait and rows that are below, as one range: what waits goes before what is below, a
//! newer batch before an older one.

use std::sync::Arc;

use keyspace::rows::Family;

use super::batch::Batch;

/// The rows of a range that wait, in its order.
pub(super) struct Above<'a> {
    /// With the places that are left of each; the newest batch first.
    parts: Vec<(&'a Batch, &'a [usize])>,
    descending: bool,
}

/// Given a row; whether the next is wanted.
type Each<'e> = dyn FnMut(&[u8], &[u8]) -> bool + 'e;

impl<'a> Above<'a> {
    /// `batches` with the oldest first.
    pub fn new(
        batches: &'a [Arc<Batch>],
        family: Family,
        from: &[u8],
        to: &[u8],
        descending: bool,
    ) -> Self {
        let newest_first = batches.iter().rev();
        let parts = newest_first.map(|batch| (&**batch, batch.range(family, from, to)));
        Above {
            parts: parts.filter(|(_, places)| !places.is_empty()).collect(),
            descending,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn head(&self, part: usize) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let (batch, places) = self.parts.get(part)?;
        let place = match self.descending {
            false => places.first(),
            true => places.last(),
        };
        let (_, key, value) = batch.changes().at(*place?)?;
        Some((key, value))
    }

    fn is_before(&self, a: &[u8], b: &[u8]) -> bool {
        match self.descending {
            false => a < b,
            true => a > b,
        }
    }

    /// The next row that waits.
    fn peek(&self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let mut next: Option<(&[u8], Option<&[u8]>)> = None;
        for part in 0..self.parts.len() {
            let Some(head) = self.head(part) else {
                continue;
            };
            if next.is_none_or(|next| self.is_before(head.0, next.0)) {
                next = Some(head);
            }
        }
        next
    }

    /// Goes on behind `key`, in all batches.
    fn skip(&mut self, key: &[u8]) {
        for part in 0..self.parts.len() {
            if self.head(part).is_some_and(|head| head.0 == key) {
                let places = &mut self.parts[part].1;
                *places = match self.descending {
                    false => places.get(1..).unwrap_or_default(),
                    true => places.split_last().map_or(&[], |(_, rest)| rest),
                };
            }
        }
    }

    /// A row of the store below has come: gives what goes before it, then it, unless what waits says
    /// otherwise. Whether more is wanted.
    pub fn pass(&mut self, key: &[u8], value: &[u8], each: &mut Each<'_>) -> bool {
        while let Some((waiting, newer)) = self.peek() {
            if self.is_before(key, waiting) {
                break;
            }
            self.skip(waiting);
            if newer.is_some_and(|newer| !each(waiting, newer)) {
                return false;
            }
            if waiting == key {
                return true;
            }
        }
        each(key, value)
    }

    /// What waits behind the last row of the store below.
    pub fn rest(mut self, each: &mut Each<'_>) {
        while let Some((key, value)) = self.peek() {
            self.skip(key);
            if value.is_some_and(|value| !each(key, value)) {
                return;
            }
        }
    }
}
