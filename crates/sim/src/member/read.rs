//! Reads: by lease at once, or when a round has confirmed them.

use command::Run;
use keyspace::View;
use keyspace::rows::{self, Tier};
use replica::Read;
use resp::{Args, Protocol, Reply, Span};

use super::{Around, COMMANDS, Member, TUNING};
use crate::bugs::Bug;
use crate::client::{Answer, Request, Words};

impl Member {
    pub(super) fn on_read(&mut self, request: Request, around: &mut Around<'_>) {
        if around.bug == Bug::ServeWithoutLease && self.replica.is_leader() {
            return self.answer_read(request, around);
        }
        let read = match request.anywhere {
            true => self.replica.read_here(around.now_ms),
            false => self.replica.read(around.now_ms),
        };
        match read {
            Read::Now => self.answer_read(request, around),
            Read::Wait(number) => self.asked.push((number, request)),
            Read::NotLeader { leader } => {
                around.out.answers.push((request, Answer::Moved(leader)));
            }
        }
    }

    /// Answers what is confirmed and applied.
    pub(super) fn serve(&mut self, around: &mut Around<'_>) {
        let applied = self.replica.applied_index();
        let confirmed = std::mem::take(&mut self.confirmed);
        for read in confirmed {
            if read.index > applied {
                self.confirmed.push(read);
                continue;
            }
            let is_it = |(number, _): &mut (u64, Request)| *number == read.number;
            let requests: Vec<_> = self.asked.extract_if(.., is_it).collect();
            for (_, request) in requests {
                self.answer_read(request, around);
            }
        }
    }

    pub(super) fn refuse_reads(&mut self, number: u64, around: &mut Around<'_>) {
        let is_it = |(of, _): &mut (u64, Request)| *of == number;
        let leader = self.replica.leader();
        for (_, request) in self.asked.extract_if(.., is_it) {
            around.out.answers.push((request, Answer::Moved(leader)));
        }
    }

    fn answer_read(&mut self, request: Request, around: &mut Around<'_>) {
        if self.is_behind(around) {
            around.out.answers.push((request, Answer::Refused));
            return;
        }
        if !self.knows_tables(around) {
            // The leader has not told yet, or this one has not heard: it has no rows to show.
            let answer = Answer::Moved(self.replica.leader());
            around.out.answers.push((request, answer));
            return;
        }
        let run = |words: &Words| self.run_read(words, around);
        let replies = request.commands.iter().map(run).collect();
        if self.space.has_missing_rows() {
            let missing = self.space.take_missing_rows();
            return self.wait_for_rows(request, &missing, around);
        }
        around.out.answers.push((request, Answer::Done(replies)));
    }

    fn run_read(&mut self, words: &Words, around: &mut Around<'_>) -> Vec<u8> {
        let buffer = words.concat();
        let mut start = 0;
        let mut spans = Vec::new();
        for word in words {
            let len = word.len() as u32;
            spans.push(Span { start, len });
            start += len;
        }
        let args = Args::new(&buffer, &spans);
        let mut reply = Reply::new(Protocol::Resp2);
        if let Some(key) = words.get(1)
            && !self.space.is_resident(0, key)
        {
            let request = self.space.load_request(0, key);
            match rows::load(&*around.disk.rows, &request, Tier::All) {
                Ok(loaded) => self.space.insert_loaded(request, loaded),
                Err(error) => around.out.failure = Some(format!("{error:?}")),
            }
        }
        if let Ok((_, row)) = COMMANDS.table.resolve(&args)
            && matches!(row.run, Run::Read(_))
        {
            let view = View::one(&mut self.space, 0, around.wall_ms, 1, &TUNING);
            if let Err(refusal) = command::call(row, view, &args, &mut reply) {
                reply.refusal(&refusal);
            }
        }
        reply.into_bytes()
    }
}
