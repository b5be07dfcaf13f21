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

use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;
use std::ptr::NonNull;

use foldhash::quality::FixedState;

use super::segment::{Segment, Shape, address_of, word_of};

/// Deepest directory: 64 M segments, 20 G elements.
const MOST_DEPTH: u8 = 26;
/// Bits of a [`Table::scan`] cursor. Few, as the region's number comes above them and clients that
/// read numbers as doubles (JavaScript) are exact up to 53 bits only.
pub(crate) const CURSOR_BITS: u32 = 37;
/// Homes of the shapes below the full one, in the order a cursor counts them.
const SMALL_HOMES: [u8; 4] = [2, 6, 14, 30];
/// Siblings merge when they hold together no more than this (of 504 places).
const MERGED_LEN: usize = 200;
/// Elements from which on a table does not fit the cache.
const PREFETCH_FROM: usize = 16 * 1024;
/// Most keys asked for at once: enough to hide the wait, few enough to be still near when used.
pub(crate) const AHEAD: usize = 16;

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
        // SAFETY: the word held the ownership of the former element and does no more.
        pointer(address_of(word)).map(|raw| unsafe { P::from_raw(raw) })
    }

    /// Adds an element whose key is not in the table.
    pub fn insert(&mut self, hash: u64, element: P) -> Position {
        let word = word_of(hash as u16, checked_address(element.into_raw()));
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
        if left < MERGED_LEN / 2 && left.is_multiple_of(16) {
            self.shrink(index);
        }
        // SAFETY: the word held the ownership of the element and is gone.
        pointer(address_of(word)).map(|raw| unsafe { P::from_raw(raw) })
    }

    /// All elements, by prefix of their hash.
    pub fn iter(&self) -> Iter<'_, P> {
        Iter {
            table: self,
            index: 0,
            at: 0,
        }
    }

    /// An element at random, each as likely as any other while the table is not nearly empty.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<P::Ref<'_>> {
        if self.len == 0 {
            return None;
        }
        let words = self.directory[0].shape().words();
        for _ in 0..128 {
            let index = rng.usize(..self.directory.len());
            // A shared segment counts at its first place only, or it would be chosen more often.
            if self.first_index(index) != index {
                continue;
            }
            let word = self.directory[index].word(rng.usize(..words));
            if word != 0 {
                return Some(self.look(address_of(word)));
            }
        }
        let start = self.first_index(rng.usize(..self.directory.len()));
        let from_there = Iter {
            table: self,
            index: start,
            at: 0,
        };
        from_there.chain(self.iter()).next()
    }

    /// One step of a walk: calls `each` with about `count` elements, returns where to go on
    /// (0: the end; start with 0; [`CURSOR_BITS`] bits). Elements present from the first to the
    /// last step are all visited, whatever is inserted and removed between steps; some more than
    /// once.
    ///
    /// ```text
    ///   cursor   [ prefix: 26 ][ depth: 5 ][ home: 6 ]
    /// ```
    /// Elements come by segment, and by home inside it. If the segment has split since, its first
    /// half goes on at that home and the second starts anew; if it has merged (it is less deep
    /// now), it starts anew: what was visited may come again, what was not is never skipped.
    /// Depths above [`MOST_DEPTH`] stand for the small shapes of a lone segment: if it has another
    /// shape now, the walk goes on at the home where the first hash not visited belongs.
    pub fn scan(&self, cursor: u64, count: usize, mut each: impl FnMut(P::Ref<'_>)) -> u64 {
        if self.directory.is_empty() {
            return 0;
        }
        let prefix = (cursor >> 11) as usize & ((1 << MOST_DEPTH) - 1);
        let (depth, former_homes) = depth_and_homes((cursor >> 6) as u8 & 31);
        let homes = self.homes as usize;
        let mut index = prefix >> (MOST_DEPTH - self.depth);
        let mut home = home_now(cursor as usize & 63, former_homes, homes);
        let cursor_at = |index: usize, depth: u8, home: usize| {
            let prefix = (index << (MOST_DEPTH - self.depth)) as u64;
            prefix << 11 | u64::from(depth_code(depth, self.homes)) << 6 | home as u64
        };
        let (mut visited, mut emitted) = (0, 0);
        loop {
            let segment = self.directory[index];
            if segment.depth() < depth && visited == 0 {
                home = 0;
            }
            index = self.first_index(index);
            if segment.len() == 0 {
                home = homes;
                visited += 1;
            }
            while home < homes {
                segment.each_of_home(home, |word| {
                    emitted += 1;
                    each(self.look(address_of(word)));
                });
                home += 1;
                visited += 1;
                if home < homes && (emitted >= count || visited >= 10 * count.max(1)) {
                    return cursor_at(index, segment.depth(), home);
                }
            }
            home = 0;
            index += 1 << (self.depth - segment.depth());
            let Some(next) = self.directory.get(index) else {
                return 0;
            };
            if emitted >= count || visited >= 10 * count.max(1) {
                return cursor_at(index, next.depth(), 0);
            }
        }
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

    /// Gives a full segment more room: a bigger shape, or a sibling.
    fn make_room(&mut self, index: usize) {
        let segment = self.directory[index];
        match segment.shape().bigger() {
            Some(shape) => self.reshape(segment, shape),
            None => self.split(index),
        }
    }

    /// Moves the only segment's words into one of a bigger shape.
    fn reshape(&mut self, old: Segment, mut shape: Shape) {
        'shape: loop {
            let mut new = Segment::new(shape, 0);
            for at in 0..old.shape().words() {
                let word = old.word(at);
                if word == 0 {
                    continue;
                }
                let hash = self.hash(P::key(self.look(address_of(word))));
                if new.place(home(hash, shape.homes), word).is_none()
                    && let Some(bigger) = shape.bigger()
                {
                    // SAFETY: nobody has seen `new` yet.
                    unsafe { new.free() };
                    shape = bigger;
                    continue 'shape;
                }
            }
            debug_assert_eq!(new.len(), old.len());
            self.directory[0] = new;
            self.homes = shape.homes;
            // SAFETY: the directory was the only holder.
            unsafe { old.free() };
            return;
        }
    }

    /// Splits a segment by the next bit of the prefix.
    fn split(&mut self, index: usize) {
        let mut old = self.directory[index];
        let depth = old.depth() + 1;
        assert!(depth <= MOST_DEPTH, "the hash does not spread the keys");
        let mut index = index;
        if depth > self.depth {
            self.directory = self.directory.iter().flat_map(|&s| [s, s]).collect();
            self.depth += 1;
            self.deepest = 0;
            index *= 2;
        }
        if depth == self.depth {
            self.deepest += 2;
        }
        let mut new = Segment::new(old.shape(), depth);
        // The elements are about to be read for their keys: ask for all of them at once.
        for at in 0..old.shape().words() {
            prefetch(address_of(old.word(at)));
        }
        old.divide(&mut new, |address| {
            let hash = self.hash(P::key(self.look(address)));
            hash >> (64 - depth) & 1 == 1
        });
        let first = self.first_index(index);
        old.set_depth(depth);
        let places = 1 << (self.depth - depth);
        self.directory[first + places..first + 2 * places].fill(new);
    }

    /// After removals: merges a segment with its sibling, gives up an empty table's memory.
    fn shrink(&mut self, index: usize) {
        if self.len == 0 && self.homes > Shape::SMALLEST.homes {
            let empty = self.empty();
            *self = empty;
            return;
        }
        // A merged segment may merge again with its own sibling.
        while self.merge(index) {}
        self.halve_directory();
    }

    /// Merges a segment with its sibling if both together are small; whether it did.
    fn merge(&mut self, index: usize) -> bool {
        let (old, depth) = (self.directory[index], self.directory[index].depth());
        if depth == 0 {
            return false;
        }
        let places = 1 << (self.depth - depth);
        let first = self.first_index(index);
        let sibling_first = first ^ places;
        let sibling = self.directory[sibling_first];
        if sibling.depth() != depth || old.len() + sibling.len() > MERGED_LEN {
            return false;
        }
        let mut merged = Segment::new(Shape::FULL, depth - 1);
        for segment in [old, sibling] {
            for at in 0..segment.shape().words() {
                let word = segment.word(at);
                if word != 0 && merged.place(segment.home(at), word).is_none() {
                    // Too uneven to fit: stay apart.
                    // SAFETY: nobody has seen `merged` yet.
                    unsafe { merged.free() };
                    return false;
                }
            }
        }
        let first = first.min(sibling_first);
        self.directory[first..first + 2 * places].fill(merged);
        if depth == self.depth {
            self.deepest -= 2;
        }
        // SAFETY: all places that held the two now hold the merged one.
        unsafe {
            old.free();
            sibling.free();
        }
        true
    }

    /// Halves the directory, whose last bit no segment needs, as often as it can. Not at once: a
    /// table that shrinks a little often grows again.
    fn halve_directory(&mut self) {
        while self.depth > 0
            && self.deepest == 0
            && self.len < self.directory.len() * (MERGED_LEN / 2)
        {
            self.directory = self.directory.iter().copied().step_by(2).collect();
            self.depth -= 1;
            self.deepest = self
                .segments()
                .filter(|&index| self.directory[index].depth() == self.depth)
                .count();
        }
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

/// See [`Table::iter`].
pub(crate) struct Iter<'a, P: Thin> {
    table: &'a Table<P>,
    index: usize,
    at: usize,
}

impl<'a, P: Thin> Iterator for Iter<'a, P> {
    type Item = P::Ref<'a>;

    fn next(&mut self) -> Option<P::Ref<'a>> {
        loop {
            let segment = self.table.directory.get(self.index)?;
            let words = if segment.len() == 0 {
                0
            } else {
                segment.shape().words()
            };
            while self.at < words {
                let word = segment.word(self.at);
                self.at += 1;
                if word != 0 {
                    return Some(self.table.look(address_of(word)));
                }
            }
            self.at = 0;
            self.index += 1 << (self.table.depth - segment.depth());
        }
    }
}

/// Home bucket of a hash in a segment with `homes` of them.
#[inline]
fn home(hash: u64, homes: u8) -> usize {
    (((hash >> 16) & 0xffff) as usize * homes as usize) >> 16
}

/// Depth and shape in one number below 32; see [`Table::scan`].
fn depth_code(depth: u8, homes: u8) -> u8 {
    match SMALL_HOMES.iter().position(|&small| small == homes) {
        Some(shape) => MOST_DEPTH + 1 + shape as u8,
        None => depth,
    }
}

/// What [`depth_code`] was made of.
fn depth_and_homes(code: u8) -> (u8, usize) {
    let small = code.checked_sub(MOST_DEPTH + 1);
    match small.and_then(|shape| SMALL_HOMES.get(shape as usize)) {
        Some(&homes) => (0, homes as usize),
        None => (code, Shape::FULL.homes as usize),
    }
}

/// The home, of `homes`, to which the first hash of what was home `former` of `former_homes`
/// belongs.
fn home_now(former: usize, former_homes: usize, homes: usize) -> usize {
    ((former << 16).div_ceil(former_homes) * homes) >> 16
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
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; any address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address as *const i8);
    }
    let _ = address;
}

#[cfg(test)]
mod tests;
