//! Lines for the operator, each kind of them at most every few seconds: a peer that is away for a
//! night must not fill a disk.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_secs(5);
/// Kinds remembered; a flood of new kinds (addresses of strangers) is cut here.
const KINDS_MAX: usize = 1024;

#[derive(Default)]
pub struct Notices {
    last: Mutex<HashMap<String, (Instant, u64)>>,
}

impl Notices {
    /// The line to show now, if it is time: with a count of those of its kind that were kept back.
    pub fn admit(&self, kind: &str, line: &str) -> Option<String> {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, held)) = last.get_mut(kind) {
            if now.duration_since(*at) < PAUSE {
                *held += 1;
                return None;
            }
            let line = match *held {
                0 => line.to_owned(),
                held => format!("{line} ({held} more like this)"),
            };
            (*at, *held) = (now, 0);
            return Some(line);
        }
        if last.len() >= KINDS_MAX {
            last.retain(|_, (at, _)| now.duration_since(*at) < PAUSE);
            if last.len() >= KINDS_MAX {
                return None;
            }
        }
        last.insert(kind.to_owned(), (now, 0));
        Some(line.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_of_a_kind_waits() {
        let notices = Notices::default();
        assert_eq!(notices.admit("a", "x").as_deref(), Some("x"));
        assert_eq!(notices.admit("a", "x"), None);
        assert_eq!(notices.admit("b", "y").as_deref(), Some("y"));
        for at in 0..2 * KINDS_MAX {
            notices.admit(&at.to_string(), "z");
        }
        assert!(notices.last.lock().unwrap().len() <= KINDS_MAX);
    }
}
