//! What is going to happen, in the order of time; at the same time, in the order it was decided.

use std::collections::BTreeMap;

/// Events by (time, number). The number makes the order total, so a run can be had twice.
#[derive(Debug)]
pub struct Queue<E> {
    events: BTreeMap<(u64, u64), E>,
    next: u64,
}

impl<E> Queue<E> {
    pub fn new() -> Queue<E> {
        Queue {
            events: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn push(&mut self, at_us: u64, event: E) {
        self.events.insert((at_us, self.next), event);
        self.next += 1;
    }

    /// The next event, when it happens, and its number.
    pub fn pop(&mut self) -> Option<(u64, u64, E)> {
        let ((at_us, number), event) = self.events.pop_first()?;
        Some((at_us, number, event))
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Queue<E> {
        Queue::new()
    }
}
