//! What a write command sees: everything a [`View`] shows, and the means to change it.
//! (Skeleton: the engine owner completes it; signatures are the contract.)
//!
//! All changes of a key pass through here, so this is where interest is noted ([`Effect`]), where
//! the change counter moves, where an empty collection disappears and where a running snapshot
//! saves a value before it changes.

use std::ops::{Deref, DerefMut};

use base::{DbIndex, Refusal};

use crate::view::Owned;
use crate::{Edit, Hash, List, Set, Value, View, Zset};

/// What happens to a key's deadline when its value is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expire {
    /// No deadline afterwards.
    Clear,
    /// As it was.
    Keep,
    /// At this Unix time in milliseconds.
    At(u64),
}

/// The write side: one command, or one EXEC, on the regions it was routed to.
pub struct Txn<'a> {
    view: View<'a>,
}

impl<'a> Txn<'a> {
    pub fn new(view: View<'a>) -> Self {
        Txn { view }
    }

    /// Replaces whatever is at `key` by a string (`SET`).
    pub fn put_string(&mut self, _key: &[u8], _bytes: &[u8], _expire: Expire) {
        todo!()
    }

    /// Replaces whatever is at `key` by an integer, kept as a number.
    pub fn put_int(&mut self, _key: &[u8], _value: i64, _expire: Expire) {
        todo!()
    }

    /// The string at `key` to be changed in place, its deadline kept; `None` if there is none.
    /// See `Edit<str>`'s methods in `edit.rs`.
    pub fn string_mut(&mut self, _key: &[u8]) -> Result<Option<Edit<'_, StringSlot>>, Refusal> {
        todo!()
    }

    /// As [`Txn::string_mut`], an empty string being made if there is none.
    pub fn string_or_new(&mut self, _key: &[u8]) -> Result<Edit<'_, StringSlot>, Refusal> {
        todo!()
    }

    pub fn hash_mut(&mut self, _key: &[u8]) -> Result<Option<Edit<'_, Hash>>, Refusal> {
        todo!()
    }

    pub fn hash_or_new(&mut self, _key: &[u8]) -> Result<Edit<'_, Hash>, Refusal> {
        todo!()
    }

    pub fn list_mut(&mut self, _key: &[u8]) -> Result<Option<Edit<'_, List>>, Refusal> {
        todo!()
    }

    pub fn list_or_new(&mut self, _key: &[u8]) -> Result<Edit<'_, List>, Refusal> {
        todo!()
    }

    pub fn set_mut(&mut self, _key: &[u8]) -> Result<Option<Edit<'_, Set>>, Refusal> {
        todo!()
    }

    pub fn set_or_new(&mut self, _key: &[u8]) -> Result<Edit<'_, Set>, Refusal> {
        todo!()
    }

    pub fn zset_mut(&mut self, _key: &[u8]) -> Result<Option<Edit<'_, Zset>>, Refusal> {
        todo!()
    }

    pub fn zset_or_new(&mut self, _key: &[u8]) -> Result<Edit<'_, Zset>, Refusal> {
        todo!()
    }

    /// Removes `key`; whether it was there. Big values go to the garbage list, not freed here.
    pub fn remove(&mut self, _key: &[u8]) -> bool {
        todo!()
    }

    /// Sets (`Some`) or clears (`None`) the deadline of an existing key; whether the key exists.
    /// A deadline not after `now_ms` removes the key.
    pub fn set_expire(&mut self, _key: &[u8], _at_ms: Option<u64>) -> bool {
        todo!()
    }

    /// Takes value and deadline out (`RENAME`, `MOVE`), leaving nothing.
    pub fn take(&mut self, _key: &[u8]) -> Option<Owned> {
        todo!()
    }

    /// Puts a value at `key`, replacing what is there. An empty collection only removes.
    pub fn put(&mut self, _key: &[u8], _owned: Owned) {
        todo!()
    }

    /// Puts a value without deadline at `key`, replacing what is there (`*STORE`).
    pub fn put_value(&mut self, key: &[u8], value: Value) {
        self.put(
            key,
            Owned {
                value,
                expire_at_ms: None,
            },
        );
    }

    /// Empties the current database; O(1) here, the keys go to the garbage list.
    pub fn flush_db(&mut self) {
        todo!()
    }

    pub fn flush_all(&mut self) {
        todo!()
    }

    pub fn swap_db(&mut self, _a: DbIndex, _b: DbIndex) {
        todo!()
    }
}

impl<'a> Deref for Txn<'a> {
    type Target = View<'a>;

    fn deref(&self) -> &View<'a> {
        &self.view
    }
}

impl<'a> DerefMut for Txn<'a> {
    fn deref_mut(&mut self) -> &mut View<'a> {
        &mut self.view
    }
}

/// The string inside an entry, as [`Edit`] changes it. (The engine owner moves it to its place.)
pub struct StringSlot(());
