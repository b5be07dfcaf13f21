//! Committed entries become state, and rows; those who wait get their replies.
//!
//! As in the server, the rows of several entries may be taken together, so replicas write at
//! different indices; the checkers compare where two wrote at the same one.

use std::collections::VecDeque;

use keyspace::rows::Changes;
use node::{Executed as Brought, run_payload};
use replica::Committed;
use server::cluster::Newcomers;
use server::cluster::seats::{members_of, with_members};

use super::{Around, COMMANDS, Fact, Member, TUNING, write_seat};
use crate::check::agree::Applied;
use crate::client::Answer;
use crate::trace::hash_of;

impl Member {
    pub(super) fn apply(&mut self, around: &mut Around<'_>) {
        while !self.is_stalled
            && around.out.failure.is_none()
            && let Some(committed) = self.committed.pop_front()
        {
            if around.rng.u32(..200) == 0 {
                // Rows would have to be read first, or the store is busy.
                self.committed.push_front(committed);
                self.is_stalled = true;
                around.out.stalls.push(self.region);
                return;
            }
            if let Err(error) = self.apply_one(&committed, around) {
                around.out.failure = Some(error);
                return;
            }
            self.replica.on_applied(committed.index);
        }
    }

    fn apply_one(&mut self, committed: &Committed, around: &mut Around<'_>) -> Result<(), String> {
        let (index, term) = (committed.index, committed.term);
        let mut replies = VecDeque::new();
        let brought = run_payload(
            &mut self.space,
            &*around.disk.rows,
            index,
            &committed.payload,
            &COMMANDS,
            &TUNING,
            &mut |reply| replies.push_back(reply.to_vec()),
        )?;
        let Brought::Commands { stamp_ms } = brought else {
            return Err(format!(
                "entry {index} brings rows, which nobody here proposes"
            ));
        };
        self.tell_rows(around);
        self.space.note_term(term);
        self.ran = (index, term, stamp_ms.max(self.ran.2));
        let mut digest = None;
        if let Some(change) = &committed.change {
            let members = self.replica.apply_members(change);
            let newcomers = Newcomers::of(&change.context);
            let next = with_members(&self.seat.descriptor, &members, |id| newcomers.node_of(id));
            if members_of(&next) != members {
                return Err(format!("entry {index} gives {members:?}, and {next:?}"));
            }
            self.seat.descriptor = next;
            self.settle(around, true)?;
            digest = Some(self.digest);
            self.tell_descriptor(index, around);
        } else if around.rng.u32(..4) > 0 {
            self.settle(around, false)?;
            digest = Some(self.digest);
        }
        if let Some(failure) = self.space.take_failure() {
            return Err(failure);
        }
        around.out.facts.push(Fact::Applied(Applied {
            region: self.region,
            replica: self.id(),
            index,
            term,
            entry: hash_of(&[&committed.payload]),
            digest,
        }));
        self.answer(index, term, replies, around);
        Ok(())
    }

    /// Writes the rows of all that was run, with the applied index, in one batch.
    pub(super) fn settle(
        &mut self,
        around: &mut Around<'_>,
        with_seat: bool,
    ) -> Result<(), String> {
        if self.space.applied_index() >= self.ran.0 && !with_seat {
            return Ok(());
        }
        let mut changes = Changes::new();
        self.space.end_entry(self.ran.2, &mut changes);
        self.digest ^= around.disk.write_rows(&changes);
        if with_seat {
            write_seat(around.disk, &self.seat);
        }
        self.space.rows_written();
        self.space.take_effects();
        self.space.take_garbage();
        Ok(())
    }

    fn answer(
        &mut self,
        index: u64,
        term: u64,
        mut replies: VecDeque<Vec<u8>>,
        around: &mut Around<'_>,
    ) {
        while let Some(flight) = self.flights.pop_front_if(|flight| flight.index <= index) {
            let is_it = (flight.index, flight.term) == (index, term);
            if is_it {
                replies.drain(..flight.tables);
            }
            for request in flight.requests {
                let answer = match is_it {
                    true => Answer::Done(replies.drain(..request.commands.len()).collect()),
                    // Another leader's entry has this place: ours is lost for good.
                    false => Answer::Moved(self.replica.leader()),
                };
                around.out.answers.push((request, answer));
            }
        }
    }
}
