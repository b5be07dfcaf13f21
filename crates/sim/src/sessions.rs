//! The sessions' part of the loop: calls begin, are asked for here and there, and end.

use crate::bugs::Bug;
use crate::check::Broken;
use crate::client::{Answer, Choice, Current, How, Request, read_reply, region_of};
use crate::event::Event;
use crate::history::Action;
use crate::world::World;

/// A session waits so long for an answer, and tries a call again for so long.
const TIMEOUT_US: u64 = 1_500_000;
/// Long enough to hear from a node that nobody knows what became of a write.
const LONG_TIMEOUT_US: u64 = 3_800_000;
pub(crate) const CALL_US: u64 = 4_000_000;

/// The region has not heard of a field yet.
fn is_no_field(replies: &[Vec<u8>]) -> bool {
    let says = |reply: &Vec<u8>| String::from_utf8_lossy(reply).contains("has no field");
    replies.iter().any(says)
}

impl World {
    pub(crate) fn tick_history(&mut self) {
        self.moments.push(self.trace.events());
    }

    pub(crate) fn on_wake(&mut self, session: u32, ticket: u64) {
        let at = &mut self.sessions[session as usize];
        match &at.current {
            Some(current) if current.request.ticket == ticket => {
                match current.has_number && self.now_us < current.gives_up_us {
                    true => self.insist(session),
                    false => self.give_up(session),
                }
            }
            Some(_) => {}
            None => self.begin_call(session),
        }
    }

    /// No answer came, but the number of the request will tell whether it has happened.
    fn insist(&mut self, session: u32) {
        let machines = self.nodes.len() as u64;
        let at = &mut self.sessions[session as usize];
        if let Some(current) = &mut at.current {
            current.in_doubt = true;
            at.guess[current.request.region as usize] = at.rng.u64(1..=machines);
            self.ask(session);
        }
    }

    /// No answer came: what was asked may have happened.
    fn give_up(&mut self, session: u32) {
        let at = &mut self.sessions[session as usize];
        let Some(current) = at.current.take() else {
            return;
        };
        let machines = self.nodes.len() as u64;
        let at = &mut self.sessions[session as usize];
        at.guess[current.request.region as usize] = at.rng.u64(1..=machines);
        self.say(&[5, session.into()], || {
            format!("session {session} gives up")
        });
        self.end_call(session, &current, None, true);
    }

    fn begin_call(&mut self, session: u32) {
        let is_auditor = session == self.plan.sessions;
        if self.is_calm && !is_auditor {
            return;
        }
        if self.now_us < self.lull_us {
            let rest_us = self.lull_us - self.now_us;
            self.after(rest_us, Event::Wake { session, ticket: 0 });
            return;
        }
        if self.begins_row(session, is_auditor) {
            return;
        }
        let at = &mut self.sessions[session as usize];
        let is_alone = self.plan.limits.is_alone;
        let Choice {
            region,
            actions,
            commands,
            how,
        } = match is_auditor {
            true => {
                let Some(key) = self.audit.last().cloned() else {
                    return;
                };
                let action = match key.starts_with(['s', 'p']) {
                    true => Action::All,
                    false => Action::Get,
                };
                Choice::new(region_of(&key), vec![(key, action)], How::Log)
            }
            false if self.now_us < self.reads_only_us => at.choose_read(),
            false => at.choose(is_alone),
        };
        let is_read = actions.iter().all(|(_, action)| action.is_read());
        let is_read = is_read && !actions.is_empty();
        let call = match actions.is_empty() {
            true => None,
            false => {
                self.tick_history();
                Some(self.history.call(session, actions))
            }
        };
        let request = Request {
            session,
            ticket: 0,
            region,
            commands: commands.into(),
            is_read,
            anywhere: is_read && !is_auditor && self.rng.u32(..100) < self.plan.anywhere,
            how,
        };
        let at = &mut self.sessions[session as usize];
        at.current = Some(Current {
            request,
            call,
            row: None,
            has_number: false,
            in_doubt: false,
            asked: 0,
            gives_up_us: self.now_us + CALL_US,
        });
        self.ask(session);
    }

    /// Sends the current call to the node that is thought to lead.
    pub(crate) fn ask(&mut self, session: u32) {
        let at = &mut self.sessions[session as usize];
        let ticket = at.ticket();
        let Some(current) = &mut at.current else {
            return;
        };
        current.request.ticket = ticket;
        let request = current.request.clone();
        let node = match request.anywhere && current.asked == 0 {
            true => at.rng.u64(1..=self.nodes.len() as u64),
            false => at.guess[request.region as usize],
        };
        self.say(&[10, session.into(), ticket, node], || {
            let words = request.commands.iter().map(|words| words.join(&b' '));
            let words: Vec<_> = words.map(|it| it.escape_ascii().to_string()).collect();
            format!("session {session} asks node {node}: {}", words.join("; "))
        });
        if let Some(delay_us) = self.network.call(0, node) {
            self.after(delay_us, Event::Request { node, request });
        }
        let timeout_us = match self.plan.bug {
            Bug::DoubtIsNo => LONG_TIMEOUT_US,
            _ => TIMEOUT_US,
        };
        self.after(timeout_us, Event::Wake { session, ticket });
    }

    pub(crate) fn on_answer(&mut self, session: u32, ticket: u64, node: u64, answer: Answer) {
        let at = &mut self.sessions[session as usize];
        let is_awaited = |current: &mut Current| current.request.ticket == ticket;
        let Some(mut current) = at.current.take_if(is_awaited) else {
            return;
        };
        let (session_word, region) = (u64::from(session), current.request.region);
        let guess = &mut at.guess[region as usize];
        match answer {
            Answer::Done(replies) if current.row.is_some() && is_no_field(&replies) => {
                self.try_again(session, current);
            }
            Answer::Done(replies) => {
                if !current.request.anywhere {
                    *guess = node;
                }
                self.say(&[6, session_word, node], || {
                    let replies: Vec<_> = replies.iter().map(|it| it.escape_ascii()).collect();
                    let replies: Vec<_> = replies.iter().map(ToString::to_string).collect();
                    format!(
                        "session {session} hears from node {node}: {}",
                        replies.join(" ")
                    )
                });
                self.end_call(session, &current, Some(replies), false);
            }
            Answer::Aborted => {
                *guess = node;
                self.say(&[18, session_word, node], || {
                    format!("session {session} hears from node {node}: a watched key has changed")
                });
                self.end_call(session, &current, None, false);
            }
            Answer::Moved(_) | Answer::Refused => {
                *guess = match answer {
                    Answer::Moved(Some(leader)) => leader,
                    Answer::Refused => node,
                    _ => at.rng.u64(1..=self.nodes.len() as u64),
                };
                self.say(&[7, session_word, node], || {
                    format!("session {session} hears from node {node}: {answer:?}")
                });
                current.asked += 1;
                if self.now_us > current.gives_up_us {
                    let is_unknown = current.in_doubt;
                    self.end_call(session, &current, None, is_unknown);
                    return;
                }
                self.try_again(session, current);
            }
        }
    }

    /// A call has ended: its replies, or none because it was refused, or because nobody knows.
    fn end_call(
        &mut self,
        session: u32,
        current: &Current,
        replies: Option<Vec<Vec<u8>>>,
        is_unknown: bool,
    ) {
        let replies_of_row = current.row.and(replies.clone());
        if let Some(call) = current.call {
            self.tick_history();
            match replies {
                Some(replies) => self.record(call, &replies),
                None if is_unknown => self.history.unknown(call),
                None => self.history.refused(call),
            }
        }
        if let Some(call) = current.row {
            self.tick_history();
            match replies_of_row {
                Some(replies) => self.record_row(session, call, &replies),
                None if is_unknown => self.history.row_unknown(call),
                None => self.history.row_refused(call),
            }
        }
        let think_us = self.plan.think_us;
        let at = &mut self.sessions[session as usize];
        let rest_us = match self.is_calm {
            true => 1000,
            false => at.rng.u64(think_us / 10..think_us * 2),
        };
        self.after(rest_us, Event::Wake { session, ticket: 0 });
    }

    fn record(&mut self, call: usize, replies: &[Vec<u8>]) {
        let parts = self.history.calls[call].parts.iter().zip(replies);
        let seen = parts.map(|(part, reply)| read_reply(&part.key, &part.action, reply));
        let seen: Option<Vec<_>> = seen.collect();
        let Some(seen) = seen else {
            let what = format!(
                "{:?} was answered with {replies:?}",
                self.history.calls[call]
            );
            self.fail(Broken::new("replies", what));
            return;
        };
        if self.history.calls[call].session == self.plan.sessions {
            self.note_audit(call, &replies[0]);
        }
        self.history.done(call, seen);
    }

    fn note_audit(&mut self, call: usize, reply: &[u8]) {
        let key = self.history.calls[call].parts[0].key.clone();
        if self.audit.last() == Some(&key) {
            self.audit.pop();
            let text = String::from_utf8_lossy(reply);
            let value = text
                .split_once("\r\n")
                .and_then(|(_, rest)| rest.strip_suffix("\r\n"));
            self.last.insert(key, value.map(Into::into));
        }
    }

    /// A refused call is tried again: at once at first, then with a rest.
    fn try_again(&mut self, session: u32, current: Current) {
        let asked = current.asked;
        let at = &mut self.sessions[session as usize];
        at.current = Some(current);
        if asked < 2 {
            self.ask(session);
            return;
        }
        // Nobody waits for the former answer any more.
        let ticket = at.ticket();
        if let Some(current) = &mut at.current {
            current.request.ticket = ticket;
        }
        let rest_us = at.rng.u64(10_000..200_000);
        self.after(rest_us, Event::Again { session, ticket });
    }
}
