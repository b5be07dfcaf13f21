//! Holding regions. (Being written.)

use keyspace::Keyspace;

/// Regions taken out of their cores for one command; dropping it gives them back.
pub struct Held {
    regions: Vec<Keyspace>,
}

impl Held {
    /// The regions in the order of their numbers.
    pub fn spaces(&mut self) -> impl Iterator<Item = &mut Keyspace> {
        self.regions.iter_mut()
    }
}
