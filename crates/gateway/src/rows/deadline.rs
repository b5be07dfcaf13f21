//! When a call must be answered: gRPC's header `grpc-timeout`.

use std::time::Duration;

use hyper::HeaderMap;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// Without a deadline.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Nobody waits for longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// The answer "not in time" has to get there in time.
const MARGIN_MAX: Duration = Duration::from_millis(20);

pub fn deadline_of(metadata: &MetadataMap) -> Instant {
    let given = metadata.get("grpc-timeout").and_then(|it| it.to_str().ok());
    of(given)
}

/// The same, before the call is read.
pub fn deadline_in(headers: &HeaderMap) -> Instant {
    let given = headers.get("grpc-timeout").and_then(|it| it.to_str().ok());
    of(given)
}

fn of(given: Option<&str>) -> Instant {
    let timeout = given.and_then(parse).map_or(TIMEOUT, less_margin);
    Instant::now() + timeout.min(LONGEST)
}

fn less_margin(timeout: Duration) -> Duration {
    timeout - (timeout / 10).min(MARGIN_MAX)
}

/// At most eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(parse("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parse("3M"), Some(Duration::from_secs(180)));
        assert_eq!(parse("4S"), Some(Duration::from_secs(4)));
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("99999999u"), Some(Duration::from_micros(99_999_999)));
        assert_eq!(parse("1n"), Some(Duration::from_nanos(1)));
        for wrong in ["", "S", "1", "1x", "-1S", "+1S", "123456789S", "1S ", "é"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
