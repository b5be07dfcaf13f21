//! A burst of commands as bytes, made once; before each use only the digits in it change.
//!
//! ```text
//! SET key:__rand_int__ x, pipeline 2:
//! *3..$3..SET..$16..key:000000004711..$1..x..*3..$3..SET..$16..key:000000000815..$1..x..
//!                       └ place 0                                  └ place 1
//! ```
//!
//! The word, twelve characters, becomes twelve digits, each time others, as redis-benchmark does it: the length of the
//! command stays, so there is nothing to encode and nothing to allocate per command.

const WORD: &str = "__rand_int__";
const DIGITS: usize = WORD.len();

/// The commands of one burst.
#[derive(Clone)]
pub struct Burst {
    bytes: Vec<u8>,
    /// Where digits begin.
    places: Vec<usize>,
    /// Random numbers are below.
    range: u64,
    dice: fastrand::Rng,
}

impl Burst {
    pub fn new(args: &[String], pipeline: usize, range: u64, seed: u64) -> Self {
        let mut one = format!("*{}\r\n", args.len());
        for arg in args {
            one.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
        }
        let all = one.repeat(pipeline);
        Self {
            places: all.match_indices(WORD).map(|(place, _)| place).collect(),
            bytes: all.into_bytes(),
            range,
            dice: fastrand::Rng::with_seed(seed),
        }
    }

    /// The bytes to send, with new numbers.
    pub fn next(&mut self) -> &[u8] {
        for place in &self.places {
            let number = self.dice.u64(0..self.range);
            if let Some(digits) = self.bytes.get_mut(*place..*place + DIGITS) {
                write(digits, number);
            }
        }
        &self.bytes
    }
}

/// Decimal, with zeros in front.
fn write(digits: &mut [u8], mut number: u64) {
    for pair in digits.rchunks_exact_mut(2) {
        let two = (number % 100) as u8;
        number /= 100;
        pair.copy_from_slice(&[b'0' + two / 10, b'0' + two % 10]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(text: &str, pipeline: usize, range: u64) -> Burst {
        let args: Vec<String> = text.split(' ').map(String::from).collect();
        Burst::new(&args, pipeline, range, 1)
    }

    #[test]
    fn digits() {
        for (number, expected) in [
            (0, "000000000000"),
            (7, "000000000007"),
            (1_234_567, "000001234567"),
            (999_999_999_999, "999999999999"),
        ] {
            let mut digits = [0; DIGITS];
            write(&mut digits, number);
            assert_eq!(digits, expected.as_bytes());
        }
    }

    #[test]
    fn commands_without_numbers_stay() {
        let mut burst = burst("LPUSH l e", 2, 1);
        let expected = "*3\r\n$5\r\nLPUSH\r\n$1\r\nl\r\n$1\r\ne\r\n".repeat(2);
        assert_eq!(burst.next(), expected.as_bytes());
        assert_eq!(burst.next(), expected.as_bytes());
    }

    #[test]
    fn every_word_has_its_number_each_time() {
        let mut burst = burst("ZADD z __rand_int__ m:__rand_int__", 3, 1_000_000);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10 {
            let text = String::from_utf8(burst.next().to_vec()).unwrap();
            let words: Vec<&str> = text.split("\r\n").collect();
            assert_eq!(text.matches("$14\r\nm:").count(), 3);
            for word in words.iter().filter(|word| word.len() >= DIGITS) {
                let number: u64 = word.trim_start_matches("m:").parse().unwrap();
                assert!(number < 1_000_000);
                seen.insert(number);
            }
        }
        assert!(seen.len() > 50, "{} of 60 differ", seen.len());
        let mut only_zero = self::burst("GET __rand_int__", 1, 1);
        assert!(only_zero.next().ends_with(b"000000000000\r\n"));
    }
}
