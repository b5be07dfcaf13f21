//! A small collection as one run of bytes: records one after the other, nothing between them.
//!
//! One allocation, as long as the allocator's size class for what is used, so there is next to no
//! slack and growing by one record copies nothing most of the time. Everything is found by walking;
//! the collections give the run up for an index once it is no longer small.
//!
//! What a record is (a hash field and its value, a member and its score) is the collection's
//! business; [`super::element`] writes and reads the elements in it.

/// Bytes a run may have; collections convert before (Redis: `LISTPACK_MAX_SAFETY_LIMIT`).
pub(crate) const MAX_BYTES: usize = 1 << 30;

#[derive(Clone)]
pub(crate) struct Packed {
    bytes: Box<[u8]>,
    used: u32,
    count: u32,
}

/// The size the allocator really sets aside for `size` bytes: classes of 16 bytes up to 128, then
/// four classes to each doubling.
pub(crate) fn size_class(size: usize) -> usize {
    if size <= 128 {
        size.next_multiple_of(16)
    } else {
        let step = 1 << (size.ilog2() - 2);
        size.next_multiple_of(step)
    }
}

/// The same bytes in a block of `capacity`, which is at least `used`.
pub(crate) fn resized(block: Box<[u8]>, used: usize, capacity: usize) -> Box<[u8]> {
    let mut bytes = block.into_vec();
    bytes.truncate(used);
    if bytes.capacity() > capacity {
        bytes.shrink_to(capacity);
    } else {
        bytes.reserve_exact(capacity - used);
    }
    bytes.resize(capacity, 0);
    bytes.into_boxed_slice()
}

impl Packed {
    pub(crate) fn new() -> Self {
        Packed {
            bytes: Box::default(),
            used: 0,
            count: 0,
        }
    }

    /// Number of records.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    #[inline]
    pub(crate) fn run(&self) -> &[u8] {
        &self.bytes[..self.used as usize]
    }

    /// Whether `more` bytes may still be added.
    #[inline]
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.used as usize + more <= MAX_BYTES
    }

    /// Makes room for a record of `size` bytes at `at`, for the caller to write.
    #[inline]
    pub(crate) fn insert(&mut self, at: usize, size: usize) -> &mut [u8] {
        self.count += 1;
        self.replace(at, 0, size)
    }

    /// Removes the record of `size` bytes at `at`.
    pub(crate) fn remove(&mut self, at: usize, size: usize) {
        self.remove_many(at, size, 1);
    }

    /// Removes `count` records that together take `size` bytes from `at` on.
    pub(crate) fn remove_many(&mut self, at: usize, size: usize, count: usize) {
        self.replace(at, size, 0);
        self.count -= count as u32;
    }

    /// Makes the `old` bytes at `at` into `new` bytes, for the caller to write.
    pub(crate) fn replace(&mut self, at: usize, old: usize, new: usize) -> &mut [u8] {
        if old != new {
            let used = self.used as usize;
            let after = used - old + new;
            debug_assert!(after <= u32::MAX as usize);
            if after > self.bytes.len() {
                self.resize(used, size_class(after));
            }
            self.bytes.copy_within(at + old..used, at + new);
            self.used = after as u32;
            if new < old && size_class(after) * 2 <= self.bytes.len() {
                self.resize(after, size_class(after));
            }
        }
        &mut self.bytes[at..at + new]
    }

    fn resize(&mut self, used: usize, capacity: usize) {
        self.bytes = resized(std::mem::take(&mut self.bytes), used, capacity);
    }

    /// Bytes allocated.
    pub(crate) fn memory_usage(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_and_go() {
        let mut packed = Packed::new();
        packed.insert(0, 3).copy_from_slice(b"abc");
        packed.insert(3, 2).copy_from_slice(b"de");
        packed.insert(0, 1).copy_from_slice(b"x");
        assert_eq!((packed.run(), packed.len()), (&b"xabcde"[..], 3));
        packed.replace(1, 3, 5).copy_from_slice(b"12345");
        assert_eq!(packed.run(), b"x12345de");
        packed.remove(1, 5);
        assert_eq!((packed.run(), packed.len()), (&b"xde"[..], 2));
    }

    #[test]
    fn little_slack() {
        let mut packed = Packed::new();
        for n in 1..2000 {
            packed.insert((n - 1) * 10, 10);
            assert!(packed.memory_usage() <= (n * 10 + 16).max(n * 10 * 5 / 4));
        }
        for n in (0..1999).rev() {
            packed.remove(0, 10);
            assert!(packed.memory_usage() <= (n * 10) * 5 / 2 + 32);
        }
    }
}
