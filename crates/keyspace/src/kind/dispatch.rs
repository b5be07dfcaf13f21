//! Values of any kind, and for each operation the `match` that finds the kind's own.

use base::Atom;

use super::{Collection, InMemory, InRows, Kind, Part, each_kind, each_value, kinds, string};
use crate::Tuning;
use crate::rows::{Family, Handle, Recorder};

macro_rules! declare {
    ([(String $($string:tt)*) $(($Kind:ident $($kind:tt)*))*]) => {
        /// A value of any type, borrowed. Other crates match the kinds they are about, and the rest with `_`.
        #[non_exhaustive]
        pub enum ValueRef<'a> {
            String(Atom<'a>),
            $($Kind(&'a crate::$Kind),)*
        }

        /// A value of any type, owned: made by `*STORE` commands, moved by `RENAME`, read from a file.
        #[derive(Clone)]
        #[non_exhaustive]
        pub enum Value {
            String(Box<[u8]>),
            $($Kind(Box<crate::$Kind>),)*
        }
    };
}
kinds!([declare]);

/// A value with its deadline, outside any keyspace.
#[derive(Clone)]
pub struct Owned {
    pub value: Value,
    pub expire_at_ms: Option<u64>,
}

impl ValueRef<'_> {
    #[inline]
    pub fn kind(&self) -> Kind {
        fn of<T: Collection>(_: &T) -> Kind {
            T::KIND
        }
        each_value!(self, ValueRef: String(_) => Kind::String, it => of(*it))
    }

    /// Elements of a collection; `None` for a string.
    #[inline]
    pub fn elements(&self) -> Option<usize> {
        each_value!(self, ValueRef: String(_) => None, it => Some(it.len()))
    }

    pub fn to_value(&self) -> Value {
        fn copy<T: Collection>(it: &T) -> Value {
            T::into_value(Box::new(it.clone()))
        }
        each_value!(
            self,
            ValueRef: String(atom) => Value::String(atom.to_vec().into_boxed_slice()),
            it => copy(*it),
        )
    }

    /// Where the value lies in memory; `None` for an integer, which has no address to show.
    pub fn address(&self) -> Option<usize> {
        each_value!(
            self,
            ValueRef: String(atom) => match atom {
                Atom::Bytes(bytes) => Some(bytes.as_ptr() as usize),
                Atom::Int(_) => None,
            },
            it => Some(std::ptr::from_ref(*it) as usize),
        )
    }

    /// Appends what a metadata row says behind kind and deadline.
    #[inline]
    pub(crate) fn push_body(&self, out: &mut Vec<u8>) {
        fn push<T: Collection>(it: &T, out: &mut Vec<u8>) {
            out.extend_from_slice(&it.generation().to_be_bytes());
            out.extend_from_slice(&(it.len() as u64).to_be_bytes());
            it.push_extra(out);
        }
        each_value!(self, ValueRef: String(atom) => string::rows::push_body(*atom, out), it => push(*it, out));
    }

    /// Writes the rows of all elements.
    pub(crate) fn record(&self, rows: &mut Recorder<'_>) {
        each_value!(self, ValueRef: String(_) => {}, it => it.record(rows));
    }

    /// The generation of a collection's rows; `None` for a string.
    pub(crate) fn generation(&self) -> Option<u64> {
        each_value!(self, ValueRef: String(_) => None, it => Some(it.generation()))
    }

    /// The same collection with its elements in the rows of a handle; `None` for a string.
    pub(crate) fn with_handle(&self, handle: Handle) -> Option<Value> {
        fn make<T: Collection>(it: &T, handle: Handle) -> Value {
            T::into_value(Box::new(it.with_handle(handle)))
        }
        each_value!(self, ValueRef: String(_) => None, it => Some(make(*it, handle)))
    }

    /// See [`InMemory::prefetch`].
    pub(crate) fn prefetch<'k>(&self, arguments: impl Iterator<Item = [&'k [u8]; 2]>) {
        each_value!(self, ValueRef: String(_) => {}, it => it.prefetch(arguments));
    }
}

impl Value {
    #[inline]
    pub fn borrow(&self) -> ValueRef<'_> {
        each_value!(self, Value: String(bytes) => ValueRef::String(Atom::Bytes(bytes)), it => it.as_value())
    }

    /// Whether it is a collection without elements, which no key may have.
    pub fn is_empty_collection(&self) -> bool {
        self.borrow().elements() == Some(0)
    }

    /// A value without elements.
    pub fn empty(kind: Kind) -> Value {
        each_kind!(
            kind,
            Kind: Kind::String => Value::String(Box::default()),
            T => T::into_value(Box::default()),
        )
    }

    /// An empty value, as a metadata row says.
    pub(crate) fn of_metadata(kind: Kind, generation: u64, extra: &[u8]) -> Value {
        each_kind!(
            kind,
            Kind: Kind::String => Value::String(Box::default()),
            T => T::into_value(Box::new(T::of_metadata(generation, extra))),
        )
    }

    /// See [`InRows::add_row`]; false for a string.
    pub(crate) fn add_row(&mut self, sub: &[u8], value: &[u8], tuning: &Tuning) -> bool {
        each_value!(self, Value: String(_) => false, it => it.add_row(sub, value, tuning))
    }

    /// Makes a collection follow a row of `data` that was put or deleted.
    pub(crate) fn change_row(&mut self, sub: &[u8], value: Option<&[u8]>, tuning: &Tuning) {
        match value {
            Some(value) => {
                self.add_row(sub, value, tuning);
            }
            None => each_value!(self, Value: String(_) => {}, it => it.remove_row(sub)),
        }
    }
}

impl Kind {
    /// See [`InRows::ORDER`].
    pub(crate) fn order(self) -> Family {
        each_kind!(self, Kind: Kind::String => Family::Data, T => T::ORDER)
    }

    /// See [`InRows::COMES_WHOLE`].
    pub(crate) fn comes_whole(self) -> bool {
        each_kind!(self, Kind: Kind::String => false, T => T::COMES_WHOLE)
    }

    /// See [`InRows::is_extra`].
    pub(crate) fn is_extra(self, extra: &[u8]) -> bool {
        each_kind!(self, Kind: Kind::String => true, T => T::is_extra(extra))
    }

    /// See [`InRows::overhead`].
    pub(crate) fn overhead(self, size: u64) -> i64 {
        each_kind!(self, Kind: Kind::String => 0, T => T::overhead(size))
    }

    /// See [`InRows::import`]. All of a string is in its metadata row.
    pub(crate) fn import(
        self,
        part: Part<'_>,
        index: u64,
        rows: &mut Recorder<'_>,
        extra: &mut Vec<u8>,
    ) {
        each_kind!(
            self,
            Kind: Kind::String => string::rows::import(part, extra),
            T => T::import(part, index, rows, extra),
        );
    }
}
