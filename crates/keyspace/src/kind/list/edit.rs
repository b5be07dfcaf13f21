//! What commands see of a list, its changes, and what they do to its rows.
//!
//! The rows of a list's elements have consecutive positions, `head` being the first. A push or a
//! pop is one row; in the middle, the elements of the shorter side move over by one (or by as many as
//! are removed), so `LINSERT` and `LREM` near an end of a long list stay cheap. A list that stays in its
//! rows is changed there (`on_rows.rs`).

use base::{Atom, IntText, Refusal};

use super::on_rows::OnRows;
use super::{List, Shape};
use crate::{Edit, Txn, View};

/// Elements removed from a list: all between `first` and `last` (indexes before), or some.
struct Gap {
    first: usize,
    last: usize,
    count: usize,
}

impl View<'_> {
    /// The list at `key`; as [`View::string`].
    pub fn list(&self, key: &[u8]) -> Result<Option<&List>, Refusal> {
        self.collection(key)
    }
}

impl Txn<'_> {
    /// The list at `key` to be changed; `None` if there is none.
    pub fn list_mut(&mut self, key: &[u8]) -> Result<Option<Edit<'_, List>>, Refusal> {
        self.collection_mut(key)
    }

    /// As [`Txn::list_mut`], an empty one being made if there is none.
    pub fn list_or_new(&mut self, key: &[u8]) -> Result<Edit<'_, List>, Refusal> {
        self.collection_or_new(key)
    }
}

impl Edit<'_, List> {
    /// The list if it stays in its rows.
    #[inline]
    fn on_rows(&mut self) -> Option<OnRows<'_>> {
        if !matches!(self.shape, Shape::Rows(_)) {
            return None;
        }
        let (rows, list) = self.recorder_mut()?;
        list.on_rows_mut(rows)
    }

    pub fn push_front(&mut self, element: &[u8]) {
        if let Some(mut rows) = self.on_rows() {
            rows.push(element, true);
            return self.mark(1);
        }
        let (list, tuning) = self.parts();
        list.push_front(element, tuning);
        self.note_front(element);
    }

    fn note_front(&mut self, element: &[u8]) {
        if self.has_rows() {
            let list = self.parts().0;
            list.head = list.head.wrapping_sub(1);
            if let Some((mut rows, list)) = self.recorder() {
                rows.put_at(list.head, element);
            }
        }
        self.mark(1);
    }

    pub fn push_back(&mut self, element: &[u8]) {
        if let Some(mut rows) = self.on_rows() {
            rows.push(element, false);
            return self.mark(1);
        }
        let (list, tuning) = self.parts();
        list.push_back(element, tuning);
        self.note_back(element);
    }

    fn note_back(&mut self, element: &[u8]) {
        if let Some((mut rows, list)) = self.recorder() {
            rows.put_at(list.position(list.len() - 1), element);
        }
        self.mark(1);
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

    /// Removes the first element, if any: with `front`, a pop that allocates nothing.
    pub fn drop_front(&mut self) {
        if self.is_empty() {
            return;
        }
        if let Some(mut rows) = self.on_rows() {
            rows.drop_end(true);
            return self.mark(1);
        }
        let list = self.parts().0;
        list.drop_front();
        if let Some((mut rows, list)) = self.recorder() {
            rows.delete_at(list.head);
            let list = self.parts().0;
            list.head = list.head.wrapping_add(1);
        }
        self.mark(1);
    }

    /// Removes the last element, if any.
    pub fn drop_back(&mut self) {
        if self.is_empty() {
            return;
        }
        if let Some(mut rows) = self.on_rows() {
            rows.drop_end(false);
            return self.mark(1);
        }
        let list = self.parts().0;
        list.drop_back();
        if let Some((mut rows, list)) = self.recorder() {
            rows.delete_at(list.position(list.len()));
        }
        self.mark(1);
    }

    pub fn set(&mut self, index: usize, element: &[u8]) {
        if let Some(mut rows) = self.on_rows() {
            rows.set(index, element);
            return self.mark(1);
        }
        let (list, tuning) = self.parts();
        list.set(index, element, tuning);
        if let Some((mut rows, list)) = self.recorder()
            && index < list.len()
        {
            rows.put_at(list.position(index), element);
        }
        self.mark(1);
    }

    pub fn insert(&mut self, index: usize, element: &[u8]) {
        if let Some(mut rows) = self.on_rows() {
            rows.insert(index, element);
            return self.mark(1);
        }
        let (list, tuning) = self.parts();
        let len = list.len();
        list.insert(index, element, tuning);
        if index == 0 {
            return self.note_front(element);
        }
        if index >= len {
            return self.note_back(element);
        }
        if self.has_rows() {
            let in_front = index < len / 2;
            let list = self.parts().0;
            list.head = list.head.wrapping_sub(i64::from(in_front));
            if let Some((mut rows, list)) = self.recorder() {
                match in_front {
                    true => list.record_range(&mut rows, 0, index + 1),
                    false => list.record_range(&mut rows, index, len + 1),
                }
            }
        }
        self.mark(1);
    }

    pub fn remove_range(&mut self, start: usize, count: usize) {
        if let Some(mut rows) = self.on_rows() {
            let count = rows.remove_range(start, count);
            return self.mark(count);
        }
        let list = self.parts().0;
        let before = list.len();
        list.remove_range(start, count);
        let count = before - list.len();
        if count > 0 {
            let last = start + count - 1;
            self.close(Gap {
                first: start,
                last,
                count,
            });
        }
        self.mark(count);
    }

    pub fn remove_equal(&mut self, element: &[u8], limit: usize, from_tail: bool) -> usize {
        if let Some(mut rows) = self.on_rows() {
            let count = rows.remove_equal(element, limit, from_tail);
            self.mark(count);
            return count;
        }
        let ends = if self.has_rows() {
            ends(self, element, limit, from_tail)
        } else {
            None
        };
        let count = self.parts().0.remove_equal(element, limit, from_tail);
        if let Some((first, last)) = ends {
            self.close(Gap { first, last, count });
        }
        self.mark(count);
        count
    }

    /// Moves the rows of the shorter side over those of removed elements.
    fn close(&mut self, gap: Gap) {
        if !self.has_rows() {
            return;
        }
        let list = self.parts().0;
        let (former, len) = (list.head, list.len());
        let behind = (len + gap.count).saturating_sub(gap.first);
        let in_front = gap.last < behind;
        if in_front {
            list.head = list.head.wrapping_add(gap.count as i64);
        }
        let Some((mut rows, list)) = self.recorder() else {
            return;
        };
        let count = gap.count as i64;
        if in_front {
            list.record_range(&mut rows, 0, (gap.last + 1).saturating_sub(gap.count));
            (0..count).for_each(|i| rows.delete_at(former.wrapping_add(i)));
        } else {
            list.record_range(&mut rows, gap.first, len);
            (0..count).for_each(|i| rows.delete_at(list.position(len).wrapping_add(i)));
        }
    }
}

/// Indexes of the first and the last element that [`List::remove_equal`] would remove.
fn ends(list: &List, element: &[u8], limit: usize, from_tail: bool) -> Option<(usize, usize)> {
    let last = list.len().checked_sub(1)?;
    let elements = match from_tail {
        true => list.iter_rev_from(last),
        false => list.iter(),
    };
    let mut text = IntText::default();
    let equal = |atom: Atom<'_>| atom.bytes(&mut text) == element;
    let places = places(elements, equal, limit)?;
    Some(match from_tail {
        true => (last - places.1, last - places.0),
        false => places,
    })
}

/// The first and the last of up to `limit` places where `is` holds.
fn places<'a>(
    elements: impl Iterator<Item = Atom<'a>>,
    mut is: impl FnMut(Atom<'a>) -> bool,
    limit: usize,
) -> Option<(usize, usize)> {
    let mut places = (0..)
        .zip(elements)
        .filter(|(_, element)| is(*element))
        .map(|(place, _)| place)
        .take(limit);
    let first = places.next()?;
    Some((first, places.last().unwrap_or(first)))
}
