//! Calls: a question to a node or an address, one answer, a deadline.
//!
//! A call is queued the moment it is made and needs no runtime to wait in: deadlines are kept by
//! the peer thread, the answer arrives through a oneshot. Every call made ends exactly once: by
//! its answer, its deadline, the end of its connection, or the end of the transport.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use crate::outbox::Outbox;
use crate::wire::{Answer, Status};

/// Whom to call: a node that was introduced with `set_peer`, or whoever answers at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Node(u64),
    Address(String),
}

impl From<u64> for Target {
    fn from(node: u64) -> Target {
        Target::Node(node)
    }
}

impl From<&str> for Target {
    fn from(address: &str) -> Target {
        Target::Address(address.to_owned())
    }
}

impl From<String> for Target {
    fn from(address: String) -> Target {
        Target::Address(address)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// No such node was introduced.
    UnknownNode(u64),
    /// No connection, and why. The call was not made.
    Unreachable(String),
    /// The connection broke. The call may have been made.
    Disconnected,
    /// No answer in time. The call may have been made.
    Timeout,
    /// Too many calls under way, here or there. The call was not made.
    Busy,
    /// Longer than a frame may be. The call was not made.
    TooLarge,
    /// The handler there said no, and why.
    Rejected(String),
    /// The handler there let go of the call without an answer.
    Unanswered,
    /// This transport has stopped.
    Stopped,
}

impl fmt::Display for CallError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::UnknownNode(node) => write!(out, "node {node} is not known"),
            CallError::Unreachable(why) => write!(out, "cannot be reached: {why}"),
            CallError::Disconnected => out.write_str("the connection broke"),
            CallError::Timeout => out.write_str("no answer in time"),
            CallError::Busy => out.write_str("too many calls under way"),
            CallError::TooLarge => out.write_str("too large"),
            CallError::Rejected(why) => out.write_str(why),
            CallError::Unanswered => out.write_str("was not answered"),
            CallError::Stopped => out.write_str("the transport has stopped"),
        }
    }
}

impl std::error::Error for CallError {}

pub type CallResult = Result<Bytes, CallError>;

/// A call under way. Await it anywhere, or [`wait`](PendingCall::wait); dropping it forgets it.
#[must_use = "a call that is dropped is forgotten"]
pub struct PendingCall {
    receiver: oneshot::Receiver<CallResult>,
    table: Option<(Arc<CallTable>, u64)>,
}

impl PendingCall {
    /// Blocks the thread. Not for threads that run a tokio runtime.
    pub fn wait(mut self) -> CallResult {
        let (_, nothing) = oneshot::channel();
        let receiver = std::mem::replace(&mut self.receiver, nothing);
        receiver.blocking_recv().unwrap_or(Err(CallError::Stopped))
    }

    pub(crate) fn failed(error: CallError) -> PendingCall {
        let (sender, receiver) = oneshot::channel();
        let _ = sender.send(Err(error));
        PendingCall {
            receiver,
            table: None,
        }
    }

    pub(crate) fn local() -> (oneshot::Sender<CallResult>, PendingCall) {
        let (sender, receiver) = oneshot::channel();
        let table = None;
        (sender, PendingCall { receiver, table })
    }
}

impl Future for PendingCall {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallResult> {
        Pin::new(&mut self.receiver)
            .poll(context)
            .map(|result| result.unwrap_or(Err(CallError::Stopped)))
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if let Some((table, id)) = self.table.take() {
            table.take(id);
        }
    }
}

/// All calls made by this node that have no answer yet.
#[derive(Default)]
pub struct CallTable {
    state: Mutex<CallState>,
    /// A deadline came in front of all others.
    sooner: Notify,
}

#[derive(Default)]
struct CallState {
    next: u64,
    calls: HashMap<u64, Waiting>,
    deadlines: BTreeSet<(Instant, u64)>,
}

struct Waiting {
    link: u64,
    deadline: Instant,
    sender: oneshot::Sender<CallResult>,
}

impl CallTable {
    fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a call that goes out on `link`; none if there are `calls_max` already.
    pub fn register(
        self: &Arc<Self>,
        link: u64,
        deadline: Instant,
        calls_max: usize,
    ) -> Option<(u64, PendingCall)> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.calls.len() >= calls_max {
            return None;
        }
        state.next += 1;
        let id = state.next;
        state.calls.insert(
            id,
            Waiting {
                link,
                deadline,
                sender,
            },
        );
        state.deadlines.insert((deadline, id));
        if state.deadlines.first() == Some(&(deadline, id)) {
            self.sooner.notify_one();
        }
        drop(state);
        let table = Some((self.clone(), id));
        Some((id, PendingCall { receiver, table }))
    }

    fn take(&self, id: u64) -> Option<Waiting> {
        let mut state = self.state();
        let waiting = state.calls.remove(&id)?;
        state.deadlines.remove(&(waiting.deadline, id));
        Some(waiting)
    }

    /// False if nobody waits for it (any more), or it came on another connection than the call.
    pub fn on_answer(&self, link: u64, answer: Answer) -> bool {
        let text = |body: &Bytes| String::from_utf8_lossy(body).into_owned();
        let known = self
            .state()
            .calls
            .get(&answer.id)
            .is_some_and(|waiting| waiting.link == link);
        if !known {
            return false;
        }
        let result = match answer.status() {
            Status::Done => Ok(answer.body),
            Status::Rejected => Err(CallError::Rejected(text(&answer.body))),
            Status::Busy => Err(CallError::Busy),
            Status::Unanswered => Err(CallError::Unanswered),
        };
        self.fail_or_answer(answer.id, result)
    }

    pub fn fail_or_answer(&self, id: u64, result: CallResult) -> bool {
        match self.take(id) {
            Some(waiting) => waiting.sender.send(result).is_ok(),
            None => false,
        }
    }

    /// The connection of `link` is gone, or could not be made.
    pub fn fail_link(&self, link: u64, error: &CallError) {
        let ids: Vec<u64> = {
            let state = self.state();
            let of_link = state.calls.iter().filter(|(_, call)| call.link == link);
            of_link.map(|(id, _)| *id).collect()
        };
        for id in ids {
            self.fail_or_answer(id, Err(error.clone()));
        }
    }

    /// The transport stops.
    pub fn fail_all(&self) {
        let calls = {
            let mut state = self.state();
            state.deadlines.clear();
            std::mem::take(&mut state.calls)
        };
        for waiting in calls.into_values() {
            let _ = waiting.sender.send(Err(CallError::Stopped));
        }
    }

    /// Does anybody wait for it still?
    pub fn is_wanted(&self, id: u64) -> bool {
        self.state().calls.contains_key(&id)
    }

    pub fn has_link(&self, link: u64) -> bool {
        self.state().calls.values().any(|call| call.link == link)
    }

    /// Ends calls at their deadlines, for ever.
    pub async fn sweep(&self) {
        loop {
            let next = self.state().deadlines.first().copied();
            match next {
                Some((deadline, id)) if deadline <= Instant::now() => {
                    self.fail_or_answer(id, Err(CallError::Timeout));
                }
                Some((deadline, _)) => {
                    let _ = tokio::time::timeout_at(deadline.into(), self.sooner.notified()).await;
                }
                None => self.sooner.notified().await,
            }
        }
    }
}

/// The calling side of a call to this node. Answer it once, from any thread, now or later.
#[must_use = "a reply that is dropped tells the caller that there will be none"]
pub struct Reply(Option<Way>);

enum Way {
    Remote {
        asked: Arc<Asked>,
        id: u64,
    },
    /// The node called itself.
    Local(oneshot::Sender<CallResult>),
}

/// One connection on which others call this node.
pub struct Asked {
    pub outbox: Arc<Outbox>,
    /// Calls not answered yet.
    pub open: AtomicUsize,
    pub answer_bytes_max: usize,
    pub frame_bytes_max: usize,
}

impl Reply {
    pub(crate) fn remote(asked: &Arc<Asked>, id: u64) -> Reply {
        asked.open.fetch_add(1, Ordering::Relaxed);
        let asked = asked.clone();
        Reply(Some(Way::Remote { asked, id }))
    }

    pub(crate) fn local(sender: oneshot::Sender<CallResult>) -> Reply {
        Reply(Some(Way::Local(sender)))
    }

    pub fn done(mut self, body: impl Into<Bytes>) {
        self.send(Status::Done, body.into());
    }

    /// The caller sees [`CallError::Rejected`] with this text.
    pub fn reject(mut self, reason: impl Into<String>) {
        self.send(Status::Rejected, Bytes::from(reason.into()));
    }

    pub(crate) fn busy(mut self) {
        self.send(Status::Busy, Bytes::new());
    }

    fn send(&mut self, status: Status, body: Bytes) {
        match self.0.take() {
            Some(Way::Remote { asked, id }) => {
                asked.open.fetch_sub(1, Ordering::Relaxed);
                asked.answer(id, status, body);
            }
            Some(Way::Local(sender)) => {
                let text = |body: &Bytes| String::from_utf8_lossy(body).into_owned();
                let _ = sender.send(match status {
                    Status::Done => Ok(body),
                    Status::Rejected => Err(CallError::Rejected(text(&body))),
                    Status::Busy => Err(CallError::Busy),
                    Status::Unanswered => Err(CallError::Unanswered),
                });
            }
            None => {}
        }
    }
}

impl Asked {
    fn answer(&self, id: u64, status: Status, body: Bytes) {
        let (status, body) = if body.len() + crate::wire::OVERHEAD_BYTES > self.frame_bytes_max {
            let reason = "the answer is too large for a frame";
            (Status::Rejected, Bytes::from_static(reason.as_bytes()))
        } else {
            (status, body)
        };
        let answer = |status: Status, body| Answer {
            id,
            status: status.into(),
            body,
        };
        if !self
            .outbox
            .push_answer(answer(status, body), self.answer_bytes_max)
        {
            let short = answer(Status::Busy, Bytes::new());
            self.outbox.push_answer(short, usize::MAX);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.send(Status::Unanswered, Bytes::new());
    }
}
