//! A key and its value in one allocation.
//!
//! ```text
//!   head 8      clock:24 deadline?:1 parity:1 form:3 marked:1 trial:1 | key length:16 | inline length:16
//!   deadline 8  only if it has one: Unix ms
//!   length 8    only if the key is 65,535 bytes or longer
//!   value       Int: i64 · Raw: Vec<u8> · Inline: nothing · all kinds but strings: Box
//!   key         its bytes
//!   inline      the string's bytes, if Inline
//! ```
//!
//! A 5+5-byte pair takes 24 bytes. The size follows from the fields, so an Inline string may be
//! overwritten in place by any that rounds to the same size. Strings up to [`INLINE_MOST`] are
//! Inline, canonical integers are Int, and Raw has spare room for what grows in place.
//!
//! The clock, the snapshot's parity bit and the two bits of a durable keyspace (marked: changed by
//! the running log entry; on trial: loaded, and not used again yet) change under shared access (a
//! read is an access), hence the `Cell`; everything else changes only through [`EntryMut`].
//!
//! Three pointers to the same bytes: [`Entry`] owns them ([`make`]: how they come and go),
//! [`EntryRef`] reads them ([`look`]), [`EntryMut`] overwrites them in place ([`change`]). What the
//! bytes of the value are, the [`Form`] in the head says.
//!
//! Invariants: form, deadline bit and key are what they were at birth as long as the allocation
//! lives, so its size and the places in it can be told from the head at any time; the bytes in the
//! value area are what the form says.

mod change;
mod form;
mod look;
mod make;

use std::alloc::Layout;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

pub(crate) use form::Form;
pub(crate) use make::as_int;

use super::table::Thin;

/// Longest string kept inside the entry.
const INLINE_MOST: usize = 1024;
const LONG_KEY: u16 = u16::MAX;
const CLOCK: u32 = (1 << 24) - 1;
const HAS_DEADLINE: u32 = 1 << 24;
const PARITY: u32 = 1 << 25;
const FORM_SHIFT: u32 = 26;
const FORM_BITS: u32 = 7;
const MARKED: u32 = 1 << 29;
const ON_TRIAL: u32 = 1 << 30;

#[repr(C, align(8))]
struct Head {
    meta: Cell<u32>,
    key_len: u16,
    inline_len: u16,
}

/// What a new entry is to be, apart from key and value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Birth {
    pub deadline_ms: Option<u64>,
    pub clock: u32,
    pub parity: bool,
    pub marked: bool,
}

/// Owns one entry.
pub(crate) struct Entry(NonNull<u8>);

// SAFETY: it owns all it points to, and every collection is Send.
unsafe impl Send for Entry {}

/// A shared look at an entry.
#[derive(Clone, Copy)]
pub(crate) struct EntryRef<'a>(NonNull<u8>, PhantomData<&'a Entry>);

/// An entry being changed in place.
pub(crate) struct EntryMut<'a>(NonNull<u8>, PhantomData<&'a mut Entry>);

impl Entry {
    #[inline]
    pub fn borrow(&self) -> EntryRef<'_> {
        EntryRef(self.0, PhantomData)
    }

    #[inline]
    pub fn borrow_mut(&mut self) -> EntryMut<'_> {
        EntryMut(self.0, PhantomData)
    }
}

// SAFETY: entries are allocated with alignment 8 and owned by exactly one pointer; the key is
// written once.
unsafe impl Thin for Entry {
    type Ref<'a> = EntryRef<'a>;

    fn into_raw(self) -> NonNull<u8> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Entry(raw)
    }

    #[inline]
    unsafe fn borrow<'a>(raw: NonNull<u8>) -> EntryRef<'a> {
        EntryRef(raw, PhantomData)
    }

    #[inline]
    fn key<'a>(element: Self::Ref<'a>) -> &'a [u8] {
        element.key()
    }
}

#[inline]
fn size_of_parts(deadline: bool, long: bool, form: Form, key: usize, inline: usize) -> usize {
    rounded(
        size_of::<Head>()
            + 8 * (usize::from(deadline) + usize::from(long))
            + form.value_bytes()
            + key
            + inline,
    )
}

#[inline]
fn rounded(size: usize) -> usize {
    size.next_multiple_of(8)
}

#[inline]
fn layout_of(size: usize) -> Layout {
    // SAFETY: 8 is a power of two and sizes come from lengths of existing slices, far below isize::MAX.
    unsafe { Layout::from_size_align_unchecked(size, 8) }
}
