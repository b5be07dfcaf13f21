//! Answers that are remembered, so that a request that comes again gets the same one and is not done twice.
//!
//! Per client the answers of its last [`REQUESTS_KEPT`] requests, in bytes at most [`CLIENT_BYTES_MAX`]; in all at most
//! [`ANSWERS_BYTES_MAX`] per region, and then the client that was silent longest is forgotten. The newest answer is always kept.
//!
//! The one idea: what was forgotten must not be done again. Each client has a `floor`, the highest number whose answer was
//! forgotten; an unknown number up to it is refused. The floor is stored in the answer that is newest when it rises, which is kept until
//! a newer one carries it.
//!
//! What that leaves: a client of whom everything was forgotten begins anew. `ANSWERS_BYTES_MAX` is tens of thousands of requests.

use std::collections::BTreeMap;

use crate::entry::Request;
use crate::outcome::Outcome;
use crate::wire::{Corrupt, Reader, Writer};

use super::store::{Change, Place};
use super::unsaved::Unsaved;

pub const REQUESTS_KEPT: usize = 64;
pub const CLIENT_BYTES_MAX: usize = 256 * 1024;
pub const ANSWERS_BYTES_MAX: usize = 4 * 1024 * 1024;

const FORMAT: u8 = 1;
const OVERHEAD: usize = 96;

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Answers {
    clients: BTreeMap<u128, Client>,
    /// Number of the newest answer of each client: who was silent longest is first.
    order: BTreeMap<u64, u128>,
    /// Of the newest answer of all.
    last: u64,
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Client {
    floor: u64,
    last: u64,
    bytes: usize,
    answers: BTreeMap<u64, Answer>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    /// Counts all answers of the region.
    serial: u64,
    floor: u64,
    outcome: Vec<u8>,
}

impl Answer {
    fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new(FORMAT);
        to.uint(self.serial);
        to.uint(self.floor);
        to.bytes(&self.outcome);
        to.done()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Answer, Corrupt> {
        let mut from = Reader::new(bytes, FORMAT)?;
        let answer = Answer {
            serial: from.uint()?,
            floor: from.uint()?,
            outcome: from.bytes()?.to_vec(),
        };
        from.end()?;
        Outcome::decode(&answer.outcome)?;
        Ok(answer)
    }

    fn size(&self) -> usize {
        self.outcome.len() + OVERHEAD
    }
}

impl Answers {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What this request was answered, if it was there before.
    pub(super) fn find(&self, request: Request) -> Option<Outcome> {
        let client = self.clients.get(&request.client)?;
        if let Some(answer) = client.answers.get(&request.number) {
            let outcome = Outcome::decode(&answer.outcome);
            return Some(
                outcome.unwrap_or_else(|corrupt| Outcome::error(format!("ERR {corrupt}"))),
            );
        }
        (request.number <= client.floor).then(|| {
            Outcome::error(format!(
                "ERR request {} of this client is too old: its answer is forgotten",
                request.number
            ))
        })
    }

    pub(super) fn remember(&mut self, request: Request, outcome: &Outcome, changes: &mut Unsaved) {
        let Request { client: id, number } = request;
        self.last += 1;
        let mut answer = Answer {
            serial: self.last,
            floor: 0,
            outcome: outcome.encode(),
        };
        let client = self.clients.entry(id).or_default();
        self.order.remove(&client.last);
        self.order.insert(self.last, id);
        client.last = self.last;
        let before = client.bytes;
        client.bytes += answer.size();
        while client.answers.len() >= REQUESTS_KEPT || client.bytes > CLIENT_BYTES_MAX {
            let Some((oldest, gone)) = client.answers.pop_first() else {
                break;
            };
            client.bytes -= gone.size();
            client.floor = client.floor.max(oldest);
            changes.push(remove(id, oldest));
        }
        answer.floor = client.floor;
        let place = Place::Answer { client: id, number };
        changes.push(Change::Put(place, answer.encode()));
        client.answers.insert(number, answer);
        self.bytes = self.bytes + client.bytes - before;
        self.shrink(changes);
    }

    fn shrink(&mut self, changes: &mut Unsaved) {
        while self.bytes > ANSWERS_BYTES_MAX && self.order.len() > 1 {
            let Some((_, id)) = self.order.pop_first() else {
                return;
            };
            if let Some(client) = self.clients.remove(&id) {
                self.bytes -= client.bytes;
                let numbers = client.answers.keys();
                numbers.for_each(|number| changes.push(remove(id, *number)));
            }
        }
    }

    pub(super) fn restore(&mut self, id: u128, number: u64, answer: Answer) -> Result<(), Corrupt> {
        let client = self.clients.entry(id).or_default();
        if answer.serial > client.last {
            self.order.remove(&client.last);
            client.last = answer.serial;
            if self.order.insert(answer.serial, id).is_some() {
                return Err(Corrupt("two answers with one number"));
            }
        }
        client.floor = client.floor.max(answer.floor);
        client.bytes += answer.size();
        self.bytes += answer.size();
        self.last = self.last.max(answer.serial);
        client.answers.insert(number, answer);
        Ok(())
    }

    /// It is stored no more.
    pub(super) fn forget(&mut self, id: u128, number: u64) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if let Some(gone) = client.answers.remove(&number) {
            client.bytes -= gone.size();
            self.bytes -= gone.size();
        }
        if client.answers.is_empty() {
            self.order.remove(&client.last);
            self.clients.remove(&id);
        }
    }

    pub(super) fn dump(&self) -> impl Iterator<Item = (Place, Vec<u8>)> {
        self.clients.iter().flat_map(|(client, kept)| {
            kept.answers.iter().map(|(number, answer)| {
                let place = Place::Answer {
                    client: *client,
                    number: *number,
                };
                (place, answer.encode())
            })
        })
    }
}

fn remove(client: u128, number: u64) -> Change {
    Change::Remove(Place::Answer { client, number })
}
