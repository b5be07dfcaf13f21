//! How many bytes of log there are, counted from its end: truncation asks.
//!
//! Entries are counted in blocks, so that a long log takes little memory, and to the block is exact enough. Entries
//! that were there before a start are not counted, since nobody has read them: they are the oldest, and go first.

use std::collections::VecDeque;

/// A block is full with this.
const BLOCK_BYTES: u64 = 256 << 10;

#[derive(Debug, Default)]
pub(crate) struct Sizes {
    /// Consecutive, the oldest first.
    blocks: VecDeque<Block>,
}

#[derive(Debug)]
struct Block {
    first: u64,
    last: u64,
    bytes: u64,
}

impl Sizes {
    #[inline]
    pub(crate) fn add(&mut self, index: u64, bytes: u64) {
        match self.blocks.back_mut() {
            Some(block) if block.bytes < BLOCK_BYTES => {
                block.last = index;
                block.bytes += bytes;
            }
            _ => self.blocks.push_back(Block {
                first: index,
                last: index,
                bytes,
            }),
        }
    }

    /// Entries from `index` on are replaced. What is left of a block counts as before.
    pub(crate) fn cut_from(&mut self, index: u64) {
        while self.blocks.back().is_some_and(|it| it.first >= index) {
            self.blocks.pop_back();
        }
        if let Some(block) = self.blocks.back_mut() {
            block.last = block.last.min(index.saturating_sub(1));
        }
    }

    pub(crate) fn forget_to(&mut self, index: u64) {
        while self.blocks.front().is_some_and(|it| it.last <= index) {
            self.blocks.pop_front();
        }
    }

    /// The entries behind this index are at most so many bytes.
    pub(crate) fn behind(&self, bytes: u64) -> u64 {
        let mut sum = 0;
        for block in self.blocks.iter().rev() {
            sum += block.bytes;
            if sum > bytes {
                return block.last;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_from_the_end_in_blocks() {
        let mut sizes = Sizes::default();
        for index in 11..=110 {
            sizes.add(index, BLOCK_BYTES / 4);
        }
        assert_eq!(sizes.behind(u64::MAX), 0, "all of it fits");
        assert_eq!(sizes.behind(25 * BLOCK_BYTES), 0);
        assert_eq!(sizes.behind(10 * BLOCK_BYTES), 110 - 40);
        assert_eq!(sizes.behind(0), 110, "nothing fits");
        sizes.forget_to(70);
        assert_eq!(sizes.behind(10 * BLOCK_BYTES), 0, "it is short enough");
        sizes.cut_from(81);
        assert_eq!(sizes.behind(BLOCK_BYTES), 78);
        assert_eq!(sizes.behind(0), 80);
        sizes.add(81, 1 << 30);
        sizes.add(82, 1);
        assert_eq!(sizes.behind(1), 81, "a large one is a block of its own");
    }
}
