//! All nodes: SQL has everything, or every region knows the tables. This node sees to its own, and asks the others.
//!
//! Each node answers for the slots it leads. Slots that change their leader meanwhile are asked for again: it is over when one round was
//! about all of them.

use std::time::Duration;

use base::number::parse_u64;
use base::{Refusal, SLOT_COUNT};

use crate::Session;
use crate::shared::now_ms;
use crate::tables::status;

const AGAIN: Duration = Duration::from_millis(100);
/// For an answer, beyond the time that SQL is given.
const MORE: Duration = Duration::from_secs(5);

/// SQL has all that was changed before, but dead letters.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DrainedAll {
    slots: usize,
    dead: usize,
    /// Keys of the first of them.
    letters: Vec<String>,
}

impl DrainedAll {
    /// Whether there are, or may be, dead letters of a table: only the first of each region are named.
    pub fn has_letters_of(&self, table: &str) -> bool {
        let is_of = |key: &String| {
            let rest = key.strip_prefix(table);
            rest.is_some_and(|rest| rest.starts_with(':'))
        };
        self.dead > self.letters.len() || self.letters.iter().any(is_of)
    }

    fn add(&mut self, other: DrainedAll) {
        self.slots += other.slots;
        self.dead += other.dead;
        self.letters.extend(other.letters);
    }
}

/// Waits until SQL has everything of all regions, whoever leads them.
pub async fn drain_all(session: &mut Session, deadline_ms: u64) -> Result<DrainedAll, Refusal> {
    loop {
        let mut all = here(session, deadline_ms).await?;
        let left = Duration::from_millis(deadline_ms.saturating_sub(now_ms()).max(1));
        let left_ms = left.as_millis().to_string();
        let words: [&[u8]; 4] = [b"ROW.TABLE", b"DRAIN", b"TIMEOUT", left_ms.as_bytes()];
        let mut silent = None;
        for (address, answer) in session.ask_others(&words, left + MORE).await {
            match answer {
                Some(reply) if reply.starts_with(b"-") => return Err(refusal_of(&reply, &address)),
                Some(reply) => all.add(parse(&reply).unwrap_or_default()),
                None => silent = Some(address),
            }
        }
        if all.slots >= usize::from(SLOT_COUNT) {
            return Ok(all);
        }
        again(all.slots, silent, deadline_ms).await?;
    }
}

/// Waits until the logs of all regions have the tables as this node knows them.
pub async fn follow_all(session: &mut Session, deadline_ms: u64) -> Result<(), Refusal> {
    loop {
        // Nobody says how he stands before he follows.
        let mut slots = status::status(&session.core).await.slots;
        let mut silent = None;
        for (address, answer) in session.ask_others(&[b"ROW.TABLE", b"STATUS"], MORE).await {
            match answer {
                Some(reply) => slots += slots_of(&reply).unwrap_or(0),
                None => silent = Some(address),
            }
        }
        if slots >= usize::from(SLOT_COUNT) {
            return Ok(());
        }
        again(slots, silent, deadline_ms).await?;
    }
}

/// A pause, or what is said when it is too late for another round.
async fn again(slots: usize, silent: Option<String>, deadline_ms: u64) -> Result<(), Refusal> {
    if now_ms() >= deadline_ms {
        let who = silent.map_or_else(String::new, |it| format!("; {it} does not answer"));
        return Err(Refusal::text_of(format!(
            "TRYAGAIN only {slots} of {SLOT_COUNT} slots have a leader that answers{who}"
        )));
    }
    tokio::time::sleep(AGAIN).await;
    Ok(())
}

fn refusal_of(reply: &[u8], address: &str) -> Refusal {
    let text = String::from_utf8_lossy(reply.get(1..).unwrap_or_default());
    Refusal::text_of(format!("{} (node {address})", text.trim_end()))
}

/// Of the regions led by this node.
async fn here(session: &Session, deadline_ms: u64) -> Result<DrainedAll, Refusal> {
    let drained = status::drain(&session.core, deadline_ms).await?;
    let catalogue = session.shared().catalogue.load();
    let key = |id| super::key_of(&catalogue, id);
    Ok(DrainedAll {
        slots: drained.slots,
        dead: drained.dead,
        letters: drained.named.iter().map(key).collect(),
    })
}

/// What ROW.TABLE DRAIN of another node says (RESP2): `slots`, `dead`, `letters`.
fn parse(reply: &[u8]) -> Option<DrainedAll> {
    let mut lines = Lines(reply);
    let mut drained = DrainedAll::default();
    let pairs = lines.number(b'*')? / 2;
    for _ in 0..pairs {
        match lines.bulk()? {
            b"slots" => drained.slots = lines.number(b':')?,
            b"dead" => drained.dead = lines.number(b':')?,
            b"letters" => {
                for _ in 0..lines.number(b'*')? {
                    let key = String::from_utf8_lossy(lines.bulk()?);
                    drained.letters.push(key.into_owned());
                }
            }
            _ => return None,
        }
    }
    Some(drained)
}

/// What ROW.TABLE STATUS of another node says about this.
fn slots_of(reply: &[u8]) -> Option<usize> {
    let mut lines = Lines(reply);
    for _ in 0..lines.number(b'*')? / 2 {
        let name = lines.bulk()?;
        let number = lines.number(b':')?;
        if name == b"slots" {
            return Some(number);
        }
    }
    None
}

struct Lines<'a>(&'a [u8]);

impl<'a> Lines<'a> {
    fn number(&mut self, sign: u8) -> Option<usize> {
        let end = self.0.iter().position(|&byte| byte == b'\r')?;
        let (line, rest) = (self.0.get(..end)?, self.0.get(end + 2..)?);
        self.0 = rest;
        let digits = line.strip_prefix(&[sign])?;
        usize::try_from(parse_u64(digits)?).ok()
    }

    fn bulk(&mut self) -> Option<&'a [u8]> {
        let length = self.number(b'$')?;
        let text = self.0.get(..length)?;
        self.0 = self.0.get(length + 2..)?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_other_nodes() {
        let reply =
            b"*6\r\n$5\r\nslots\r\n:5461\r\n$4\r\ndead\r\n:1\r\n$7\r\nletters\r\n*1\r\n$7\r\nusers:a\r\n";
        let drained = parse(reply).unwrap();
        assert_eq!((drained.slots, drained.dead), (5461, 1));
        assert!(drained.has_letters_of("users"));
        assert!(!drained.has_letters_of("user") && !drained.has_letters_of("games"));
        for end in 0..reply.len() {
            assert_eq!(parse(&reply[..end]), None, "{end}");
        }
        let unnamed = DrainedAll {
            dead: 2,
            letters: vec!["games:a".into()],
            ..DrainedAll::default()
        };
        assert!(unnamed.has_letters_of("users"), "it may be");
    }
}
