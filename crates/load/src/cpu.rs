//! What processes spent: user and system time of all their threads, as the kernel counts it.
//!
//! The kernel shows hundredths of a second; over the seconds of a measurement that is exact enough.

const TICKS_PER_SECOND: f64 = 100.0; // USER_HZ: the same on every Linux

/// Seconds that a process has used so far; none if it is gone.
pub fn seconds_of(pid: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse(&text)
}

/// Fields 14 and 15; the name in field 2 may contain anything, but ends with the last bracket.
fn parse(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_and_spaces() {
        let line = "42 (a) b (c)) S 1 42 42 0 -1 4194304 1 0 0 0 150 50 0 0 20 0 1 0 5";
        assert_eq!(parse(line), Some(2.0));
        assert!(seconds_of("self").is_some());
    }
}
