//! A hash table that grows and shrinks one small piece at a time: extendible hashing over
//! [`Segment`]s of at most 4 KiB.
//!
//! ```text
//!   hash        [ prefix: up to 26 top bits ][ … ][ home: 16 bits ][ tag: 16 bits ]
//!   directory   2^depth places, by prefix ──► segment (several places may share one)
//!   segment     60 home buckets of 8 words ──► elements, one thin owning pointer each
//! ```
//!
//! A full segment splits in two by the next bit of the prefix: about 400 elements are looked at,
//! tens of microseconds, at any size of the table. Doubling the directory copies pointers only.
//! Two half-empty siblings merge again when elements are removed. A small table is one small
//! segment; an empty one has no memory.
//!
//! The table does not know what it holds: an element is a [`Thin`] pointer that can tell its key.
//! Hashes come from [`Table::hash`] and are passed in, so one hash serves several steps.
//!
//! Invariants: a directory place belongs to the segment whose depth top bits agree with it; with
//! more than one segment, all are of the full shape; an element's home never changes in a segment.
//!
//! Here is what finds, adds and removes one element; [`grow`] gives segments more room or less,
//! [`walk`] goes through many elements.

mod grow;
#[cfg(test)]
mod tests;
mod walk;

use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;
use std::ptr::NonNull;

use foldhash::quality::FixedState;
use grow::MERGED_LEN;
pub(crate) use walk::{CURSOR_BITS, Iter};

use super::segment::{Segment, Shape, address_of, word_of};

/// Deepest directory: 64 M segments, 20 G elements.
const MOST_DEPTH: u8 = 26;
/// Elements from which on a table does not fit the cache.
const PREFETCH_FROM: usize = 16 * 1024;
/// Most keys asked for at once: enough to hide the wait, few enough to be still near when used.
pub(crate) const AHEAD: usize = 16;

/// Of an element a lookup reads so much, most often: its head and its key, which may be in two lines of the cache.
const LOOKED_AT: usize = 40;

/// An owning pointer of one word to an element that knows its key.
///
/// # Safety
/// `into_raw` gives an address that is a multiple of 8 and below 2^48, `from_raw` takes exactly
/// that ownership back, and the key of an element never changes while a table holds it.
pub(crate) unsafe trait Thin: Sized {
    /// A shared look at an element, as cheap as the pointer.
    type Ref<'a>: Copy;

    fn into_raw(self) -> NonNull<u8>;

    /// # Safety
    /// `raw` came from `into_raw` and was not taken back since.
    unsafe fn from_raw(raw: NonNull<u8>) -> Self;

    /// # Safety
    /// `raw` came from `into_raw`; the element is neither taken back nor changed during `'a`.
    unsafe fn borrow<'a>(raw: NonNull<u8>) -> Self::Ref<'a>;

    fn key<'a>(element: Self::Ref<'a>) -> &'a [u8];

    /// Bytes that [`Table::weight`] counts for an element; the same as long as a table holds it.
    #[inline]
    fn weight(_element: Self::Ref<'_>) -> usize {
        0
    }
}

/// Where an element is. Good until the next insertion or removal; an outdated position finds
/// another element or none, it is never unsafe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    index: u32,
    at: u16,
}

pub(crate) struct Table<P: Thin> {
    directory: Vec<Segment>,
    len: usize,
    /// Sum of [`Thin::weight`].
    weight: usize,
    hasher: FixedState,
    depth: u8,
    homes: u8,
    /// Segments as deep as the directory; without any it can be halved.
    deepest: usize,
    owns: PhantomData<P>,
}

// SAFETY: the table owns its segments and elements; nothing else points to them.
unsafe impl<P: Thin + Send> Send for Table<P> {}

impl<P: Thin> Table<P> {
    /// An empty table without memory. `seed` keys the hash.
    pub fn new(seed: u64) -> Self {
        Self::new_with(FixedState::with_seed(seed))
    }

    /// An empty table of the same seed.
    pub fn empty(&self) -> Self {
        Self::new_with(self.hasher.clone())
    }

    fn new_with(hasher: FixedState) -> Self {
        Table {
            directory: Vec::new(),
            len: 0,
            weight: 0,
            hasher,
            depth: 0,
            homes: Shape::SMALLEST.homes,
            deepest: 0,
            owns: PhantomData,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of all elements, as they count themselves.
    #[inline]
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The hash that all methods here want for `key`; the same in all tables of one seed.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// Whether the table is too large for the cache.
    #[inline]
    pub fn is_worth_prefetching(&self) -> bool {
        self.len >= PREFETCH_FROM
    }

    /// Asks for the memory a lookup of `hash` will touch first.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(segment) = self.directory.get(self.index(hash)) {
            segment.prefetch(home(hash, self.homes));
        }
    }

    /// Asks for the element a lookup of `hash` will most likely end at. Reads the bucket, so
    /// [`Table::prefetch`] should have come some time before.
    #[inline]
    pub fn prefetch_element(&self, hash: u64) {
        if let Some(segment) = self.directory.get(self.index(hash)) {
            let home = home(hash, self.homes);
            segment.find(self.homes as usize, home, hash as u16, |address| {
                prefetch(address);
                prefetch(address + LOOKED_AT);
                true
            });
        }
    }

    /// Asks for all that lookups of these keys will touch ([`AHEAD`] at most), unless the table is
    /// small. The waits overlap.
    pub fn prefetch_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if !self.is_worth_prefetching() {
            return;
        }
        let mut hashes = [0; AHEAD];
        let mut count = 0;
        for (key, hash) in keys.zip(&mut hashes) {
            *hash = self.hash(key);
            self.prefetch(*hash);
            count += 1;
        }
        for &hash in hashes.iter().take(count) {
            self.prefetch_element(hash);
        }
    }

    #[inline]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Position> {
        self.find_by(hash, |element| P::key(element) == key)
    }

    /// Finds an element of this hash for which `is` holds. It is asked about elements of nearly
    /// equal hash too.
    #[inline]
    pub fn find_by<'a>(
        &'a self,
        hash: u64,
        mut is: impl FnMut(P::Ref<'a>) -> bool,
    ) -> Option<Position> {
        let index = self.index(hash);
        let segment = self.directory.get(index)?;
        let at = segment.find(
            self.homes as usize,
            home(hash, self.homes),
            hash as u16,
            |address| is(self.look(address)),
        )?;
        Some(Position {
            index: index as u32,
            at: at as u16,
        })
    }

    #[inline]
    pub fn get(&self, hash: u64, key: &[u8]) -> Option<P::Ref<'_>> {
        let mut found = None;
        self.find_by(hash, |element| {
            let equal = P::key(element) == key;
            if equal {
                found = Some(element);
            }
            equal
        })?;
        found
    }

    /// The element at a position.
    #[inline]
    pub fn at(&self, position: Position) -> Option<P::Ref<'_>> {
        // SAFETY: the element is in the table, which is borrowed as long as the result.
        self.raw(position).map(|raw| unsafe { P::borrow(raw) })
    }

    /// The pointer at a position, for those who change the element in place.
    #[inline]
    pub fn raw(&self, position: Position) -> Option<NonNull<u8>> {
        let segment = self.directory.get(position.index as usize)?;
        if position.at as usize >= Shape::with_homes(self.homes).words() {
            return None;
        }
        pointer(address_of(segment.word(position.at as usize)))
    }

    /// Puts another element of the same key at a position; the former one.
    pub fn replace(&mut self, position: Position, element: P) -> Option<P> {
        self.raw(position)?;
        let segment = &mut self.directory[position.index as usize];
        let at = position.at as usize;
        let word = segment.word(at);
        let raw = element.into_raw();
        let address = checked_address(raw);
        segment.set_word(at, word & !(address_of(word) as u64) | address as u64);
        // SAFETY: the table owns it from now on, and nobody changes it here.
        self.weight += P::weight(unsafe { P::borrow(raw) });
        self.give(word)
    }

    /// Adds an element whose key is not in the table.
    pub fn insert(&mut self, hash: u64, element: P) -> Position {
        let raw = element.into_raw();
        // SAFETY: the table owns it from now on, and nobody changes it here.
        self.weight += P::weight(unsafe { P::borrow(raw) });
        let word = word_of(hash as u16, checked_address(raw));
        if self.directory.is_empty() {
            self.homes = Shape::SMALLEST.homes;
            self.directory.push(Segment::new(Shape::SMALLEST, 0));
        }
        loop {
            let index = self.index(hash);
            let home = home(hash, self.homes);
            if let Some(at) = self.directory[index].place(home, word) {
                self.len += 1;
                return Position {
                    index: index as u32,
                    at: at as u16,
                };
            }
            self.make_room(index);
        }
    }

    /// Takes an element out.
    pub fn remove(&mut self, position: Position) -> Option<P> {
        self.raw(position)?;
        let index = position.index as usize;
        let segment = &mut self.directory[index];
        let word = segment.take(position.at as usize);
        self.len -= 1;
        let left = segment.len();
        let element = self.give(word); // before a table that is empty now begins anew, without weight
        if left < MERGED_LEN / 2 && left.is_multiple_of(16) {
            self.shrink(index);
        }
        element
    }

    /// The element of a word that is no longer in the table.
    #[inline]
    fn give(&mut self, word: u64) -> Option<P> {
        let raw = pointer(address_of(word))?;
        // SAFETY: the word held the ownership of the element and does no more; nobody changes it here.
        let weight = P::weight(unsafe { P::borrow(raw) });
        self.weight -= weight;
        // SAFETY: as above.
        Some(unsafe { P::from_raw(raw) })
    }

    /// Bytes of the table itself, without the elements.
    pub fn memory_usage(&self) -> usize {
        let segments: usize = self
            .segments()
            .map(|index| self.directory[index].shape().bytes())
            .sum();
        segments + self.directory.capacity() * size_of::<Segment>()
    }

    /// Directory place of a hash.
    #[inline]
    fn index(&self, hash: u64) -> usize {
        // Two shifts: a shift by all 64 bits (depth 0) is not allowed.
        (hash >> 1 >> (63 - self.depth)) as usize
    }

    #[inline]
    fn look(&self, address: usize) -> P::Ref<'_> {
        let raw = pointer(address).unwrap_or(NonNull::dangling());
        // SAFETY: words that are not 0 hold addresses of elements this table owns.
        unsafe { P::borrow(raw) }
    }

    /// The first of the places that share a segment.
    fn first_index(&self, index: usize) -> usize {
        let shared = self.depth - self.directory[index].depth();
        index >> shared << shared
    }

    /// The first places of all segments.
    fn segments(&self) -> impl Iterator<Item = usize> + '_ {
        let first = (!self.directory.is_empty()).then_some(0);
        std::iter::successors(first, |&index| {
            let next = index + (1 << (self.depth - self.directory[index].depth()));
            (next < self.directory.len()).then_some(next)
        })
    }
}

impl<P: Thin> Drop for Table<P> {
    fn drop(&mut self) {
        let firsts: Vec<usize> = self.segments().collect();
        for index in firsts {
            let segment = self.directory[index];
            for at in 0..segment.shape().words() {
                if let Some(raw) = pointer(address_of(segment.word(at))) {
                    // SAFETY: each word owns its element; the table is never used again.
                    drop(unsafe { P::from_raw(raw) });
                }
            }
            // SAFETY: visited once, by its first place.
            unsafe { segment.free() };
        }
    }
}

/// Home bucket of a hash in a segment with `homes` of them.
#[inline]
fn home(hash: u64, homes: u8) -> usize {
    (((hash >> 16) & 0xffff) as usize * homes as usize) >> 16
}

#[inline]
fn pointer(address: usize) -> Option<NonNull<u8>> {
    NonNull::new(std::ptr::with_exposed_provenance_mut(address))
}

#[inline]
fn checked_address(raw: NonNull<u8>) -> usize {
    let address = raw.as_ptr().expose_provenance();
    assert!(
        address >> 48 == 0 && address & 7 == 0,
        "an address that does not fit a word"
    );
    address
}

#[inline]
fn prefetch(address: usize) {
    base::prefetch(std::ptr::without_provenance::<u8>(address));
}
