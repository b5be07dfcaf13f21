//! The slow log: commands that took longer than `slowlog-log-slower-than`.
//! (The `admin` owner completes it; [`SlowLog::add`] is what a core calls.)

use std::collections::VecDeque;
use std::sync::Mutex;

use resp::Args;

use crate::clients::Client;

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
    pub entries: Mutex<VecDeque<SlowEntry>>,
}

impl SlowLog {
    /// Called by the core that ran the command, only when it was slow. `client` is the session
    /// that sent it, if it is known on that core.
    pub fn add(
        &self,
        _args: &Args<'_>,
        _took_us: u64,
        _now_ms: u64,
        _client: Option<&Client>,
        _max_len: usize,
    ) {
    }
}
