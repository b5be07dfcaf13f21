//! Decimal sums as `INCRBYFLOAT` makes them: 64 significant bits, 17 decimals.
//!
//! Redis adds in x86's 80-bit `long double` and prints `%.17Lf`. The eleven bits beyond an `f64`
//! are what makes 3 + 1.1 read `4.1` and ten times 0.1 read `1`; there is no hardware type for it
//! here, so the sum is made in integers: a number is `mantissa × 2^exponent`, exact or rounded
//! half to even, on every machine the same.
//!
//! Not a general number type: it can be read, added and written, which is all the commands need.

use crate::number;

/// Longest text read as a number, as in Redis.
const TEXT_MAX: usize = 255;
/// Beyond these powers of ten a text is out of a long double's range.
const DECIMAL_EXPONENT_MAX: i64 = 4933;
const DECIMAL_EXPONENT_MIN: i64 = -4951;

/// `±mantissa × 2^exponent`, the mantissa's top bit set; zero has mantissa 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extended {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// What reading a text gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    Number(Extended),
    /// `inf` in one of its spellings: a float, but nothing can be added to it.
    Infinite,
}

impl Extended {
    const ZERO: Extended = Extended {
        negative: false,
        mantissa: 0,
        exponent: 0,
    };

    /// The whole of `text` as a float; `None` if it is none, is not a number or out of range.
    pub fn read(text: &[u8]) -> Option<Read> {
        if text.len() > TEXT_MAX {
            return None;
        }
        if let Some(int) = number::parse_i64(text) {
            return Some(Read::Number(Extended::from_int(int)));
        }
        let (negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        match unsigned.first() {
            Some(b'0'..=b'9' | b'.') if !matches!(unsigned, [b'0', b'x' | b'X', ..]) => {
                read_decimal(negative, unsigned).map(Read::Number)
            }
            _ => {
                // Hexadecimal and `inf`: an f64 is enough.
                let value = number::parse_f64(text)?;
                Some(if value.is_infinite() {
                    Read::Infinite
                } else {
                    Read::Number(Extended::from_f64(value))
                })
            }
        }
    }

    pub fn from_int(value: i64) -> Extended {
        Extended::rounded(value < 0, u128::from(value.unsigned_abs()), 0, false)
    }

    fn from_f64(value: f64) -> Extended {
        let bits = value.to_bits();
        let raw = (bits >> 52) as i32 & 0x7ff;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, exponent) = if raw == 0 {
            (fraction, -1074)
        } else {
            (fraction | 1 << 52, raw - 1075)
        };
        Extended::rounded(value < 0.0, u128::from(mantissa), exponent, false)
    }

    /// `mantissa × 2^exponent` (plus a little more if `sticky`) to 64 bits, half to even.
    fn rounded(negative: bool, mantissa: u128, exponent: i32, sticky: bool) -> Extended {
        if mantissa == 0 {
            return Extended::ZERO;
        }
        let excess = 64 - mantissa.leading_zeros() as i32;
        if excess <= 0 {
            return Extended {
                negative,
                mantissa: (mantissa << -excess) as u64,
                exponent: exponent + excess,
            };
        }
        let kept = (mantissa >> excess) as u64;
        let rest = mantissa & ((1 << excess) - 1);
        let half = 1u128 << (excess - 1);
        let up = rest > half || (rest == half && (sticky || kept & 1 == 1));
        let (mantissa, carried) = kept.overflowing_add(u64::from(up));
        Extended {
            negative,
            mantissa: if carried { 1 << 63 } else { mantissa },
            exponent: exponent + excess + i32::from(carried),
        }
    }

    /// The sum; `None` if it leaves a long double's range.
    pub fn plus(self, other: Extended) -> Option<Extended> {
        let (big, small) =
            if (self.mantissa != 0, self.exponent) >= (other.mantissa != 0, other.exponent) {
                (self, other)
            } else {
                (other, self)
            };
        if small.mantissa == 0 {
            return Some(big);
        }
        // 62 guard bits below the greater number; what falls off them only decides ties.
        let distance = (big.exponent - small.exponent) as u32;
        let wide_big = u128::from(big.mantissa) << 62;
        let all_small = u128::from(small.mantissa) << 62;
        let wide_small = all_small.checked_shr(distance).unwrap_or(0);
        let lost = distance >= 128 || wide_small << distance != all_small;
        let exponent = big.exponent - 62;
        let sum = if big.negative == small.negative {
            Extended::rounded(big.negative, wide_big + wide_small, exponent, lost)
        } else if wide_big >= wide_small {
            // A borrowed lowest bit stands for the lost part: the true value lies just above.
            let difference = wide_big - wide_small - u128::from(lost);
            Extended::rounded(big.negative, difference, exponent, lost)
        } else {
            Extended::rounded(small.negative, wide_small - wide_big, exponent, lost)
        };
        (sum.exponent + 64 <= 16384).then_some(sum)
    }

    /// Plain decimal text with at most 17 decimals, no trailing zeros, never an exponent.
    pub fn to_text(self) -> String {
        let (whole, fraction) = if self.exponent >= 0 {
            let mut digits = Digits::from(u128::from(self.mantissa));
            digits.shift_left(self.exponent as u32);
            (digits.to_text(), 0)
        } else {
            let shift = self.exponent.unsigned_abs();
            let mantissa = u128::from(self.mantissa);
            let whole = mantissa.checked_shr(shift).unwrap_or(0);
            let below = if shift >= 64 {
                mantissa
            } else {
                mantissa & ((1 << shift) - 1)
            };
            let fraction = shift_right_rounding(below * DECIMALS, shift);
            (
                (whole + fraction / DECIMALS).to_string(),
                fraction % DECIMALS,
            )
        };
        let mut text = String::with_capacity(whole.len() + 20);
        if self.negative && (whole != "0" || fraction != 0) {
            text.push('-');
        }
        text.push_str(&whole);
        if fraction != 0 {
            let decimals = format!("{fraction:017}");
            text.push('.');
            text.push_str(decimals.trim_end_matches('0'));
        }
        text
    }
}

/// 10^17: as many decimals as are printed.
const DECIMALS: u128 = 100_000_000_000_000_000;

fn shift_right_rounding(value: u128, shift: u32) -> u128 {
    if shift >= 128 {
        return 0;
    }
    let kept = value >> shift;
    let rest = value & ((1 << shift) - 1);
    let half = 1u128 << (shift - 1);
    kept + u128::from(rest > half || (rest == half && kept & 1 == 1))
}

/// `123.456e-7`, no sign: digits, point and decimal exponent to the nearest 64-bit mantissa.
fn read_decimal(negative: bool, text: &[u8]) -> Option<Extended> {
    let mut digits = Digits::from(0);
    let (mut any, mut point, mut scale) = (false, false, 0i64);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'0'..=b'9' => {
                digits.multiply_add(10, u32::from(byte - b'0'));
                any = true;
                scale -= i64::from(point);
            }
            b'.' if !point => point = true,
            _ => break,
        }
        at += 1;
    }
    if !any {
        return None;
    }
    match text.get(at..)? {
        [] => {}
        [b'e' | b'E', exponent @ ..] => scale = scale.checked_add(read_exponent(exponent)?)?,
        _ => return None,
    }
    if digits.is_zero() {
        return Some(Extended::ZERO);
    }
    let magnitude = digits.to_text().len() as i64 + scale;
    if !(DECIMAL_EXPONENT_MIN..=DECIMAL_EXPONENT_MAX).contains(&magnitude) {
        return None;
    }
    let power = scale.unsigned_abs() as u32;
    let value = if scale >= 0 {
        (0..power).for_each(|_| digits.multiply_add(10, 0));
        let (top, dropped, sticky) = digits.top_bits();
        Extended::rounded(negative, top, dropped as i32, sticky)
    } else {
        let mut divisor = Digits::from(1);
        (0..power).for_each(|_| divisor.multiply_add(10, 0));
        divide(negative, digits, divisor)
    };
    (value.exponent + 64 <= 16384).then_some(value)
}

fn read_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |value, &digit| {
        (value * 10 + i64::from(digit - b'0')).min(1_000_000)
    });
    Some(if negative { -value } else { value })
}

/// The quotient to 66 bits and a sticky remainder, then rounded once.
fn divide(negative: bool, mut numerator: Digits, mut divisor: Digits) -> Extended {
    // Scale so that 1 <= numerator / divisor < 4, then take one bit per step.
    let shift = divisor.bits() as i32 - numerator.bits() as i32 + 1;
    if shift >= 0 {
        numerator.shift_left(shift as u32);
    } else {
        divisor.shift_left(shift.unsigned_abs());
    }
    divisor.shift_left(1);
    let mut quotient: u128 = 0;
    for _ in 0..68 {
        quotient <<= 1;
        if numerator.subtract_if_greater(&divisor) {
            quotient |= 1;
        }
        numerator.shift_left(1);
    }
    Extended::rounded(negative, quotient, 1 - shift - 67, !numerator.is_zero())
}

/// An unsigned integer of any size, lowest word first.
struct Digits(Vec<u32>);

impl Digits {
    fn from(mut value: u128) -> Digits {
        let mut words = Vec::new();
        while value > 0 {
            words.push(value as u32);
            value >>= 32;
        }
        Digits(words)
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> usize {
        match self.0.last() {
            Some(top) => self.0.len() * 32 - top.leading_zeros() as usize,
            None => 0,
        }
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for word in &mut self.0 {
            let value = u64::from(*word) * u64::from(factor) + carry;
            *word = value as u32;
            carry = value >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift_left(&mut self, by: u32) {
        if self.is_zero() {
            return;
        }
        let bits = by % 32;
        if bits > 0 {
            let mut carry = 0;
            for word in &mut self.0 {
                let value = u64::from(*word) << bits | carry;
                *word = value as u32;
                carry = value >> 32;
            }
            if carry > 0 {
                self.0.push(carry as u32);
            }
        }
        if by >= 32 {
            let zeros = std::iter::repeat_n(0, (by / 32) as usize);
            self.0.splice(0..0, zeros);
        }
    }

    /// The highest bits (at most 128), how many are below them, and whether any of those is set.
    fn top_bits(&self) -> (u128, usize, bool) {
        let below = self.0.len().saturating_sub(4);
        let (low, high) = self.0.split_at(below);
        let top = high
            .iter()
            .rev()
            .fold(0u128, |top, &word| top << 32 | u128::from(word));
        (top, below * 32, low.iter().any(|&word| word != 0))
    }

    /// Takes `other` away if this is not less than it; whether it was taken.
    fn subtract_if_greater(&mut self, other: &Digits) -> bool {
        let order = self.0.len().cmp(&other.0.len());
        if order
            .then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
            .is_lt()
        {
            return false;
        }
        let mut borrow = 0i64;
        for (i, word) in self.0.iter_mut().enumerate() {
            let taken = other.0.get(i).copied().unwrap_or(0);
            let value = i64::from(*word) - i64::from(taken) - borrow;
            borrow = i64::from(value < 0);
            *word = value as u32;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        true
    }

    fn to_text(&self) -> String {
        let mut words = self.0.clone();
        let mut parts: Vec<u32> = Vec::new();
        while !words.is_empty() {
            let mut rest = 0u64;
            for word in words.iter_mut().rev() {
                let value = rest << 32 | u64::from(*word);
                *word = (value / 1_000_000_000) as u32;
                rest = value % 1_000_000_000;
            }
            parts.push(rest as u32);
            while words.last() == Some(&0) {
                words.pop();
            }
        }
        let mut text = match parts.pop() {
            Some(first) => first.to_string(),
            None => return "0".to_string(),
        };
        for part in parts.iter().rev() {
            text.push_str(&format!("{part:09}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let read = |text: &str| match Extended::read(text.as_bytes())? {
            Read::Number(number) => Some(number),
            Read::Infinite => None,
        };
        read(a)?.plus(read(b)?).map(Extended::to_text)
    }

    /// Expected values were read off a redis-server on x86-64.
    #[test]
    fn sums_as_a_long_double_makes_them() {
        for (a, b, expected) in [
            ("3.0", "1.1", "4.1"),
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("1", "-1.0", "0"),
            ("-0.5", "0.25", "-0.25"),
            ("1e20", "1", "100000000000000000000"),
            ("17179869185", "1.5", "17179869186.5"),
            ("1e-17", "0", "0.00000000000000001"),
            ("-1e-18", "0", "0"),
            ("0x10", "0", "16"),
            ("+5", "0", "5"),
            ("999999999999999999999", "1", "1000000000000000000000"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number() {
        for bad in [
            "", "abc", "1 ", " 1", "1e", "1e+", ".", "1.2.3", "1e5000", "nan", "-", "1e-5000",
        ] {
            assert_eq!(sum(bad, "0"), None, "{bad}");
        }
        assert_eq!(Extended::read(b"-inf"), Some(Read::Infinite));
    }

    #[test]
    fn overflow_has_no_sum() {
        assert_eq!(sum("1e4932", "1.1e4932"), None);
        assert_eq!(sum("1e4000", "0").map(|text| text.len()), Some(4000));
    }
}
