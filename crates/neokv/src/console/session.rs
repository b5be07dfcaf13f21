//! The session of a console: a connection that is made when it is needed, and what has to be said on every new one
//! (password, protocol, database).
//!
//! In a cluster (`-c`) a node may answer that a slot has no leader just now, or redirect to a node that has just died:
//! then it is asked again for a while, until the others have chosen a leader. Such an answer says that nothing happened.
//! Otherwise a command is sent once. If the connection breaks, nobody knows whether the node ran it: that is told, and
//! the next command makes a new connection.
//!
//! As with redis-cli, a password that is refused is told and the connection kept: one may type another, and a node
//! without a password needs none. But no command goes to another database than the one asked for.

use std::time::{Duration, Instant};

use super::{Options, is};
use crate::client::{Answer, Connection};

/// How often one command is sent on to another node.
const REDIRECTS_MAX: usize = 16;
/// How long a node is asked again while a leader is being chosen.
const TAKEOVER_MAX: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(100);

pub struct Session {
    address: String,
    user: Option<String>,
    password: Option<String>,
    db: u32,
    cluster: bool,
    resp3: bool,
    in_transaction: bool,
    /// Redirects are told.
    is_verbose: bool,
    connection: Option<Connection>,
}

impl Session {
    pub fn new(options: &Options, is_verbose: bool) -> Session {
        Session {
            address: address(&options.host, options.port),
            user: options.user.clone(),
            password: options.password.clone(),
            db: options.db,
            cluster: options.cluster,
            resp3: options.resp3,
            in_transaction: false,
            is_verbose,
            connection: None,
        }
    }

    /// What stands before the line that a person types.
    pub fn prompt(&self) -> String {
        if self.connection.is_none() {
            return "not connected> ".into();
        }
        let db = match self.db {
            0 => String::new(),
            db => format!("[{db}]"),
        };
        let transaction = if self.in_transaction { "(TX)" } else { "" };
        format!("{}{db}{transaction}> ", self.address)
    }

    pub fn connect(&mut self) -> Result<(), String> {
        if self.connection.is_some() {
            return Ok(());
        }
        let at = &self.address;
        let mut connection = Connection::open(at, None)
            .map_err(|why| format!("{at} does not answer: {why}; is the node running?"))?;
        self.in_transaction = false;
        let mut first: Vec<Vec<&str>> = Vec::new();
        match (&self.user, &self.password) {
            (Some(user), Some(password)) => first.push(vec!["AUTH", user, password]),
            (None, Some(password)) => first.push(vec!["AUTH", password]),
            (_, None) => {}
        }
        if self.resp3 {
            first.push(vec!["HELLO", "3"]);
        }
        let db = self.db.to_string();
        if self.db != 0 {
            first.push(vec!["SELECT", &db]);
        }
        for words in first {
            let answer = connection.ask(&words);
            let answer = answer.map_err(|why| format!("{at}: {why}"))?;
            let Some(why) = refusal(&words, &answer) else {
                continue;
            };
            if words.first() == Some(&"SELECT") {
                let why = format!("{at}: {why}");
                self.connection = Some(connection);
                self.db = 0;
                return Err(why);
            }
            eprintln!("neokv: {at}: {why}");
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// The answer to a command; `on_way` is given what comes before it: messages and redirects. The answer to an
    /// `endless` command may be a message itself.
    pub fn ask(
        &mut self,
        words: &[Vec<u8>],
        endless: bool,
        mut on_way: impl FnMut(Answer),
    ) -> Result<Answer, String> {
        let (mut asking, mut redirects) = (false, 0);
        let deadline = Instant::now() + TAKEOVER_MAX;
        let mut before: Option<String> = None;
        while redirects < REDIRECTS_MAX {
            if let Err(why) = self.connect() {
                let is_dead = self.connection.is_none();
                match before.take() {
                    Some(address) if is_dead && Instant::now() < deadline => self.address = address,
                    _ => return Err(why),
                }
                std::thread::sleep(ASK_AGAIN);
                (asking, redirects) = (false, 0);
                continue;
            }
            if asking {
                self.send(&[b"ASKING"])?;
                self.next()?;
            }
            self.send(words)?;
            let answer = loop {
                match self.next()? {
                    message @ Answer::Push(_) if !endless => on_way(message),
                    answer => break answer,
                }
            };
            let redirect = match &answer {
                Answer::Error(why) if self.cluster && self.is_soon_better(why) => {
                    if Instant::now() < deadline {
                        std::thread::sleep(ASK_AGAIN);
                        redirects = 0;
                        continue;
                    }
                    None
                }
                Answer::Error(why) if self.cluster => Redirect::read(why, &self.address),
                _ => None,
            };
            let Some(redirect) = redirect else {
                self.note(words, &answer);
                return Ok(answer);
            };
            redirects += 1;
            if self.is_verbose {
                let Redirect { slot, address, .. } = &redirect;
                let line = format!("-> Redirected to slot [{slot}] located at {address}");
                on_way(Answer::Status(line.into_bytes()));
            }
            self.connection = None;
            before = Some(std::mem::replace(&mut self.address, redirect.address));
            asking = redirect.asking;
        }
        Err(format!("redirected {REDIRECTS_MAX} times; try again"))
    }

    /// Whether the node did nothing and may soon do it. A transaction cannot be sent again from here.
    fn is_soon_better(&self, error: &[u8]) -> bool {
        let word = error.split(|&byte| byte == b' ').next();
        matches!(word, Some(b"CLUSTERDOWN" | b"TRYAGAIN")) && !self.in_transaction
    }

    fn send(&mut self, words: &[impl AsRef<[u8]>]) -> Result<(), String> {
        let sent = match &mut self.connection {
            Some(connection) => connection.send(words),
            None => Err("not connected".into()),
        };
        self.kept(sent)
    }

    /// What comes next, asked for or not.
    pub fn next(&mut self) -> Result<Answer, String> {
        let next = match &mut self.connection {
            Some(connection) => connection.answer(),
            None => Err("not connected".into()),
        };
        self.kept(next)
    }

    /// After an error of the connection there is none any more.
    fn kept<T>(&mut self, result: Result<T, String>) -> Result<T, String> {
        result.map_err(|why| {
            self.connection = None;
            format!("{}: {why}", self.address)
        })
    }

    /// Keeps in mind what a new connection would have to be told again.
    fn note(&mut self, words: &[Vec<u8>], answer: &Answer) {
        let word = |at: usize| words.get(at).map(Vec::as_slice).unwrap_or_default();
        let text = |at: usize| String::from_utf8_lossy(word(at)).into_owned();
        let name = word(0);
        if is(name, "exec") || is(name, "discard") || is(name, "reset") {
            self.in_transaction = false;
        }
        let queued = matches!(answer, Answer::Status(text) if text == b"QUEUED");
        if matches!(answer, Answer::Error(_)) || queued {
            return;
        }
        if is(name, "multi") {
            self.in_transaction = true;
        } else if is(name, "select") {
            self.db = text(1).parse().unwrap_or(self.db);
        } else if is(name, "auth") {
            self.user = (words.len() > 2).then(|| text(1));
            self.password = words.last().map(|_| text(words.len() - 1));
        } else if is(name, "hello") && words.len() > 1 {
            self.resp3 = word(1) == b"3";
        } else if is(name, "reset") {
            (self.db, self.resp3) = (0, false);
        }
    }
}

/// Why the node does not obey, if it does not; the password is not told.
fn refusal(words: &[&str], answer: &Answer) -> Option<String> {
    let Answer::Error(why) = answer else {
        return None;
    };
    let words = match words {
        ["AUTH", ..] => "AUTH".into(),
        _ => words.join(" "),
    };
    Some(format!("{words} failed: {}", String::from_utf8_lossy(why)))
}

fn address(host: &str, port: u16) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// `MOVED 866 127.0.0.1:7001`, or ASK: this command only, and announced by ASKING.
#[derive(Debug, PartialEq)]
struct Redirect {
    slot: u16,
    address: String,
    asking: bool,
}

impl Redirect {
    /// Without a host, it is that of the node that answered.
    fn read(error: &[u8], here: &str) -> Option<Redirect> {
        let text = std::str::from_utf8(error).ok()?;
        let mut words = text.split(' ');
        let asking = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse().ok()?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let host = match host {
            "" => here.rsplit_once(':')?.0,
            host => host,
        };
        let address = address(host, port.parse().ok()?);
        Some(Redirect {
            slot,
            address,
            asking,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects() {
        let read = |text: &str| Redirect::read(text.as_bytes(), "a:1");
        let to = |slot, address: &str, asking| {
            let address = address.into();
            Some(Redirect {
                slot,
                address,
                asking,
            })
        };
        assert_eq!(read("MOVED 1 b:2"), to(1, "b:2", false));
        assert_eq!(read("ASK 1 b:2"), to(1, "b:2", true));
        assert_eq!(read("MOVED 1 :2"), to(1, "a:2", false));
        assert_eq!(read("MOVED 1 ::1:2"), to(1, "[::1]:2", false));
        for other in ["MOVED", "MOVED x b:2", "MOVED 1 b", "MOVED 1 b:x", "ERR no"] {
            assert_eq!(read(other), None);
        }
    }
}
