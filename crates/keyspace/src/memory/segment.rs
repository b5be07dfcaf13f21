//! One segment of a [`super::table::Table`]: up to 480 words in 60 buckets and a small stash.
//!
//! ```text
//!   line 0      head: length, depth, shape, which homes have words in the stash
//!   line 1…     home buckets, each one cache line of 8 words
//!   last lines  stash buckets (3 in a full segment)
//!   word        tag:16 | address:45 | displaced:3 (only the lowest bit is used); 0 is free
//! ```
//!
//! A word lives in its home bucket, or displaced in the next one (bit 0 is set), or in the stash
//! (the head remembers its home). So the home of every word is known without following its
//! address, which lets two segments be merged, and scanned by home, without touching the elements.
//!
//! Addresses here are plain numbers: this module neither follows nor frees them.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Words in a bucket; a bucket is one cache line.
pub(super) const BUCKET: usize = 8;
const MOST_STASHED: usize = 3 * BUCKET;
const DISPLACED: u64 = 1;
const ADDRESS: u64 = 0x0000_ffff_ffff_fff8;

/// How many home and stash buckets a segment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub homes: u8,
    pub stash: u8,
}

impl Shape {
    /// The first segment of a table: 256 bytes.
    pub const SMALLEST: Shape = Shape { homes: 2, stash: 1 };
    /// 4096 bytes. The only shape once a table has more than one segment.
    pub const FULL: Shape = Shape {
        homes: 60,
        stash: 3,
    };

    /// The next bigger one: twice the lines.
    pub fn bigger(self) -> Option<Shape> {
        match self.homes {
            2 => Some(Shape { homes: 6, stash: 1 }),
            6 => Some(Shape {
                homes: 14,
                stash: 1,
            }),
            14 => Some(Shape {
                homes: 30,
                stash: 1,
            }),
            30 => Some(Shape::FULL),
            _ => None,
        }
    }

    /// The shape with this many homes.
    #[inline]
    pub fn with_homes(homes: u8) -> Shape {
        Shape {
            homes,
            stash: if homes == Shape::FULL.homes { 3 } else { 1 },
        }
    }

    #[inline]
    fn lines(self) -> usize {
        1 + self.homes as usize + self.stash as usize
    }

    /// Number of words, homes first, then stash.
    #[inline]
    pub fn words(self) -> usize {
        (self.lines() - 1) * BUCKET
    }

    /// Bytes of memory.
    pub fn bytes(self) -> usize {
        self.lines() * size_of::<Line>()
    }

    fn layout(self) -> Layout {
        // Never fails: at most 64 lines of 64 bytes.
        Layout::array::<Line>(self.lines()).unwrap_or(Layout::new::<Line>())
    }
}

#[repr(C, align(64))]
struct Line([u64; BUCKET]);

#[repr(C, align(64))]
struct Head {
    /// Bit h: a word whose home is h is in the stash.
    overflow: u64,
    len: u16,
    depth: u8,
    shape: Shape,
    stash_homes: [u8; MOST_STASHED],
}

/// A handle on a segment; several directory places hold the same one. The table owns the memory
/// and frees it exactly once, so a handle that a method is called on is always alive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment(NonNull<Line>);

#[inline]
pub(super) fn word_of(tag: u16, address: usize) -> u64 {
    u64::from(tag) << 48 | address as u64
}

#[inline]
pub(super) fn address_of(word: u64) -> usize {
    (word & ADDRESS) as usize
}

impl Segment {
    pub fn new(shape: Shape, depth: u8) -> Segment {
        let layout = shape.layout();
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) }.cast::<Line>();
        let Some(memory) = NonNull::new(memory) else {
            handle_alloc_error(layout)
        };
        let mut segment = Segment(memory);
        let head = segment.head_mut();
        head.shape = shape;
        head.depth = depth;
        segment
    }

    /// Frees the memory; the words are forgotten.
    ///
    /// # Safety
    /// No handle of this segment may be used afterwards.
    pub unsafe fn free(self) {
        let layout = self.head().shape.layout();
        // SAFETY: allocated by `new` with this layout; the caller gives up all handles.
        unsafe { dealloc(self.0.as_ptr().cast(), layout) }
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: line 0 is the head, zeroed memory is a valid one, and the segment is alive.
        unsafe { self.0.cast::<Head>().as_ref() }
    }

    #[inline]
    fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as `head`; the table is borrowed mutably by whoever changes a segment.
        unsafe { self.0.cast::<Head>().as_mut() }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.head().len as usize
    }

    #[inline]
    pub fn depth(&self) -> u8 {
        self.head().depth
    }

    pub fn set_depth(&mut self, depth: u8) {
        self.head_mut().depth = depth;
    }

    pub fn shape(&self) -> Shape {
        self.head().shape
    }

    #[inline]
    fn bucket(&self, bucket: usize) -> &[u64; BUCKET] {
        debug_assert!(bucket + 1 < self.shape().lines());
        // SAFETY: callers pass a home or stash bucket of this shape, so the line is inside.
        unsafe { &self.0.add(1 + bucket).as_ref().0 }
    }

    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        self.bucket(at / BUCKET)[at % BUCKET]
    }

    #[inline]
    pub fn set_word(&mut self, at: usize, word: u64) {
        debug_assert!(at < self.shape().words());
        // SAFETY: `at` is a place of this shape; the table is borrowed mutably.
        unsafe { self.0.add(1 + at / BUCKET).as_mut().0[at % BUCKET] = word }
    }

    /// Asks for the line of a home bucket before it is needed.
    #[inline]
    pub fn prefetch(&self, home: usize) {
        base::prefetch(self.0.as_ptr().wrapping_add(1 + home));
    }

    /// Finds a word of this home and tag for which `is` holds; its place. `homes` is that of the
    /// shape, known to the caller without reading the head.
    #[inline]
    pub fn find(
        &self,
        homes: usize,
        home: usize,
        tag: u16,
        mut is: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let next = if home + 1 == homes { 0 } else { home + 1 };
        for bucket in [home, next] {
            for (i, &word) in self.bucket(bucket).iter().enumerate() {
                if (word >> 48) as u16 == tag && word != 0 && is(address_of(word)) {
                    return Some(bucket * BUCKET + i);
                }
            }
        }
        if self.head().overflow & (1 << home) == 0 {
            return None;
        }
        self.stash_of(home).find(|&at| {
            let word = self.word(at);
            (word >> 48) as u16 == tag && is(address_of(word))
        })
    }

    /// Places in the stash that hold words of `home`.
    fn stash_of(&self, home: usize) -> impl Iterator<Item = usize> + '_ {
        let head = self.head();
        let first = head.shape.homes as usize * BUCKET;
        (0..head.shape.stash as usize * BUCKET)
            .filter(move |&i| head.stash_homes[i] as usize == home)
            .map(move |i| first + i)
            .filter(|&at| self.word(at) != 0)
    }

    /// The home of the word at a place.
    pub fn home(&self, at: usize) -> usize {
        let head = self.head();
        let homes = head.shape.homes as usize;
        let bucket = at / BUCKET;
        if bucket >= homes {
            head.stash_homes[at - homes * BUCKET] as usize
        } else if self.word(at) & DISPLACED == 0 {
            bucket
        } else if bucket == 0 {
            homes - 1
        } else {
            bucket - 1
        }
    }

    /// Calls `each` with every word whose home is `home`.
    pub fn each_of_home(&self, home: usize, mut each: impl FnMut(u64)) {
        let homes = self.shape().homes as usize;
        let next = if home + 1 == homes { 0 } else { home + 1 };
        for &word in self.bucket(home) {
            if word != 0 && word & DISPLACED == 0 {
                each(word);
            }
        }
        for &word in self.bucket(next) {
            if word != 0 && word & DISPLACED != 0 {
                each(word);
            }
        }
        if self.head().overflow & (1 << home) != 0 {
            self.stash_of(home).for_each(|at| each(self.word(at)));
        }
    }

    /// Puts a word in its home, the next bucket or the stash; its place, `None` if all are full.
    /// The home is preferred until it is nearly full: most lookups then touch one line only.
    pub fn place(&mut self, home: usize, word: u64) -> Option<usize> {
        let word = word & !DISPLACED;
        let shape = self.shape();
        let homes = shape.homes as usize;
        let next = if home + 1 == homes { 0 } else { home + 1 };
        let free = |bucket: usize| self.bucket(bucket).iter().filter(|&&w| w == 0).count();
        let (here, there) = (free(home), free(next));
        if here > 2 || (here > 0 && here >= there) {
            return self.put_in(home, word);
        }
        if there > 0 {
            return self.put_in(next, word | DISPLACED);
        }
        for bucket in homes..homes + shape.stash as usize {
            if let Some(at) = self.put_in(bucket, word) {
                let head = self.head_mut();
                head.stash_homes[at - homes * BUCKET] = home as u8;
                head.overflow |= 1 << home;
                return Some(at);
            }
        }
        None
    }

    fn put_in(&mut self, bucket: usize, word: u64) -> Option<usize> {
        let at = bucket * BUCKET + self.bucket(bucket).iter().position(|&w| w == 0)?;
        self.set_word(at, word);
        self.head_mut().len += 1;
        Some(at)
    }

    /// Frees the place; the word that was there (0 if none).
    pub fn take(&mut self, at: usize) -> u64 {
        let word = self.word(at);
        if word == 0 {
            return 0;
        }
        let first_stash = self.shape().homes as usize * BUCKET;
        self.set_word(at, 0);
        self.head_mut().len -= 1;
        if at >= first_stash {
            let home = self.head().stash_homes[at - first_stash] as usize;
            if self.stash_of(home).next().is_none() {
                self.head_mut().overflow &= !(1 << home);
            }
        }
        word
    }

    /// Moves the words for which `goes` holds to the same places of `other`, which is empty and of
    /// the same shape: what fitted here fits there.
    pub fn divide(&mut self, other: &mut Segment, mut goes: impl FnMut(usize) -> bool) {
        let first_stash = self.shape().homes as usize * BUCKET;
        for at in 0..self.shape().words() {
            if self.word(at) == 0 || !goes(address_of(self.word(at))) {
                continue;
            }
            let home = self.home(at);
            let word = self.take(at);
            other.set_word(at, word);
            let head = other.head_mut();
            head.len += 1;
            if at >= first_stash {
                head.stash_homes[at - first_stash] = home as u8;
                head.overflow |= 1 << home;
            }
        }
        self.empty_stash();
        other.empty_stash();
    }

    /// Brings words from the stash home where there is room again.
    fn empty_stash(&mut self) {
        let shape = self.shape();
        for at in shape.homes as usize * BUCKET..shape.words() {
            if self.word(at) != 0 {
                let home = self.home(at);
                let word = self.take(at);
                // The place just freed is free still, so this always finds one.
                let _ = self.place(home, word);
            }
        }
    }
}
