//! What the value area of an entry holds: a [`Form`] per way to keep a value, and the collections
//! that are kept behind a pointer.
//!
//! Three bits of the head tell the form, so a form is a number from 0 to 6; a value of another kind
//! or length is another entry, never another form of the same bytes.

use super::FORM_SHIFT;
use crate::{Hash, Kind, List, Set, Value, Zset};

/// How the value is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Inline,
    Int,
    Raw,
    List,
    Set,
    Zset,
    Hash,
}

impl Form {
    #[inline]
    pub(super) fn of(meta: u32) -> Form {
        match meta >> FORM_SHIFT & 7 {
            0 => Form::Inline,
            1 => Form::Int,
            2 => Form::Raw,
            3 => Form::List,
            4 => Form::Set,
            5 => Form::Zset,
            _ => Form::Hash,
        }
    }

    #[inline]
    pub(super) fn value_bytes(self) -> usize {
        match self {
            Form::Inline => 0,
            Form::Raw => size_of::<Vec<u8>>(),
            _ => 8,
        }
    }

    #[inline]
    pub fn kind(self) -> Kind {
        match self {
            Form::Inline | Form::Int | Form::Raw => Kind::String,
            Form::List => Kind::List,
            Form::Set => Kind::Set,
            Form::Zset => Kind::Zset,
            Form::Hash => Kind::Hash,
        }
    }
}

/// A collection an entry can hold in a box.
pub trait Collection: Default + Clone + Send + 'static {
    #[doc(hidden)]
    const KIND: Kind;
    #[doc(hidden)]
    fn into_value(this: Box<Self>) -> Value;
    #[doc(hidden)]
    fn generation(&self) -> u64;
    #[doc(hidden)]
    fn set_generation(&mut self, generation: u64);
}

macro_rules! collection {
    ($($name:ident),*) => {$(
        impl Collection for $name {
            const KIND: Kind = Kind::$name;
            fn into_value(this: Box<Self>) -> Value {
                Value::$name(this)
            }
            #[inline]
            fn generation(&self) -> u64 {
                self.generation
            }
            fn set_generation(&mut self, generation: u64) {
                self.generation = generation;
            }
        }
    )*};
}
collection!(List, Set, Zset, Hash);
