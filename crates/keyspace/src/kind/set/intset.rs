//! A set of integers as a sorted array of the narrowest width that fits all of them.
//!
//! Members are 2, 4 or 8 bytes wide, little endian, in one block without slack beyond the
//! allocator's size class. A member too wide for the array widens all of it, once; it never narrows
//! again. Found by bisection.

use crate::collection::packed::{resized, size_class};

#[derive(Clone)]
pub(super) struct IntSet {
    bytes: Box<[u8]>,
    count: u32,
    width: u8,
}

fn width_of(value: i64) -> u8 {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

impl IntSet {
    pub(super) fn new() -> Self {
        IntSet {
            bytes: Box::default(),
            count: 0,
            width: 2,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    /// The member at a place in the order; 0 past the end.
    #[inline]
    pub(super) fn get(&self, index: usize) -> i64 {
        let at = index * usize::from(self.width);
        let bytes = &self.bytes[at..];
        match *bytes {
            [a, b, ..] if self.width == 2 => i16::from_le_bytes([a, b]).into(),
            [a, b, c, d, ..] if self.width == 4 => i32::from_le_bytes([a, b, c, d]).into(),
            [a, b, c, d, e, f, g, h, ..] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        }
    }

    fn put(&mut self, index: usize, value: i64) {
        let width = usize::from(self.width);
        let at = index * width;
        self.bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }

    /// Where `value` is, or where it belongs.
    fn find(&self, value: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        // Members often arrive in order.
        if high > 0 && self.get(high - 1) < value {
            return Err(high);
        }
        while low < high {
            let middle = (low + high) / 2;
            if self.get(middle) < value {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low < self.len() && self.get(low) == value {
            Ok(low)
        } else {
            Err(low)
        }
    }

    pub(super) fn contains(&self, value: i64) -> bool {
        width_of(value) <= self.width && self.find(value).is_ok()
    }

    /// Adds a member; whether it is new.
    pub(super) fn insert(&mut self, value: i64) -> bool {
        let width = width_of(value);
        if width > self.width {
            self.widen(width);
        }
        let Err(at) = self.find(value) else {
            return false;
        };
        let width = usize::from(self.width);
        let used = self.len() * width;
        if used + width > self.bytes.len() {
            self.resize(used, size_class(used + width));
        }
        self.bytes.copy_within(at * width..used, (at + 1) * width);
        self.count += 1;
        self.put(at, value);
        true
    }

    pub(super) fn remove(&mut self, value: i64) -> bool {
        if width_of(value) > self.width {
            return false;
        }
        let Ok(at) = self.find(value) else {
            return false;
        };
        let width = usize::from(self.width);
        let used = self.len() * width;
        self.bytes.copy_within((at + 1) * width..used, at * width);
        self.count -= 1;
        if size_class(used - width) * 2 <= self.bytes.len() {
            self.resize(used - width, size_class(used - width));
        }
        true
    }

    fn widen(&mut self, width: u8) {
        let mut wide = IntSet {
            bytes: vec![0; size_class((self.len() + 1) * usize::from(width))].into_boxed_slice(),
            count: self.count,
            width,
        };
        for index in 0..self.len() {
            wide.put(index, self.get(index));
        }
        *self = wide;
    }

    fn resize(&mut self, used: usize, capacity: usize) {
        self.bytes = resized(std::mem::take(&mut self.bytes), used, capacity);
    }

    pub(super) fn memory_usage(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widens_and_stays_sorted() {
        let mut set = IntSet::new();
        for value in [5, -3, 70_000, i64::MIN, 5, i64::MAX, -70_000, 0] {
            set.insert(value);
        }
        let members: Vec<i64> = (0..set.len()).map(|i| set.get(i)).collect();
        assert_eq!(members, [i64::MIN, -70_000, -3, 0, 5, 70_000, i64::MAX]);
        assert!(set.contains(70_000) && !set.contains(1));
        assert!(set.remove(5) && !set.remove(5));
        assert_eq!(set.len(), 6);
    }
}
