//! The digest of a value or of everything, the same number a `redis-server` with the same data
//! gives: so two servers can be compared.
//!
//! Built from SHA-1 in two ways of joining: `add` (exclusive or: order does not matter, for members
//! and keys) and `mix` (add, then hash again: order matters, for list elements and a field with its
//! value). A deadline counts only as being there.

use base::limits::DATABASES;
use keyspace::{Keyspace, Tuning, ValueRef, View};
use sha1_smol::Sha1;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest([u8; 20]);

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        let hash = Sha1::from(bytes).digest().bytes();
        self.0.iter_mut().zip(hash).for_each(|(a, b)| *a ^= b);
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = Sha1::from(self.0).digest().bytes();
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
                all.add(&entry.0);
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
    let number: u32 = match &value {
        ValueRef::String(_) => 0,
        ValueRef::List(_) => 1,
        ValueRef::Set(_) => 2,
        ValueRef::Zset(_) => 3,
        ValueRef::Hash(_) => 4,
    };
    digest.mix(&number.to_be_bytes());
    match value {
        ValueRef::String(atom) => digest.mix(&atom.to_vec()),
        ValueRef::List(list) => {
            for element in list.iter_from(0) {
                digest.mix(&element.to_vec());
            }
        }
        ValueRef::Set(set) => {
            for member in set.iter() {
                digest.add(&member.to_vec());
            }
        }
        ValueRef::Zset(zset) => {
            for (member, score) in zset.iter_from(0) {
                let mut element = Digest::default();
                element.mix(&member.to_vec());
                element.mix(base::number::format_score(score).as_bytes());
                digest.add(&element.0);
            }
        }
        ValueRef::Hash(hash) => {
            for (field, value) in hash.iter() {
                let mut element = Digest::default();
                element.mix(&field.to_vec());
                element.mix(&value.to_vec());
                digest.add(&element.0);
            }
        }
    }
    if view.expire_at(key).flatten().is_some() {
        digest.add(b"!!expire!!");
    }
}
