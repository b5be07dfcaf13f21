//! What the value area of an entry holds: a [`Form`] per way to keep a value.
//!
//! Three bits of the head tell the form: three forms of strings, and one for each kind that is kept
//! behind a pointer, which leaves room for five. A value of another kind or length is another entry,
//! never another form of the same bytes.

use super::{FORM_BITS, FORM_SHIFT};
use crate::Kind;
use crate::kind::kinds;

macro_rules! declare {
    ([(String $($string:tt)*) $(($Kind:ident $($kind:tt)*))*]) => {
        /// How the value is kept.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Form {
            Inline,
            Int,
            Raw,
            $($Kind,)*
        }

        impl Form {
            const COLLECTIONS: &[Form] = &[$(Form::$Kind),*];
            const LAST: Form = Form::COLLECTIONS[Form::COLLECTIONS.len() - 1];

            #[inline]
            pub(super) fn of(meta: u32) -> Form {
                match meta >> FORM_SHIFT & FORM_BITS {
                    0 => Form::Inline,
                    1 => Form::Int,
                    2 => Form::Raw,
                    $(form if form == Form::$Kind as u32 => Form::$Kind,)*
                    _ => Form::LAST,
                }
            }

            /// The form of a collection.
            #[inline]
            pub(super) const fn of_kind(kind: Kind) -> Form {
                match kind {
                    Kind::String => Form::Raw,
                    $(Kind::$Kind => Form::$Kind,)*
                }
            }

            #[inline]
            pub fn kind(self) -> Kind {
                match self {
                    Form::Inline | Form::Int | Form::Raw => Kind::String,
                    $(Form::$Kind => Kind::$Kind,)*
                }
            }
        }
    };
}
kinds!([declare]);

const _: () = assert!(
    Form::LAST as u32 <= FORM_BITS,
    "more forms than the bits of the head can tell: bit 31 of the head is free"
);

impl Form {
    #[inline]
    pub(super) fn value_bytes(self) -> usize {
        match self {
            Form::Inline => 0,
            Form::Raw => size_of::<Vec<u8>>(),
            _ => 8,
        }
    }
}
