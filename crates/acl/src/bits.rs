//! A set of commands, by their numbers.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits(Box<[u64]>);

impl Bits {
    pub fn none(count: usize) -> Bits {
        Bits(vec![0; count.div_ceil(64)].into())
    }

    /// A number that is none is not in it.
    #[inline]
    pub fn has(&self, number: usize) -> bool {
        let word = self.0.get(number / 64).copied().unwrap_or(0);
        word >> (number % 64) & 1 != 0
    }

    pub fn set(&mut self, number: usize, is_in: bool) {
        if let Some(word) = self.0.get_mut(number / 64) {
            let bit = 1 << (number % 64);
            match is_in {
                true => *word |= bit,
                false => *word &= !bit,
            }
        }
    }
}
