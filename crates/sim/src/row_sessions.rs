//! Calls of sessions on rows of tables: they begin here, go the way of all calls, and are recorded here.

use crate::check::Broken;
use crate::client::{Current, How, Request};
use crate::row_calls::{RowAct, RowSeen};
use crate::sessions::CALL_US;
use crate::world::World;

/// Of a hundred calls, so many are on rows; some of those only let the row go from the cache.
const ON_ROWS: u32 = 60;
const KICKS: u32 = 6;

impl World {
    /// Begins a call on a row, if it is time for one.
    pub(crate) fn begins_row(&mut self, session: u32, is_auditor: bool) -> bool {
        let Some(rows) = self.plan.tables.as_ref().map(|tables| tables.rows) else {
            return false;
        };
        let has_m = self.is_announced(2);
        let at = &mut self.sessions[session as usize];
        if is_auditor {
            let Some(key) = self.row_audit.last().filter(|_| self.audit.is_empty()) else {
                return false;
            };
            let key = key.clone();
            let region = key.split([':', '.']).nth(1).and_then(|it| it.parse().ok());
            self.begin_row(session, region.unwrap_or(1), &key, RowAct::Get, None);
            return true;
        }
        if at.rng.u32(..100) >= ON_ROWS {
            return false;
        }
        let (region, key, act, number) = at.choose_row(rows, has_m);
        if at.rng.u32(..100) < KICKS {
            let words = vec![b"ROW.KICK".to_vec(), key.into_bytes()];
            self.send_row(session, region, words, None, false, false);
            return true;
        }
        let is_read = act.is_read();
        if self.now_us < self.reads_only_us && !is_read {
            return false;
        }
        self.begin_row(session, region, &key, act, number);
        true
    }

    fn begin_row(
        &mut self,
        session: u32,
        region: u64,
        key: &str,
        act: RowAct,
        number: Option<(u32, u64)>,
    ) {
        let (words, is_read) = (act.words(key, number), act.is_read());
        self.tick_history();
        let call = self.history.call_row(session, key, act);
        self.send_row(
            session,
            region,
            words,
            Some(call),
            is_read,
            number.is_some(),
        );
    }

    fn send_row(
        &mut self,
        session: u32,
        region: u64,
        words: Vec<Vec<u8>>,
        row: Option<usize>,
        is_read: bool,
        has_number: bool,
    ) {
        let is_auditor = session == self.plan.sessions;
        let request = Request {
            session,
            ticket: 0,
            region,
            commands: vec![words].into(),
            is_read,
            anywhere: is_read && !is_auditor && self.rng.u32(..100) < self.plan.anywhere,
            how: How::Log,
        };
        self.sessions[session as usize].current = Some(Current {
            request,
            call: None,
            row,
            has_number,
            in_doubt: false,
            asked: 0,
            gives_up_us: self.now_us + CALL_US,
        });
        self.ask(session);
    }

    pub(crate) fn record_row(&mut self, session: u32, call: usize, replies: &[Vec<u8>]) {
        let record = &self.history.rows[call];
        let seen = replies.first().and_then(|it| record.act.read_reply(it));
        let key = record.key.clone();
        let Some(seen) = seen else {
            let reply = replies.iter().map(|it| it.escape_ascii().to_string());
            let reply: Vec<_> = reply.collect();
            self.fail(Broken::new(
                "replies",
                format!("{record:?} was answered with {reply:?}"),
            ));
            return;
        };
        if let RowSeen::Row { version, shown, .. } = &seen {
            let text = shown.as_ref().map(|row| row.s.clone());
            let at = &mut self.sessions[session as usize];
            at.seen.insert(key.clone(), (*version, text));
        }
        if session == self.plan.sessions && self.row_audit.last() == Some(&key) {
            self.row_audit.pop();
        }
        self.history.row_done(call, seen);
    }
}
