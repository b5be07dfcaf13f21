//! Hashes: packed pairs while small, a table of cells once a field, a value or their number is big.
//!
//! A record of the packed form is the field's code and the value's code. The conversion happens when a
//! limit is passed and is never undone. A big hash that was loaded from its rows stays there.

mod digest;
mod edit;
mod rdb;
mod rows;

use base::Atom;

use crate::Tuning;
use crate::collection::cell::{self, Cell};
use crate::collection::element::{self, Form};
use crate::collection::shape::{Look, Shape};
use crate::kind::InMemory;
use crate::memory::table::{self, Table};
use crate::rows::{Walk, cursor_in_memory};

pub struct Hash {
    shape: Shape<Table<Cell<u32>>>,
    /// Which of the key's lives its rows belong to; 0 if it has none.
    generation: u64,
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
            shape: Shape::new(),
            generation: 0,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self.shape.look() {
            Look::Packed(packed) => packed.len(),
            Look::Indexed(table) => table.len(),
            Look::Rows(handle) => handle.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, field: &[u8]) -> Option<Atom<'_>> {
        match self.shape.look() {
            Look::Packed(packed) => {
                let place = find(packed.run(), &Form::of(field))?;
                Some(element::read(&packed.run()[place.value..]).0)
            }
            Look::Indexed(table) => {
                let cell = table.get(table.hash(field), field)?;
                Some(Atom::Bytes(cell.tail()))
            }
            Look::Rows(handle) => handle.get(field).map(Atom::Bytes),
        }
    }

    pub fn contains(&self, field: &[u8]) -> bool {
        match self.shape.look() {
            Look::Rows(handle) => handle.contains(field),
            _ => self.get(field).is_some(),
        }
    }

    /// Field and value of every entry, in the structure's order.
    pub fn iter(&self) -> Iter<'_> {
        Iter(match self.shape.look() {
            Look::Packed(packed) => IterShape::Packed(packed.run()),
            Look::Indexed(table) => IterShape::Table(table.iter()),
            Look::Rows(handle) => IterShape::Rows(Box::new(handle.walk_from(0))),
        })
    }

    /// An entry at random.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<(Atom<'_>, Atom<'_>)> {
        match self.shape.look() {
            Look::Packed(packed) if packed.len() == 0 => None,
            Look::Packed(packed) => self.iter().nth(rng.usize(..packed.len())),
            Look::Indexed(table) => table
                .random(rng)
                .map(|cell| (Atom::Bytes(cell.key()), Atom::Bytes(cell.tail()))),
            Look::Rows(handle) => handle.random(rng).map(atoms),
        }
    }

    /// One step of HSCAN: about `count` entries to `each`; the next cursor (0: done).
    pub fn scan(&self, cursor: u64, count: usize, each: &mut dyn FnMut(Atom<'_>, Atom<'_>)) -> u64 {
        match self.shape.look() {
            Look::Packed(_) => {
                self.iter().for_each(|(field, value)| each(field, value));
                0
            }
            Look::Indexed(table) => table.scan(cursor_in_memory(cursor), count, |cell| {
                each(Atom::Bytes(cell.key()), Atom::Bytes(cell.tail()));
            }),
            Look::Rows(handle) => handle.scan(cursor, count, &mut |field, value| {
                each(Atom::Bytes(field), Atom::Bytes(value));
            }),
        }
    }

    pub fn encoding(&self) -> &'static str {
        match self.shape.look() {
            Look::Packed(_) => "listpack",
            Look::Indexed(_) | Look::Rows(_) => "hashtable",
        }
    }

    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + match self.shape.look() {
                Look::Packed(packed) => packed.memory_usage(),
                Look::Indexed(table) => cell::table_memory(table),
                Look::Rows(handle) => handle.memory_usage(),
            }
    }

    /// Sets a field; whether it is new.
    pub fn insert(&mut self, field: &[u8], value: &[u8], tuning: &Tuning) -> bool {
        if let Look::Packed(packed) = self.shape.look_mut() {
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
        let table = match self.shape.look_mut() {
            Look::Indexed(table) => table,
            Look::Rows(handle) => return handle.insert(field, value),
            Look::Packed(_) => unreachable!("converted above"),
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
        let mut table = Table::new(tuning.hash_seed);
        for (field, value) in self.iter() {
            let (field, value) = (field.to_vec(), value.to_vec());
            let hash = table.hash(&field);
            table.insert(hash, Cell::new(value.len() as u32, &field, &value));
        }
        self.shape = Shape::indexed(table);
    }

    pub fn remove(&mut self, field: &[u8]) -> bool {
        match self.shape.look_mut() {
            Look::Packed(packed) => match find(packed.run(), &Form::of(field)) {
                Some(place) => {
                    packed.remove(place.field, place.end - place.field);
                    true
                }
                None => false,
            },
            Look::Indexed(table) => match table.find(table.hash(field), field) {
                Some(position) => table.remove(position).is_some(),
                None => false,
            },
            Look::Rows(handle) => handle.remove(field),
        }
    }
}

impl Clone for Hash {
    fn clone(&self) -> Self {
        let shape = match self.shape.look() {
            Look::Packed(packed) => Shape::Packed(packed.clone()),
            Look::Indexed(table) => Shape::indexed(cell::clone_table(table)),
            Look::Rows(handle) => Shape::on_rows(handle.clone()),
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
    Rows(Box<Walk<'a>>),
}

fn atoms<'a>((field, value): (&'a [u8], &'a [u8])) -> (Atom<'a>, Atom<'a>) {
    (Atom::Bytes(field), Atom::Bytes(value))
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
            IterShape::Rows(walk) => walk.next().map(atoms),
        }
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemory for Hash {
    fn len(&self) -> usize {
        Hash::len(self)
    }

    fn encoding(&self) -> &'static str {
        Hash::encoding(self)
    }

    fn memory_usage(&self) -> usize {
        Hash::memory_usage(self)
    }

    fn weight(&self) -> usize {
        match self.shape.look() {
            Look::Packed(packed) => packed.run().len(),
            Look::Indexed(table) => table.weight(),
            Look::Rows(handle) => handle.weight(),
        }
    }

    fn allocations(&self) -> usize {
        match self.shape.look() {
            Look::Packed(_) | Look::Rows(_) => 1,
            Look::Indexed(table) => 1 + table.len(),
        }
    }

    /// The second argument is a field.
    fn prefetch<'k>(&self, arguments: impl Iterator<Item = [&'k [u8]; 2]>) {
        if let Look::Indexed(table) = self.shape.look() {
            table.prefetch_all(arguments.map(|[field, _]| field));
        }
    }
}
