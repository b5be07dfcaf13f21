//! Lists: one [`Chunk`] while small, [`Chunks`] once it is full.
//!
//! Chunks hold up to `list-max-listpack-size` (8 KiB by default) of packed elements, so a list of
//! millions is a few thousand chunk headers. An element bigger than the limit has a chunk to itself.
//! A list that once was big stays one of many chunks, and a big one that was loaded from its rows stays
//! there (`on_rows.rs`).

mod chunk;
mod chunks;
mod digest;
mod edit;
mod on_rows;
mod rdb;
mod rows;

use std::collections::VecDeque;

use base::Atom;

use self::chunk::Chunk;
use self::chunks::{Chunks, Limit, remove_equal_in};
use crate::Tuning;
use crate::collection::element::Form;
use crate::kind::InMemory;
use crate::rows::{Handle, Walk};

#[derive(Clone)]
pub struct List {
    shape: Shape,
    /// Which of the key's lives its rows belong to; 0 if it has none.
    generation: u64,
    /// Position of the first element's row; the others follow without a gap.
    head: i64,
}

#[derive(Clone)]
enum Shape {
    Small(Chunk),
    Big(Box<Chunks>),
    Rows(Box<Handle>),
}

impl List {
    pub fn new() -> Self {
        List {
            shape: Shape::Small(Chunk::new()),
            generation: 0,
            head: 0,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.shape {
            Shape::Small(chunk) => chunk.len(),
            Shape::Big(chunks) => chunks.len,
            Shape::Rows(handle) => handle.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn chunk(&self, index: usize) -> Option<&Chunk> {
        match &self.shape {
            Shape::Small(chunk) => (index == 0).then_some(chunk),
            Shape::Big(chunks) => chunks.deque.get(index),
            Shape::Rows(_) => None,
        }
    }

    /// The chunk that has element `index`, and the element's index in it.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.len() {
            return None;
        }
        match &self.shape {
            Shape::Small(_) => Some((0, index)),
            Shape::Big(chunks) => Some(chunks.locate(index)),
            Shape::Rows(_) => None,
        }
    }

    pub fn get(&self, index: usize) -> Option<Atom<'_>> {
        if let Shape::Rows(handle) = &self.shape {
            return on_rows::get(handle, self.head, index).map(Atom::Bytes);
        }
        let (chunk, inside) = self.locate(index)?;
        let chunk = self.chunk(chunk)?;
        Some(chunk::first(&chunk.run()[chunk.offset(inside)..]).0)
    }

    /// The first element.
    #[inline]
    pub fn front(&self) -> Option<Atom<'_>> {
        match &self.shape {
            Shape::Small(chunk) if chunk.len() == 0 => None,
            Shape::Small(chunk) => Some(chunk::first(chunk.run()).0),
            Shape::Big(chunks) => Some(chunk::first(chunks.deque.front()?.run()).0),
            Shape::Rows(_) => self.get(0),
        }
    }

    /// The last element.
    #[inline]
    pub fn back(&self) -> Option<Atom<'_>> {
        match &self.shape {
            Shape::Small(chunk) if chunk.len() == 0 => None,
            Shape::Small(chunk) => Some(chunk::last(chunk.run()).0),
            Shape::Big(chunks) => Some(chunk::last(chunks.deque.back()?.run()).0),
            Shape::Rows(handle) => self.get(handle.len().checked_sub(1)?),
        }
    }

    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(0)
    }

    /// Elements from `start` on, towards the tail.
    pub fn iter_from(&self, start: usize) -> Iter<'_> {
        let (index, run) = match self.locate(start) {
            Some((index, inside)) => match self.chunk(index) {
                Some(chunk) => (index, &chunk.run()[chunk.offset(inside)..]),
                None => (usize::MAX - 1, &[][..]),
            },
            None => (usize::MAX - 1, &[][..]),
        };
        Iter {
            list: self,
            index,
            run,
            reverse: false,
            rows: match &self.shape {
                Shape::Rows(handle) => Some(Box::new(on_rows::walk(handle, self.head, start))),
                _ => None,
            },
        }
    }

    /// Elements from `start` on, towards the head.
    pub fn iter_rev_from(&self, start: usize) -> Iter<'_> {
        let (index, run) = match self.locate(start) {
            Some((index, inside)) => match self.chunk(index) {
                Some(chunk) => (index, &chunk.run()[..chunk.offset(inside + 1)]),
                None => (0, &[][..]),
            },
            None => (0, &[][..]),
        };
        Iter {
            list: self,
            index,
            run,
            reverse: true,
            rows: match &self.shape {
                Shape::Rows(handle) => Some(Box::new(on_rows::walk_back(handle, self.head, start))),
                _ => None,
            },
        }
    }

    pub fn encoding(&self) -> &'static str {
        "quicklist"
    }

    /// What [`List::weight`] must be, counted.
    #[cfg(test)]
    pub(crate) fn chunks_used(&self) -> usize {
        (0..)
            .map_while(|index| self.chunk(index))
            .map(Chunk::used)
            .sum()
    }

    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + match &self.shape {
                Shape::Small(chunk) => chunk.memory_usage(),
                Shape::Big(chunks) => {
                    let blocks: usize = chunks.deque.iter().map(Chunk::memory_usage).sum();
                    size_of::<Chunks>() + chunks.deque.capacity() * size_of::<Chunk>() + blocks
                }
                Shape::Rows(handle) => handle.memory_usage(),
            }
    }

    pub fn push_front(&mut self, element: &[u8], tuning: &Tuning) {
        self.push(element, tuning, true);
    }

    pub fn push_back(&mut self, element: &[u8], tuning: &Tuning) {
        self.push(element, tuning, false);
    }

    #[inline]
    fn push(&mut self, element: &[u8], tuning: &Tuning, in_front: bool) {
        if let Some(mut rows) = self.on_rows_mut(None) {
            return rows.push(element, in_front);
        }
        let form = Form::of(element);
        let limit = Limit::of(tuning);
        if let Shape::Small(chunk) = &mut self.shape
            && limit.takes(chunk, chunk::record_size(&form))
        {
            return match in_front {
                true => chunk.push_front(&form),
                false => chunk.push_back(&form),
            };
        }
        self.grow().push(&form, limit, in_front);
    }

    /// The list as a deque of chunks, which it becomes if it is not.
    fn grow(&mut self) -> &mut Chunks {
        if let Shape::Small(chunk) = &mut self.shape {
            let chunk = std::mem::replace(chunk, Chunk::new());
            let (len, used) = (chunk.len(), chunk.used());
            let deque = if len > 0 {
                VecDeque::from([chunk])
            } else {
                VecDeque::new()
            };
            self.shape = Shape::Big(Box::new(Chunks { deque, len, used }));
        }
        match &mut self.shape {
            Shape::Big(chunks) => chunks,
            Shape::Small(_) | Shape::Rows(_) => unreachable!("made big above"),
        }
    }

    pub fn pop_front(&mut self) -> Option<Vec<u8>> {
        let element = self.front()?.to_vec();
        self.drop_front();
        Some(element)
    }

    pub fn pop_back(&mut self) -> Option<Vec<u8>> {
        let element = self.back()?.to_vec();
        self.drop_back();
        Some(element)
    }

    /// Removes the first element, if any.
    #[inline]
    pub fn drop_front(&mut self) {
        match &mut self.shape {
            Shape::Small(chunk) if chunk.len() == 0 => {}
            Shape::Small(chunk) => {
                chunk.drop_front();
                chunk.trim_quarter();
            }
            Shape::Big(chunks) => chunks.drop_front(),
            Shape::Rows(_) => self.drop_end(true),
        }
    }

    /// Removes the last element, if any.
    #[inline]
    pub fn drop_back(&mut self) {
        match &mut self.shape {
            Shape::Small(chunk) if chunk.len() == 0 => {}
            Shape::Small(chunk) => {
                chunk.drop_back();
                chunk.trim_quarter();
            }
            Shape::Big(chunks) => chunks.drop_back(),
            Shape::Rows(_) => self.drop_end(false),
        }
    }

    fn drop_end(&mut self, in_front: bool) {
        if let Some(mut rows) = self.on_rows_mut(None) {
            rows.drop_end(in_front);
        }
    }

    /// Replaces element `index`, which must exist.
    pub fn set(&mut self, index: usize, element: &[u8], tuning: &Tuning) {
        if let Some(mut rows) = self.on_rows_mut(None) {
            return rows.set(index, element);
        }
        let Some((at, inside)) = self.locate(index) else {
            debug_assert!(false, "no element {index}");
            return;
        };
        let (form, limit) = (Form::of(element), Limit::of(tuning));
        let chunk = match &self.shape {
            Shape::Small(chunk) => chunk,
            Shape::Big(chunks) => &chunks.deque[at],
            Shape::Rows(_) => return,
        };
        let after = chunk.used_after_set(inside, &form);
        let fits = chunk.len() == 1 || after <= chunk.used() || limit.fits(after, chunk.len());
        match &mut self.shape {
            Shape::Small(chunk) if fits => chunk.set(inside, &form),
            Shape::Big(chunks) if fits => chunks.set(at, inside, &form),
            _ => self.grow().set_split(at, inside, &form, limit),
        }
    }

    /// Inserts before element `index`; `index == len` appends.
    pub fn insert(&mut self, index: usize, element: &[u8], tuning: &Tuning) {
        if index == 0 || index >= self.len() {
            return self.push(element, tuning, index == 0);
        }
        if let Some(mut rows) = self.on_rows_mut(None) {
            return rows.insert(index, element);
        }
        let (form, limit) = (Form::of(element), Limit::of(tuning));
        match &mut self.shape {
            Shape::Small(chunk) if limit.takes(chunk, chunk::record_size(&form)) => {
                chunk.insert(index, &form);
            }
            _ => {
                let chunks = self.grow();
                let (at, inside) = chunks.locate(index);
                chunks.insert(at, inside, &form, limit);
            }
        }
    }

    /// Removes `count` elements from `start` on (fewer if there are fewer).
    pub fn remove_range(&mut self, start: usize, count: usize) {
        let count = count.min(self.len().saturating_sub(start));
        if count == 0 {
            return;
        }
        match &mut self.shape {
            Shape::Small(chunk) => chunk.remove(start, count),
            Shape::Big(chunks) => chunks.remove_range(start, count),
            Shape::Rows(_) => {
                if let Some(mut rows) = self.on_rows_mut(None) {
                    rows.remove_range(start, count);
                }
            }
        }
    }

    /// Removes up to `limit` elements equal to `element`, from the head or from the tail; how many.
    pub fn remove_equal(&mut self, element: &[u8], limit: usize, from_tail: bool) -> usize {
        let form = Form::of(element);
        match &mut self.shape {
            Shape::Small(chunk) => remove_equal_in(chunk, &form, limit, from_tail),
            Shape::Big(chunks) => chunks.remove_equal(&form, limit, from_tail),
            Shape::Rows(_) => self
                .on_rows_mut(None)
                .map_or(0, |mut rows| rows.remove_equal(element, limit, from_tail)),
        }
    }
}

/// Elements of a list, towards its tail or towards its head. One type for both, for callers that
/// choose the direction.
#[derive(Clone)]
pub struct Iter<'a> {
    list: &'a List,
    index: usize,
    run: &'a [u8],
    reverse: bool,
    /// Of a list on rows; there is no run then.
    rows: Option<Box<Walk<'a>>>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Atom<'a>;

    #[inline]
    fn next(&mut self) -> Option<Atom<'a>> {
        if self.run.is_empty() {
            if let Some(walk) = &mut self.rows {
                return walk.next().map(|(_, element)| Atom::Bytes(element));
            }
            let next = if self.reverse {
                self.index.checked_sub(1)?
            } else {
                self.index + 1
            };
            self.run = self.list.chunk(next)?.run();
            self.index = next;
        }
        let (atom, rest) = if self.reverse {
            chunk::last(self.run)
        } else {
            chunk::first(self.run)
        };
        self.run = rest;
        Some(atom)
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemory for List {
    fn len(&self) -> usize {
        List::len(self)
    }

    fn encoding(&self) -> &'static str {
        List::encoding(self)
    }

    fn memory_usage(&self) -> usize {
        List::memory_usage(self)
    }

    fn weight(&self) -> usize {
        match &self.shape {
            Shape::Small(chunk) => chunk.used(),
            Shape::Big(chunks) => chunks.used,
            Shape::Rows(handle) => handle.weight(),
        }
    }

    fn allocations(&self) -> usize {
        match &self.shape {
            Shape::Small(_) | Shape::Rows(_) => 1,
            Shape::Big(chunks) => 2 + chunks.deque.len(),
        }
    }
}
