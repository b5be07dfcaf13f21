//! What `DEBUG DIGEST` says of a value: the same number as a `redis-server` with the same data.
//!
//! The hash function is given from above; a kind says what is hashed and whether order matters.

use super::{Kind, ValueRef, each_kind, each_value, string};

/// Adds bytes up to a digest, in two ways.
pub trait Digest: Default {
    /// Order does not matter: members of a set.
    fn add(&mut self, bytes: &[u8]);

    /// Order matters: elements of a list, a field and its value.
    fn mix(&mut self, bytes: &[u8]);

    /// Adds a digest as bytes are added.
    fn add_digest(&mut self, other: &Self);
}

/// A kind whose values have a digest.
pub(crate) trait Digested {
    /// The number Redis has for the kind.
    const NUMBER: u32;

    fn digest<D: Digest>(&self, into: &mut D);
}

impl Kind {
    /// The number Redis has for the kind.
    fn number(self) -> u32 {
        each_kind!(self, Kind: Kind::String => string::digest::NUMBER, T => T::NUMBER)
    }
}

impl ValueRef<'_> {
    /// Mixes kind and value into a digest.
    pub fn digest<D: Digest>(&self, into: &mut D) {
        into.mix(&self.kind().number().to_be_bytes());
        each_value!(self, ValueRef: String(atom) => string::digest::digest(*atom, into), it => it.digest(into));
    }
}
