//! Requests become entries; so does what the desk of tables proposes.

use keyspace::rows::Tier;
use replica::Refused;
use replica::entry::{EntryWriter, ExpireWriter};

use super::{Around, Flight, Member};
use crate::bugs::Bug;
use crate::client::{Answer, Request, Words};

/// Keys removed by one entry.
const DUE_KEYS: usize = 16;
/// Carries what the desk of tables proposes.
const ROW_APPLY: &[u8] = b"row.apply";

/// The command without the number by which a retry is known.
fn without_request(words: &Words) -> Words {
    let at = words.iter().position(|word| word == b"REQUEST");
    let at = at.unwrap_or(words.len());
    let rest = words.iter().skip(at + 3);
    words[..at].iter().chain(rest).cloned().collect()
}

impl Member {
    pub fn on_request(&mut self, request: Request, around: &mut Around<'_>) {
        if request.is_read {
            self.on_read(request, around);
        } else if self.replica.is_leader() {
            self.turn.push(request);
        } else {
            let answer = Answer::Moved(self.replica.leader());
            around.out.answers.push((request, answer));
        }
        self.drive(around);
    }

    /// Makes one entry of all that waits, unless one is on its way to the disk.
    pub(super) fn compose(&mut self, around: &mut Around<'_>) {
        let bug = around.bug;
        let proposes = self.has_proposals(bug);
        if self.turn.is_empty() && !proposes || self.replica.writes_in_flight() > 0 {
            return;
        }
        let is_early = self.replica.is_leader() && !self.replica.is_serving();
        if around.catalogue.is_used && is_early {
            return;
        }
        let tables = match self.desk_mut(bug) {
            Some(desk) if proposes => desk.take_proposals(),
            _ => Vec::new(),
        };
        let requests = match self.is_behind(around) {
            // Which keys are rows is not in the log yet.
            true => Vec::new(),
            false => std::mem::take(&mut self.turn),
        };
        let requests = self.only_ready(requests, around);
        if tables.is_empty() && requests.is_empty() {
            return;
        }
        let mut entry = EntryWriter::new();
        for table_entry in &tables {
            let bytes = table_entry.encode();
            entry.push(0, [ROW_APPLY, &bytes].into_iter());
        }
        for words in requests.iter().flat_map(|request| &*request.commands) {
            let words = match bug {
                Bug::ForgetRequests => &without_request(words),
                _ => words,
            };
            entry.push(0, words.iter().map(|word| word.as_slice()));
        }
        let stamp_ms = self.next_stamp(around.wall_ms);
        let payload = entry.finish(stamp_ms, around.rng.u64(..));
        match self.replica.propose(payload) {
            Ok(()) => {
                let flight = Flight {
                    tables: tables.len(),
                    index: self.replica.last_index(),
                    term: self.replica.term(),
                    requests,
                };
                // In the order of the log: there may be some of a former term, further on.
                let flights = &mut self.flights;
                let before = flights.iter().rposition(|it| it.index <= flight.index);
                flights.insert(before.map_or(0, |at| at + 1), flight);
            }
            Err(refused) => {
                if let Some(desk) = self.desk_mut(bug) {
                    desk.put_back(tables);
                }
                for request in requests {
                    self.forget_kicks(&request, bug);
                    let answer = match refused {
                        Refused::NotLeader { leader } => Answer::Moved(leader),
                        _ => Answer::Refused,
                    };
                    around.out.answers.push((request, answer));
                }
            }
        }
    }

    fn next_stamp(&mut self, wall_ms: u64) -> u64 {
        let last = self.last_stamp_ms.max(self.space.last_stamp_ms());
        self.last_stamp_ms = last.max(self.ran.2).max(wall_ms);
        self.last_stamp_ms
    }

    /// Keys whose time has come are removed by an entry.
    pub(super) fn expire(&mut self, around: &mut Around<'_>) {
        if !self.replica.is_leader() || self.expiring > self.replica.applied_index() {
            return;
        }
        let Ok(due) = self.space.due(around.wall_ms, DUE_KEYS, Tier::All) else {
            return;
        };
        if due.is_empty() {
            return;
        }
        let mut entry = ExpireWriter::new();
        for (db, key, deadline_ms) in &due {
            entry.push(*db, *deadline_ms, key);
        }
        let stamp_ms = self.next_stamp(around.wall_ms);
        if self.replica.propose(entry.finish(stamp_ms, 0)).is_ok() {
            self.expiring = self.replica.last_index();
        }
    }
}
