//! Chance for tests that run long: the same for the same seed.

/// Numbers that look random, the same for the same seed.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        let mut dice = Dice(seed ^ 0x9e37_79b9_7f4a_7c15);
        dice.roll(2);
        dice.roll(2);
        dice
    }

    /// From 0 to `sides - 1`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }

    #[allow(dead_code, reason = "not every test picks")]
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u64) as usize]
    }
}
