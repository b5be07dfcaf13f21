//! Numbers as Redis reads and writes them.
//!
//! Integers are strict: no sign but `-`, no leading zeros or blanks, nothing after them. Floats
//! follow C's `strtod` on the whole text. Texts made here are the bytes a Redis client expects.

/// A 64-bit integer, strictly: what `INCR` accepts.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ if digits.len() > 19 => return None,
        _ => {}
    }
    let mut value: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0'); // 19 digits fit a u64
    }
    if negative {
        (value <= 1 << 63).then(|| (value as i64).wrapping_neg())
    } else {
        i64::try_from(value).ok()
    }
}

/// An unsigned 64-bit integer, strictly (SCAN cursors).
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() || (text.len() > 1 && text[0] == b'0') {
        return None;
    }
    text.iter().try_fold(0u64, |value, &digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// A float as `strtod` reads it over the whole text; NaN is refused.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(hex) = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"))
    {
        let value = parse_hex_float(hex)?;
        return Some(if text.starts_with('-') { -value } else { value });
    }
    let value: f64 = text.parse().ok()?;
    // strtod reports a finite text beyond the range, or too near to zero, as an error.
    let mantissa = unsigned.split(['e', 'E']).next().unwrap_or_default();
    if value == 0.0 && mantissa.contains(|c: char| matches!(c, '1'..='9')) {
        return None;
    }
    let spelled_infinite = unsigned.starts_with(['i', 'I']);
    (!value.is_nan() && (value.is_finite() || spelled_infinite)).then_some(value)
}

/// `1a.8p3`: hexadecimal mantissa, binary exponent.
fn parse_hex_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = match text.split_once(['p', 'P']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0f64;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    Some(value * 2f64.powi(exponent - 4 * fraction.len() as i32))
}

/// A score as `ZSCORE` shows it: C's `%.17g`.
pub fn format_score(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    if value == 0.0 {
        return if value.is_sign_negative() {
            "-0".into()
        } else {
            "0".into()
        };
    }
    if value.fract() == 0.0 && value.abs() < 1e17 {
        return itoa::Buffer::new().format(value as i64).to_string();
    }
    format_general(value, 17)
}

/// C's `%.{precision}g` for a finite, non-zero value.
fn format_general(value: f64, precision: usize) -> String {
    let scientific = format!("{:.*e}", precision - 1, value);
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{}{:02}", trim_zeros(mantissa), sign, exponent.abs());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trim_zeros(&format!("{value:.decimals$}")).to_string()
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// A float as `INCRBYFLOAT` stores it: shortest exact decimal, never an exponent.
pub fn format_plain(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        assert_eq!(parse_i64(b"0"), Some(0));
        assert_eq!(parse_i64(b"-1"), Some(-1));
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        for bad in [
            "",
            "-",
            "-0",
            "01",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "abc",
        ] {
            assert_eq!(parse_i64(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn floats() {
        assert_eq!(parse_f64(b"3.0e3"), Some(3000.0));
        assert_eq!(parse_f64(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_f64(b"+INF"), Some(f64::INFINITY));
        assert_eq!(parse_f64(b"0x10"), Some(16.0));
        for bad in ["", "nan", " 1", "1 ", "1e999", "1e-400", "one", "0x"] {
            assert_eq!(parse_f64(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn scores() {
        assert_eq!(format_score(3.0), "3");
        assert_eq!(format_score(3.3), "3.2999999999999998");
        assert_eq!(format_score(1e20), "1e+20");
        assert_eq!(format_score(-0.0), "-0");
        assert_eq!(format_score(1.5e-7), "1.4999999999999999e-07");
        assert_eq!(format_score(0.0001), "0.0001");
        assert_eq!(format_plain(10.5), "10.5");
        assert_eq!(format_plain(5e20), "500000000000000000000");
    }
}
