//! What tables, fields and rows may be called.
//!
//! Names of tables and fields become SQL identifiers: short, plain, and never ours (`__key__`, `__version__`,
//! `__slot__`). Keys are data and may hold anything SQL text can hold.

use base::Refusal;

/// Longest name of a table or field: what PostgreSQL keeps of an identifier.
pub const NAME_BYTES_MAX: usize = 63;
/// Longest key of a row.
pub const KEY_BYTES_MAX: usize = 255;

/// `[A-Za-z_][A-Za-z0-9_]{0,62}`, not beginning with `__`. `what` is said in the refusal ("table", "field").
pub fn check(what: &str, name: &str) -> Result<(), Refusal> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(plain)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.starts_with("__");
    if fits {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_BYTES_MAX + 1).collect();
    Err(Refusal::text_of(format!(
        "ERR {what} name '{}' is not valid: letters, digits and _, not beginning with a digit or __, at most {NAME_BYTES_MAX}",
        shown.escape_default()
    )))
}

/// The key of a row, if it may be one: 1 to 255 bytes of utf-8 without NUL.
pub fn check_key(key: &[u8]) -> Result<&str, Refusal> {
    if key.is_empty() {
        return Err(Refusal::new("ERR the key of a row is empty"));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(Refusal::text_of(format!(
            "ERR the key of a row has {} bytes; at most {KEY_BYTES_MAX}",
            key.len()
        )));
    }
    if key.contains(&0) {
        return Err(Refusal::new("ERR the key of a row contains a NUL byte"));
    }
    std::str::from_utf8(key).map_err(|_| Refusal::new("ERR the key of a row is not valid utf-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "_a", "Age2", &"x".repeat(63)] {
            assert!(check("field", good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "1a",
            "__a",
            "a-b",
            "a b",
            "é",
            "a\"b",
            "a`b",
            &"x".repeat(64),
        ] {
            assert!(check("field", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys() {
        for good in ["' OR 1=1 --", "a ", " ", "😀", &"k".repeat(255)] {
            assert_eq!(check_key(good.as_bytes()).ok(), Some(good));
        }
        let long = "k".repeat(256);
        for bad in [&b""[..], b"a\0b", b"\xff", long.as_bytes()] {
            assert!(check_key(bad).is_err());
        }
    }
}
