//! Lists. (Skeleton.)

use base::Atom;

use crate::{Edit, Tuning};

#[derive(Clone)]
pub struct List(());

impl List {
    pub fn new() -> Self {
        todo!()
    }
    pub fn len(&self) -> usize {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn get(&self, _index: usize) -> Option<Atom<'_>> {
        todo!()
    }
    /// Elements from `start` on, towards the tail.
    pub fn iter_from(&self, _start: usize) -> Box<dyn Iterator<Item = Atom<'_>> + '_> {
        todo!()
    }
    /// Elements from `start` on, towards the head.
    pub fn iter_rev_from(&self, _start: usize) -> Box<dyn Iterator<Item = Atom<'_>> + '_> {
        todo!()
    }
    pub fn encoding(&self) -> &'static str {
        todo!()
    }
    pub fn memory_usage(&self) -> usize {
        todo!()
    }
    pub fn push_front(&mut self, _element: &[u8], _tuning: &Tuning) {
        todo!()
    }
    pub fn push_back(&mut self, _element: &[u8], _tuning: &Tuning) {
        todo!()
    }
    pub fn pop_front(&mut self) -> Option<Vec<u8>> {
        todo!()
    }
    pub fn pop_back(&mut self) -> Option<Vec<u8>> {
        todo!()
    }
    /// Replaces element `index`, which must exist.
    pub fn set(&mut self, _index: usize, _element: &[u8], _tuning: &Tuning) {
        todo!()
    }
    /// Inserts before element `index`; `index == len` appends.
    pub fn insert(&mut self, _index: usize, _element: &[u8], _tuning: &Tuning) {
        todo!()
    }
    /// Removes `count` elements from `start` on (fewer if there are fewer).
    pub fn remove_range(&mut self, _start: usize, _count: usize) {
        todo!()
    }
    /// Removes up to `limit` elements equal to `element`, from the head or from the tail; how many.
    pub fn remove_equal(&mut self, _element: &[u8], _limit: usize, _from_tail: bool) -> usize {
        todo!()
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl Edit<'_, List> {
    pub fn push_front(&mut self, element: &[u8]) {
        let (list, tuning) = self.parts();
        list.push_front(element, tuning);
        self.mark(1);
    }
    pub fn push_back(&mut self, element: &[u8]) {
        let (list, tuning) = self.parts();
        list.push_back(element, tuning);
        self.mark(1);
    }
    pub fn pop_front(&mut self) -> Option<Vec<u8>> {
        let element = self.parts().0.pop_front();
        self.mark(usize::from(element.is_some()));
        element
    }
    pub fn pop_back(&mut self) -> Option<Vec<u8>> {
        let element = self.parts().0.pop_back();
        self.mark(usize::from(element.is_some()));
        element
    }
    pub fn set(&mut self, index: usize, element: &[u8]) {
        let (list, tuning) = self.parts();
        list.set(index, element, tuning);
        self.mark(1);
    }
    pub fn insert(&mut self, index: usize, element: &[u8]) {
        let (list, tuning) = self.parts();
        list.insert(index, element, tuning);
        self.mark(1);
    }
    pub fn remove_range(&mut self, start: usize, count: usize) {
        let list = self.parts().0;
        let before = list.len();
        list.remove_range(start, count);
        let removed = before - list.len();
        self.mark(removed);
    }
    pub fn remove_equal(&mut self, element: &[u8], limit: usize, from_tail: bool) -> usize {
        let removed = self.parts().0.remove_equal(element, limit, from_tail);
        self.mark(removed);
        removed
    }
}
