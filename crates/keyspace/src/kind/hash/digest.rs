//! The digest of a hash: of its fields with their values, in any order.

use super::Hash;
use crate::kind::digest::{Digest, Digested};

impl Digested for Hash {
    const NUMBER: u32 = 4;

    fn digest<D: Digest>(&self, into: &mut D) {
        for (field, value) in self.iter() {
            let mut element = D::default();
            element.mix(&field.to_vec());
            element.mix(&value.to_vec());
            into.add_digest(&element);
        }
    }
}
