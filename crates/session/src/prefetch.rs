//! Looking ahead in a pipeline, so that memory is fetched before it is needed.
//!
//! With millions of keys every lookup waits for memory twice: for its place in the table and for
//! the entry; in a big collection once more for the member. The keys and members of the next few
//! commands are known already, so their memory is asked for together, and the waits overlap. This
//! reads the input a second time (some 30 ns a command) and changes nothing; it is done only where
//! the table is too large for the cache, and not while the commands run later, in an entry of the
//! log (`node::execute` prefetches there).

use resp::{Parsed, RequestLimits, RequestParser};
use runtime::cores::{AHEAD_KEYS, Coming};

use super::Session;

/// How far the input has been looked at.
#[derive(Default)]
pub(super) struct Lookahead {
    parser: RequestParser,
    looked_to: usize,
    /// The commands of the last turn were left to the log; the next ones will be, too.
    pub run_later: bool,
}

impl Lookahead {
    /// Looks at the commands from `at` on, unless they have been looked at.
    #[inline]
    pub fn look(&mut self, session: &Session, buffer: &[u8], at: usize, limits: &RequestLimits) {
        if at >= self.looked_to && !self.run_later && session.core.is_worth_prefetching(session.db)
        {
            self.look_now(session, buffer, at, limits);
        }
    }

    fn look_now(&mut self, session: &Session, buffer: &[u8], from: usize, limits: &RequestLimits) {
        let mut coming = [Coming::default(); AHEAD_KEYS];
        let (mut at, mut commands) = (from, 0);
        for command in &mut coming {
            let bytes = buffer.get(at..).unwrap_or_default();
            // An inline command is a person typing.
            if bytes.first() != Some(&b'*') {
                break;
            }
            let Ok(Parsed::Command { consumed }) = self.parser.parse(bytes, limits) else {
                break;
            };
            // Nearly always the first argument is the key; if not, nothing is lost.
            *command = Coming::new(|argument| {
                let span = self.parser.spans().get(argument)?;
                let start = span.start as usize;
                bytes.get(start..start + span.len as usize)
            });
            at += consumed;
            commands += 1;
        }
        self.parser.reset();
        self.looked_to = at.max(from + 1);
        if commands > 1 {
            session.core.prefetch(session.db, &coming[..commands]);
        }
    }

    /// The input begins anew.
    pub fn forget(&mut self) {
        self.looked_to = 0;
    }
}
