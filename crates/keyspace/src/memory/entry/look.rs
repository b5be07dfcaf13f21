//! A shared look at an entry: where its parts are, what they hold, and the bits of the head that
//! change under shared access.
//!
//! The places follow from the head alone; nothing is kept beside it. All of this is on the path of
//! every read, hence the `#[inline]`s.

use std::ptr::NonNull;

use base::Atom;

use super::form::Form;
use super::{
    Birth, CLOCK, EntryRef, HAS_DEADLINE, Head, LONG_KEY, MARKED, ON_TRIAL, PARITY, size_of_parts,
};
use crate::kind::{Collection, InMemory, each_kind, each_value, string};
use crate::{Kind, Value, ValueRef};

impl<'a> EntryRef<'a> {
    #[inline]
    pub(super) fn head(self) -> &'a Head {
        // SAFETY: the entry is alive during 'a and starts with its head.
        unsafe { self.0.cast::<Head>().as_ref() }
    }

    #[inline]
    fn meta(self) -> u32 {
        self.head().meta.get()
    }

    #[inline]
    pub fn form(self) -> Form {
        Form::of(self.meta())
    }

    #[inline]
    pub fn kind(self) -> Kind {
        self.form().kind()
    }

    #[inline]
    pub fn deadline_ms(self) -> Option<u64> {
        (self.meta() & HAS_DEADLINE != 0)
            // SAFETY: the flag says the deadline follows the head.
            .then(|| unsafe { self.0.add(size_of::<Head>()).cast::<u64>().read() })
    }

    #[inline]
    pub fn is_due(self, now_ms: u64) -> bool {
        self.deadline_ms().is_some_and(|at| at <= now_ms)
    }

    #[inline]
    fn is_long(self) -> bool {
        self.head().key_len == LONG_KEY
    }

    /// Offset of the value area.
    #[inline]
    pub(super) fn value_offset(self) -> usize {
        size_of::<Head>()
            + 8 * usize::from(self.meta() & HAS_DEADLINE != 0)
            + 8 * usize::from(self.is_long())
    }

    #[inline]
    pub(super) fn value_at(self) -> NonNull<u8> {
        // SAFETY: inside the entry.
        unsafe { self.0.add(self.value_offset()) }
    }

    #[inline]
    pub(super) fn key_len(self) -> usize {
        if !self.is_long() {
            return self.head().key_len as usize;
        }
        // SAFETY: a long key's length is the word before the value area.
        unsafe { self.0.add(self.value_offset() - 8).cast::<u64>().read() as usize }
    }

    #[inline]
    pub fn key(self) -> &'a [u8] {
        let offset = self.value_offset() + self.form().value_bytes();
        // SAFETY: the key's bytes are there, written at birth, and alive during 'a.
        unsafe { std::slice::from_raw_parts(self.0.add(offset).as_ptr(), self.key_len()) }
    }

    /// The string, if it is one.
    #[inline]
    pub fn atom(self) -> Option<Atom<'a>> {
        // SAFETY: the form tells what is in the value area; alive and unchanged during 'a.
        unsafe {
            match self.form() {
                Form::Inline => {
                    let at = self.value_at().add(self.key_len());
                    let len = self.head().inline_len as usize;
                    Some(Atom::Bytes(std::slice::from_raw_parts(at.as_ptr(), len)))
                }
                Form::Int => Some(Atom::Int(self.value_at().cast::<i64>().read())),
                Form::Raw => Some(Atom::Bytes(self.value_at().cast::<Vec<u8>>().as_ref())),
                _ => None,
            }
        }
    }

    #[inline]
    pub fn value(self) -> ValueRef<'a> {
        each_kind!(
            self.form(),
            Form: Form::Inline | Form::Int | Form::Raw => {
                ValueRef::String(self.atom().unwrap_or(Atom::Int(0)))
            },
            // SAFETY: the form tells which box the value area holds; alive and unchanged during 'a.
            T => unsafe { (*self.value_at().cast::<*const T>().read()).as_value() },
        )
    }

    /// The collection, if it is of this type.
    #[inline]
    pub fn collection<T: Collection>(self) -> Option<&'a T> {
        (self.kind() == T::KIND)
            // SAFETY: the kind tells which box it is; alive and unchanged during 'a.
            .then(|| unsafe { &*self.value_at().cast::<*const T>().read() })
    }

    pub fn to_value(self) -> Value {
        self.value().to_value()
    }

    /// As `OBJECT ENCODING` names it.
    pub fn encoding(self) -> &'static str {
        each_value!(
            self.value(),
            ValueRef: String(atom) => string::encoding(atom, self.form() == Form::Inline),
            it => InMemory::encoding(it),
        )
    }

    /// Elements of a collection; `None` for a string.
    pub fn elements(self) -> Option<usize> {
        self.value().elements()
    }

    /// Bytes of the entry and all behind it.
    pub fn memory_usage(self) -> usize {
        self.size()
            + each_value!(
                self.value(),
                ValueRef: String(_) => self.raw_capacity(),
                it => InMemory::memory_usage(it),
            )
    }

    /// Bytes a raw string has room for, outside the entry.
    pub fn raw_capacity(self) -> usize {
        match self.form() {
            // SAFETY: a raw entry's value area holds a Vec.
            Form::Raw => unsafe { self.value_at().cast::<Vec<u8>>().as_ref().capacity() },
            _ => 0,
        }
    }

    /// Size of the allocation.
    #[inline]
    pub(super) fn size(self) -> usize {
        size_of_parts(
            self.meta() & HAS_DEADLINE != 0,
            self.is_long(),
            self.form(),
            self.key_len(),
            self.head().inline_len as usize,
        )
    }

    #[inline]
    pub fn clock(self) -> u32 {
        self.meta() & CLOCK
    }

    #[inline]
    pub fn set_clock(self, clock: u32) {
        let meta = self.meta() & !CLOCK | clock & CLOCK;
        self.head().meta.set(meta);
    }

    #[inline]
    pub fn parity(self) -> bool {
        self.meta() & PARITY != 0
    }

    pub fn set_parity(self, parity: bool) {
        let meta = self.meta() & !PARITY | if parity { PARITY } else { 0 };
        self.head().meta.set(meta);
    }

    /// Whether the running log entry has changed it.
    #[inline]
    pub fn is_marked(self) -> bool {
        self.meta() & MARKED != 0
    }

    pub fn set_marked(self, marked: bool) {
        let meta = self.meta() & !MARKED | if marked { MARKED } else { 0 };
        self.head().meta.set(meta);
    }

    /// Whether it was loaded and not yet used: its first use does not count as an access.
    #[inline]
    pub fn is_on_trial(self) -> bool {
        self.meta() & ON_TRIAL != 0
    }

    pub fn set_on_trial(self, on_trial: bool) {
        let meta = self.meta() & !ON_TRIAL | if on_trial { ON_TRIAL } else { 0 };
        self.head().meta.set(meta);
    }

    /// The birth that would make this entry again.
    pub fn birth(self) -> Birth {
        Birth {
            deadline_ms: self.deadline_ms(),
            clock: self.clock(),
            parity: self.parity(),
            marked: self.is_marked(),
        }
    }
}
