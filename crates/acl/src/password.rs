//! Passwords: only their SHA-256 is kept, as 64 hexadecimal digits, and compared in a time that tells nothing.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::RuleError;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The hash of a password, as Redis writes it.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash([u8; 64]);

/// Hashes do not belong into logs either.
impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash(…)")
    }
}

pub fn hash_of(password: &[u8]) -> Hash {
    let mut text = [0; 64];
    let digest = Sha256::digest(password);
    for (pair, byte) in text.chunks_exact_mut(2).zip(digest.iter()) {
        pair.copy_from_slice(&[
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    }
    Hash(text)
}

impl Hash {
    /// One that somebody gave as text.
    pub fn given(text: &[u8]) -> Result<Hash, RuleError> {
        let is_digit = |byte: &u8| DIGITS.contains(byte);
        let hash: [u8; 64] = text.try_into().map_err(|_| RuleError::BadHash)?;
        match hash.iter().all(is_digit) {
            true => Ok(Hash(hash)),
            false => Err(RuleError::BadHash),
        }
    }

    pub fn as_text(&self) -> &str {
        // Hexadecimal digits only.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Whether it is among `known`. All are compared, and each to its end.
    pub fn is_among(&self, known: &[Hash]) -> bool {
        let found = known
            .iter()
            .fold(Choice::from(0), |found, hash| found | self.0.ct_eq(&hash.0));
        found.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_redis() {
        let expected = "b8d5c0f0b9a3b9e0e9ad2e4b2c4d0ed2b6a1b2c7c0b7e5e9d3f2a9a6f1c0d4e5";
        assert!(Hash::given(expected.as_bytes()).is_ok());
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hash_of(b"").as_text(), empty);
        assert!(hash_of(b"a").is_among(&[hash_of(b"b"), hash_of(b"a")]));
        assert!(!hash_of(b"a").is_among(&[hash_of(b"b")]));
        assert!(!hash_of(b"a").is_among(&[]));
        for bad in ["", "ABC", &"g".repeat(64), &"A".repeat(64), &"a".repeat(65)] {
            assert_eq!(Hash::given(bad.as_bytes()), Err(RuleError::BadHash));
        }
    }
}
