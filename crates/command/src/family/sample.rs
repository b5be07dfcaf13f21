//! Picking distinct elements at random, for `HRANDFIELD`, `SRANDMEMBER`, `ZRANDMEMBER`.

use std::collections::BTreeSet;

use base::Refusal;
use resp::Args;

/// The count argument of the three commands: any integer but the lowest.
pub fn signed_count(args: &Args<'_>, at: usize) -> Result<i64, Refusal> {
    match args.int(at)? {
        i64::MIN => Err(Refusal::new(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )),
        count => Ok(count),
    }
}

/// Calls `each` with `count` distinct elements of a collection of `len` (`count` < `len`).
///
/// A large share is drawn in one walk, each element being taken with the odds that remain; a small
/// one by drawing until enough different elements have come up, which needs few repeats then.
pub fn distinct<T>(
    count: usize,
    len: usize,
    rng: &mut fastrand::Rng,
    all: impl Iterator<Item = T>,
    mut draw: impl FnMut(&mut fastrand::Rng) -> Option<T>,
    name: impl Fn(&T) -> Vec<u8>,
    mut each: impl FnMut(T),
) {
    if count * 3 > len {
        let (mut wanted, mut left) = (count, len);
        for element in all {
            if wanted == 0 {
                break;
            }
            if rng.usize(..left.max(1)) < wanted {
                each(element);
                wanted -= 1;
            }
            left = left.saturating_sub(1);
        }
        return;
    }
    let mut seen = BTreeSet::new();
    while seen.len() < count {
        let Some(element) = draw(rng) else { break };
        if seen.insert(name(&element)) {
            each(element);
        }
    }
}
