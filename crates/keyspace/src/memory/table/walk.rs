//! Going through a table: all of it at once, one element at random, or in steps between which the table
//! may change.
//!
//! The steps are the hard one: a cursor is a few bits that a client keeps, so it must make sense to a
//! table whose segments have split, merged or changed their shape since. See [`Table::scan`].

use super::{MOST_DEPTH, Table, Thin};
use crate::memory::segment::{Shape, address_of};

/// Bits of a [`Table::scan`] cursor. Few, as the region's number comes above them and clients that
/// read numbers as doubles (JavaScript) are exact up to 53 bits only.
pub(crate) const CURSOR_BITS: u32 = 37;
/// Homes of the shapes below the full one, in the order a cursor counts them.
const SMALL_HOMES: [u8; 4] = [2, 6, 14, 30];

impl<P: Thin> Table<P> {
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
