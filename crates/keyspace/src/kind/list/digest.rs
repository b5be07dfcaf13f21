//! The digest of a list: of its elements in their order.

use super::List;
use crate::kind::digest::{Digest, Digested};

impl Digested for List {
    const NUMBER: u32 = 1;

    fn digest<D: Digest>(&self, into: &mut D) {
        for element in self.iter() {
            into.mix(&element.to_vec());
        }
    }
}
