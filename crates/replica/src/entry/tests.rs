//! What is written is read back; what is damaged is refused.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Argv = (u8, Vec<Vec<u8>>);

fn commands() -> impl Strategy<Value = Vec<Argv>> {
    let arg = prop_oneof![vec(any::<u8>(), 0..20), vec(any::<u8>(), 100..300)];
    vec((any::<u8>(), vec(arg, 1..6)), 0..12)
}

fn payload_of(list: &[Argv], stamp_ms: u64, seed: u64) -> Vec<u8> {
    let mut writer = EntryWriter::new();
    for (db, args) in list {
        writer.push(*db, args.iter().map(Vec::as_slice));
    }
    let size = writer.size_bytes();
    let payload = writer.finish(stamp_ms, seed);
    assert_eq!(payload.len(), size);
    assert!(writer.is_empty());
    payload
}

/// The checksum put right again, so that only the structure can be wrong.
fn resealed(mut payload: Vec<u8>) -> Vec<u8> {
    payload.truncate(payload.len() - CHECKSUM_BYTES);
    let checksum = crc32c::crc32c(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// Goes through everything a reader would.
fn walk(payload: &[u8]) -> Result<usize, EntryError> {
    let decoded = decode(payload)?;
    Ok(match decoded.body {
        Body::Commands(list) => list
            .map(|command| {
                assert_eq!(command.args().count(), command.argc());
                command.args().map(<[u8]>::len).sum::<usize>()
            })
            .sum(),
        Body::Rows(rows) => rows.len(),
        Body::Digest(_) => 8,
        Body::Expire(list) => list.map(|expired| expired.key.len()).sum(),
    })
}

proptest! {
    #[test]
    fn commands_come_back(list in commands(), stamp_ms: u64, seed: u64) {
        let payload = payload_of(&list, stamp_ms, seed);
        let decoded = decode(&payload).unwrap();
        prop_assert_eq!((decoded.stamp_ms, decoded.seed), (stamp_ms, seed));
        let Body::Commands(commands) = decoded.body else { panic!("another kind") };
        prop_assert_eq!(commands.len(), list.len());
        for (command, (db, args)) in commands.zip(&list) {
            prop_assert_eq!(command.db, *db);
            prop_assert_eq!(command.argc(), args.len());
            prop_assert!(command.args().eq(args.iter().map(Vec::as_slice)));
            for ((start, len), arg) in command.spans().zip(args) {
                prop_assert_eq!(&payload[start as usize..][..len as usize], &arg[..]);
            }
        }
    }

    #[test]
    fn expirations_and_rows_come_back(
        list in vec((any::<u8>(), any::<u64>(), vec(any::<u8>(), 0..200)), 0..20),
        stamp_ms: u64,
        seed: u64,
    ) {
        let mut writer = ExpireWriter::new();
        for (db, deadline_ms, key) in &list {
            writer.push(*db, *deadline_ms, key);
        }
        let payload = writer.finish(stamp_ms, seed);
        let Body::Expire(expired) = decode(&payload).unwrap().body else { panic!("another kind") };
        let back: Vec<_> = expired.map(|e| (e.db, e.deadline_ms, e.key.to_vec())).collect();
        prop_assert_eq!(back, list);

        let payload = rows_payload(stamp_ms, seed, b"rows");
        let decoded = decode(&payload).unwrap();
        prop_assert_eq!((decoded.stamp_ms, decoded.seed), (stamp_ms, seed));
        prop_assert!(matches!(decoded.body, Body::Rows(b"rows")));
        let payload = digest_payload(stamp_ms, seed);
        let decoded = decode(&payload).unwrap();
        prop_assert_eq!(decoded.stamp_ms, stamp_ms);
        prop_assert!(matches!(decoded.body, Body::Digest(id) if id == seed));
    }

    #[test]
    fn noise_is_an_error(noise in vec(any::<u8>(), 0..200), kind in 0u8..5) {
        let _ = walk(&noise);
        let mut payload = vec![VERSION, kind];
        payload.extend_from_slice(&noise);
        payload.extend_from_slice(&[0; CHECKSUM_BYTES]);
        let _ = walk(&resealed(payload));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any change of any byte is seen; with a checksum made to fit, nothing panics.
    #[test]
    fn damage_is_an_error(list in commands(), flip in 1u8..) {
        let payload = payload_of(&list, 7, 8);
        for at in 0..payload.len() {
            let mut damaged = payload.clone();
            damaged[at] ^= flip;
            prop_assert!(matches!(walk(&damaged), Err(EntryError::Corrupt(_))), "byte {}", at);
            let _ = walk(&resealed(damaged));
            let _ = walk(&resealed(payload[..at.max(CHECKSUM_BYTES)].to_vec()));
            prop_assert!(walk(&payload[..at]).is_err());
        }
    }
}

#[test]
fn the_bytes_are_these() {
    let mut writer = EntryWriter::new();
    writer.push(3, [&b"SET"[..], b"k", b""].into_iter());
    let payload = writer.finish(0x0102, 0x0304);
    let expected =
        b"\x01\x01\x02\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0\x01\0\0\0\x03\x03\x03SET\x01k\0";
    assert_eq!(&payload[..payload.len() - CHECKSUM_BYTES], expected);
    // CRC-32C's own check value.
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn a_newer_version_is_not_corruption() {
    let mut payload = payload_of(&[], 1, 2);
    payload[0] = 9;
    let error = decode(&resealed(payload)).unwrap_err();
    assert_eq!(error, EntryError::NewerVersion(9));
    assert_eq!(
        error.to_string(),
        "log entry has format version 9, this program reads up to 1: it was written by a newer one"
    );
}

#[test]
fn numbers_have_one_form() {
    // A length of zero in two bytes.
    let mut payload = payload_of(&[(0, vec![vec![]])], 1, 2);
    let at = payload.len() - CHECKSUM_BYTES - 1;
    payload[at] = 0x80;
    payload.insert(at + 1, 0);
    assert!(matches!(
        decode(&resealed(payload)),
        Err(EntryError::Corrupt("no such number"))
    ));
}
