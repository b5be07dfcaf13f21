//! Slots: CRC16 (XMODEM) of the key, or of its `{tag}`, modulo 16384.
//!
//! The slot is the unit of placement: a region is a range of slots, and a core owns regions.

pub const SLOT_COUNT: u16 = 16384;

/// A slot number, `0..SLOT_COUNT`.
pub type Slot = u16;

/// The slot of `key`. Only the part between the first `{` and the next `}` counts, if not empty.
#[inline]
pub fn slot_of(key: &[u8]) -> Slot {
    crc16(hash_part(key)) & (SLOT_COUNT - 1)
}

/// The bytes of `key` that decide its slot.
fn hash_part(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&b| b == b'{') else {
        return key;
    };
    let rest = &key[open + 1..];
    match rest.iter().position(|&b| b == b'}') {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}

const TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 {
                (crc << 1) ^ 0x1021
            } else {
                crc << 1
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (crc << 8) ^ TABLE[((crc >> 8) as u8 ^ byte) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_slots() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"123456789"), 12739);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") & 16383);
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{bar"), crc16(b"foo{bar") & 16383);
    }
}
