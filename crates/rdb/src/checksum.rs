//! CRC-64 of a dump, as Redis computes it (Jones polynomial, initially zero).

use crc::{CRC_64_REDIS, Crc, Digest, Table};

static REDIS: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The running checksum of everything written or read so far.
#[derive(Clone)]
pub struct Checksum(Digest<'static, u64, Table<16>>);

impl Checksum {
    pub fn new() -> Self {
        Checksum(REDIS.digest())
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn value(&self) -> u64 {
        self.0.clone().finalize()
    }
}

impl Default for Checksum {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_of_the_jones_variant() {
        let mut checksum = Checksum::new();
        checksum.update(b"12345");
        checksum.update(b"6789");
        assert_eq!(checksum.value(), 0xe9c6_d914_c4b8_d9ca);
    }
}
