//! LZF, the compression of long strings in a dump: fast, no entropy coding.
//!
//! ```text
//!   000nnnnn                       n+1 bytes follow as they are
//!   lllooooo oooooooo              copy l+2 bytes from o+1 bytes back          (l = 1…6)
//!   111ooooo llllllll oooooooo     copy l+9 bytes from o+1 bytes back
//! ```

/// Longest distance back, run of plain bytes, and copy.
const MAX_OFFSET: usize = 1 << 13;
const MAX_LITERAL: usize = 1 << 5;
const MAX_COPY: usize = 264;
const MIN_COPY: usize = 3;

/// Where three bytes with a certain hash were last seen; kept to save allocations only.
#[derive(Default)]
pub(super) struct Compressor {
    seen: Vec<u32>,
}

impl Compressor {
    /// Appends `input` compressed; whether that made it at least `saved` bytes shorter (if not,
    /// `out` is as before).
    pub fn compress(&mut self, input: &[u8], saved: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let Some(limit) = input.len().checked_sub(saved) else {
            return false;
        };
        let bits = usize::BITS - input.len().leading_zeros();
        let bits = bits.clamp(6, 14);
        self.seen.clear();
        self.seen.resize(1 << bits, u32::MAX);
        let (mut at, mut literal) = (0, 0);
        while let Some(&[a, b, c]) = input.get(at..).and_then(|rest| rest.first_chunk()) {
            if out.len() - start > limit {
                break;
            }
            let triple = u32::from_le_bytes([a, b, c, 0]);
            let slot = triple.wrapping_mul(0x9e37_79b1) >> (32 - bits);
            let Some(seen) = self.seen.get_mut(slot as usize) else {
                break;
            };
            let candidate = std::mem::replace(seen, at as u32) as usize;
            let len = match at.checked_sub(candidate) {
                Some(1..=MAX_OFFSET) => match_len(input, candidate, at),
                _ => 0,
            };
            if len < MIN_COPY {
                at += 1;
                continue;
            }
            push_literals(input.get(literal..at).unwrap_or_default(), out);
            push_copy(at - candidate - 1, len, out);
            at += len;
            literal = at;
        }
        push_literals(input.get(literal..).unwrap_or_default(), out);
        if out.len() - start > limit {
            out.truncate(start);
            return false;
        }
        true
    }
}

fn match_len(input: &[u8], candidate: usize, at: usize) -> usize {
    let (old, new) = (input.get(candidate..), input.get(at..));
    let pairs = old.unwrap_or_default().iter().zip(new.unwrap_or_default());
    pairs.take(MAX_COPY).take_while(|(a, b)| a == b).count()
}

fn push_literals(bytes: &[u8], out: &mut Vec<u8>) {
    for run in bytes.chunks(MAX_LITERAL) {
        out.push(run.len() as u8 - 1);
        out.extend_from_slice(run);
    }
}

fn push_copy(offset: usize, len: usize, out: &mut Vec<u8>) {
    let (high, low) = ((offset >> 8) as u8, offset as u8);
    match len - 2 {
        short @ 1..=6 => out.extend_from_slice(&[(short as u8) << 5 | high, low]),
        long => out.extend_from_slice(&[0xe0 | high, (long - 7) as u8, low]),
    }
}

/// Appends what `input` stands for, `len` bytes; `None` if it stands for anything else.
pub(super) fn decompress(mut input: &[u8], len: usize, out: &mut Vec<u8>) -> Option<()> {
    // Three bytes make at most MAX_COPY: a length beyond that is a lie, and memory is not given.
    if len > input.len().saturating_mul(MAX_COPY / 3) {
        return None;
    }
    let start = out.len();
    out.reserve(len);
    while let [control, rest @ ..] = input {
        input = rest;
        if *control < 32 {
            let (literal, rest) = input.split_at_checked(usize::from(*control) + 1)?;
            out.extend_from_slice(literal);
            input = rest;
        } else {
            let mut count = usize::from(control >> 5) + 2;
            if count == 9 {
                let (more, rest) = input.split_first()?;
                count += usize::from(*more);
                input = rest;
            }
            let (low, rest) = input.split_first()?;
            input = rest;
            let back = (usize::from(control & 0x1f) << 8 | usize::from(*low)) + 1;
            let from = (out.len() - start).checked_sub(back)? + start;
            for i in from..from + count {
                out.push(*out.get(i)?); // may overlap what is being written
            }
        }
        if out.len() - start > len {
            return None;
        }
    }
    (out.len() - start == len).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(words in prop::collection::vec(0u8..6, 0..3000), wide in any::<bool>()) {
            let input: Vec<u8> = if wide { words } else { words.iter().map(|w| w / 5).collect() };
            let mut packed = vec![7];
            if Compressor::default().compress(&input, 4, &mut packed) {
                prop_assert!(packed.len() - 1 + 4 <= input.len());
                let mut out = b"x".to_vec();
                prop_assert!(decompress(&packed[1..], input.len(), &mut out).is_some());
                prop_assert_eq!(&out[1..], &input[..]);
            } else {
                prop_assert_eq!(packed.len(), 1);
            }
        }

        #[test]
        fn noise_never_panics(input in prop::collection::vec(any::<u8>(), 0..300), len in 0usize..10000) {
            decompress(&input, len, &mut Vec::new());
        }
    }
}
