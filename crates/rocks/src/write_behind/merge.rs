//! Rows that wait and rows that are below, as one range: what waits goes before what is below, a
//! newer batch before an older one.

use std::sync::Arc;

use keyspace::rows::{Family, RowError, RowSource, Tier};

use super::batch::Batch;

/// A row, where it is newest. `batches` with the oldest first.
pub(super) fn get(
    batches: &[Arc<Batch>],
    below: &dyn RowSource,
    family: Family,
    key: &[u8],
    tier: Tier,
    found: &mut dyn FnMut(&[u8]),
) -> Result<bool, RowError> {
    let newest_first = batches.iter().rev();
    match newest_first
        .map(|batch| batch.get(family, key))
        .find(Option::is_some)
    {
        Some(Some(value)) => Ok(value.map(found).is_some()),
        _ => below.get(family, key, tier, found),
    }
}

/// The rows `from <= key < to`. `batches` with the oldest first.
pub(super) fn scan(
    batches: &[Arc<Batch>],
    below: &dyn RowSource,
    family: Family,
    (from, to): (&[u8], &[u8]),
    descending: bool,
    tier: Tier,
    each: &mut Each<'_>,
) -> Result<(), RowError> {
    let mut above = Above::new(batches, family, from, to, descending);
    if above.is_empty() {
        return below.scan(family, from, to, descending, tier, each);
    }
    let mut more = true;
    below.scan(family, from, to, descending, tier, &mut |key, value| {
        more = above.pass(key, value, each);
        more
    })?;
    if more {
        above.rest(each);
    }
    Ok(())
}

/// Given a row; whether the next is wanted.
type Each<'e> = dyn FnMut(&[u8], &[u8]) -> bool + 'e;

/// The rows of a range that wait, in its order.
struct Above<'a> {
    /// With the places that are left of each; the newest batch first.
    parts: Vec<(&'a Batch, &'a [usize])>,
    descending: bool,
}

impl<'a> Above<'a> {
    fn new(
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

    fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn head(&self, part: usize) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let (batch, places) = self.parts.get(part)?;
        let place = match self.descending {
            false => places.first(),
            true => places.last(),
        };
        let change = batch.changes().at(*place?)?;
        Some((change.key, change.value))
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
    fn pass(&mut self, key: &[u8], value: &[u8], each: &mut Each<'_>) -> bool {
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
    fn rest(mut self, each: &mut Each<'_>) {
        while let Some((key, value)) = self.peek() {
            self.skip(key);
            if value.is_some_and(|value| !each(key, value)) {
                return;
            }
        }
    }
}
