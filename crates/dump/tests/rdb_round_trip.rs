//! Dumps written and read back; dumps cut short and damaged; layouts of old.

use std::collections::{BTreeMap, BTreeSet};

use base::{Atom, DbIndex};
use dump::{Encoder, Error, Header, Summary};
use keyspace::{Hash, List, Owned, Set, Tuning, Value, Zset};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use rdb::Checksum;

/// A value in a form that can be compared.
#[derive(Debug, Clone, PartialEq)]
enum Plain {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Zset(BTreeMap<Vec<u8>, f64>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

type Entries = BTreeMap<(DbIndex, Vec<u8>), (Plain, Option<u64>)>;

impl Plain {
    fn build(&self, tuning: &Tuning) -> Value {
        match self {
            Plain::String(bytes) => Value::String(bytes.clone().into()),
            Plain::List(elements) => {
                let mut list = List::new();
                elements.iter().for_each(|e| list.push_back(e, tuning));
                Value::List(Box::new(list))
            }
            Plain::Set(members) => {
                let mut set = Set::new();
                for member in members {
                    set.insert(member, tuning);
                }
                Value::Set(Box::new(set))
            }
            Plain::Zset(members) => {
                let mut zset = Zset::new();
                for (member, score) in members {
                    zset.insert(member, *score, tuning);
                }
                Value::Zset(Box::new(zset))
            }
            Plain::Hash(fields) => {
                let mut hash = Hash::new();
                for (field, value) in fields {
                    hash.insert(field, value, tuning);
                }
                Value::Hash(Box::new(hash))
            }
        }
    }

    fn of(value: &Value) -> Plain {
        let text = |atom: Atom<'_>| atom.to_vec();
        match value {
            Value::String(bytes) => Plain::String(bytes.to_vec()),
            Value::List(list) => Plain::List(list.iter_from(0).map(text).collect()),
            Value::Set(set) => Plain::Set(set.iter().map(text).collect()),
            Value::Zset(zset) => {
                Plain::Zset(zset.iter_from(0).map(|(m, s)| (text(m), s)).collect())
            }
            Value::Hash(hash) => {
                Plain::Hash(hash.iter().map(|(f, v)| (text(f), text(v))).collect())
            }
            other => panic!("{:?} has no plain form", other.borrow().kind()),
        }
    }
}

/// The dump, its entries dealt to two encoders as two cores would hold them.
fn write(entries: &Entries, compress: bool) -> Vec<u8> {
    let mut cores = [(); 2].map(|()| (Encoder::new(compress), Vec::new()));
    for (i, ((db, key), (plain, expire_at_ms))) in entries.iter().enumerate() {
        let value = plain.build(&Tuning::default());
        let (encoder, chunk) = &mut cores[i % 2];
        encoder.append(*db, key, value.borrow(), *expire_at_ms, chunk);
    }
    let mut out = Vec::new();
    dump::append_header(&Header::default(), &mut out);
    for (_, chunk) in cores {
        out.extend(chunk);
    }
    let mut checksum = Checksum::new();
    checksum.update(&out);
    out.extend(dump::trailer(checksum));
    out
}

fn read(bytes: &[u8]) -> Result<(Entries, Summary), Error> {
    let mut entries = Entries::new();
    let mut each = |db, key: &[u8], owned: Owned| {
        let plain = Plain::of(&owned.value);
        entries.insert((db, key.to_vec()), (plain, owned.expire_at_ms));
    };
    let summary = dump::read(bytes, &Tuning::default(), &mut each)?;
    Ok((entries, summary))
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..100),
        any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        any::<i32>().prop_map(|n| (n >> 20).to_string().into_bytes()),
        (any::<u8>(), 0usize..20_000).prop_map(|(b, n)| vec![b; n]),
    ]
}

fn plain() -> impl Strategy<Value = Plain> {
    let score = any::<i32>().prop_map(|n| f64::from(n) / 8.0);
    prop_oneof![
        text().prop_map(Plain::String),
        vec(text(), 1..8).prop_map(Plain::List),
        btree_set(text(), 1..8).prop_map(Plain::Set),
        btree_map(text(), score, 1..8).prop_map(Plain::Zset),
        btree_map(text(), text(), 1..8).prop_map(Plain::Hash),
    ]
}

fn entries() -> impl Strategy<Value = Entries> {
    let value = (plain(), prop::option::of(any::<u32>().prop_map(u64::from)));
    btree_map((0u8..16, vec(any::<u8>(), 0..12)), value, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_written_is_read(entries in entries(), compress in any::<bool>()) {
        let (found, summary) = read(&write(&entries, compress)).unwrap();
        prop_assert_eq!(summary.keys, entries.len() as u64);
        prop_assert_eq!(found, entries);
    }

    #[test]
    fn noise_after_the_header_never_panics(noise in vec(any::<u8>(), 0..200)) {
        let mut bytes = b"REDIS0010".to_vec();
        bytes.extend(noise);
        drop(read(&bytes));
    }
}

fn sample() -> Entries {
    let words = |n: usize| (0..n).map(|i| format!("w{i}").into_bytes());
    let mut entries = Entries::new();
    let mut put = |key: &str, plain| {
        entries.insert((0, key.into()), (plain, Some(1_900_000_000_000)));
    };
    put("s", Plain::String(b"ab".repeat(40)));
    put("l", Plain::List(words(5).collect()));
    put("t", Plain::Set(words(5).collect()));
    put("z", Plain::Zset(words(5).map(|w| (w, 1.5)).collect()));
    put("h", Plain::Hash(words(5).zip(words(5)).collect()));
    entries
}

#[test]
fn every_damaged_byte_is_found() {
    let good = write(&sample(), true);
    assert!(read(&good).is_ok());
    for at in 0..good.len() {
        for flip in [1, 0x80, 0xff, 0x3c] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            assert!(read(&bad).is_err(), "byte {at} ^ {flip}");
        }
        assert!(read(&good[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn no_checksum_no_check() {
    let mut bytes = write(&sample(), false);
    let end = bytes.len() - 8;
    bytes[end..].fill(0);
    assert_eq!(read(&bytes).unwrap().0, sample());
}

/// Without the checksum, damage must still neither panic nor take memory on a length's word.
#[test]
fn unchecked_damage_never_panics() {
    let mut good = write(&sample(), true);
    let end = good.len() - 8;
    good[end..].fill(0);
    for at in 0..end {
        for new in [0, 1, 0x3f, 0x7f, 0x80, 0x81, 0xc3, 0xff] {
            let mut bad = good.clone();
            bad[at] = new;
            drop(read(&bad));
        }
    }
}

/// Longer than an element can be, told in a few bytes: plain, and compressed.
#[test]
fn strings_that_are_too_long_are_refused() {
    let len = [&[0x81][..], &(3u64 << 30).to_be_bytes()].concat();
    for value in [len.clone(), [&[0xc3, 1], &len[..], &[0]].concat()] {
        let mut bytes = b"REDIS0009\x01\x01k\x01".to_vec(); // a list of one element
        bytes.extend(value);
        let error = read(&bytes).unwrap_err();
        assert!(
            matches!(error, Error::TooLong(len) if len == 3 << 30),
            "{error}"
        );
    }
}

/// A dump of one value in a layout that this writer never uses.
fn read_packed(layout: u8, value: &[u8]) -> Result<Option<(Plain, Option<u64>)>, Error> {
    let mut bytes = b"REDIS0003\xfd\x10\x00\x00\x00".to_vec(); // deadline: 16 seconds
    bytes.extend([layout, 1, b'k', value.len() as u8]);
    bytes.extend(value);
    bytes.push(0xff);
    let (mut entries, _) = read(&bytes)?;
    Ok(entries.remove(&(0, b"k".to_vec())))
}

const ZIPLIST: &[u8] = b"\x22\0\0\0\x1b\0\0\0\x06\0\
    \x00\x01a\
    \x03\xf5\
    \x02\xfe\xff\
    \x03\xc0\x00\x80\
    \x04\xf0\x01\x00\x80\
    \x05\x40\x03xyz\
    \xff";
/// The same elements.
const LISTPACK: &[u8] = b"\x1e\0\0\0\x06\0\
    \x81a\x02\
    \x04\x01\
    \xdf\xff\x02\
    \xf1\x00\x80\x03\
    \xf2\x01\x00\x80\x04\
    \xe0\x03xyz\x05\
    \xff";

#[test]
fn layouts_never_written_here() {
    let words = |list: &[&str]| {
        let words = list.iter().map(|w| w.as_bytes().to_vec());
        words.collect::<Vec<_>>()
    };
    let expected = words(&["a", "4", "-1", "-32768", "-8388607", "xyz"]);
    let (list, at_ms) = read_packed(10, ZIPLIST).unwrap().unwrap();
    assert_eq!(list, Plain::List(expected.clone()));
    assert_eq!(at_ms, Some(16_000));

    let (set, _) = read_packed(20, LISTPACK).unwrap().unwrap();
    assert_eq!(set, Plain::Set(expected.iter().cloned().collect()));

    let pairs: BTreeMap<_, _> = expected
        .chunks(2)
        .map(|p| (p[0].clone(), p[1].clone()))
        .collect();
    for (layout, bytes) in [(13, ZIPLIST), (16, LISTPACK)] {
        let (hash, _) = read_packed(layout, bytes).unwrap().unwrap();
        assert_eq!(hash, Plain::Hash(pairs.clone()));
    }

    let zipmap = b"\x02\x01a\x02\x01bbX\x02cc\x00\x00\xff";
    let (hash, _) = read_packed(9, zipmap).unwrap().unwrap();
    let pairs = [("a", "bb"), ("cc", "")].map(|(f, v)| (f.into(), v.into()));
    assert_eq!(hash, Plain::Hash(pairs.into()));

    let intset = b"\x02\0\0\0\x02\0\0\0\xff\xff\x05\x00";
    let (set, _) = read_packed(11, intset).unwrap().unwrap();
    assert_eq!(set, Plain::Set(words(&["-1", "5"]).into_iter().collect()));

    let all: [(u8, &[u8]); 6] = [
        (10, ZIPLIST),
        (12, ZIPLIST),
        (13, ZIPLIST),
        (16, LISTPACK),
        (9, zipmap),
        (11, intset),
    ];
    for (layout, bytes) in all {
        for at in 0..bytes.len() {
            for new in 0..=255 {
                let mut bad = bytes.to_vec();
                bad[at] = new;
                drop(read_packed(layout, &bad));
            }
        }
    }
}

#[test]
fn scores_as_text() {
    let bytes = b"REDIS0004\x03\x01k\x03\x01a\xfe\x01b\xff\x01c\x031.5\xff";
    let (mut entries, _) = read(bytes).unwrap();
    let (zset, _) = entries.remove(&(0, b"k".to_vec())).unwrap();
    let scores = [("a", f64::INFINITY), ("b", f64::NEG_INFINITY), ("c", 1.5)];
    let scores = scores.map(|(member, score)| (member.into(), score));
    assert_eq!(zset, Plain::Zset(scores.into()));
}

#[test]
fn unknown_types_name_the_key() {
    let error = read(b"REDIS0003\x63\x01k\x00\xff").unwrap_err();
    let text = "value type 99 of key 'k' is not supported";
    assert_eq!(error.to_string(), text);
    assert!(matches!(read(b"REDIS0099"), Err(Error::Version(99))));
    assert!(matches!(read(b"hello world"), Err(Error::NotADump)));
}
