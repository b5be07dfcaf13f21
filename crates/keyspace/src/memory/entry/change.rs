//! An entry changed in place: what takes the same form and the same size is overwritten, so that most
//! writes allocate nothing.
//!
//! Each method that may not fit says whether it did; its caller makes a new entry otherwise. What lies
//! behind a pointer (a growing string, a collection) is lent out and changes as it likes.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::form::Form;
use super::{EntryMut, EntryRef, Head, INLINE_MOST, as_int, rounded};
use crate::kind::{Collection, InRows, each_kind, each_value};
use crate::rows::Handle;
use crate::{Kind, Value};

impl<'a> EntryMut<'a> {
    /// # Safety
    /// `raw` is an entry nobody else looks at during `'a`.
    pub(in crate::memory) unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        EntryMut(raw, PhantomData)
    }

    #[inline]
    fn look(&self) -> EntryRef<'_> {
        EntryRef(self.0, PhantomData)
    }

    /// Overwrites an integer; false if it is not one.
    #[inline]
    pub fn set_int(&mut self, value: i64) -> bool {
        if self.look().form() != Form::Int {
            return false;
        }
        // SAFETY: an Int's value area holds an aligned i64.
        unsafe { self.look().value_at().cast::<i64>().write(value) };
        true
    }

    /// Overwrites the string if the new one takes the same form and size; whether it did.
    #[inline]
    pub fn set_string(&mut self, bytes: &[u8]) -> bool {
        if let Some(value) = as_int(bytes) {
            return self.set_int(value);
        }
        let look = self.look();
        if look.form() != Form::Inline || bytes.len() > INLINE_MOST {
            return false;
        }
        let size = look.size();
        let rest = look.value_offset() + look.key_len();
        if rounded(rest + bytes.len()) != size {
            return false;
        }
        // SAFETY: this entry is borrowed mutably; the size stays what it was allocated with.
        unsafe { self.0.cast::<Head>().as_mut().inline_len = bytes.len() as u16 };
        self.inline_bytes().copy_from_slice(bytes);
        true
    }

    pub(super) fn inline_bytes(&mut self) -> &mut [u8] {
        let look = self.look();
        let offset = look.value_offset() + look.key_len();
        let len = look.head().inline_len as usize;
        // SAFETY: the inline bytes follow the key; the entry is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(offset).as_ptr(), len) }
    }

    /// The growing string, if it is kept as one.
    pub fn raw(self) -> Option<&'a mut Vec<u8>> {
        (self.look().form() == Form::Raw)
            // SAFETY: a raw entry's value area holds a Vec; borrowed mutably during 'a.
            .then(|| unsafe { self.look().value_at().cast::<Vec<u8>>().as_mut() })
    }

    /// The collection, if it is of this type.
    #[inline]
    pub fn collection<T: Collection>(self) -> Option<&'a mut T> {
        (self.look().kind() == T::KIND)
            // SAFETY: the kind tells which box it is; borrowed mutably during 'a.
            .then(|| unsafe { &mut *self.look().value_at().cast::<*mut T>().read() })
    }

    /// Makes a collection's rows new ones.
    pub fn set_generation(self, generation: u64) {
        each_kind!(self.look().kind(), Kind: Kind::String => {}, T => {
            if let Some(collection) = self.collection::<T>() {
                collection.set_generation(generation);
            }
        });
    }

    /// Puts another form of the same collection in its place.
    pub fn replace_collection(self, value: Value) {
        each_value!(value, Value: String(_) => {}, new => self.put(*new));
    }

    fn put<T: Collection>(self, new: T) {
        if let Some(collection) = self.collection::<T>() {
            *collection = new;
        }
    }

    /// The handle of a collection that stays in its rows.
    pub fn handle(self) -> Option<&'a mut Handle> {
        each_kind!(
            self.look().kind(),
            Kind: Kind::String => None,
            T => self.collection::<T>()?.handle_mut(),
        )
    }

    /// Changes the deadline of an entry that has one; false if it has none.
    pub fn set_deadline(&mut self, at_ms: u64) -> bool {
        if self.look().deadline_ms().is_none() {
            return false;
        }
        // SAFETY: the deadline follows the head.
        unsafe { self.0.add(size_of::<Head>()).cast::<u64>().write(at_ms) };
        true
    }
}
