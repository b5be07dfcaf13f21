//! One client connection. (Being written.)
//!
//! [`Session`] is what a command may know of its connection; buffers and socket are kept beside
//! it, so that a command can borrow its arguments from the read buffer and write its reply while
//! it changes the session.

use std::rc::Rc;
use std::sync::Arc;

use base::DbIndex;
use resp::Protocol;

use crate::Shared;
use crate::clients::Client;
use crate::cores::{Core, Held};

/// `CLIENT REPLY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyMode {
    #[default]
    On,
    Off,
    /// The reply of the next command is dropped. (Set by CLIENT REPLY SKIP, whose own reply is
    /// dropped too.)
    SkipNext,
}

pub struct Session {
    pub id: u64,
    pub core: Rc<Core>,
    /// What others see of this session; publish changes of name, db … there.
    pub client: Arc<Client>,
    pub db: DbIndex,
    /// Chosen by HELLO, which sets it here and on its `Reply`.
    pub protocol: Protocol,
    pub authenticated: bool,
    pub reply_mode: ReplyMode,
    /// Ends the session once the replies so far are written (QUIT, CLIENT KILL of itself).
    pub close_after_reply: bool,
    /// In MONITOR.
    pub monitor: bool,
    /// Between MULTI and EXEC.
    pub multi: Option<Box<Multi>>,
}

/// Commands queued since MULTI.
#[derive(Default)]
pub struct Multi {
    /// A command was refused while queueing: EXEC will be too.
    pub aborted: bool,
}

impl Session {
    pub fn shared(&self) -> &Arc<Shared> {
        &self.core.shared
    }

    /// Ends MULTI and WATCH (DISCARD, RESET).
    pub fn discard(&mut self) {
        self.multi = None;
    }

    /// Takes all regions of all cores. Nothing else runs on any of them until
    /// [`Session::release`]. Inside EXEC these are the regions EXEC holds already.
    pub async fn hold_all(&mut self) -> Held {
        todo!("being written")
    }

    /// Gives back what [`Session::hold_all`] gave.
    pub fn release(&mut self, _held: Held) {}
}
