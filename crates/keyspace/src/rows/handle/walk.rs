//! Rows one after the other, as an iterator: read in batches that grow, for most walks are short.

use super::Handle;
use crate::rows::Family;

const BATCH_ROWS: usize = 512;
const BATCH_BYTES: usize = 1024 * 1024;

/// Sub keys and values, ascending or descending.
#[derive(Clone)]
pub(crate) struct Walk<'a> {
    handle: &'a Handle,
    family: Family,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    descending: bool,
    /// Rows to pass over first.
    skip: usize,
    batch: std::vec::IntoIter<(&'a [u8], &'a [u8])>,
    /// Rows of the next batch; 0 if there is none.
    size: usize,
}

impl<'a> Walk<'a> {
    /// The rows `from <= sub key < to`, to the last if there is no end.
    pub fn new(
        handle: &'a Handle,
        family: Family,
        (from, to): (&[u8], Option<&[u8]>),
        descending: bool,
    ) -> Self {
        Walk {
            handle,
            family,
            from: from.into(),
            to: to.map(Into::into),
            descending,
            skip: 0,
            batch: Vec::new().into_iter(),
            size: 16,
        }
    }

    pub fn skip_rows(mut self, n: usize) -> Self {
        self.skip = n;
        self
    }

    /// Reads only one row at first.
    pub fn for_one(mut self) -> Self {
        self.size = 1;
        self
    }

    /// A walk over nothing.
    pub fn nothing(handle: &'a Handle) -> Self {
        let mut walk = Walk::new(handle, Family::Data, (b"", None), false);
        walk.size = 0;
        walk
    }

    fn fill(&mut self) {
        let (handle, size) = (self.handle, self.size);
        let (mut skip, mut bytes, mut full) = (std::mem::take(&mut self.skip), 0, false);
        let mut rows: Vec<(&[u8], &[u8])> = Vec::with_capacity(size);
        let range = (&self.from[..], self.to.as_deref());
        handle.between(self.family, range, self.descending, &mut |sub, value| {
            if skip > 0 {
                skip -= 1;
                return true;
            }
            rows.push((handle.keep(sub), handle.keep(value)));
            bytes += sub.len() + value.len();
            full = rows.len() >= size || bytes >= BATCH_BYTES;
            !full
        });
        self.size = match full {
            true => (4 * size).min(BATCH_ROWS),
            false => 0,
        };
        if let Some((last, _)) = rows.last() {
            if self.descending {
                self.to = Some(last.to_vec());
            } else {
                self.from = [last, &[0][..]].concat();
            }
        }
        self.batch = rows.into_iter();
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(row) = self.batch.next() {
            return Some(row);
        }
        if self.size > 0 {
            self.fill();
        }
        self.batch.next()
    }
}
