//! A stretch of positions given by its two ends, as `LRANGE`, `LTRIM` and `ZRANGE` take it.

use std::ops::Range;

/// Positions `first` to `last`, both included, of a collection of `len` elements. Negative ends
/// count from the back; ends outside are moved to the nearest element. Empty if they cross.
pub fn positions(first: i64, last: i64, len: usize) -> Range<usize> {
    let from_front = |end: i64| {
        if end < 0 {
            end.saturating_add(len as i64)
        } else {
            end
        }
    };
    let first = from_front(first).max(0) as usize;
    match usize::try_from(from_front(last)) {
        Ok(last) if first <= last && first < len => first..last.min(len - 1) + 1,
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::positions;

    #[test]
    fn ends_are_clamped_and_count_from_the_back() {
        assert_eq!(positions(0, -1, 3), 0..3);
        assert_eq!(positions(-100, 100, 3), 0..3);
        assert_eq!(positions(-2, -2, 3), 1..2);
        for (first, last) in [(2, 1), (3, 5), (0, -4), (i64::MAX, i64::MAX), (0, i64::MIN)] {
            assert!(positions(first, last, 3).is_empty(), "{first} {last}");
        }
        assert!(positions(0, -1, 0).is_empty());
    }
}
