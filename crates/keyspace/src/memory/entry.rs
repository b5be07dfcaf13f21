//! A key and its value in one allocation.
//!
//! ```text
//!   head 8      clock:24 deadline?:1 parity:1 form:3 marked:1 trial:1 | key length:16 | inline length:16
//!   deadline 8  only if it has one: Unix ms
//!   length 8    only if the key is 65,535 bytes or longer
//!   value       Int: i64 · Raw: Vec<u8> · List, Set, Zset, Hash: Box · Inline: nothing
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

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

use base::Atom;

use super::table::Thin;
use crate::rows::Handle;
use crate::{Hash, Kind, List, Set, Value, ValueRef, Zset};

/// Longest string kept inside the entry.
const INLINE_MOST: usize = 1024;
/// Longest string `OBJECT ENCODING` calls embstr.
const EMBSTR_MOST: usize = 44;
/// Longest text that may be an integer.
const INT_TEXT_MOST: usize = 20;
const LONG_KEY: u16 = u16::MAX;
const CLOCK: u32 = (1 << 24) - 1;
const HAS_DEADLINE: u32 = 1 << 24;
const PARITY: u32 = 1 << 25;
const FORM_SHIFT: u32 = 26;
const MARKED: u32 = 1 << 29;
const ON_TRIAL: u32 = 1 << 30;

/// How the value is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Inline,
    Int,
    Raw,
    List,
    Set,
    Zset,
    Hash,
}

impl Form {
    #[inline]
    fn of(meta: u32) -> Form {
        match meta >> FORM_SHIFT & 7 {
            0 => Form::Inline,
            1 => Form::Int,
            2 => Form::Raw,
            3 => Form::List,
            4 => Form::Set,
            5 => Form::Zset,
            _ => Form::Hash,
        }
    }

    #[inline]
    fn value_bytes(self) -> usize {
        match self {
            Form::Inline => 0,
            Form::Raw => size_of::<Vec<u8>>(),
            _ => 8,
        }
    }

    #[inline]
    pub fn kind(self) -> Kind {
        match self {
            Form::Inline | Form::Int | Form::Raw => Kind::String,
            Form::List => Kind::List,
            Form::Set => Kind::Set,
            Form::Zset => Kind::Zset,
            Form::Hash => Kind::Hash,
        }
    }
}

/// A collection an entry can hold in a box.
pub trait Collection: Default + Clone + Send + 'static {
    #[doc(hidden)]
    const KIND: Kind;
    #[doc(hidden)]
    fn into_value(this: Box<Self>) -> Value;
    #[doc(hidden)]
    fn generation(&self) -> u64;
    #[doc(hidden)]
    fn set_generation(&mut self, generation: u64);
}

macro_rules! collection {
    ($($name:ident),*) => {$(
        impl Collection for $name {
            const KIND: Kind = Kind::$name;
            fn into_value(this: Box<Self>) -> Value {
                Value::$name(this)
            }
            #[inline]
            fn generation(&self) -> u64 {
                self.generation
            }
            fn set_generation(&mut self, generation: u64) {
                self.generation = generation;
            }
        }
    )*};
}
collection!(List, Set, Zset, Hash);

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
        match value {
            Value::String(bytes) if bytes.len() > INLINE_MOST => {
                Entry::raw(key, bytes.into_vec(), birth)
            }
            Value::String(bytes) => Entry::string(key, &bytes, birth),
            Value::List(it) => Entry::boxed(key, Form::List, it, birth),
            Value::Set(it) => Entry::boxed(key, Form::Set, it, birth),
            Value::Zset(it) => Entry::boxed(key, Form::Zset, it, birth),
            Value::Hash(it) => Entry::boxed(key, Form::Hash, it, birth),
        }
    }

    fn boxed<T>(key: &[u8], form: Form, value: Box<T>, birth: Birth) -> Entry {
        let (entry, at) = Entry::blank(key, form, 0, birth);
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

    #[inline]
    pub fn borrow(&self) -> EntryRef<'_> {
        EntryRef(self.0, PhantomData)
    }

    #[inline]
    pub fn borrow_mut(&mut self) -> EntryMut<'_> {
        EntryMut(self.0, PhantomData)
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
        let form = entry.form();
        if form.kind() == Kind::String && form != Form::Raw {
            return entry.to_value();
        }
        // SAFETY: the form tells what the value area owns; it is moved out and the entry freed
        // without dropping it.
        unsafe {
            let at = entry.value_at();
            let value = match form {
                Form::Raw => Value::String(at.cast::<Vec<u8>>().read().into_boxed_slice()),
                Form::List => Value::List(Box::from_raw(at.cast().read())),
                Form::Set => Value::Set(Box::from_raw(at.cast().read())),
                Form::Zset => Value::Zset(Box::from_raw(at.cast().read())),
                _ => Value::Hash(Box::from_raw(at.cast().read())),
            };
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
            match entry.form() {
                Form::Inline | Form::Int => {}
                Form::Raw => at.cast::<Vec<u8>>().drop_in_place(),
                Form::List => drop(Box::from_raw(at.cast::<*mut List>().read())),
                Form::Set => drop(Box::from_raw(at.cast::<*mut Set>().read())),
                Form::Zset => drop(Box::from_raw(at.cast::<*mut Zset>().read())),
                Form::Hash => drop(Box::from_raw(at.cast::<*mut Hash>().read())),
            }
            dealloc(self.0.as_ptr(), layout);
        }
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

/// A shared look at an entry.
#[derive(Clone, Copy)]
pub(crate) struct EntryRef<'a>(NonNull<u8>, PhantomData<&'a Entry>);

impl<'a> EntryRef<'a> {
    #[inline]
    fn head(self) -> &'a Head {
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
    fn value_offset(self) -> usize {
        size_of::<Head>()
            + 8 * usize::from(self.meta() & HAS_DEADLINE != 0)
            + 8 * usize::from(self.is_long())
    }

    #[inline]
    fn value_at(self) -> NonNull<u8> {
        // SAFETY: inside the entry.
        unsafe { self.0.add(self.value_offset()) }
    }

    #[inline]
    fn key_len(self) -> usize {
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
        // SAFETY: the form tells which box the value area holds; alive and unchanged during 'a.
        unsafe {
            let at = self.value_at();
            match self.form() {
                Form::Inline | Form::Int | Form::Raw => {
                    ValueRef::String(self.atom().unwrap_or(Atom::Int(0)))
                }
                Form::List => ValueRef::List(&*at.cast::<*const List>().read()),
                Form::Set => ValueRef::Set(&*at.cast::<*const Set>().read()),
                Form::Zset => ValueRef::Zset(&*at.cast::<*const Zset>().read()),
                Form::Hash => ValueRef::Hash(&*at.cast::<*const Hash>().read()),
            }
        }
    }

    /// The collection, if it is of this type.
    #[inline]
    pub fn collection<T: Collection>(self) -> Option<&'a T> {
        (self.kind() == T::KIND)
            // SAFETY: the kind tells which box it is; alive and unchanged during 'a.
            .then(|| unsafe { &*self.value_at().cast::<*const T>().read() })
    }

    pub fn to_value(self) -> Value {
        match self.value() {
            ValueRef::String(atom) => Value::String(atom.to_vec().into_boxed_slice()),
            ValueRef::List(it) => Value::List(Box::new(it.clone())),
            ValueRef::Set(it) => Value::Set(Box::new(it.clone())),
            ValueRef::Zset(it) => Value::Zset(Box::new(it.clone())),
            ValueRef::Hash(it) => Value::Hash(Box::new(it.clone())),
        }
    }

    /// As `OBJECT ENCODING` names it.
    pub fn encoding(self) -> &'static str {
        match self.value() {
            ValueRef::String(Atom::Int(_)) => "int",
            ValueRef::String(Atom::Bytes(bytes)) => {
                if self.form() == Form::Inline && bytes.len() <= EMBSTR_MOST {
                    "embstr"
                } else {
                    "raw"
                }
            }
            ValueRef::List(it) => it.encoding(),
            ValueRef::Set(it) => it.encoding(),
            ValueRef::Zset(it) => it.encoding(),
            ValueRef::Hash(it) => it.encoding(),
        }
    }

    /// Elements of a collection; `None` for a string.
    pub fn elements(self) -> Option<usize> {
        match self.value() {
            ValueRef::String(_) => None,
            ValueRef::List(it) => Some(it.len()),
            ValueRef::Set(it) => Some(it.len()),
            ValueRef::Zset(it) => Some(it.len()),
            ValueRef::Hash(it) => Some(it.len()),
        }
    }

    /// Bytes of the entry and all behind it.
    pub fn memory_usage(self) -> usize {
        self.size()
            + match self.value() {
                ValueRef::String(_) => self.raw_capacity(),
                ValueRef::List(it) => it.memory_usage(),
                ValueRef::Set(it) => it.memory_usage(),
                ValueRef::Zset(it) => it.memory_usage(),
                ValueRef::Hash(it) => it.memory_usage(),
            }
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
    fn size(self) -> usize {
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

/// An entry being changed in place.
pub(crate) struct EntryMut<'a>(NonNull<u8>, PhantomData<&'a mut Entry>);

impl<'a> EntryMut<'a> {
    /// # Safety
    /// `raw` is an entry nobody else looks at during `'a`.
    pub(super) unsafe fn from_raw(raw: NonNull<u8>) -> Self {
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

    fn inline_bytes(&mut self) -> &mut [u8] {
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

    /// Makes a collection's rows new ones; a list's begin at position 0.
    pub fn set_generation(self, generation: u64) {
        match self.look().kind() {
            Kind::String => {}
            Kind::List => {
                if let Some(list) = self.collection::<List>() {
                    let head = std::mem::take(&mut list.head);
                    list.generation = generation;
                    if let Some(handle) = list.handle_mut() {
                        handle.shift(head);
                    }
                }
            }
            Kind::Set => {
                if let Some(set) = self.collection::<Set>() {
                    set.generation = generation;
                }
            }
            Kind::Zset => {
                if let Some(zset) = self.collection::<Zset>() {
                    zset.generation = generation;
                }
            }
            Kind::Hash => {
                if let Some(hash) = self.collection::<Hash>() {
                    hash.generation = generation;
                }
            }
        }
    }

    /// Puts another form of the same collection in its place.
    pub fn replace_collection(self, value: Value) {
        match value {
            Value::String(_) => {}
            Value::List(new) => {
                if let Some(list) = self.collection::<List>() {
                    *list = *new;
                }
            }
            Value::Set(new) => {
                if let Some(set) = self.collection::<Set>() {
                    *set = *new;
                }
            }
            Value::Zset(new) => {
                if let Some(zset) = self.collection::<Zset>() {
                    *zset = *new;
                }
            }
            Value::Hash(new) => {
                if let Some(hash) = self.collection::<Hash>() {
                    *hash = *new;
                }
            }
        }
    }

    /// The handle of a collection that stays in its rows.
    pub fn handle(self) -> Option<&'a mut Handle> {
        match self.look().kind() {
            Kind::String => None,
            Kind::List => self.collection::<List>()?.handle_mut(),
            Kind::Set => self.collection::<Set>()?.handle_mut(),
            Kind::Zset => self.collection::<Zset>()?.handle_mut(),
            Kind::Hash => self.collection::<Hash>()?.handle_mut(),
        }
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
