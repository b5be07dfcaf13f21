//! Strings in rows: there is the metadata row only, and the string is its body.

use base::{Atom, IntText};

use crate::kind::Part;

/// Appends the string to its metadata row.
pub(in crate::kind) fn push_body(atom: Atom<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(atom.bytes(&mut IntText::default()));
}

/// A string has one part, which goes into its metadata row.
pub(in crate::kind) fn import(part: Part<'_>, body: &mut Vec<u8>) {
    body.clear();
    body.extend_from_slice(part.value);
}
