//! RESP: one connection, and the client of a single server.
//!
//! A put may be followed by `WAIT n 1000` in the same packet: it succeeds when both answers say so. WAIT blocks its
//! connection, so this needs one per client.

use std::io::Write;
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Settings;
use crate::link::{Link, Links};
use crate::phase::{Client, Failed};

/// What an answer means to the one who asked.
pub type Look = fn(Reply<'_>) -> Result<(), Failed>;

/// A reply, as far as this tool needs it; borrowed from the connection's buffer.
#[derive(Debug, PartialEq)]
pub enum Reply<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Int(i64),
    Bulk(Option<&'a [u8]>),
    Array(Vec<Reply<'a>>),
}

/// The reply at `at`, which moves behind it; none while bytes are missing.
pub fn parse<'a>(buffer: &'a [u8], at: &mut usize) -> Result<Option<Reply<'a>>, Failed> {
    let Some(rest) = buffer.get(*at..) else {
        return Ok(None);
    };
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let (line, mut next) = (&rest[..end], *at + end + 2);
    let Some((marker, line)) = line.split_first() else {
        return Err("an empty line instead of a reply".to_string());
    };
    let number = || -> Result<i64, Failed> {
        let text = std::str::from_utf8(line).ok();
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| format!("not a number: {:?}", String::from_utf8_lossy(line)))
    };
    let reply = match marker {
        b'+' => Reply::Simple(line),
        b'-' => Reply::Error(line),
        b':' => Reply::Int(number()?),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Reply::Bulk(None),
            Ok(length) => {
                let Some(bytes) = buffer.get(next..next + length) else {
                    return Ok(None);
                };
                if buffer.len() < next + length + 2 {
                    return Ok(None);
                }
                next += length + 2;
                Reply::Bulk(Some(bytes))
            }
        },
        b'*' => {
            let mut items = Vec::new();
            for _ in 0..number()?.max(0) {
                match parse(buffer, &mut next)? {
                    Some(item) => items.push(item),
                    None => return Ok(None),
                }
            }
            Reply::Array(items)
        }
        other => return Err(format!("not a reply: it begins with {:?}", *other as char)),
    };
    *at = next;
    Ok(Some(reply))
}

/// A command as the server reads it.
pub fn encode(out: &mut Vec<u8>, args: &[impl AsRef<[u8]>]) {
    let length = |out: &mut Vec<u8>, marker: char, length: usize| {
        write!(out, "{marker}{length}\r\n").expect("memory takes what is written")
    };
    length(out, '*', args.len());
    for arg in args.iter().map(AsRef::as_ref) {
        length(out, '$', arg.len());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

pub async fn dial(address: &str) -> Result<TcpStream, Failed> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

pub struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Where the next reply begins in `input`.
    at: usize,
}

impl Connection {
    pub async fn open(address: &str) -> Result<Self, Failed> {
        Ok(Self {
            stream: dial(address).await?,
            out: Vec::with_capacity(256),
            input: Vec::with_capacity(4096),
            at: 0,
        })
    }

    /// Adds a command to what `send` sends.
    pub fn command(&mut self, args: &[impl AsRef<[u8]>]) {
        encode(&mut self.out, args);
    }

    pub async fn send(&mut self) -> Result<(), Failed> {
        let sent = self.stream.write_all(&self.out).await;
        self.out.clear();
        sent.map_err(|error| error.to_string())
    }

    /// The next reply, looked at by `look`.
    pub async fn receive<T>(&mut self, look: impl FnOnce(Reply<'_>) -> T) -> Result<T, Failed> {
        loop {
            let mut next = self.at;
            if let Some(reply) = parse(&self.input, &mut next)? {
                let seen = look(reply);
                self.at = next;
                if self.at == self.input.len() {
                    self.input.clear();
                    self.at = 0;
                }
                return Ok(seen);
            }
            let read = self.stream.read_buf(&mut self.input).await;
            if read.map_err(|error| error.to_string())? == 0 {
                return Err("the server closed the connection".to_string());
            }
        }
    }
}

pub fn put_is_done(reply: Reply<'_>) -> Result<(), Failed> {
    match reply {
        Reply::Simple(b"OK") => Ok(()),
        other => Err(unexpected(other)),
    }
}

pub fn get_is_done(reply: Reply<'_>) -> Result<(), Failed> {
    match reply {
        Reply::Bulk(Some(_)) => Ok(()),
        other => Err(unexpected(other)),
    }
}

fn unexpected(reply: Reply<'_>) -> Failed {
    match reply {
        Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::Bulk(None) => "no such key: fill first".to_string(),
        other => format!("unexpected: {other:?}"),
    }
}

fn any_is_done(reply: Reply<'_>) -> Result<(), Failed> {
    match reply {
        Reply::Error(_) | Reply::Bulk(None) => Err(unexpected(reply)),
        _ => Ok(()),
    }
}

/// A command of the caller's choice; where it says `__key__` each operation has its key.
#[derive(Clone)]
pub struct Given {
    args: Vec<String>,
    filled: Vec<Vec<u8>>,
}

impl Given {
    fn of(args: &[String]) -> Option<Self> {
        (!args.is_empty()).then(|| Self {
            args: args.to_vec(),
            filled: vec![Vec::new(); args.len()],
        })
    }

    /// Into the same memory each time.
    fn with(&mut self, key: &[u8]) -> &[Vec<u8>] {
        for (arg, filled) in self.args.iter().zip(&mut self.filled) {
            filled.clear();
            let mut parts = arg.split("__key__");
            filled.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
            for part in parts {
                filled.extend_from_slice(key);
                filled.extend_from_slice(part.as_bytes());
            }
        }
        &self.filled
    }
}

/// A client of one server.
pub struct Single {
    link: Link,
    wait: u32,
    given: Option<Given>,
}

pub struct Shared {
    address: String,
    links: Links,
    wait: u32,
    given: Option<Given>,
}

impl Single {
    async fn put_and_wait(
        connection: &mut Connection,
        wait: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<Result<(), Failed>, Failed> {
        connection.command(&[b"SET", key, value]);
        connection.command(&[b"WAIT", wait.to_string().as_bytes(), b"1000"]);
        connection.send().await?;
        let written = connection.receive(put_is_done).await?;
        let copies = connection.receive(|reply| match reply {
            Reply::Int(copies) if copies >= i64::from(wait) => Ok(()),
            Reply::Int(copies) => Err(format!("only {copies} replicas have it after a second")),
            other => Err(unexpected(other)),
        });
        Ok(written.and(copies.await?))
    }
}

impl Client for Single {
    type Shared = Shared;

    async fn share(settings: &Settings, clients: usize) -> Result<Shared, Failed> {
        Ok(Shared {
            address: settings.addresses[0].clone(),
            links: Links::new(settings, clients),
            wait: settings.wait,
            given: Given::of(&settings.command),
        })
    }

    async fn connect(shared: &Rc<Shared>, n: usize) -> Result<Self, Failed> {
        let mut link = shared.links.link(n, &shared.address);
        link.open().await?;
        Ok(Self {
            link,
            wait: shared.wait,
            given: shared.given.clone(),
        })
    }

    async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failed> {
        if let Some(given) = &mut self.given {
            return self.link.ask(given.with(key), any_is_done).await;
        }
        match &mut self.link {
            Link::Own(own) if self.wait > 0 => {
                let connection = own.connection().await?;
                let answered = Self::put_and_wait(connection, self.wait, key, value).await;
                own.answer(answered)
            }
            link => link.ask(&[b"SET", key, value], put_is_done).await,
        }
    }

    async fn get(&mut self, key: &[u8]) -> Result<(), Failed> {
        if let Some(given) = &mut self.given {
            return self.link.ask(given.with(key), any_is_done).await;
        }
        self.link.ask(&[b"GET", key], get_is_done).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_whole_and_in_pieces() {
        let bytes = b"*2\r\n$3\r\nabc\r\n:7\r\n+OK\r\n$-1\r\n-MOVED 1 a:2\r\n";
        for cut in 0..22 {
            let mut at = 0;
            let whole = parse(&bytes[..cut], &mut at).unwrap();
            assert_eq!(whole.is_some(), cut >= 17, "{cut} bytes");
        }
        let mut at = 0;
        let mut next = || parse(bytes, &mut at).unwrap().unwrap();
        assert_eq!(
            next(),
            Reply::Array(vec![Reply::Bulk(Some(b"abc")), Reply::Int(7)])
        );
        assert_eq!(next(), Reply::Simple(b"OK"));
        assert_eq!(next(), Reply::Bulk(None));
        assert_eq!(next(), Reply::Error(b"MOVED 1 a:2"));
        assert_eq!(
            parse(b"?\r\n", &mut 0),
            Err("not a reply: it begins with '?'".to_string())
        );
    }

    #[test]
    fn commands_with_the_key_of_each_operation() {
        let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        let mut given = Given::of(&words("HSET bench:__key__ n __key____key__!")).unwrap();
        for key in ["7", "long"] {
            let expected = words(&format!("HSET bench:{key} n {key}{key}!"));
            let mut out = Vec::new();
            encode(&mut out, given.with(key.as_bytes()));
            let mut at = 0;
            let Some(Reply::Array(args)) = parse(&out, &mut at).unwrap() else {
                panic!("a command is an array");
            };
            let expected = expected.iter().map(|arg| Reply::Bulk(Some(arg.as_bytes())));
            assert_eq!((args, at), (expected.collect(), out.len()));
        }
        assert!(Given::of(&[]).is_none());
    }
}
