//! The digest of a string.

use base::Atom;

use crate::kind::digest::Digest;

pub(in crate::kind) const NUMBER: u32 = 0;

pub(in crate::kind) fn digest<D: Digest>(atom: Atom<'_>, into: &mut D) {
    into.mix(&atom.to_vec());
}
