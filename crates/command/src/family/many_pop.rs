//! The arguments that `LMPOP`, `ZMPOP` and their blocking forms share:
//! `numkeys key [key …] <side> [COUNT count]`.

use base::Refusal;
use resp::Args;

/// A pop from the first of several collections that has something.
pub struct ManyPop {
    first_key: usize,
    keys: usize,
    /// Whether the side is the first of the two words: LEFT, MIN.
    pub from_front: bool,
    /// At least 1.
    pub count: usize,
}

impl ManyPop {
    /// Reads from argument `numkeys_at` on; `sides` are the two words for the side.
    pub fn parse(args: &Args<'_>, numkeys_at: usize, sides: [&str; 2]) -> Result<Self, Refusal> {
        let keys = positive(args, numkeys_at)
            .ok_or(Refusal::new("ERR numkeys should be greater than 0"))?;
        let side_at = numkeys_at.saturating_add(keys).saturating_add(1);
        let from_front = if args.is(side_at, sides[0]) {
            true
        } else if args.is(side_at, sides[1]) {
            false
        } else {
            return Err(Refusal::Syntax);
        };
        let count = match args.len() - side_at - 1 {
            0 => 1,
            n if n >= 2 && args.is(side_at + 1, "COUNT") => positive(args, side_at + 2)
                .ok_or(Refusal::new("ERR count should be greater than 0"))?,
            _ => return Err(Refusal::Syntax),
        };
        if args.len() > side_at + 3 {
            return Err(Refusal::Syntax);
        }
        Ok(ManyPop {
            first_key: numkeys_at + 1,
            keys,
            from_front,
            count,
        })
    }

    pub fn keys<'a>(&self, args: &Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        args.iter_from(self.first_key).take(self.keys)
    }
}

fn positive(args: &Args<'_>, at: usize) -> Option<usize> {
    args.int(at)
        .ok()
        .filter(|&n| n > 0)
        .and_then(|n| usize::try_from(n).ok())
}
