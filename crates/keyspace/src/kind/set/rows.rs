//! Sets in rows: `data` has a row per member, without a value.

use base::IntText;

use super::{Set, Shape};
use crate::Tuning;
use crate::kind::{InRows, Part};
use crate::rows::{Handle, Recorder};

impl InRows for Set {
    #[inline]
    fn generation(&self) -> u64 {
        self.generation
    }

    fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
    }

    fn handle_mut(&mut self) -> Option<&mut Handle> {
        match &mut self.shape {
            Shape::Rows(handle) => Some(handle),
            _ => None,
        }
    }

    fn of_metadata(generation: u64, _extra: &[u8]) -> Self {
        Set {
            generation,
            ..Set::new()
        }
    }

    fn with_handle(&self, handle: Handle) -> Self {
        Set {
            shape: Shape::Rows(Box::new(handle)),
            generation: self.generation,
        }
    }

    fn add_row(&mut self, sub: &[u8], _value: &[u8], tuning: &Tuning) -> bool {
        self.insert(sub, tuning);
        true
    }

    fn remove_row(&mut self, sub: &[u8]) {
        self.remove(sub);
    }

    fn record(&self, rows: &mut Recorder<'_>) {
        if let Shape::Rows(handle) = &self.shape {
            return handle.all(&mut |member, _| rows.put(member, b""));
        }
        let mut text = IntText::default();
        for member in self.iter() {
            rows.put(member.bytes(&mut text), b"");
        }
    }

    fn import(part: Part<'_>, _index: u64, rows: &mut Recorder<'_>, _extra: &mut Vec<u8>) {
        rows.put(part.name, b"");
    }
}
