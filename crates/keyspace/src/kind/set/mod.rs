//! Sets: sorted integers while all members are integers and few, else a table of cells.
//!
//! A few short members that are not all integers are kept packed (where Redis 7.0 has a table at once);
//! that is not shown: such a set says "hashtable" as well. Conversions are never undone.
//! A big set that was loaded from its rows stays there.

mod digest;
mod edit;
mod intset;
mod rdb;
mod rows;

use base::Atom;
use base::number::parse_i64;

use self::intset::IntSet;
use crate::Tuning;
use crate::collection::cell::{self, Cell};
use crate::collection::element::{self, Form};
use crate::collection::packed::Packed;
use crate::kind::InMemory;
use crate::memory::table::{self, Table};
use crate::rows::{Handle, Walk, cursor_in_memory};

/// Members, and bytes of each, up to which a set stays packed: as many as a walk finds faster than
/// a table does.
const PACKED_LEN: usize = 24;
const PACKED_MEMBER_BYTES: usize = 64;

pub struct Set {
    shape: Shape,
    /// Which of the key's lives its rows belong to; 0 if it has none.
    generation: u64,
}

enum Shape {
    Ints(IntSet),
    Packed(Packed),
    Table(Box<Table<Cell<()>>>),
    /// Members are rows of `data`.
    Rows(Box<Handle>),
}

/// Where a member lies in the packed form, and its size.
fn find(run: &[u8], form: &Form<'_>) -> Option<(usize, usize)> {
    let mut at = 0;
    while at < run.len() {
        let size = element::skip(&run[at..]);
        if form.is_at(&run[at..]) {
            return Some((at, size));
        }
        at += size;
    }
    None
}

impl Set {
    pub fn new() -> Self {
        Set {
            shape: Shape::Ints(IntSet::new()),
            generation: 0,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.shape {
            Shape::Ints(ints) => ints.len(),
            Shape::Packed(packed) => packed.len(),
            Shape::Table(table) => table.len(),
            Shape::Rows(handle) => handle.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.shape {
            Shape::Ints(ints) => parse_i64(member).is_some_and(|value| ints.contains(value)),
            Shape::Packed(packed) => find(packed.run(), &Form::of(member)).is_some(),
            Shape::Table(table) => table.find(table.hash(member), member).is_some(),
            Shape::Rows(handle) => handle.contains(member),
        }
    }

    pub fn iter(&self) -> Iter<'_> {
        Iter(match &self.shape {
            Shape::Ints(ints) => IterShape::Ints(ints, 0),
            Shape::Packed(packed) => IterShape::Packed(packed.run()),
            Shape::Table(table) => IterShape::Table(table.iter()),
            Shape::Rows(handle) => IterShape::Rows(Box::new(handle.walk_from(0))),
        })
    }

    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<Atom<'_>> {
        match &self.shape {
            _ if self.is_empty() => None,
            Shape::Ints(ints) => Some(Atom::Int(ints.get(rng.usize(..ints.len())))),
            Shape::Packed(packed) => self.iter().nth(rng.usize(..packed.len())),
            Shape::Table(table) => table.random(rng).map(|cell| Atom::Bytes(cell.key())),
            Shape::Rows(handle) => handle.random(rng).map(|(member, _)| Atom::Bytes(member)),
        }
    }

    pub fn scan(&self, cursor: u64, count: usize, each: &mut dyn FnMut(Atom<'_>)) -> u64 {
        match &self.shape {
            Shape::Ints(_) | Shape::Packed(_) => {
                self.iter().for_each(each);
                0
            }
            Shape::Table(table) => table.scan(cursor_in_memory(cursor), count, |cell| {
                each(Atom::Bytes(cell.key()))
            }),
            Shape::Rows(handle) => {
                handle.scan(cursor, count, &mut |member, _| each(Atom::Bytes(member)))
            }
        }
    }

    pub fn encoding(&self) -> &'static str {
        match self.shape {
            Shape::Ints(_) => "intset",
            Shape::Packed(_) | Shape::Table(_) | Shape::Rows(_) => "hashtable",
        }
    }

    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + match &self.shape {
                Shape::Ints(ints) => ints.memory_usage(),
                Shape::Packed(packed) => packed.memory_usage(),
                Shape::Table(table) => cell::table_memory(table),
                Shape::Rows(handle) => handle.memory_usage(),
            }
    }

    /// Adds a member; whether it is new.
    pub fn insert(&mut self, member: &[u8], tuning: &Tuning) -> bool {
        loop {
            match &mut self.shape {
                Shape::Table(table) => {
                    let hash = table.hash(member);
                    if table.find(hash, member).is_some() {
                        return false;
                    }
                    table.insert(hash, Cell::new((), member, b""));
                    return true;
                }
                Shape::Rows(handle) => {
                    return handle.insert(member, b"");
                }
                Shape::Ints(ints) => {
                    if let Some(value) = parse_i64(member) {
                        if ints.len() < tuning.set_max_intset_entries {
                            return ints.insert(value);
                        }
                        if ints.contains(value) {
                            return false;
                        }
                        self.make_table(tuning);
                    } else if ints.len() < PACKED_LEN && member.len() <= PACKED_MEMBER_BYTES {
                        self.make_packed();
                    } else {
                        self.make_table(tuning);
                    }
                }
                Shape::Packed(packed) => {
                    let form = Form::of(member);
                    if find(packed.run(), &form).is_some() {
                        return false;
                    }
                    if packed.len() < PACKED_LEN && member.len() <= PACKED_MEMBER_BYTES {
                        let end = packed.run().len();
                        form.write(packed.insert(end, form.size()));
                        return true;
                    }
                    self.make_table(tuning);
                }
            }
        }
    }

    fn make_packed(&mut self) {
        let mut packed = Packed::new();
        for member in self.iter() {
            let form = Form::of_atom(member);
            let end = packed.run().len();
            form.write(packed.insert(end, form.size()));
        }
        self.shape = Shape::Packed(packed);
    }

    fn make_table(&mut self, tuning: &Tuning) {
        let mut table = Box::new(Table::new(tuning.hash_seed));
        let mut room = base::IntText::default();
        for member in self.iter() {
            let member = member.bytes(&mut room);
            let hash = table.hash(member);
            table.insert(hash, Cell::new((), member, b""));
        }
        self.shape = Shape::Table(table);
    }

    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.shape {
            Shape::Ints(ints) => parse_i64(member).is_some_and(|value| ints.remove(value)),
            Shape::Packed(packed) => match find(packed.run(), &Form::of(member)) {
                Some((at, size)) => {
                    packed.remove(at, size);
                    true
                }
                None => false,
            },
            Shape::Table(table) => match table.find(table.hash(member), member) {
                Some(position) => table.remove(position).is_some(),
                None => false,
            },
            Shape::Rows(handle) => handle.remove(member),
        }
    }
}

impl Clone for Set {
    fn clone(&self) -> Self {
        let shape = match &self.shape {
            Shape::Ints(ints) => Shape::Ints(ints.clone()),
            Shape::Packed(packed) => Shape::Packed(packed.clone()),
            Shape::Table(table) => Shape::Table(Box::new(cell::clone_table(table))),
            Shape::Rows(handle) => Shape::Rows(handle.clone()),
        };
        Set {
            shape,
            generation: self.generation,
        }
    }
}

/// Members of a set.
pub struct Iter<'a>(IterShape<'a>);

enum IterShape<'a> {
    Ints(&'a IntSet, usize),
    Packed(&'a [u8]),
    Table(table::Iter<'a, Cell<()>>),
    Rows(Box<Walk<'a>>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = Atom<'a>;

    #[inline]
    fn next(&mut self) -> Option<Atom<'a>> {
        match &mut self.0 {
            IterShape::Ints(ints, next) => {
                if *next == ints.len() {
                    return None;
                }
                *next += 1;
                Some(Atom::Int(ints.get(*next - 1)))
            }
            IterShape::Packed([]) => None,
            IterShape::Packed(run) => {
                let (atom, size) = element::read(run);
                *run = &run[size..];
                Some(atom)
            }
            IterShape::Table(cells) => cells.next().map(|cell| Atom::Bytes(cell.key())),
            IterShape::Rows(walk) => walk.next().map(|(member, _)| Atom::Bytes(member)),
        }
    }
}

impl Default for Set {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemory for Set {
    fn len(&self) -> usize {
        Set::len(self)
    }

    fn encoding(&self) -> &'static str {
        Set::encoding(self)
    }

    fn memory_usage(&self) -> usize {
        Set::memory_usage(self)
    }

    fn weight(&self) -> usize {
        match &self.shape {
            Shape::Ints(ints) => ints.len() * 8,
            Shape::Packed(packed) => packed.run().len(),
            Shape::Table(table) => table.weight(),
            Shape::Rows(handle) => handle.weight(),
        }
    }

    fn allocations(&self) -> usize {
        match &self.shape {
            Shape::Ints(_) | Shape::Packed(_) | Shape::Rows(_) => 1,
            Shape::Table(table) => 1 + table.len(),
        }
    }

    /// The second argument is a member.
    fn prefetch<'k>(&self, arguments: impl Iterator<Item = [&'k [u8]; 2]>) {
        if let Shape::Table(table) = &self.shape {
            table.prefetch_all(arguments.map(|[member, _]| member));
        }
    }
}
