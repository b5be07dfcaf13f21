//! Golden bytes: a change here is a change of what lies on disks.

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn keys_byte_for_byte() {
    let key = metadata_key(7, 1, b"user");
    assert_eq!(
        hex(&key),
        "8000000000000007800000000000000115620000000475736572"
    );
    let parts = parse_metadata_key(&key).unwrap();
    assert_eq!((parts.home, parts.index_id), (7, 1));
    assert_eq!((parts.slot, parts.key), (slot_of(b"user"), &b"user"[..]));
    assert_eq!(parse_metadata_key(&key[..25]), None);

    let mut sub = Vec::new();
    push_base(&mut sub, 7, 1, b"user", 0x300001);
    sub.extend_from_slice(b"name");
    assert_eq!(
        hex(&sub),
        "800000000000000780000000000000011562000000047573657200000000003000016e616d65"
    );
    let (metadata, generation, rest) = split_sub_key(&sub).unwrap();
    assert_eq!((metadata, generation), (&key[..], 0x300001));
    assert_eq!(rest, b"name");

    let mut expiry = Vec::new();
    push_expiry_key(&mut expiry, 7, 1, 1000, b"user");
    assert_eq!(
        hex(&expiry),
        "8000000000000007800000000000000100000000000003e815620000000475736572"
    );
    assert_eq!(parse_expiry_key(&expiry), Some((1000, &b"user"[..])));

    assert_eq!(hex(&state_key(7)), "728000000000000007");
    assert_eq!(home_of_state_key(&state_key(7)), Some(7));
    assert_eq!(behind(b"a\xff\xff"), b"b");
}

#[test]
fn values_byte_for_byte() {
    let string = Metadata {
        kind: Kind::String,
        expire_at_ms: Some(1000),
        body: Body::String(b"hi"),
    };
    let extra = [(-1i64).to_be_bytes(), 2i64.to_be_bytes()].concat();
    let list = Metadata {
        kind: Kind::List,
        expire_at_ms: None,
        body: Body::Collection {
            generation: 0x300001,
            size: 3,
            extra: &extra,
        },
    };
    for (metadata, bytes) in [
        (string, "0100000000000003e86869"),
        (
            list,
            "02000000000000000000000000003000010000000000000003ffffffffffffffff0000000000000002",
        ),
    ] {
        let mut value = Vec::new();
        metadata.push(&mut value);
        assert_eq!(hex(&value), bytes);
        assert_eq!(Metadata::parse(&value), Some(metadata));
    }
    assert_eq!(Metadata::parse(b""), None);
    assert_eq!(Metadata::parse(&[5; 20]), None);
    assert_eq!(Metadata::parse(&[0; 25]), None);
}

#[test]
fn numbers_sort_as_they_count() {
    let ints = [i64::MIN, -2, -1, 0, 1, 2, i64::MAX];
    assert!(ints.windows(2).all(|w| i64_bytes(w[0]) < i64_bytes(w[1])));
    assert!(ints.iter().all(|&v| i64_from(i64_bytes(v)) == v));
    let scores = [
        f64::NEG_INFINITY,
        f64::MIN,
        -1.5,
        -f64::MIN_POSITIVE,
        0.0,
        f64::MIN_POSITIVE,
        1.5,
        f64::MAX,
        f64::INFINITY,
    ];
    assert!(scores.windows(2).all(|w| score8(w[0]) < score8(w[1])));
    assert!(scores.iter().all(|&v| score_from(score8(v)) == v));
    assert_eq!(score8(-0.0), score8(0.0));
    assert_eq!(hex(&score8(1.5)), "bff8000000000000");
    assert_eq!(hex(&score8(-1.5)), "4007ffffffffffff");
}
