//! RESP: one connection, and the client of a single server.
//!
//! A put may be followed by `WAIT n 1000` in the same packet: it succeeds when both answers say so.

use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Settings;
use crate::phase::{Client, Failed};

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

pub struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Where the next reply begins in `input`.
    at: usize,
}

impl Connection {
    pub async fn open(address: &str) -> Result<Self, Failed> {
        let failed = |error: std::io::Error| format!("{address}: {error}");
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self {
            stream,
            out: Vec::with_capacity(256),
            input: Vec::with_capacity(4096),
            at: 0,
        })
    }

    /// Adds a command to what `send` sends.
    pub fn command(&mut self, args: &[&[u8]]) {
        self.out
            .extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
        for arg in args {
            self.out
                .extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            self.out.extend_from_slice(arg);
            self.out.extend_from_slice(b"\r\n");
        }
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

/// A client of one server.
pub struct Single {
    shared: Rc<Shared>,
    connection: Option<Connection>,
}

pub struct Shared {
    address: String,
    wait: u32,
}

impl Single {
    /// The connection; a new one after a failure.
    async fn connection(&mut self) -> Result<&mut Connection, Failed> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.shared.address).await?,
        };
        Ok(self.connection.insert(connection))
    }

    async fn put_on(
        connection: &mut Connection,
        wait: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<Result<(), Failed>, Failed> {
        connection.command(&[b"SET", key, value]);
        if wait > 0 {
            connection.command(&[b"WAIT", wait.to_string().as_bytes(), b"1000"]);
        }
        connection.send().await?;
        let written = connection.receive(put_is_done).await?;
        if wait == 0 {
            return Ok(written);
        }
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

    async fn share(settings: &Settings, _clients: usize) -> Result<Shared, Failed> {
        Ok(Shared {
            address: settings.addresses[0].clone(),
            wait: settings.wait,
        })
    }

    async fn connect(shared: &Rc<Shared>, _n: usize) -> Result<Self, Failed> {
        Ok(Self {
            shared: shared.clone(),
            connection: Some(Connection::open(&shared.address).await?),
        })
    }

    async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failed> {
        let wait = self.shared.wait;
        let answered = Self::put_on(self.connection().await?, wait, key, value).await;
        answered.inspect_err(|_| self.connection = None)?
    }

    async fn get(&mut self, key: &[u8]) -> Result<(), Failed> {
        let connection = self.connection().await?;
        connection.command(&[b"GET", key]);
        let answered = match connection.send().await {
            Ok(()) => connection.receive(get_is_done).await,
            Err(why) => Err(why),
        };
        answered.inspect_err(|_| self.connection = None)?
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
}
