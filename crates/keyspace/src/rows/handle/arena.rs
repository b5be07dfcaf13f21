//! Copies of rows that live as long as the borrow of their handle: elements are handed out
//! borrowed, and a row's bytes are the store's only during the read.

use std::cell::RefCell;

const FIRST_BLOCK: usize = 512;
const BLOCK_MOST: usize = 64 * 1024;

/// Bytes that stay where they are until [`Arena::clear`].
#[derive(Default)]
pub(super) struct Arena {
    /// None of these is ever filled beyond the capacity it was made with.
    blocks: RefCell<Vec<Vec<u8>>>,
}

impl Arena {
    pub fn is_empty(&self) -> bool {
        self.blocks.borrow().is_empty()
    }

    /// Keeps a copy.
    pub fn keep(&self, bytes: &[u8]) -> &[u8] {
        let mut blocks = self.blocks.borrow_mut();
        let fits = |block: &Vec<u8>| block.capacity() - block.len() >= bytes.len();
        if !blocks.last().is_some_and(fits) {
            let last = blocks.last().map_or(FIRST_BLOCK / 2, Vec::capacity);
            let size = (2 * last).min(BLOCK_MOST).max(bytes.len());
            blocks.push(Vec::with_capacity(size));
        }
        let Some(block) = blocks.last_mut() else {
            return &[];
        };
        let start = block.len();
        block.extend_from_slice(bytes);
        // SAFETY: these bytes were just written at `start`. The block has room for them, so it was
        // not and will not be moved: later writes go behind them, and only `clear`, which nobody can
        // call while `self` is borrowed, frees the block.
        unsafe { std::slice::from_raw_parts(block.as_ptr().add(start), bytes.len()) }
    }

    pub fn clear(&mut self) {
        self.blocks.get_mut().clear();
    }

    pub fn memory_usage(&self) -> usize {
        self.blocks.borrow().iter().map(Vec::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays() {
        let mut arena = Arena::default();
        let texts: Vec<Vec<u8>> = (0..300usize).map(|n| vec![n as u8; n * 7 % 1000]).collect();
        let kept: Vec<&[u8]> = texts.iter().map(|text| arena.keep(text)).collect();
        assert_eq!(kept, texts);
        assert!(!arena.is_empty() && arena.memory_usage() >= texts.concat().len());
        arena.clear();
        assert!(arena.is_empty());
    }
}
