//! The digest of a set: of its members in any order.

use super::Set;
use crate::kind::digest::{Digest, Digested};

impl Digested for Set {
    const NUMBER: u32 = 2;

    fn digest<D: Digest>(&self, into: &mut D) {
        for member in self.iter() {
            into.add(&member.to_vec());
        }
    }
}
