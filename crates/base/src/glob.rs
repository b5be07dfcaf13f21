//! Glob patterns as `KEYS`, `SCAN MATCH` and `CONFIG GET` take them: `*`, `?`, `[a-z]`, `[^x]`, `\`.

/// Whether the whole of `text` matches `pattern`, byte by byte.
///
/// Linear in practice: on a mismatch after `*` only the last star is retried, which is enough
/// because a later star can absorb whatever an earlier one would have. As in Redis, a pattern
/// that needs more than 1000 stars one after the other matches nothing.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, false)
}

/// As [`matches`], letters compared without case.
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, true)
}

/// See [`matches`].
const MOST_STARS: usize = 1000;

fn matches_with(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut stars = 0;
    // Where to resume: the pattern after the last star, and the text it has swallowed so far.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let rest = pattern.get(p..).unwrap_or_default();
        if let [b'*', ..] = rest {
            let repeated = retry.is_some_and(|(star, _)| star == p);
            p += 1;
            retry = Some((p, t));
            // A last star, and stars after the end of the text, do not count.
            if !repeated && p < pattern.len() && t < text.len() {
                stars += 1;
                if stars > MOST_STARS {
                    return false;
                }
            }
            continue;
        }
        if let Some(&byte) = text.get(t)
            && let Some(next) = match_one(rest, byte, ignore_case)
        {
            p += next;
            t += 1;
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        match retry {
            Some((star, swallowed)) if swallowed < text.len() => {
                p = star;
                t = swallowed + 1;
                retry = Some((star, t));
            }
            _ => return false,
        }
    }
}

/// Matches one byte against the first element of `pattern`; the element's length if it fits.
fn match_one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |b: u8| {
        if ignore_case {
            b.to_ascii_lowercase()
        } else {
            b
        }
    };
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ..] => match_class(pattern, byte, fold),
        [b'\\', literal, ..] => (fold(literal) == fold(byte)).then_some(2),
        [literal, ..] => (fold(literal) == fold(byte)).then_some(1),
    }
}

/// `[abc]`, `[a-z]`, `[^…]`. An unclosed class reaches to the end of the pattern, as in Redis.
fn match_class(pattern: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    if negated {
        at += 1;
    }
    let byte = fold(byte);
    let mut found = false;
    loop {
        match *pattern.get(at..).unwrap_or_default() {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                found |= fold(literal) == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                let (a, b) = (fold(low), fold(high));
                found |= (a.min(b)..=a.max(b)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= fold(literal) == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxxcd", false),
            ("foo*", "foobar", true),
            ("", "", true),
            ("", "a", false),
            ("[a", "a", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
        assert!(matches_ignoring_case(b"MaxMem*", b"maxmemory"));
    }

    #[test]
    fn too_many_stars_match_nothing() {
        let text = vec![b'a'; 2000];
        assert!(matches(&b"*?".repeat(1000), &text));
        assert!(!matches(&b"*?".repeat(1001), &text));
        assert!(matches(&b"*".repeat(2000), &text));
    }

    #[test]
    fn many_stars_stay_fast() {
        let pattern = b"a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b".to_vec();
        assert!(!matches(&pattern, &vec![b'a'; 10_000]));
    }
}
