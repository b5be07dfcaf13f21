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

/// `TABLES[k][b]`: what byte `b` contributes when `k` more bytes follow it. Eight bytes are then
/// eight independent look-ups instead of a chain of eight: the slot is computed for every command
/// of a server with several cores.
const TABLES: [[u16; 256]; 8] = {
    let mut tables = [[0u16; 256]; 8];
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
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let shorter = tables[k - 1][byte];
            tables[k][byte] = (shorter << 8) ^ tables[0][(shorter >> 8) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
};

fn crc16(bytes: &[u8]) -> u16 {
    let (eights, rest) = bytes.as_chunks::<8>();
    let mut crc = 0;
    for &[b0, b1, b2, b3, b4, b5, b6, b7] in eights {
        crc = TABLES[7][(b0 ^ (crc >> 8) as u8) as usize]
            ^ TABLES[6][(b1 ^ crc as u8) as usize]
            ^ TABLES[5][b2 as usize]
            ^ TABLES[4][b3 as usize]
            ^ TABLES[3][b4 as usize]
            ^ TABLES[2][b5 as usize]
            ^ TABLES[1][b6 as usize]
            ^ TABLES[0][b7 as usize];
    }
    crc16_from(crc, rest)
}

/// One byte after the other.
fn crc16_from(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, &byte| {
        (crc << 8) ^ TABLES[0][((crc >> 8) as u8 ^ byte) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_at_a_time_equals_one_at_a_time() {
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * i * 31 + 7) as u8).collect();
        for len in 0..bytes.len() {
            assert_eq!(crc16(&bytes[..len]), crc16_from(0, &bytes[..len]), "{len}");
        }
    }

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
