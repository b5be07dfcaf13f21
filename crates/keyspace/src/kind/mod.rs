//! The kinds of values a key can have: one folder per kind, and the one list of them.
//!
//! ```text
//!   kinds!          the list: a line per kind
//!   contract.rs     what a kind has to be able to do: InMemory, InRows, Digested; for dumps Dumped
//!   dispatch.rs     Value, ValueRef: one match over the list per operation
//!   <kind>/         mod.rs the value in memory · edit.rs what commands see · rows.rs · rdb.rs · digest.rs
//! ```
//!
//! Nothing outside this folder names a collection: `memory`, `rows`, `dumped` and `weight` are written over
//! all kinds, with the macros below. A macro becomes a `match` on an enum, so there is no virtual call.
//! `docs/internals/kinds.md` says what a new kind touches; `tests/kinds.rs` keeps that true.
//!
//! A string is the one kind without a box: its bytes lie in the entry of its key. It has a folder with
//! the same files, and an arm of its own in each `match`.

mod contract;
pub mod digest;
mod dispatch;
mod hash;
mod list;
mod set;
pub(crate) mod string;
#[cfg(test)]
mod tests;
mod zset;

pub use contract::Part;
pub(crate) use contract::{Collection, InMemory, InRows};
pub use dispatch::{Owned, Value, ValueRef};
pub use zset::{LexBound, ScoreBound};

/// The kinds, each with its name as `TYPE` says it and its number in metadata rows, which is for ever.
/// A kind's type has the name it has here and is exported by its folder.
///
/// `kinds!([path::to::a_macro] arguments…)` calls that macro with the list and the arguments.
macro_rules! kinds {
    ([$($then:tt)*] $($arguments:tt)*) => {
        $($then)* ! { [
            (String string "string" 1)
            (List list "list" 2)
            (Set set "set" 3)
            (Zset zset "zset" 4)
            (Hash hash "hash" 5)
        ] $($arguments)* }
    };
}

/// One expression for a value of any kind: `each_value!(value, ValueRef: String(atom) => 1, it => it.len())`.
macro_rules! each_value {
    ($on:expr, $Enum:ident: String($atom:pat) => $of_string:expr, $it:ident => $of_others:expr $(,)?) => {
        $crate::kind::kinds!(
            [$crate::kind::value_arms] ($on) $Enum ($atom) ($of_string) $it ($of_others)
        )
    };
}

macro_rules! value_arms {
    (
        [(String $($string:tt)*) $(($Kind:ident $($kind:tt)*))*]
        ($on:expr) $Enum:ident ($atom:pat) ($of_string:expr) $it:ident ($of_others:expr)
    ) => {
        match $on {
            $Enum::String($atom) => $of_string,
            $($Enum::$Kind($it) => $of_others,)*
        }
    };
}

/// One expression for any kind, in which `T` is the type of a collection:
/// `each_kind!(kind, Kind: Kind::String => 0, T => size_of::<T>())`. Several arms for strings, which have
/// several forms in an entry, stand in braces.
macro_rules! each_kind {
    ($on:expr, $Enum:ident: { $($string:pat => $of_string:expr),+ $(,)? }, $T:ident => $of_others:expr $(,)?) => {
        $crate::kind::kinds!(
            [$crate::kind::kind_arms] ($on) $Enum [$(($string) ($of_string))+] $T ($of_others)
        )
    };
    ($on:expr, $Enum:ident: $string:pat => $of_string:expr, $T:ident => $of_others:expr $(,)?) => {
        $crate::kind::each_kind!($on, $Enum: { $string => $of_string }, $T => $of_others)
    };
}

macro_rules! kind_arms {
    (
        [(String $($string_kind:tt)*) $(($Kind:ident $($kind:tt)*))*]
        ($on:expr) $Enum:ident [$(($string:pat) ($of_string:expr))+] $T:ident ($of_others:expr)
    ) => {
        match $on {
            $($string => $of_string,)+
            $($Enum::$Kind => {
                type $T = $crate::$Kind;
                $of_others
            })*
        }
    };
}

pub(crate) use {each_kind, each_value, kind_arms, kinds, value_arms};

macro_rules! declare {
    ([
        (String string $string_name:literal $string_code:literal)
        $(($Kind:ident $folder:ident $name:literal $code:literal))*
    ]) => {
        $(pub use self::$folder::$Kind;)*

        /// The type of a value, as `TYPE` names it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Kind {
            String,
            $($Kind,)*
        }

        impl Kind {
            pub const ALL: &[Kind] = &[Kind::String, $(Kind::$Kind),*];

            pub fn name(self) -> &'static str {
                match self {
                    Kind::String => $string_name,
                    $(Kind::$Kind => $name,)*
                }
            }

            /// Its number in metadata rows.
            pub(crate) fn code(self) -> u8 {
                match self {
                    Kind::String => $string_code,
                    $(Kind::$Kind => $code,)*
                }
            }

            #[deny(unreachable_patterns, reason = "two kinds cannot have the same number")]
            pub(crate) fn from_code(code: u8) -> Option<Kind> {
                match code {
                    $string_code => Some(Kind::String),
                    $($code => Some(Kind::$Kind),)*
                    _ => None,
                }
            }
        }

        $(impl Collection for $Kind {
            const KIND: Kind = Kind::$Kind;

            #[inline]
            fn into_value(this: Box<Self>) -> Value {
                Value::$Kind(this)
            }

            #[inline]
            fn as_value(&self) -> ValueRef<'_> {
                ValueRef::$Kind(self)
            }
        })*
    };
}
kinds!([declare]);
