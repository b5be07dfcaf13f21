//! The digest of a value or of everything, the same number a `redis-server` with the same data
//! gives: so two servers can be compared.
//!
//! Built from SHA-1 in two ways of joining: `add` (exclusive or: order does not matter, for members
//! and keys) and `mix` (add, then hash again: order matters, for list elements and a field with its
//! value). What of a value is joined how, its kind says (`keyspace::digest`). A deadline counts only as being there.

use base::limits::DATABASES;
use keyspace::digest::Digest as _;
use keyspace::{Keyspace, Tuning, View};
use sha1_smol::Sha1;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest([u8; 20]);

impl keyspace::digest::Digest for Digest {
    fn add(&mut self, bytes: &[u8]) {
        let hash = Sha1::from(bytes).digest().bytes();
        self.0.iter_mut().zip(hash).for_each(|(a, b)| *a ^= b);
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = Sha1::from(self.0).digest().bytes();
    }

    fn add_digest(&mut self, other: &Self) {
        self.add(&other.0);
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// All databases of all regions.
pub fn of_everything(spaces: &mut [&mut Keyspace], now_ms: u64, tuning: &Tuning) -> Digest {
    let mut all = Digest::default();
    for db in 0..DATABASES {
        if spaces.iter().all(|space| space.db_stats(db).0 == 0) {
            continue;
        }
        all.mix(&u32::from(db).to_be_bytes());
        for space in spaces.iter_mut() {
            let view = View::one(space, db, now_ms, 0, tuning);
            view.for_each_key(&mut |key| {
                let mut entry = Digest::default();
                entry.mix(key);
                add_value(&view, key, &mut entry);
                all.add_digest(&entry);
            });
        }
    }
    all
}

/// The value at a key; zeros if there is none.
pub fn of_value(view: &View<'_>, key: &[u8]) -> Digest {
    let mut digest = Digest::default();
    add_value(view, key, &mut digest);
    digest
}

fn add_value(view: &View<'_>, key: &[u8], digest: &mut Digest) {
    let Some(value) = view.peek(key) else {
        return;
    };
    value.digest(digest);
    if view.expire_at(key).flatten().is_some() {
        digest.add(b"!!expire!!");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyspace::{Expire, Txn};

    /// Data and digests as a `redis-server` 7.0.15 gave them.
    #[test]
    fn the_same_as_redis() {
        let tuning = Tuning::default();
        let mut space = Keyspace::new(1);
        {
            let mut txn = Txn::new(View::one(&mut space, 0, 1000, 0, &tuning));
            txn.put_string(b"s", b"hello", Expire::Clear);
            txn.put_int(b"n", 12345, Expire::At(1_001_000));
            for element in ["a", "b", "3", "c"] {
                let mut list = txn.list_or_new(b"l").unwrap();
                list.push_back(element.as_bytes());
            }
            for member in ["1", "2", "3"] {
                txn.set_or_new(b"st").unwrap().insert(member.as_bytes());
            }
            for member in ["a", "b", "c"] {
                txn.set_or_new(b"st2").unwrap().insert(member.as_bytes());
            }
            for (member, score) in [
                ("a", 1.0),
                ("b", 2.5),
                ("c", f64::NEG_INFINITY),
                ("d", 1e20),
                ("e", 0.1),
            ] {
                let mut zset = txn.zset_or_new(b"z").unwrap();
                zset.insert(member.as_bytes(), score);
            }
            for (field, value) in [("f1", "v1"), ("f2", "2")] {
                let mut hash = txn.hash_or_new(b"h").unwrap();
                hash.insert(field.as_bytes(), value.as_bytes());
            }
        }
        {
            let view = View::one(&mut space, 0, 1000, 0, &tuning);
            for (key, expected) in [
                ("s", "36b23a1456b2dce2c3ed252c456761301dba8060"),
                ("n", "074a6e8892a0b0b4fcf085794cb69322c36c9d00"),
                ("l", "226c2112f4bc5d6412d156490c291101b43ddc83"),
                ("st", "2a462a3f51a1db89738ebbeef0c47ce1bbc85246"),
                ("st2", "593c2414786d75446e97f4ea5d4b731f3313da72"),
                ("z", "755e04781ab95158297efb8f31e0e8337e8b0ae4"),
                ("h", "fc076e867f7dbf566ea58172a151d82d78b8f845"),
                ("nope", "0000000000000000000000000000000000000000"),
            ] {
                assert_eq!(
                    of_value(&view, key.as_bytes()).to_string(),
                    expected,
                    "{key}"
                );
            }
        }
        let all = of_everything(&mut [&mut space], 1000, &tuning).to_string();
        assert_eq!(all, "3d12bdc2f61c74dc109457eaba6785bd72c0bee9");
        Txn::new(View::one(&mut space, 3, 1000, 0, &tuning)).put_string(b"x", b"y", Expire::Clear);
        let all = of_everything(&mut [&mut space], 1000, &tuning).to_string();
        assert_eq!(all, "8396fd858b5491b292d62e15f4eaf70d02c8c1d9");
    }
}
