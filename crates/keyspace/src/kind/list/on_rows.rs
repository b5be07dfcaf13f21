//! A list on rows: elements at consecutive positions from the list's `head` on, so an index is a
//! row at once. What is inserted or removed in the middle moves the shorter side, exactly as
//! `edit.rs` does with lists in memory: the rows must not tell which of the two made them.

use super::{List, Shape};
use crate::rows::{Family, Handle, Recorder, Walk};

/// A list on rows being changed.
pub(super) struct OnRows<'a> {
    pub handle: &'a mut Handle,
    pub head: &'a mut i64,
    /// Notes the rows for the log entry; absent for a list that is not in a durable database.
    pub rows: Option<Recorder<'a>>,
}

/// Elements from index `start` on, towards the tail.
pub(super) fn walk(handle: &Handle, head: i64, start: usize) -> Walk<'_> {
    let from = handle.at(head.wrapping_add(start as i64));
    Walk::new(handle, Family::Data, (&from, None), false)
}

/// Elements from index `start` on, towards the head.
pub(super) fn walk_back(handle: &Handle, head: i64, start: usize) -> Walk<'_> {
    if start >= handle.len() {
        return Walk::nothing(handle);
    }
    let to = handle.at(head.wrapping_add(start as i64 + 1));
    Walk::new(handle, Family::Data, (b"", Some(&to)), true)
}

pub(super) fn get(handle: &Handle, head: i64, index: usize) -> Option<&[u8]> {
    if index >= handle.len() {
        return None;
    }
    let element = handle.get(&handle.at(head.wrapping_add(index as i64)));
    if element.is_none() {
        handle.fail(&format!("no element {index} of {}", handle.len()));
    }
    element
}

/// Calls `each` with the elements of these indexes.
fn for_each(
    handle: &Handle,
    head: i64,
    start: usize,
    end: usize,
    each: &mut dyn FnMut(usize, &[u8]),
) {
    let from = handle.at(head.wrapping_add(start as i64));
    let to = handle.at(head.wrapping_add(end as i64));
    let mut index = start;
    let range = (&from[..], Some(&to[..]));
    handle.between(Family::Data, range, false, &mut |_, element| {
        each(index, element);
        index += 1;
        true
    });
}

/// Writes the rows of all elements.
pub(super) fn record(handle: &Handle, head: i64, rows: &mut Recorder<'_>) {
    for_each(handle, head, 0, handle.len(), &mut |index, element| {
        rows.put_at(head.wrapping_add(index as i64), element);
    });
}

impl OnRows<'_> {
    fn len(&self) -> usize {
        self.handle.len()
    }

    fn put(&mut self, index: usize, element: &[u8]) {
        let position = self.head.wrapping_add(index as i64);
        let sub = self.handle.at(position);
        self.handle.put(&sub, element);
        if let Some(rows) = &mut self.rows {
            rows.put_at(position, element);
        }
    }

    fn delete(&mut self, index: usize) {
        let position = self.head.wrapping_add(index as i64);
        let sub = self.handle.at(position);
        self.handle.delete(&sub);
        if let Some(rows) = &mut self.rows {
            rows.delete_at(position);
        }
    }

    pub fn push(&mut self, element: &[u8], in_front: bool) {
        let len = self.len();
        self.handle.set_len(len + 1);
        if in_front {
            *self.head = self.head.wrapping_sub(1);
        }
        self.put(if in_front { 0 } else { len }, element);
    }

    /// Removes the first or the last element, if any.
    pub fn drop_end(&mut self, in_front: bool) {
        let Some(last) = self.len().checked_sub(1) else {
            return;
        };
        self.delete(if in_front { 0 } else { last });
        if in_front {
            *self.head = self.head.wrapping_add(1);
        }
        self.handle.set_len(last);
    }

    pub fn set(&mut self, index: usize, element: &[u8]) {
        if index < self.len() {
            self.put(index, element);
        }
    }

    /// Inserts before element `index`; at the end if there is none.
    pub fn insert(&mut self, index: usize, element: &[u8]) {
        let len = self.len();
        if index == 0 || index >= len {
            return self.push(element, index == 0);
        }
        if index < len / 2 {
            let moved = self.copy(0, index);
            self.handle.set_len(len + 1);
            *self.head = self.head.wrapping_sub(1);
            self.write(0, &moved);
        } else {
            let moved = self.copy(index, len);
            self.handle.set_len(len + 1);
            self.write(index + 1, &moved);
        }
        self.put(index, element);
    }

    fn copy(&self, start: usize, end: usize) -> Vec<Box<[u8]>> {
        let mut copy = Vec::with_capacity(end.saturating_sub(start));
        for_each(self.handle, *self.head, start, end, &mut |_, element| {
            copy.push(element.into());
        });
        copy
    }

    fn write(&mut self, start: usize, elements: &[Box<[u8]>]) {
        for (index, element) in (start..).zip(elements) {
            self.put(index, element);
        }
    }

    /// Removes `count` elements from `start` on (fewer if there are fewer); how many.
    pub fn remove_range(&mut self, start: usize, count: usize) -> usize {
        let count = count.min(self.len().saturating_sub(start));
        if count > 0 {
            self.close(start, start + count - 1, count, &|_| true);
        }
        count
    }

    /// Removes up to `limit` elements equal to `element`, from the head or from the tail; how many.
    pub fn remove_equal(&mut self, element: &[u8], limit: usize, from_tail: bool) -> usize {
        let len = self.len();
        let walk = match from_tail {
            true => walk_back(self.handle, *self.head, len.saturating_sub(1)),
            false => walk(self.handle, *self.head, 0),
        };
        let mut places: Vec<usize> = (0..len)
            .zip(walk)
            .filter(|(_, (_, other))| *other == element)
            .map(|(place, _)| if from_tail { len - 1 - place } else { place })
            .take(limit)
            .collect();
        places.sort_unstable();
        if let (Some(&first), Some(&last)) = (places.first(), places.last()) {
            let is_one = |index: usize| places.binary_search(&index).is_ok();
            self.close(first, last, places.len(), &is_one);
        }
        places.len()
    }

    /// Removes the elements between `first` and `last` that go, `count` of them, and moves the rest
    /// of the shorter side.
    fn close(&mut self, first: usize, last: usize, count: usize, goes: &dyn Fn(usize) -> bool) {
        let len = self.len();
        let in_front = last < len.saturating_sub(first);
        let (start, end) = if in_front {
            (0, last + 1)
        } else {
            (first, len)
        };
        // A whole side that goes needs no reading.
        let is_all = end - start == count;
        let mut rest: Vec<Box<[u8]>> = Vec::new();
        if !is_all {
            for_each(
                self.handle,
                *self.head,
                start,
                end,
                &mut |index, element| {
                    if !(first..=last).contains(&index) || !goes(index) {
                        rest.push(element.into());
                    }
                },
            );
        }
        self.handle.set_len(len - count);
        if in_front {
            (0..count).for_each(|index| self.delete(index));
            *self.head = self.head.wrapping_add(count as i64);
            self.write(0, &rest);
        } else {
            self.write(first, &rest);
            (len - count..len).for_each(|index| self.delete(index));
        }
    }
}

impl List {
    /// The list as one on rows, if it is; `rows` notes what changes.
    pub(super) fn on_rows_mut<'a>(&'a mut self, rows: Option<Recorder<'a>>) -> Option<OnRows<'a>> {
        let List { shape, head, .. } = self;
        match shape {
            Shape::Rows(handle) => Some(OnRows { handle, head, rows }),
            _ => None,
        }
    }
}
