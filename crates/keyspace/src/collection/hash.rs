//! Hashes. (Skeleton.)

use base::Atom;

use crate::{Edit, Tuning};

#[derive(Clone)]
pub struct Hash(());

impl Hash {
    pub fn new() -> Self {
        todo!()
    }
    pub fn len(&self) -> usize {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn get(&self, _field: &[u8]) -> Option<Atom<'_>> {
        todo!()
    }
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }
    /// Field and value of every entry, in the structure's order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (Atom<'_>, Atom<'_>)> + '_> {
        todo!()
    }
    /// An entry at random.
    pub fn random(&self, _rng: &mut fastrand::Rng) -> Option<(Atom<'_>, Atom<'_>)> {
        todo!()
    }
    /// One step of HSCAN: about `count` entries to `each`; the next cursor (0: done).
    pub fn scan(
        &self,
        _cursor: u64,
        _count: usize,
        _each: &mut dyn FnMut(Atom<'_>, Atom<'_>),
    ) -> u64 {
        todo!()
    }
    pub fn encoding(&self) -> &'static str {
        todo!()
    }
    pub fn memory_usage(&self) -> usize {
        todo!()
    }
    /// Sets a field; whether it is new.
    pub fn insert(&mut self, _field: &[u8], _value: &[u8], _tuning: &Tuning) -> bool {
        todo!()
    }
    pub fn remove(&mut self, _field: &[u8]) -> bool {
        todo!()
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

impl Edit<'_, Hash> {
    /// Sets a field; whether it is new. Counts as one change.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        let (hash, tuning) = self.parts();
        let new = hash.insert(field, value, tuning);
        self.mark(1);
        new
    }

    /// Removes a field; whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let removed = self.parts().0.remove(field);
        self.mark(usize::from(removed));
        removed
    }
}
