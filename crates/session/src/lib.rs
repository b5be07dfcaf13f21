//! Client connections: one task each, from the first byte to the last reply.
//!
//! ```text
//!   connection   reads, runs what is complete, writes: the session's task
//!   turn         one command after the other, as long as none has to wait
//!   slow         commands that wait: for regions, for time, for a file
//!   pending      commands on other cores, replies in request order
//!   exec         MULTI … EXEC          blocking   BLPOP and its kin
//!   forward      commands for other nodes          wrote      what WAIT is about
//!   rights       who it is, and what that user may do
//!   listener     listening sockets                 accept      new connections, refused or served
//!   socket, tls  the operating system's part       commands    rows of session commands, and what runs them
//! ```
//!
//! [`Session`] is what a command may know of its connection; buffers and socket are kept beside
//! it, so that a command can borrow its arguments from the read buffer and write its reply while
//! it changes the session.

mod accept;
mod blocking;
pub mod commands;
mod connection;
mod dispatch;
mod exec;
pub mod forward;
pub mod listener;
mod pending;
mod prefetch;
mod rights;
mod slow;
mod socket;
mod tls;
mod wrote;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::DbIndex;
use resp::Protocol;

pub use accept::accept;
pub use commands::{Commands, Later, SessionCommand, SessionRun, SessionRuns};
pub use connection::serve_internal;
pub use exec::{Multi, exec};
use forward::{Upstreams, WatchedElsewhere};
use node::Watch;
use rights::Who;
use runtime::Shared;
use runtime::cores::{Core, Held, Place};
use stats::clients::Client;
use wrote::Wrote;

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
    /// What runs commands about the session and the server.
    pub(crate) runs: Arc<SessionRuns>,
    /// What others see of this session; publish changes of name, db … there.
    pub client: Arc<Client>,
    pub db: DbIndex,
    /// Chosen by HELLO, which sets it here and on its `Reply`.
    pub protocol: Protocol,
    pub authenticated: bool,
    /// The version of the users by which this session's user may do everything; else 0 (`rights`).
    pub(crate) rights: u64,
    pub(crate) who: Who,
    pub reply_mode: ReplyMode,
    /// Ends the session once the replies so far are written (QUIT, CLIENT KILL of itself).
    pub close_after_reply: bool,
    /// READONLY: reads may be answered by replicas that do not lead (cluster).
    pub readonly: bool,
    /// It is told where to go; else its commands are taken there (cluster).
    pub redirects: bool,
    /// Its sessions with other nodes.
    upstreams: Option<Box<Upstreams>>,
    /// What is watched at another node.
    watched_elsewhere: Option<WatchedElsewhere>,
    /// Slots it has written to (cluster).
    pub wrote: Wrote,
    /// In MONITOR.
    pub monitor: bool,
    /// Between MULTI and EXEC.
    pub multi: Option<Box<Multi>>,
    /// Keys watched since the last EXEC, DISCARD or UNWATCH.
    pub watched: Vec<Watch>,
    /// What EXEC holds while it runs.
    held: Option<Held>,
    in_exec: bool,
}

impl Session {
    fn new(core: Rc<Core>, runs: Arc<SessionRuns>, client: Arc<Client>) -> Self {
        let users = core.shared.users.load();
        let authenticated = client.is_internal || users.is_open();
        let user = users.named(acl::DEFAULT).cloned();
        let user = user.unwrap_or_else(|| Arc::new(acl::User::default_user(&core.shared.commands)));
        let who = Who::new(user, client.is_internal);
        let redirects = core.shared.cluster.as_ref().is_none_or(|it| it.redirects);
        Session {
            id: client.id,
            core,
            runs,
            client,
            db: 0,
            protocol: Protocol::Resp2,
            authenticated,
            rights: 0,
            who,
            reply_mode: ReplyMode::On,
            close_after_reply: false,
            readonly: false,
            redirects,
            upstreams: None,
            watched_elsewhere: None,
            wrote: Wrote::default(),
            monitor: false,
            multi: None,
            watched: Vec::new(),
            held: None,
            in_exec: false,
        }
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.core.shared
    }

    /// Whether EXEC is running this command.
    pub fn in_exec(&self) -> bool {
        self.in_exec
    }

    /// Ends MULTI and WATCH (DISCARD, RESET).
    pub fn discard(&mut self) {
        self.multi = None;
        self.unwatch();
        self.publish();
    }

    /// Ends WATCH. The regions notice by themselves that nobody is interested any more.
    pub fn unwatch(&mut self) {
        self.watched.clear();
        if let Some(remote) = self.watched_elsewhere.take() {
            self.upstreams().close(&remote.address);
        }
    }

    pub fn upstreams(&mut self) -> &mut Upstreams {
        self.upstreams.get_or_insert_with(Box::default)
    }

    /// Takes regions (ascending, each once) out of their cores; nothing else runs on them until
    /// [`Session::release`]. Inside EXEC: what EXEC holds.
    pub async fn hold(&mut self, regions: &[Place]) -> Held {
        if let Some(held) = self.held.take() {
            return held;
        }
        let held = self.core.hold(regions).await;
        self.core.begin_batch();
        held
    }

    /// Takes all regions of all cores. Nothing else runs on any of them until
    /// [`Session::release`]. Inside EXEC these are the regions EXEC holds already.
    pub async fn hold_all(&mut self) -> Held {
        let all: Vec<Place> = (0..self.shared().map.regions()).collect();
        self.hold(&all).await
    }

    /// Gives back what [`Session::hold_all`] gave, once what was changed is kept.
    pub async fn release(&mut self, mut held: Held) {
        if self.in_exec {
            self.held = Some(held);
        } else if let Err(refusal) = held.commit().await {
            tracing::warn!("{}", refusal.text());
        }
    }

    /// Bytes beyond which a reply is given up, and the client closed: `client-output-buffer-limit`.
    pub(crate) fn reply_limit(&self) -> usize {
        match self.core.settings().output_limit_normal.hard_bytes {
            0 => usize::MAX,
            bytes => bytes,
        }
    }

    /// Shows others what this session is doing.
    pub fn publish(&self) {
        let client = &self.client;
        client.db.store(self.db, Ordering::Relaxed);
        let version = match self.protocol {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        };
        client.protocol.store(version, Ordering::Relaxed);
        let queued = self.multi.as_ref().map_or(u32::MAX, |m| m.len() as u32);
        client.queued.store(queued, Ordering::Relaxed);
        let watching = self.watched.len() as u32;
        client.watching.store(watching, Ordering::Relaxed);
        let clients = &self.core.shared.clients;
        clients.note_stranger(client, !self.authenticated, self.core.now_ms());
    }
}
