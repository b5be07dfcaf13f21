//! A small cluster client that knows, for every call, whether it has happened.
//!
//! | what comes back | fate |
//! |---|---|
//! | a reply | done |
//! | MOVED, TRYAGAIN, CLUSTERDOWN, LOADING, SQLDOWN; no connection | not happened: MOVED is followed, the rest is told |
//! | INDOUBT, a time-out, a lost connection | unknown |
//! | any other error | a surprise, which fails the test |

use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::wire::{self, Value};

/// A connection to one node.
pub struct Session {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Session {
    pub fn open(address: &str, timeout: Duration) -> io::Result<Session> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Session { stream, reader })
    }

    pub fn ask(&mut self, words: &[&str]) -> io::Result<Value> {
        self.send(&[words.iter().map(|&it| it.to_string()).collect()])?;
        self.receive()
    }

    fn send(&mut self, commands: &[Vec<String>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for command in commands {
            let argv: Vec<Vec<u8>> = command.iter().map(|it| it.as_bytes().to_vec()).collect();
            bytes.extend(wire::encode(&argv));
        }
        self.stream.write_all(&bytes)
    }

    fn receive(&mut self) -> io::Result<Value> {
        match wire::decode(&mut self.reader)? {
            Value::Closed => Err(io::ErrorKind::ConnectionReset.into()),
            value => Ok(value),
        }
    }
}

#[derive(Debug)]
pub enum Fate {
    /// One reply for each command.
    Done(Vec<Value>),
    Refused(String),
    Unknown(String),
    Surprise(String),
}

pub struct Client {
    addresses: Vec<String>,
    /// Where slots were last.
    slots: HashMap<u16, String>,
    sessions: HashMap<String, Session>,
    /// Nodes that did not answer, and when: asked last for a while.
    silent: HashMap<String, Instant>,
    next: usize,
    pub timeout: Duration,
}

/// Redirects followed for one call.
const MOST_HOPS: usize = 6;

impl Client {
    pub fn new(addresses: Vec<String>) -> Client {
        Client {
            addresses,
            slots: HashMap::new(),
            sessions: HashMap::new(),
            silent: HashMap::new(),
            next: 0,
            timeout: Duration::from_secs(2),
        }
    }

    /// Where it begins if it does not know; then the others in turn.
    pub fn starting_at(mut self, next: usize) -> Client {
        self.next = next;
        self
    }

    /// One command; what it answers, if it was answered.
    pub fn ask(&mut self, key: &str, words: &[&str]) -> Fate {
        self.call(key, &[words.iter().map(|&it| it.to_string()).collect()])
    }

    /// Commands for the slot of a key: one, or several as a transaction.
    pub fn call(&mut self, key: &str, commands: &[Vec<String>]) -> Fate {
        let slot = base::slot::slot_of(key.as_bytes());
        let mut why = String::new();
        for _ in 0..MOST_HOPS {
            let address = match self.slots.get(&slot) {
                Some(address) => address.clone(),
                None => self.somebody(),
            };
            let session = match self.sessions.remove(&address) {
                Some(session) => Ok(session),
                None => Session::open(&address, self.timeout),
            };
            let mut session = match session {
                Ok(session) => session,
                Err(error) => {
                    why = format!("{address}: {error}");
                    self.slots.remove(&slot);
                    self.silent.insert(address, Instant::now());
                    continue;
                }
            };
            let replies = match attempt(&mut session, commands) {
                Ok(replies) => replies,
                Err(error) => {
                    // Others of its slots are asked elsewhere, too.
                    self.slots.retain(|_, it| *it != address);
                    self.silent.insert(address.clone(), Instant::now());
                    return Fate::Unknown(format!("{address}: {error}"));
                }
            };
            self.sessions.insert(address.clone(), session);
            let Some(refusal) = refusal(&replies) else {
                self.slots.insert(slot, address);
                return Fate::Done(replies);
            };
            let refusal = String::from_utf8_lossy(refusal).into_owned();
            let mut words = refusal.split(' ');
            match words.next() {
                Some("MOVED") => {
                    let to = words.nth(1).unwrap_or_default().to_string();
                    assert_ne!(to, address, "redirected to where it came from: {refusal}");
                    why = format!("{address}: {refusal}");
                    self.slots.insert(slot, to);
                }
                Some("TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "SQLDOWN") => {
                    self.slots.remove(&slot);
                    return Fate::Refused(format!("{address}: {refusal}"));
                }
                Some("INDOUBT") => {
                    self.slots.remove(&slot);
                    return Fate::Unknown(format!("{address}: {refusal}"));
                }
                _ => return Fate::Surprise(format!("{address}: {refusal}")),
            }
        }
        Fate::Refused(why)
    }

    /// Who answered for this key last.
    pub fn answered_by(&self, key: &str) -> Option<&str> {
        let slot = base::slot::slot_of(key.as_bytes());
        self.slots.get(&slot).map(String::as_str)
    }

    /// The next node in turn, if it is not one that was silent just now.
    fn somebody(&mut self) -> String {
        self.silent
            .retain(|_, since| since.elapsed() < Duration::from_secs(2));
        let count = self.addresses.len();
        for _ in 0..count {
            self.next += 1;
            if !self.silent.contains_key(&self.addresses[self.next % count]) {
                break;
            }
        }
        self.addresses[self.next % count].clone()
    }
}

fn attempt(session: &mut Session, commands: &[Vec<String>]) -> io::Result<Vec<Value>> {
    if let [_] = commands {
        session.send(commands)?;
        return Ok(vec![session.receive()?]);
    }
    let mut all = vec![vec!["MULTI".to_string()]];
    all.extend_from_slice(commands);
    all.push(vec!["EXEC".to_string()]);
    session.send(&all)?;
    let mut queued = Vec::new();
    for _ in 0..=commands.len() {
        queued.push(session.receive()?);
    }
    match session.receive()? {
        Value::Array(replies) if replies.len() == commands.len() => Ok(replies),
        // Why it was not queued says more than EXECABORT.
        exec => {
            queued.push(exec);
            Ok(queued)
        }
    }
}

/// The first error among replies.
fn refusal(replies: &[Value]) -> Option<&[u8]> {
    replies.iter().find_map(|reply| match reply {
        Value::Error(text) => Some(&text[..]),
        _ => None,
    })
}

pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) | Value::Verbatim(bytes) => {
            String::from_utf8(bytes.clone()).ok()
        }
        _ => None,
    }
}
