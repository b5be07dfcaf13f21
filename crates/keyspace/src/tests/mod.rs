//! Views and transactions over the memory engine.

mod model;
mod upkeep;

use base::{Atom, Refusal};

use crate::{Expire, KeyChange, Keyspace, Kind, Owned, Router, Tuning, Txn, Value, View};

fn with<R>(space: &mut Keyspace, now_ms: u64, run: impl FnOnce(&mut Txn<'_>) -> R) -> R {
    let tuning = Tuning::default();
    run(&mut Txn::new(View::one(space, 0, now_ms, 1, &tuning)))
}

fn text(txn: &Txn<'_>, key: &[u8]) -> Option<Vec<u8>> {
    txn.string(key).unwrap().map(|atom| atom.to_vec())
}

#[test]
fn strings_and_their_encodings() {
    let mut space = Keyspace::new(1);
    with(&mut space, 0, |txn| {
        let long = [b'x'; 45];
        let huge = vec![b'y'; 5000];
        for (bytes, encoding) in [
            (&b"hello"[..], "embstr"),
            (b"12345", "int"),
            (b"-9223372036854775808", "int"),
            (b"9223372036854775808", "embstr"),
            (b"007", "embstr"),
            (b"", "embstr"),
            (&long[..44], "embstr"),
            (&long[..], "raw"),
            (&huge, "raw"),
        ] {
            txn.put_string(b"k", bytes, Expire::Clear);
            assert_eq!(text(txn, b"k").unwrap(), bytes);
            assert_eq!(
                txn.encoding(b"k"),
                Some(encoding),
                "{}",
                bytes.escape_ascii()
            );
            assert_eq!(txn.kind(b"k"), Some(Kind::String));
        }
        txn.put_int(b"k", 7, Expire::Clear);
        txn.string_mut(b"k").unwrap().unwrap().replace_int(8);
        assert_eq!(txn.string(b"k").unwrap(), Some(Atom::Int(8)));
        txn.string_mut(b"k").unwrap().unwrap().append(b"9");
        assert_eq!(txn.encoding(b"k"), Some("raw"));
        assert_eq!(text(txn, b"k").unwrap(), b"89");
        txn.string_mut(b"k").unwrap().unwrap().bytes_mut(5)[3] = b'!';
        assert_eq!(text(txn, b"k").unwrap(), b"89\0!\0");
        txn.string_or_new(b"new").unwrap().append(b"12");
        assert_eq!(txn.encoding(b"new"), Some("int"));
        assert!(txn.string_or_new(b"none").unwrap().is_empty());
        assert!(!txn.exists(b"none"));
        assert_eq!(txn.len(), 2);
    });
}

#[test]
fn collections_come_and_go() {
    let mut space = Keyspace::new(1);
    with(&mut space, 0, |txn| {
        drop(txn.hash_or_new(b"h").unwrap());
        assert!(!txn.exists(b"h"));
        assert!(txn.hash_or_new(b"h").unwrap().insert(b"f", b"v"));
        assert!(matches!(txn.string(b"h"), Err(Refusal::WrongType)));
        assert!(matches!(txn.list_mut(b"h"), Err(Refusal::WrongType)));
        assert!(matches!(txn.string_or_new(b"h"), Err(Refusal::WrongType)));
        assert_eq!(txn.hash(b"h").unwrap().unwrap().len(), 1);
        let copy = txn.clone_value(b"h").unwrap();
        assert!(txn.hash_mut(b"h").unwrap().unwrap().remove(b"f"));
        assert!(!txn.exists(b"h"));
        txn.put(b"g", copy);
        assert_eq!(txn.hash(b"g").unwrap().unwrap().len(), 1);
        let taken = txn.take(b"g").unwrap();
        assert!(txn.take(b"g").is_none());
        txn.put(b"h", taken);
        assert_eq!(txn.len(), 1);
        txn.put_value(b"h", Value::Set(Box::default()));
        assert_eq!(txn.len(), 0);
    });
}

#[test]
fn deadlines() {
    let mut space = Keyspace::new(1);
    with(&mut space, 100, |txn| {
        txn.put_string(b"a", b"1", Expire::At(150));
        txn.put_string(b"b", b"x", Expire::Clear);
        assert!(txn.set_expire(b"b", Some(200)));
        assert_eq!(txn.expire_at(b"b"), Some(Some(200)));
        txn.put_string(b"b", b"other", Expire::Keep);
        assert_eq!(txn.expire_at(b"b"), Some(Some(200)));
        assert_eq!(txn.len_with_expiry(), 2);
        txn.put_string(b"gone", b"x", Expire::At(100));
        assert!(!txn.exists(b"gone"));
        assert!(!txn.set_expire(b"gone", None));
    });
    assert_eq!(space.next_deadline_ms(), Some(150));
    assert_eq!(space.db_stats(0).0, 2);
    with(&mut space, 150, |txn| {
        assert!(!txn.exists(b"a"));
        assert_eq!(txn.kind(b"a"), None);
        assert_eq!(txn.len(), 2);
        assert!(!txn.remove(b"a"));
        assert_eq!(txn.len(), 1);
        assert_eq!(text(txn, b"b").unwrap(), b"other");
        assert!(txn.set_expire(b"b", None));
        assert_eq!(txn.len_with_expiry(), 0);
        txn.put_string(b"b", b"x", Expire::At(160));
        for i in 0..1000u64 {
            txn.put_string(format!("k{i}").as_bytes(), b"v", Expire::At(160 + i));
        }
    });
    assert_eq!(space.expire_due(659, 100), 100);
    assert_eq!(space.expire_due(659, 1000), 401);
    assert_eq!(space.expire_due(659, 1000), 0);
    assert_eq!(space.expired(), 502);
    assert_eq!(space.db_stats(0), (500, 500, 250));
}

#[test]
fn due_keys_that_reads_meet_go_after_the_command() {
    let mut space = Keyspace::new(1);
    let tuning = Tuning::default();
    with(&mut space, 0, |txn| {
        for key in [b"a", b"b", b"c"] {
            txn.put_string(key, b"1", Expire::At(5));
        }
        txn.put_string(b"d", b"1", Expire::Clear);
    });
    {
        let view = View::one(&mut space, 0, 5, 0, &tuning);
        assert!(!view.exists(b"a"));
        assert_eq!(view.len(), 4, "a read removes nothing");
    }
    assert!(space.has_met_due());
    space.expire_met(5);
    assert!(!space.has_met_due());
    assert_eq!((space.expired(), space.db_stats(0).0), (1, 3));
    let scan = |space: &mut Keyspace| {
        let view = View::one(space, 0, 5, 0, &tuning);
        view.scan(0, 100, &mut |key, _| assert_eq!(key, b"d"));
    };
    scan(&mut space);
    space.forget_met();
    assert_eq!(space.db_stats(0).0, 3);
    scan(&mut space);
    space.expire_met(5);
    assert_eq!((space.expired(), space.db_stats(0).0), (3, 1));
}

#[test]
fn effects_are_for_watched_keys_only() {
    let mut space = Keyspace::new(1);
    let effect = |key: &[u8]| KeyChange {
        db: 0,
        key: key.into(),
    };
    space.watch(0, b"a");
    space.watch(0, b"a");
    space.watch(3, b"c");
    with(&mut space, 0, |txn| {
        txn.put_string(b"a", b"1", Expire::Clear);
        txn.put_string(b"b", b"1", Expire::Clear);
        txn.put_string(b"c", b"1", Expire::Clear);
    });
    assert!(space.has_key_changes());
    assert_eq!(space.take_key_changes(), [effect(b"a")]);
    with(&mut space, 0, |txn| {
        drop(txn.string_mut(b"a").unwrap());
        assert!(!txn.remove(b"nothing"));
    });
    assert!(!space.has_key_changes());
    with(&mut space, 0, |txn| txn.set_expire(b"a", Some(5)));
    assert_eq!(space.take_key_changes(), [effect(b"a")]);
    space.unwatch(0, b"a");
    // Whoever watches a key looks whether its time has come: nobody is told.
    assert_eq!(space.expire_due(5, 10), 1);
    assert_eq!(space.take_key_changes(), []);
    with(&mut space, 0, |txn| txn.flush_all());
    assert_eq!(space.take_key_changes(), []);
    with(&mut space, 0, |txn| {
        txn.list_or_new(b"a").unwrap().push_back(b"x");
    });
    assert_eq!(space.take_key_changes(), [effect(b"a")]);
    with(&mut space, 0, |txn| txn.flush_db());
    assert_eq!(space.take_key_changes(), [effect(b"a")]);
    with(&mut space, 0, |txn| {
        txn.put_string(b"c", b"1", Expire::Clear);
        txn.swap_db(0, 3);
    });
    assert_eq!(
        space.take_key_changes(),
        [KeyChange {
            db: 3,
            key: b"c"[..].into()
        }]
    );
    space.unwatch(0, b"a");
    with(&mut space, 0, |txn| {
        txn.put_string(b"a", b"", Expire::Clear)
    });
    assert!(!space.has_key_changes());
}

#[test]
fn big_values_become_garbage() {
    let mut space = Keyspace::new(1);
    with(&mut space, 0, |txn| {
        // One block, and not large.
        txn.put_string(b"s", &vec![b'x'; 100_000], Expire::Clear);
        txn.remove(b"s");
        txn.put_string(b"s", &vec![b'x'; 2_000_000], Expire::Clear);
        txn.remove(b"s");
        for i in 0..100 {
            let member = format!("m{i}");
            txn.set_or_new(b"set").unwrap().insert(member.as_bytes());
        }
        txn.put_string(b"set", b"small", Expire::Clear);
        txn.remove(b"set");
    });
    assert!(space.has_garbage());
    let garbage = space.take_garbage();
    let bytes: Vec<usize> = garbage.iter().map(|it| it.bytes()).collect();
    assert!(
        matches!(bytes[..], [2_000_000..3_000_000, 300..5000]),
        "{bytes:?}"
    );
    std::thread::scope(|scope| {
        scope.spawn(move || drop(garbage));
    });
    assert!(!space.has_garbage());
}

struct ByFirstByte;

impl Router for ByFirstByte {
    fn position(&self, key: &[u8]) -> usize {
        key.first().map_or(0, |&b| b as usize % 3)
    }
}

#[test]
fn several_regions_look_like_one() {
    let mut spaces: Vec<Keyspace> = (0..3).map(Keyspace::new).collect();
    let mut refs: Vec<&mut Keyspace> = spaces.iter_mut().collect();
    let tuning = Tuning::default();
    let mut txn = Txn::new(View::many(&mut refs, &ByFirstByte, 0, 0, 1, &tuning));
    for i in 0..3000 {
        let key = [b'a' + (i % 26) as u8, (i / 26) as u8];
        txn.put_string(&key, b"v", Expire::Clear);
    }
    let total = txn.len();
    let (mut cursor, mut keys) = (0, std::collections::BTreeSet::new());
    loop {
        cursor = txn.scan(cursor, 10, &mut |key, kind| {
            assert_eq!(kind, Kind::String);
            assert!(keys.insert(key.to_vec()));
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(keys.len(), total);
    let mut n = 0;
    txn.for_each_key(&mut |_| n += 1);
    assert_eq!(n, total);
    assert!(keys.contains(&*txn.random_key().unwrap()));
    let owned = txn.take(b"a\0").unwrap();
    txn.put(b"b-new", Owned { ..owned });
    assert_eq!(txn.len(), total);
    txn.flush_all();
    assert!(txn.is_empty());
}

#[test]
fn keyspaces_may_change_threads() {
    fn is_send<T: Send>() {}
    is_send::<Keyspace>();
    is_send::<crate::Garbage>();
}
