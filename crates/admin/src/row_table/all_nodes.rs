//! All nodes: SQL has everything, or every region knows the tables. This node sees to its own, and asks the others.
//!
//! Each node answers for the slots it leads. Slots that change their leader meanwhile are asked for again: it is over when one round was
//! about all of them.

use std::time::Duration;

use base::number::parse_u64;
use base::{Refusal, SLOT_COUNT};
use runtime::now_ms;
use runtime::tables::status;
use session::Session;
use table::Table;

const AGAIN: Duration = Duration::from_millis(100);
/// For an answer, beyond the time that SQL is given.
const MORE: Duration = Duration::from_secs(5);

/// What a node says of the regions it leads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    /// The version of the tables it went by: one that lags says nothing about what was changed.
    catalogue: usize,
    slots: usize,
    dead: usize,
}

/// Waits until SQL has everything of a table, of all regions, whoever leads them; how many dead letters of it there are.
pub async fn drain_all(
    session: &mut Session,
    table: &Table,
    deadline_ms: u64,
) -> Result<usize, Refusal> {
    loop {
        let version = session.shared().catalogue_version();
        let here = status::drain(&session.core, Some(table.id), deadline_ms).await?;
        let (mut slots, mut dead) = (here.slots, here.dead);
        let left = Duration::from_millis(deadline_ms.saturating_sub(now_ms()).max(1));
        let left_ms = left.as_millis().to_string();
        let mut words: [&[u8]; 6] = [b"ROW.TABLE", b"DRAIN", b"TABLE", b"", b"TIMEOUT", b""];
        (words[3], words[5]) = (table.name.as_bytes(), left_ms.as_bytes());
        let mut silent = None;
        for (address, answer) in session.ask_others(&words, left + MORE).await {
            match answer {
                Some(reply) if reply.starts_with(b"-") => return Err(refusal_of(&reply, &address)),
                Some(reply) => {
                    let said = said(&reply, version);
                    slots += said.slots;
                    dead += said.dead;
                }
                None => silent = Some(address),
            }
        }
        if slots >= usize::from(SLOT_COUNT) {
            return Ok(dead);
        }
        again(slots, silent, deadline_ms).await?;
    }
}

/// Waits until the logs of all regions have the tables as this node knows them.
pub async fn follow_all(session: &mut Session, deadline_ms: u64) -> Result<(), Refusal> {
    loop {
        let version = session.shared().catalogue_version();
        // Nobody says how he stands before he follows.
        let mut slots = status::status(&session.core).await.slots;
        let mut silent = None;
        for (address, answer) in session.ask_others(&[b"ROW.TABLE", b"STATUS"], MORE).await {
            match answer {
                Some(reply) => slots += said(&reply, version).slots,
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

/// What an answer counts: nothing, if it is none, or goes by older tables than these.
fn said(reply: &[u8], version: u64) -> Said {
    let said = parse(reply).unwrap_or_default();
    match said.catalogue as u64 >= version {
        true => said,
        false => Said::default(),
    }
}

/// The numbers that ROW.TABLE DRAIN or STATUS of another node begins with (RESP2).
fn parse(reply: &[u8]) -> Option<Said> {
    let mut lines = Lines(reply);
    let mut said = Said::default();
    for _ in 0..lines.number(b'*')? / 2 {
        let name = lines.bulk()?;
        if lines.0.first() != Some(&b':') {
            break; // what is no number comes behind them
        }
        let number = lines.number(b':')?;
        match name {
            b"catalogue" => said.catalogue = number,
            b"slots" => said.slots = number,
            b"dead" => said.dead = number,
            _ => {}
        }
    }
    Some(said)
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
        let reply = b"*8\r\n$9\r\ncatalogue\r\n:7\r\n$5\r\nslots\r\n:5461\r\n$4\r\ndead\r\n:1\r\n$7\r\nletters\r\n*1\r\n$7\r\nusers:a\r\n";
        let told = Said {
            catalogue: 7,
            slots: 5461,
            dead: 1,
        };
        assert_eq!(parse(reply), Some(told));
        assert_eq!(said(reply, 7).slots, 5461);
        assert_eq!(said(reply, 8), Said::default(), "it lags");
        assert_eq!(said(b"-ERR no", 0), Said::default());
        for end in 0..reply.len() {
            let _ = parse(&reply[..end]); // says something, and does not panic
        }
    }
}
