//! How a hash or a sorted set is kept: packed, indexed, or in its rows.
//!
//! There are two boxes, not three forms, so that the form costs a small collection no byte: one
//! other form fits where the pointer of a packed run would be null.

use super::packed::Packed;
use crate::rows::Handle;

pub(crate) enum Shape<T> {
    Packed(Packed),
    Big(Box<Big<T>>),
}

pub(crate) enum Big<T> {
    Indexed(T),
    Rows(Box<Handle>),
}

/// Which of the forms it is, as references to it.
pub(crate) enum Look<P, T, R> {
    Packed(P),
    Indexed(T),
    Rows(R),
}

impl<T> Shape<T> {
    pub fn new() -> Self {
        Shape::Packed(Packed::new())
    }

    pub fn indexed(index: T) -> Self {
        Shape::Big(Box::new(Big::Indexed(index)))
    }

    pub fn on_rows(handle: Handle) -> Self {
        Shape::Big(Box::new(Big::Rows(Box::new(handle))))
    }

    #[inline]
    pub fn look(&self) -> Look<&Packed, &T, &Handle> {
        match self {
            Shape::Packed(packed) => Look::Packed(packed),
            Shape::Big(big) => match &**big {
                Big::Indexed(index) => Look::Indexed(index),
                Big::Rows(handle) => Look::Rows(handle),
            },
        }
    }

    #[inline]
    pub fn look_mut(&mut self) -> Look<&mut Packed, &mut T, &mut Handle> {
        match self {
            Shape::Packed(packed) => Look::Packed(packed),
            Shape::Big(big) => match &mut **big {
                Big::Indexed(index) => Look::Indexed(index),
                Big::Rows(handle) => Look::Rows(handle),
            },
        }
    }

    pub fn handle_mut(&mut self) -> Option<&mut Handle> {
        match self.look_mut() {
            Look::Rows(handle) => Some(handle),
            _ => None,
        }
    }
}
