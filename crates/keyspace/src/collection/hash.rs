//! Hashes: packed pairs while small, a table of cells once a field, a value or their number is big.
//!
//! A record of the packed form is the field's code and the value's code. The conversion happens when a
//! limit is passed and is never undone.

use base::{Atom, IntText};

use super::cell::{self, Cell};
use super::element::{self, Form};
use super::packed::Packed;
use crate::memory::table::{self, Table};
use crate::rows::Recorder;
use crate::{Edit, Tuning};

pub struct Hash {
    shape: Shape,
    /// Which of the key's lives its rows belong to; 0 if it has none.
    pub(crate) generation: u64,
}

enum Shape {
    Packed(Packed),
    Table(Box<Table<Cell<u32>>>),
}

/// Where a pair lies in the packed form: field, value, end.
struct Place {
    field: usize,
    value: usize,
    end: usize,
}

fn find(run: &[u8], form: &Form<'_>) -> Option<Place> {
    let mut field = 0;
    while field < run.len() {
        let value = field + element::skip(&run[field..]);
        let end = value + element::skip(&run[value..]);
        if form.is_at(&run[field..value]) {
            return Some(Place { field, value, end });
        }
        field = end;
    }
    None
}

/// The first pair of a run and the run after it.
#[inline]
fn first(run: &[u8]) -> (Atom<'_>, Atom<'_>, &[u8]) {
    let (field, size) = element::read(run);
    let run = &run[size..];
    let (value, size) = element::read(run);
    (field, value, &run[size..])
}

impl Hash {
    pub fn new() -> Self {
        Hash {
            shape: Shape::Packed(Packed::new()),
            generation: 0,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.shape {
            Shape::Packed(packed) => packed.len(),
            Shape::Table(table) => table.len(),
        }
    }

    /// Asks for the memory that lookups of these fields will touch.
    pub(crate) fn prefetch<'k>(&self, fields: impl Iterator<Item = &'k [u8]>) {
        if let Shape::Table(table) = &self.shape {
            table.prefetch_all(fields);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, field: &[u8]) -> Option<Atom<'_>> {
        match &self.shape {
            Shape::Packed(packed) => {
                let place = find(packed.run(), &Form::of(field))?;
                Some(element::read(&packed.run()[place.value..]).0)
            }
            Shape::Table(table) => {
                let cell = table.get(table.hash(field), field)?;
                Some(Atom::Bytes(cell.tail()))
            }
        }
    }

    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// Field and value of every entry, in the structure's order.
    pub fn iter(&self) -> Iter<'_> {
        Iter(match &self.shape {
            Shape::Packed(packed) => IterShape::Packed(packed.run()),
            Shape::Table(table) => IterShape::Table(table.iter()),
        })
    }

    /// An entry at random.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<(Atom<'_>, Atom<'_>)> {
        match &self.shape {
            Shape::Packed(packed) if packed.len() == 0 => None,
            Shape::Packed(packed) => self.iter().nth(rng.usize(..packed.len())),
            Shape::Table(table) => table
                .random(rng)
                .map(|cell| (Atom::Bytes(cell.key()), Atom::Bytes(cell.tail()))),
        }
    }

    /// One step of HSCAN: about `count` entries to `each`; the next cursor (0: done).
    pub fn scan(&self, cursor: u64, count: usize, each: &mut dyn FnMut(Atom<'_>, Atom<'_>)) -> u64 {
        match &self.shape {
            Shape::Packed(_) => {
                self.iter().for_each(|(field, value)| each(field, value));
                0
            }
            Shape::Table(table) => table.scan(cursor, count, |cell| {
                each(Atom::Bytes(cell.key()), Atom::Bytes(cell.tail()));
            }),
        }
    }

    pub fn encoding(&self) -> &'static str {
        match self.shape {
            Shape::Packed(_) => "listpack",
            Shape::Table(_) => "hashtable",
        }
    }

    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + match &self.shape {
                Shape::Packed(packed) => packed.memory_usage(),
                Shape::Table(table) => cell::table_memory(table),
            }
    }

    /// Blocks of memory to free: how long dropping the hash takes.
    pub fn allocations(&self) -> usize {
        match &self.shape {
            Shape::Packed(_) => 1,
            Shape::Table(table) => 1 + table.len(),
        }
    }

    /// Sets a field; whether it is new.
    pub fn insert(&mut self, field: &[u8], value: &[u8], tuning: &Tuning) -> bool {
        if let Shape::Packed(packed) = &mut self.shape {
            let longest = field.len().max(value.len());
            if longest <= tuning.hash_max_packed_value
                && packed.has_room(field.len() + value.len() + 10)
            {
                let (form, value_form) = (Form::of(field), Form::of(value));
                let size = value_form.size();
                if let Some(place) = find(packed.run(), &form) {
                    let old = place.end - place.value;
                    value_form.write(packed.replace(place.value, old, size));
                    // The limit may have been lowered since.
                    if packed.len() > tuning.hash_max_packed_entries {
                        self.convert(tuning);
                    }
                    return false;
                }
                if packed.len() < tuning.hash_max_packed_entries {
                    let end = packed.run().len();
                    let room = packed.insert(end, form.size() + size);
                    let at = form.write(room);
                    value_form.write(&mut room[at..]);
                    return true;
                }
            }
            self.convert(tuning);
        }
        let Shape::Table(table) = &mut self.shape else {
            unreachable!("converted above")
        };
        let hash = table.hash(field);
        match table.find(hash, field) {
            Some(position) => {
                Cell::set_tail(table, position, value.len() as u32, value);
                false
            }
            None => {
                table.insert(hash, Cell::new(value.len() as u32, field, value));
                true
            }
        }
    }

    fn convert(&mut self, tuning: &Tuning) {
        let mut table = Box::new(Table::new(tuning.hash_seed));
        for (field, value) in self.iter() {
            let (field, value) = (field.to_vec(), value.to_vec());
            let hash = table.hash(&field);
            table.insert(hash, Cell::new(value.len() as u32, &field, &value));
        }
        self.shape = Shape::Table(table);
    }

    /// Writes the rows of all fields.
    pub(crate) fn record(&self, rows: &mut Recorder<'_>) {
        let (mut text, mut other) = (IntText::default(), IntText::default());
        for (field, value) in self.iter() {
            rows.put(field.bytes(&mut text), value.bytes(&mut other));
        }
    }

    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.shape {
            Shape::Packed(packed) => match find(packed.run(), &Form::of(field)) {
                Some(place) => {
                    packed.remove(place.field, place.end - place.field);
                    true
                }
                None => false,
            },
            Shape::Table(table) => match table.find(table.hash(field), field) {
                Some(position) => table.remove(position).is_some(),
                None => false,
            },
        }
    }
}

impl Clone for Hash {
    fn clone(&self) -> Self {
        let shape = match &self.shape {
            Shape::Packed(packed) => Shape::Packed(packed.clone()),
            Shape::Table(table) => Shape::Table(Box::new(cell::clone_table(table))),
        };
        Hash {
            shape,
            generation: self.generation,
        }
    }
}

/// Fields and values of a hash.
pub struct Iter<'a>(IterShape<'a>);

enum IterShape<'a> {
    Packed(&'a [u8]),
    Table(table::Iter<'a, Cell<u32>>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = (Atom<'a>, Atom<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            IterShape::Packed([]) => None,
            IterShape::Packed(run) => {
                let (field, value, rest) = first(run);
                *run = rest;
                Some((field, value))
            }
            IterShape::Table(cells) => cells
                .next()
                .map(|cell| (Atom::Bytes(cell.key()), Atom::Bytes(cell.tail()))),
        }
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

impl Edit<'_, Hash> {
    /// Sets a field; whether it is new. Counts as one change.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        let (hash, tuning) = self.parts();
        let new = hash.insert(field, value, tuning);
        if let Some((mut rows, _)) = self.recorder() {
            rows.put(field, value);
        }
        self.mark(1);
        new
    }

    /// Removes a field; whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let removed = self.parts().0.remove(field);
        if removed && let Some((mut rows, _)) = self.recorder() {
            rows.delete(field);
        }
        self.mark(usize::from(removed));
        removed
    }
}
