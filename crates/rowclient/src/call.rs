//! One call until it is answered: to who leads, again when that is another, again when it is too early, with the same request.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use rowapi::table_client::TableClient;
use rowapi::{RowReply, ScanReply, Status};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Request};

use crate::{Client, Error};

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// A node that is silent for this part of the time may be dead: another is asked.
const PARTS: u32 = 3;

/// What every reply has.
pub trait Replied {
    fn verdict(&self) -> (Status, &str, &str);
}

impl Replied for RowReply {
    fn verdict(&self) -> (Status, &str, &str) {
        (self.status(), &self.error, &self.leader)
    }
}

impl Replied for ScanReply {
    fn verdict(&self) -> (Status, &str, &str) {
        (self.status(), &self.error, &self.leader)
    }
}

/// How a call is going.
pub struct Attempts {
    pub deadline: Instant,
    part: Duration,
    pause: Duration,
    /// What was heard last.
    pub last: String,
}

impl Attempts {
    pub fn new(timeout: Duration) -> Attempts {
        Attempts {
            deadline: Instant::now() + timeout,
            part: timeout / PARTS,
            pause: FIRST_PAUSE,
            last: String::new(),
        }
    }

    /// The time of the next attempt; none if it is up.
    pub fn time_left(&self) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        (left > Duration::ZERO).then(|| left.min(self.part))
    }

    /// Before the same is sent again. Somebody else is asked at once, the first time.
    pub async fn pause(&mut self, last: &str) {
        self.last = last.into();
        tokio::time::sleep_until((Instant::now() + self.pause).min(self.deadline)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    pub fn time_is_up(self) -> Error {
        Error::TimedOut(self.last)
    }
}

/// What to do about a gRPC error.
fn may_try_again(status: &tonic::Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::ResourceExhausted => {
            true
        }
        // The connection broke: the library has several words for it, some with the reason as their source. The server says none of them
        // but for messages that it could not read.
        Code::Unknown => true,
        Code::Internal => status.source().is_some(),
        _ => false,
    }
}

impl Client {
    /// The message with a deadline and the password.
    pub(crate) fn wrap<Q>(&self, message: Q, time: Duration) -> Request<Q> {
        let mut request = Request::new(message);
        request.set_timeout(time);
        if let Some(authorization) = &self.authorization
            && let Ok(bearer) = authorization.parse()
        {
            request.metadata_mut().insert("authorization", bearer);
        }
        request
    }

    /// Sends once. An error that ends the call is the outer one.
    pub(crate) async fn attempt<Q, A, F>(
        &self,
        node: &str,
        message: Q,
        time: Duration,
        send: impl Fn(TableClient<Channel>, Request<Q>) -> F,
    ) -> Result<Result<A, String>, Error>
    where
        F: Future<Output = Result<tonic::Response<A>, tonic::Status>>,
    {
        let request = self.wrap(message, time);
        let sent = send(self.route.client(node)?, request);
        match tokio::time::timeout(time, sent).await {
            Ok(Ok(response)) => Ok(Ok(response.into_inner())),
            Ok(Err(status)) if may_try_again(&status) => {
                if status.code() == Code::Unknown {
                    self.route.forget(node);
                }
                Ok(Err(format!("{node}: {}", status.message())))
            }
            Ok(Err(status)) => Err(Error::Rpc(Box::new(status))),
            Err(_) => Ok(Err(format!("{node}: no answer"))),
        }
    }

    /// Sends until there is an answer that is one. `slot`: of the row it is about.
    pub(crate) async fn call<Q, A, F>(
        &self,
        slot: Option<u16>,
        message: Q,
        timeout: Duration,
        send: impl Fn(TableClient<Channel>, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        Q: Clone,
        A: Replied,
        F: Future<Output = Result<tonic::Response<A>, tonic::Status>>,
    {
        let mut attempts = Attempts::new(timeout);
        while let Some(time) = attempts.time_left() {
            let node = self.route.node_of(slot);
            let reply = match self.attempt(&node, message.clone(), time, &send).await? {
                Ok(reply) => reply,
                Err(broken) => {
                    self.route.avoid(slot, &node);
                    attempts.pause(&broken).await;
                    continue;
                }
            };
            let (status, error, leader) = reply.verdict();
            match status {
                Status::Error | Status::Unspecified => return Err(Error::Refused(error.into())),
                Status::NotLeader | Status::SlotMoving => {
                    self.route.learn(slot, &node, leader);
                    attempts.pause(error).await;
                }
                Status::RouteStale | Status::Timeout => {
                    self.route.avoid(slot, &node);
                    attempts.pause(error).await;
                }
                Status::Retry => attempts.pause(error).await,
                Status::Ok
                | Status::VersionMismatch
                | Status::Exist
                | Status::NotExist
                | Status::Unchanged
                | Status::CasNotEqual => return Ok(reply),
            }
        }
        Err(attempts.time_is_up())
    }
}
