//! The digest of a sorted set: of its members with their scores as text, in any order.

use super::Zset;
use crate::kind::digest::{Digest, Digested};

impl Digested for Zset {
    const NUMBER: u32 = 3;

    fn digest<D: Digest>(&self, into: &mut D) {
        for (member, score) in self.iter() {
            let mut element = D::default();
            element.mix(&member.to_vec());
            element.mix(base::number::format_score(score).as_bytes());
            into.add_digest(&element);
        }
    }
}
