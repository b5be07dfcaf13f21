//! One value in a dump, whatever its kind: what the reader and the writer of dumps (crate `dump`) ask of a kind, and the
//! `match` that finds the kind. The layouts of a kind are in `kind/*/rdb.rs`; how lengths and strings are written, in crate
//! `rdb`.

use std::io::Read;

use base::DbIndex;
use rdb::{Error, Source, Writer};

use crate::kind::{each_kind, each_value, string};
use crate::{Kind, Part, Tuning, Value, ValueRef};

/// A kind that dumps can hold. All but strings, which have an arm of their own wherever this is used.
///
/// Uses nothing of the kind that is not public: dumps are no part of what a value is.
pub(crate) trait Dumped: Sized {
    /// The layout it is written in: one that every Redis since 4 loads.
    const LAYOUT: u8;

    /// Whether values with this layout are of this kind.
    fn has_layout(layout: u8) -> bool;

    /// Appends the value.
    fn write(&self, out: &mut Writer<'_>);

    /// Hands the parts of the value that follows to `each`; memory is needed for one of them, or
    /// for as many as the dump has packed into one string.
    fn read<R: Read>(
        source: &mut Source<R>,
        layout: u8,
        room: &mut Room,
        each: &mut Each<'_>,
    ) -> Result<(), Error>;

    /// Adds a part that [`Dumped::read`] has handed out.
    fn add(&mut self, part: Part<'_>, tuning: &Tuning);
}

/// Takes parts in.
pub type Each<'a> = dyn FnMut(Part<'_>) -> Result<(), Error> + 'a;

/// Buffers for strings, kept from one value to the next.
#[derive(Default)]
pub struct Room {
    pub first: Vec<u8>,
    pub second: Vec<u8>,
}

/// The layout a value is written in.
pub fn layout_of(kind: Kind) -> u8 {
    each_kind!(kind, Kind: Kind::String => string::rdb::LAYOUT, T => T::LAYOUT)
}

pub fn write(value: &ValueRef<'_>, out: &mut Writer<'_>) {
    each_value!(value, ValueRef: String(atom) => string::rdb::write(*atom, out), it => it.write(out));
}

/// The type of the values with this layout; `None` if they have no place here.
pub fn kind_of(layout: u8) -> Option<Kind> {
    let has_layout = |kind: &Kind| {
        each_kind!(
            kind,
            Kind: Kind::String => layout == string::rdb::LAYOUT,
            T => T::has_layout(layout),
        )
    };
    Kind::ALL.iter().copied().find(has_layout)
}

/// Hands the parts of the value that follows to `each`; see [`Dumped::read`].
pub fn read<R: Read>(
    source: &mut Source<R>,
    kind: Kind,
    layout: u8,
    room: &mut Room,
    each: &mut Each<'_>,
) -> Result<(), Error> {
    each_kind!(
        kind,
        Kind: Kind::String => string::rdb::read(source, room, each),
        T => T::read(source, layout, room, each),
    )
}

/// Takes a dump in part by part, for whoever has no room for whole values.
pub trait Sink {
    /// A key and the type of its value; false if it is not wanted.
    fn begin(&mut self, db: DbIndex, key: &[u8], kind: Kind, expire_at_ms: Option<u64>) -> bool;

    /// The next part of its value; none comes for an empty collection.
    fn part(&mut self, part: Part<'_>) -> Result<(), Error>;

    /// The value is complete; false if it is not kept.
    fn end(&mut self) -> Result<bool, Error>;
}

/// Puts the parts of a value together.
pub struct Building<'a> {
    value: Value,
    tuning: &'a Tuning,
}

impl<'a> Building<'a> {
    pub fn new(kind: Kind, tuning: &'a Tuning) -> Self {
        let value = Value::empty(kind);
        Building { value, tuning }
    }

    pub fn add(&mut self, part: Part<'_>) {
        each_value!(
            &mut self.value,
            Value: String(bytes) => *bytes = part.value.into(),
            it => it.add(part, self.tuning),
        );
    }

    /// `None` for an empty collection, which Redis skips as well.
    pub fn finish(self) -> Option<Value> {
        (!self.value.is_empty_collection()).then_some(self.value)
    }
}
