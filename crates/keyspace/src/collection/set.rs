//! Sets. (Skeleton.)

use base::Atom;

use crate::{Edit, Tuning};

#[derive(Clone)]
pub struct Set(());

impl Set {
    pub fn new() -> Self {
        todo!()
    }
    pub fn len(&self) -> usize {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn contains(&self, _member: &[u8]) -> bool {
        todo!()
    }
    pub fn iter(&self) -> Box<dyn Iterator<Item = Atom<'_>> + '_> {
        todo!()
    }
    pub fn random(&self, _rng: &mut fastrand::Rng) -> Option<Atom<'_>> {
        todo!()
    }
    pub fn scan(&self, _cursor: u64, _count: usize, _each: &mut dyn FnMut(Atom<'_>)) -> u64 {
        todo!()
    }
    pub fn encoding(&self) -> &'static str {
        todo!()
    }
    pub fn memory_usage(&self) -> usize {
        todo!()
    }
    /// Adds a member; whether it is new.
    pub fn insert(&mut self, _member: &[u8], _tuning: &Tuning) -> bool {
        todo!()
    }
    pub fn remove(&mut self, _member: &[u8]) -> bool {
        todo!()
    }
}

impl Default for Set {
    fn default() -> Self {
        Self::new()
    }
}

impl Edit<'_, Set> {
    /// Adds a member; whether it is new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        let (set, tuning) = self.parts();
        let new = set.insert(member, tuning);
        self.mark(usize::from(new));
        new
    }

    pub fn remove(&mut self, member: &[u8]) -> bool {
        let removed = self.parts().0.remove(member);
        self.mark(usize::from(removed));
        removed
    }

    /// Removes and returns a member at random.
    pub fn pop_random(&mut self, rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
        let member = self.random(rng)?.to_vec();
        self.remove(&member);
        Some(member)
    }
}
