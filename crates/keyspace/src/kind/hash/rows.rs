//! Hashes in rows: `data` has a row per field, whose value is the field's value.

use base::IntText;

use super::{Hash, Look, Shape};
use crate::Tuning;
use crate::kind::{InRows, Part};
use crate::rows::{Handle, Recorder};

impl InRows for Hash {
    #[inline]
    fn generation(&self) -> u64 {
        self.generation
    }

    fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
    }

    fn handle_mut(&mut self) -> Option<&mut Handle> {
        self.shape.handle_mut()
    }

    fn of_metadata(generation: u64, _extra: &[u8]) -> Self {
        Hash {
            generation,
            ..Hash::new()
        }
    }

    fn with_handle(&self, handle: Handle) -> Self {
        Hash {
            shape: Shape::on_rows(handle),
            generation: self.generation,
        }
    }

    fn add_row(&mut self, sub: &[u8], value: &[u8], tuning: &Tuning) -> bool {
        self.insert(sub, value, tuning);
        true
    }

    fn remove_row(&mut self, sub: &[u8]) {
        self.remove(sub);
    }

    fn record(&self, rows: &mut Recorder<'_>) {
        if let Look::Rows(handle) = self.shape.look() {
            return handle.all(&mut |field, value| rows.put(field, value));
        }
        let (mut text, mut other) = (IntText::default(), IntText::default());
        for (field, value) in self.iter() {
            rows.put(field.bytes(&mut text), value.bytes(&mut other));
        }
    }

    fn import(part: Part<'_>, _index: u64, rows: &mut Recorder<'_>, _extra: &mut Vec<u8>) {
        rows.put(part.name, part.value);
    }
}
