//! How entries come and go: made of key and value, copied, moved to another birth, taken apart,
//! freed.
//!
//! The one idea: [`Entry::blank`] lays out all but the value and says where the value goes; whoever
//! calls it writes there what the form promises, before anybody can look.
//!
//! Invariant: what a value area owns (a `Vec`, a `Box`) is dropped or moved out exactly once; where it
//! is moved out, the entry is freed without its `Drop`.

use std::alloc::{alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;

use base::Atom;

use super::form::Form;
use super::{
    Birth, CLOCK, Entry, EntryRef, FORM_SHIFT, HAS_DEADLINE, Head, INLINE_MOST, LONG_KEY, MARKED,
    PARITY, layout_of, size_of_parts,
};
use crate::Value;
use crate::kind::{Collection, each_kind, each_value};

/// Longest text that may be an integer.
const INT_TEXT_MOST: usize = 20;

/// Whether a string is kept as a number: what `SET` does with short canonical integers.
#[inline]
pub(crate) fn as_int(bytes: &[u8]) -> Option<i64> {
    let first = *bytes.first()?;
    if bytes.len() > INT_TEXT_MOST || !(first.is_ascii_digit() || first == b'-') {
        return None;
    }
    base::number::parse_i64(bytes)
}

impl Entry {
    /// A string, in the form that suits it.
    pub fn string(key: &[u8], bytes: &[u8], birth: Birth) -> Entry {
        match as_int(bytes) {
            Some(value) => Entry::int(key, value, birth),
            None if bytes.len() <= INLINE_MOST => Entry::inline(key, bytes, birth),
            None => Entry::raw(key, bytes.to_vec(), birth),
        }
    }

    pub fn int(key: &[u8], value: i64, birth: Birth) -> Entry {
        let (entry, at) = Entry::blank(key, Form::Int, 0, birth);
        // SAFETY: `at` is where the 8 aligned bytes of the value are.
        unsafe { at.cast::<i64>().write(value) };
        entry
    }

    fn inline(key: &[u8], bytes: &[u8], birth: Birth) -> Entry {
        let (mut entry, _) = Entry::blank(key, Form::Inline, bytes.len(), birth);
        entry.borrow_mut().inline_bytes().copy_from_slice(bytes);
        entry
    }

    /// A string that keeps its spare room.
    pub fn raw(key: &[u8], bytes: Vec<u8>, birth: Birth) -> Entry {
        let (entry, at) = Entry::blank(key, Form::Raw, 0, birth);
        // SAFETY: `at` is where the 24 aligned bytes of the Vec are.
        unsafe { at.cast::<Vec<u8>>().write(bytes) };
        entry
    }

    pub fn value(key: &[u8], value: Value, birth: Birth) -> Entry {
        each_value!(
            value,
            Value: String(bytes) => match bytes.len() {
                0..=INLINE_MOST => Entry::string(key, &bytes, birth),
                _ => Entry::raw(key, bytes.into_vec(), birth),
            },
            it => Entry::boxed(key, it, birth),
        )
    }

    fn boxed<T: Collection>(key: &[u8], value: Box<T>, birth: Birth) -> Entry {
        let (entry, at) = Entry::blank(key, Form::of_kind(T::KIND), 0, birth);
        // SAFETY: `at` is where the 8 aligned bytes of the pointer are.
        unsafe { at.cast::<*mut T>().write(Box::into_raw(value)) };
        entry
    }

    /// An entry with everything but its value; also where the value goes.
    fn blank(key: &[u8], form: Form, inline_len: usize, birth: Birth) -> (Entry, NonNull<u8>) {
        let long = key.len() >= LONG_KEY as usize;
        let deadline = birth.deadline_ms.is_some();
        let size = size_of_parts(deadline, long, form, key.len(), inline_len);
        let layout = layout_of(size);
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc(layout) };
        let Some(memory) = NonNull::new(memory) else {
            handle_alloc_error(layout)
        };
        let meta = birth.clock & CLOCK
            | if deadline { HAS_DEADLINE } else { 0 }
            | if birth.parity { PARITY } else { 0 }
            | if birth.marked { MARKED } else { 0 }
            | (form as u32) << FORM_SHIFT;
        let head = Head {
            meta: Cell::new(meta),
            key_len: key.len().min(LONG_KEY as usize) as u16,
            inline_len: inline_len as u16,
        };
        // SAFETY: the parts are written where `size_of_parts` made room for them, aligned to 8
        // but for the key, which are bytes.
        unsafe {
            memory.cast::<Head>().write(head);
            let mut at = memory.add(size_of::<Head>());
            if let Some(deadline_ms) = birth.deadline_ms {
                at.cast::<u64>().write(deadline_ms);
                at = at.add(8);
            }
            if long {
                at.cast::<u64>().write(key.len() as u64);
                at = at.add(8);
            }
            at.add(form.value_bytes())
                .copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            (Entry(memory), at)
        }
    }

    /// A deep copy, the same in all respects but the birth.
    pub fn copy(from: EntryRef<'_>, birth: Birth) -> Entry {
        match from.form() {
            // Not by `string`: a raw string stays raw, whatever its bytes.
            Form::Raw => {
                let Atom::Bytes(bytes) = from.atom().unwrap_or(Atom::Int(0)) else {
                    return Entry::int(from.key(), 0, birth);
                };
                Entry::raw(from.key(), bytes.to_vec(), birth)
            }
            _ => Entry::value(from.key(), from.to_value(), birth),
        }
    }

    /// The same value with another birth (a deadline added or removed): the value is moved.
    pub fn reborn(self, birth: Birth) -> Entry {
        let from = self.borrow();
        let (new, at) = Entry::blank(
            from.key(),
            from.form(),
            from.head().inline_len as usize,
            birth,
        );
        let bytes = from.form().value_bytes();
        // SAFETY: both value areas have `bytes` bytes; the old entry is freed below without
        // dropping its value, so ownership moves.
        unsafe {
            at.copy_from_nonoverlapping(from.value_at(), bytes);
            if from.form() == Form::Inline {
                let len = from.head().inline_len as usize;
                at.add(from.key().len())
                    .copy_from_nonoverlapping(from.value_at().add(from.key().len()), len);
            }
            let layout = layout_of(from.size());
            let memory = self.0;
            std::mem::forget(self);
            dealloc(memory.as_ptr(), layout);
        }
        new
    }

    /// The value, taken out.
    pub fn into_value(self) -> Value {
        let entry = self.borrow();
        // SAFETY: the form tells what the value area owns; it is moved out and the entry freed
        // without dropping it.
        unsafe {
            let at = entry.value_at();
            let value = each_kind!(
                entry.form(),
                Form: {
                    Form::Raw => Value::String(at.cast::<Vec<u8>>().read().into_boxed_slice()),
                    Form::Inline | Form::Int => entry.to_value(),
                },
                T => T::into_value(Box::from_raw(at.cast::<*mut T>().read())),
            );
            let layout = layout_of(entry.size());
            let memory = self.0;
            std::mem::forget(self);
            dealloc(memory.as_ptr(), layout);
            value
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let entry = self.borrow();
        let layout = layout_of(entry.size());
        // SAFETY: the form tells what the value area owns; nothing uses the entry afterwards.
        unsafe {
            let at = entry.value_at();
            each_kind!(
                entry.form(),
                Form: {
                    Form::Inline | Form::Int => {},
                    Form::Raw => at.cast::<Vec<u8>>().drop_in_place(),
                },
                T => drop(Box::from_raw(at.cast::<*mut T>().read())),
            );
            dealloc(self.0.as_ptr(), layout);
        }
    }
}
