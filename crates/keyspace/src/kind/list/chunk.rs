//! A piece of a list: elements packed one after the other, with slack at either end.
//!
//! ```text
//!   bytes: ┌──── slack ────┬─ record ─┬─ record ─┬ … ┬──── slack ────┐
//!          0             start                      end           capacity
//!   record: element code, its size written backwards
//! ```
//!
//! Pushing at an end writes into the slack there; when it is used up the records move within the block
//! or into a bigger one, leaving slack in proportion, so a push copies O(1) bytes on average. Records are walked in both directions.

use base::Atom;

use crate::collection::element::{self, Form};
use crate::collection::packed::{resized, size_class};

#[derive(Clone)]
pub(super) struct Chunk {
    bytes: Box<[u8]>,
    start: u32,
    end: u32,
    count: u32,
}

/// Size of the record of an element.
#[inline]
pub(super) fn record_size(form: &Form<'_>) -> usize {
    let size = form.size();
    size + element::back_size(size)
}

#[inline]
fn write_record(out: &mut [u8], form: &Form<'_>) {
    let size = form.write(out);
    element::write_back(&mut out[size..], size);
}

/// The first element of a run of records, and the run after it.
#[inline]
pub(super) fn first(run: &[u8]) -> (Atom<'_>, &[u8]) {
    let (atom, size) = element::read(run);
    (atom, &run[size + element::back_size(size)..])
}

/// The last element of a run of records, and the run before it.
#[inline]
pub(super) fn last(run: &[u8]) -> (Atom<'_>, &[u8]) {
    let (size, back) = element::read_back(run);
    let (rest, record) = run.split_at(run.len() - size - back);
    (element::read(record).0, rest)
}

/// Size of the first record of a run.
#[inline]
fn first_size(run: &[u8]) -> usize {
    let size = element::skip(run);
    size + element::back_size(size)
}

impl Chunk {
    pub(super) fn new() -> Self {
        Chunk {
            bytes: Box::default(),
            start: 0,
            end: 0,
            count: 0,
        }
    }

    /// An empty chunk with room for `capacity` bytes, all of it before the records or after them.
    pub(super) fn with_room(capacity: usize, in_front: bool) -> Self {
        let at = if in_front { capacity as u32 } else { 0 };
        Chunk {
            bytes: vec![0; capacity].into_boxed_slice(),
            start: at,
            end: at,
            count: 0,
        }
    }

    /// A chunk of `count` records, `run`.
    fn of_run(run: &[u8], count: usize) -> Self {
        let mut bytes = vec![0; size_class(run.len())].into_boxed_slice();
        bytes[..run.len()].copy_from_slice(run);
        Chunk {
            bytes,
            start: 0,
            end: run.len() as u32,
            count: count as u32,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    /// Bytes of all records.
    #[inline]
    pub(super) fn used(&self) -> usize {
        (self.end - self.start) as usize
    }

    #[inline]
    pub(super) fn run(&self) -> &[u8] {
        &self.bytes[self.start as usize..self.end as usize]
    }

    pub(super) fn memory_usage(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(super) fn push_back(&mut self, form: &Form<'_>) {
        let size = record_size(form);
        if self.end as usize + size > self.bytes.len() {
            self.make_room(size, false);
        }
        write_record(&mut self.bytes[self.end as usize..][..size], form);
        self.end += size as u32;
        self.count += 1;
    }

    #[inline]
    pub(super) fn push_front(&mut self, form: &Form<'_>) {
        let size = record_size(form);
        if (self.start as usize) < size {
            self.make_room(size, true);
        }
        self.start -= size as u32;
        write_record(&mut self.bytes[self.start as usize..][..size], form);
        self.count += 1;
    }

    /// Drops the first element, which must exist.
    #[inline]
    pub(super) fn drop_front(&mut self) {
        self.start += first_size(self.run()) as u32;
        self.count -= 1;
    }

    /// Drops the last element, which must exist.
    #[inline]
    pub(super) fn drop_back(&mut self) {
        let (size, back) = element::read_back(self.run());
        self.end -= (size + back) as u32;
        self.count -= 1;
    }

    /// Moves the records so that there are `size` bytes of slack at one end.
    #[cold]
    fn make_room(&mut self, size: usize, in_front: bool) {
        let used = self.used();
        let total = used + size;
        let capacity = size_class(total + total / 8);
        let old = self.start as usize..self.end as usize;
        // A little of the slack stays at the other end: pushing at both ends in turn must not
        // move everything each time.
        let slide = capacity <= self.bytes.len() && capacity * 3 > self.bytes.len();
        let capacity = if slide { self.bytes.len() } else { capacity };
        let spare = capacity - total;
        let other = if self.count > 0 && slide {
            spare / 4
        } else {
            0
        };
        let start = if in_front {
            capacity - other - used
        } else {
            other
        };
        if slide {
            self.bytes.copy_within(old, start);
        } else {
            let mut bytes = vec![0; capacity].into_boxed_slice();
            bytes[start..start + used].copy_from_slice(self.run());
            self.bytes = bytes;
        }
        self.start = start as u32;
        self.end = (start + used) as u32;
    }

    /// Where record `index` begins, counted from the run's head; `index == len` is the run's end.
    pub(super) fn offset(&self, index: usize) -> usize {
        let run = self.run();
        if index <= self.len() / 2 {
            let mut at = 0;
            for _ in 0..index {
                at += first_size(&run[at..]);
            }
            at
        } else {
            let mut at = run.len();
            for _ in index..self.len() {
                let (size, back) = element::read_back(&run[..at]);
                at -= size + back;
            }
            at
        }
    }

    /// Makes the `old` bytes at `at` of the run into `new` bytes, for the caller to write.
    fn replace(&mut self, at: usize, old: usize, new: usize) -> &mut [u8] {
        if new > old && self.end as usize + (new - old) > self.bytes.len() {
            self.make_room(new - old, false);
        }
        let start = self.start as usize;
        self.bytes
            .copy_within(start + at + old..self.end as usize, start + at + new);
        self.end = (self.end as usize - old + new) as u32;
        &mut self.bytes[start + at..start + at + new]
    }

    pub(super) fn insert(&mut self, index: usize, form: &Form<'_>) {
        let at = self.offset(index);
        write_record(self.replace(at, 0, record_size(form)), form);
        self.count += 1;
    }

    /// Bytes the chunk would use with element `index` replaced.
    pub(super) fn used_after_set(&self, index: usize, form: &Form<'_>) -> usize {
        self.used() - first_size(&self.run()[self.offset(index)..]) + record_size(form)
    }

    pub(super) fn set(&mut self, index: usize, form: &Form<'_>) {
        let at = self.offset(index);
        let old = first_size(&self.run()[at..]);
        write_record(self.replace(at, old, record_size(form)), form);
    }

    /// Removes `count` elements from `index` on, all of which must exist.
    pub(super) fn remove(&mut self, index: usize, count: usize) {
        let from = self.offset(index);
        let to = if index + count >= self.len() {
            self.used()
        } else if count < self.len() / 2 {
            let run = self.run();
            let mut to = from;
            for _ in 0..count {
                to += first_size(&run[to..]);
            }
            to
        } else {
            self.offset(index + count)
        };
        if index == 0 {
            self.start += to as u32;
        } else {
            self.replace(from, to - from, 0);
        }
        self.count -= count as u32;
        self.trim();
    }

    /// Gives memory back when more than three quarters of the block are unused: popping leaves
    /// room for the pushes that usually follow.
    #[inline]
    pub(super) fn trim_quarter(&mut self) {
        if self.used() * 4 < self.bytes.len() {
            self.trim();
        }
    }

    /// Gives memory back when more than half of the block is unused.
    pub(super) fn trim(&mut self) {
        let used = self.used();
        if size_class(used) * 2 > self.bytes.len() {
            return;
        }
        self.bytes
            .copy_within(self.start as usize..self.end as usize, 0);
        self.bytes = resized(std::mem::take(&mut self.bytes), used, size_class(used));
        self.start = 0;
        self.end = used as u32;
    }

    /// Number of elements equal to `form`.
    pub(super) fn count_equal(&self, form: &Form<'_>) -> usize {
        let mut run = self.run();
        let mut found = 0;
        while !run.is_empty() {
            found += usize::from(form.is_at(run));
            run = &run[first_size(run)..];
        }
        found
    }

    /// Of the elements equal to `form`, passes `skip` and removes the next `take`, in one sweep.
    pub(super) fn remove_equal(&mut self, form: &Form<'_>, mut skip: usize, mut take: usize) {
        let size = record_size(form);
        let end = self.end as usize;
        let mut read = self.start as usize;
        let mut write = read;
        while read < end && take > 0 {
            if form.is_at(&self.bytes[read..end]) {
                if skip > 0 {
                    skip -= 1;
                } else {
                    take -= 1;
                    self.count -= 1;
                    read += size;
                    continue;
                }
            }
            let keep = first_size(&self.bytes[read..end]);
            self.bytes.copy_within(read..read + keep, write);
            read += keep;
            write += keep;
        }
        self.bytes.copy_within(read..end, write);
        self.end = (write + end - read) as u32;
        self.trim();
    }

    /// Splits the elements from `index` on off into a chunk of their own.
    pub(super) fn split_off(&mut self, index: usize) -> Chunk {
        let at = self.offset(index);
        let tail = Chunk::of_run(&self.run()[at..], self.len() - index);
        self.end = self.start + at as u32;
        self.count = index as u32;
        self.trim();
        tail
    }

    /// Takes over all elements of `next` at the end.
    pub(super) fn append(&mut self, next: &Chunk) {
        let at = self.used();
        self.replace(at, 0, next.used()).copy_from_slice(next.run());
        self.count += next.count;
    }
}
