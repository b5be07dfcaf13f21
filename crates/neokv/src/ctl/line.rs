//! The way to a cluster for somebody who is no node: calls to the peer port of any of its nodes.
//!
//! Every node passes questions on to meta's leader, so one node that answers is enough.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use meta::wire::{AdminAnswer, AdminRequest, Ask, Reply, Tables};
use prost::Message;
use server::cluster::METHOD_ADMIN;
use transport::{Bytes, CallError, Config, Handler, RaftMessage, Secrets, Target, Tls, Transport};

use super::access::Access;

/// Addresses that are tried one after the other.
pub struct Line {
    transport: Transport,
    peers: Vec<String>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// Nobody could be asked: why, for each address.
    Unreachable(Vec<(String, CallError)>),
    /// The cluster says no, and why.
    Refused(String),
    /// The answer makes no sense to this version.
    Garbled(String),
    /// This program cannot even ask.
    Start(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unanswered::Unreachable(tried) => {
                for (at, (address, error)) in tried.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "; " };
                    write!(out, "{comma}{address}: {error}")?;
                }
                let lost = |error: &CallError| !matches!(error, CallError::Rejected(_));
                if tried.iter().all(|(_, error)| lost(error)) {
                    let hint =
                        "--peer takes the peer port of a node, by default its Redis port + 10000";
                    write!(out, " ({hint})")?;
                }
                Ok(())
            }
            Unanswered::Refused(why) => write!(out, "refused: {why}"),
            Unanswered::Garbled(what) => write!(
                out,
                "an answer that cannot be read ({what}): is the node of another version?"
            ),
            Unanswered::Start(why) => out.write_str(why),
        }
    }
}

/// A client hears nothing but answers.
struct Deaf;

impl Handler for Deaf {
    fn on_raft(&self, _from: u64, _messages: Vec<RaftMessage>) {}

    fn on_call(&self, _from: u64, _method: u16, _body: Bytes, reply: transport::Reply) {
        reply.reject("this is no node");
    }

    // What happens to the connection is in the answer of the call.
    fn on_notice(&self, _line: &str) {}
}

/// How often an answer may say "ask there".
const HOPS_MAX: usize = 4;

const LEADERLESS_MAX: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Somebody is there, who could not pass the question on.
fn is_passing(error: &CallError) -> bool {
    matches!(error, CallError::Rejected(_))
}

impl Line {
    pub fn new(peers: Vec<String>, access: Access) -> Result<Line, Unanswered> {
        let config = Config {
            connect_timeout: Duration::from_secs(2),
            secrets: access.secrets.map(Secrets::of),
            tls: access.tls.map(|[certificate, key, authority]| Tls {
                certificate: certificate.into(),
                key: key.into(),
                authority: authority.into(),
                name: None,
            }),
            ..Config::default()
        };
        let transport = Transport::start(config, Arc::new(Deaf));
        let transport = transport.map_err(|error| Unanswered::Start(error.to_string()))?;
        Ok(Line { transport, peers })
    }

    /// Calls the first node that can be reached.
    pub fn call(&self, method: u16, body: &[u8], limit: Duration) -> Result<Bytes, Unanswered> {
        let mut tried = Vec::new();
        for peer in &self.peers {
            let body = Bytes::copy_from_slice(body);
            let target = Target::Address(peer.clone());
            match self.transport.call_blocking(target, method, body, limit) {
                Ok(answer) => return Ok(answer),
                Err(error) => tried.push((peer.clone(), error)),
            }
        }
        Err(Unanswered::Unreachable(tried))
    }

    /// Calls one node.
    pub fn call_at(
        &self,
        peer: &str,
        method: u16,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Bytes, CallError> {
        let target = Target::Address(peer.to_owned());
        self.transport.call_blocking(target, method, body, limit)
    }

    fn admin(&self, ask: Ask, limit: Duration) -> Result<Reply, Unanswered> {
        let body = AdminRequest { ask: Some(ask) }.encode_to_vec();
        let mut bytes = self.call(METHOD_ADMIN, &body, limit)?;
        for _ in 0..HOPS_MAX {
            let answer = AdminAnswer::decode(bytes);
            let answer = answer.map_err(|error| Unanswered::Garbled(error.to_string()))?;
            match (answer.reply, answer.leader) {
                (Some(reply), _) => return Ok(reply),
                (None, Some(leader)) => {
                    let target = Target::Address(leader.to_string());
                    let body = Bytes::copy_from_slice(&body);
                    let next = self
                        .transport
                        .call_blocking(target, METHOD_ADMIN, body, limit);
                    bytes = next.map_err(|error| {
                        Unanswered::Unreachable(vec![(leader.to_string(), error)])
                    })?;
                }
                (None, None) => return Err(Unanswered::Garbled("it is empty".into())),
            }
        }
        Err(Unanswered::Refused(
            "the meta service is choosing a leader; try again".into(),
        ))
    }

    /// Rows of something.
    pub fn tables(&self, ask: Ask, limit: Duration) -> Result<Tables, Unanswered> {
        match self.admin(ask, limit)? {
            Reply::Tables(tables) => Ok(tables),
            Reply::Refused(why) => Err(Unanswered::Refused(why)),
            Reply::Done(text) => Err(Unanswered::Garbled(text)),
            Reply::Catalogue(_) => Err(Unanswered::Garbled("a catalogue".into())),
        }
    }

    /// As `tables`, but waits while meta is choosing a leader.
    pub fn patient_tables(&self, ask: Ask, limit: Duration) -> Result<Tables, Unanswered> {
        let deadline = Instant::now() + LEADERLESS_MAX;
        loop {
            match self.tables(ask.clone(), limit) {
                Err(Unanswered::Unreachable(tried))
                    if tried.iter().any(|(_, error)| is_passing(error))
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(ASK_AGAIN);
                }
                result => return result,
            }
        }
    }

    /// Has something begun; what the cluster says to it.
    pub fn order(&self, ask: Ask, limit: Duration) -> Result<String, Unanswered> {
        match self.admin(ask, limit)? {
            Reply::Done(text) => Ok(text),
            Reply::Refused(why) => Err(Unanswered::Refused(why)),
            Reply::Tables(_) => Err(Unanswered::Garbled("a table".into())),
            Reply::Catalogue(_) => Err(Unanswered::Garbled("a catalogue".into())),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.transport.stop();
    }
}
