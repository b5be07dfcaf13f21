//! A value being changed. Reads go through `Deref`; each changing method is defined on
//! `Edit<'_, Hash>`, `Edit<'_, List>` … beside the collection it changes, and counts what it
//! changed. When the edit ends (drop), a changed key is reported to whoever watches it and an
//! empty collection disappears with its key.
//! (Skeleton: the engine owner completes it; signatures are the contract.)

use std::marker::PhantomData;
use std::ops::Deref;

use base::Atom;

use crate::Tuning;
use crate::txn::StringSlot;

pub struct Edit<'a, T> {
    _value: PhantomData<&'a mut T>,
}

impl<T> Edit<'_, T> {
    /// The value and the settings that shape it, for the methods that change it.
    pub(crate) fn parts(&mut self) -> (&mut T, &Tuning) {
        todo!()
    }

    /// Notes `n` changes made to the value; 0 notes none.
    pub(crate) fn mark(&mut self, _n: usize) {
        todo!()
    }
}

impl<T> Deref for Edit<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        todo!()
    }
}

impl Edit<'_, StringSlot> {
    pub fn atom(&self) -> Atom<'_> {
        todo!()
    }

    pub fn len(&self) -> usize {
        self.atom().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the whole string, deadline kept.
    pub fn replace(&mut self, _bytes: &[u8]) {
        todo!()
    }

    /// Replaces the whole string by an integer, deadline kept (`INCR`).
    pub fn replace_int(&mut self, _value: i64) {
        todo!()
    }

    pub fn append(&mut self, _bytes: &[u8]) {
        todo!()
    }

    /// The string as bytes to be written in place (`SETRANGE`, `SETBIT`), first grown with zeros
    /// to at least `min_len`. Counts as a change.
    pub fn bytes_mut(&mut self, _min_len: usize) -> &mut [u8] {
        todo!()
    }
}
