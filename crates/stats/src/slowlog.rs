//! The slow log: commands that took longer than `slowlog-log-slower-than`.
//!
//! Arguments are shortened as Redis does: at most 32 of them, 128 bytes each.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use command::Secrets;
use resp::Args;

use crate::clients::Client;

const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

pub struct SlowEntry {
    pub id: u64,
    pub at_seconds: u64,
    pub took_us: u64,
    pub args: Vec<Vec<u8>>,
    pub addr: String,
    pub client_name: Vec<u8>,
}

#[derive(Default)]
pub struct SlowLog {
    state: Mutex<State>,
}

/// The entries, newest first.
#[derive(Default)]
pub struct State {
    pub entries: VecDeque<SlowEntry>,
    next_id: u64,
}

impl SlowLog {
    /// Called by the core that ran the command, only when it was slow. `client` is the session
    /// that sent it, if it is known on that core.
    pub fn add(
        &self,
        args: &Args<'_>,
        secrets: Secrets,
        took_us: u64,
        now_ms: u64,
        client: Option<&Client>,
        max_len: usize,
    ) {
        let entry = SlowEntry {
            id: 0,
            at_seconds: now_ms / 1000,
            took_us,
            args: shortened(args, secrets),
            addr: client.map(|client| client.addr.clone()).unwrap_or_default(),
            client_name: client.map(Client::name).unwrap_or_default(),
        };
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.entries.push_front(SlowEntry { id, ..entry });
        state.entries.truncate(max_len);
    }

    /// The entries, locked; hold it briefly.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn reset(&self) {
        self.lock().entries.clear();
    }
}

/// The arguments as the log keeps them, passwords hidden.
fn shortened(args: &Args<'_>, secrets: Secrets) -> Vec<Vec<u8>> {
    let len = args.len();
    let kept = if len > ARGS_MAX { ARGS_MAX - 1 } else { len };
    let mut list: Vec<Vec<u8>> = (0..kept)
        .map(|i| {
            if is_secret(args, secrets, i) {
                return b"(redacted)".to_vec();
            }
            let arg = args.at(i);
            if arg.len() <= ARG_BYTES_MAX {
                return arg.to_vec();
            }
            let mut short = arg[..ARG_BYTES_MAX].to_vec();
            let rest = arg.len() - ARG_BYTES_MAX;
            short.extend_from_slice(format!("... ({rest} more bytes)").as_bytes());
            short
        })
        .collect();
    if len > ARGS_MAX {
        list.push(format!("... ({} more arguments)", len - kept).into_bytes());
    }
    list
}

/// Whether argument `i` must not be shown to others (MONITOR, SLOWLOG).
pub fn is_secret(args: &Args<'_>, secrets: Secrets, i: usize) -> bool {
    match secrets {
        Secrets::None => false,
        Secrets::All => i >= 1,
        Secrets::BehindSubcommand => i >= 2,
        Secrets::BehindAuth => {
            i >= 2 && (args.is(i - 1, "AUTH") || (i >= 3 && args.is(i - 2, "AUTH")))
        }
        Secrets::Settings => {
            i >= 3
                && i % 2 == 1
                && settings::list::find(&String::from_utf8_lossy(args.at(i - 1)))
                    .is_some_and(|row| settings::list::ALL[row].secret)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::Span;

    fn with_args<T>(words: &[&[u8]], run: impl FnOnce(&Args<'_>) -> T) -> T {
        let mut buffer = Vec::new();
        let mut spans = Vec::new();
        for word in words {
            spans.push(Span {
                start: buffer.len() as u32,
                len: word.len() as u32,
            });
            buffer.extend_from_slice(word);
        }
        run(&Args::new(&buffer, &spans))
    }

    #[test]
    fn long_commands_are_shortened() {
        let long = [b'x'; 200];
        let mut words: Vec<&[u8]> = vec![b"SADD", b"key"];
        words.extend(std::iter::repeat_n(&long[..], 38));
        let kept = with_args(&words, |args| shortened(args, Secrets::None));
        assert_eq!(kept.len(), 32);
        assert_eq!(kept[31], b"... (9 more arguments)");
        assert!(kept[2].ends_with(b"... (72 more bytes)"));
    }

    #[test]
    fn passwords_are_hidden() {
        let words: &[&[u8]] = &[b"config", b"set", b"hz", b"1", b"requirepass", b"secret"];
        let kept = with_args(words, |args| shortened(args, Secrets::Settings));
        assert_eq!(kept[3], b"1");
        assert_eq!(kept[5], b"(redacted)");
        let words: &[&[u8]] = &[b"HELLO", b"3", b"AUTH", b"me", b"secret", b"SETNAME", b"x"];
        let kept = with_args(words, |args| shortened(args, Secrets::BehindAuth));
        assert_eq!(
            &kept[3..],
            [&b"(redacted)"[..], b"(redacted)", b"SETNAME", b"x"]
        );
    }

    #[test]
    fn the_newest_stay() {
        let log = SlowLog::default();
        for _ in 0..5 {
            with_args(&[b"get", b"k"], |args| {
                log.add(args, Secrets::None, 20, 5000, None, 3)
            });
        }
        let ids: Vec<u64> = log.lock().entries.iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [4, 3, 2]);
        log.reset();
        assert!(log.lock().entries.is_empty());
    }
}
