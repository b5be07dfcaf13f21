//! A small blocking Redis client of one node, for the commands of this program that ask a running one: `neokv cli`,
//! `neokv table` and the playground.
//!
//! A command goes out as words, its answer comes in as an [`Answer`], whatever the other side sends: lengths, depth
//! and numbers are checked, and bytes that are no answer end the connection with one line of text.

mod answer;
pub mod secure;

use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

pub use answer::Answer;

const CONNECT: Duration = Duration::from_secs(5);

pub struct Connection {
    stream: BufReader<Stream>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<secure::Stream>),
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(bytes),
            Stream::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

impl Connection {
    /// `address` is host:port. `timeout`: longest wait for the next bytes of an answer; for ever, if there is none.
    pub fn open(address: &str, timeout: Option<Duration>) -> Result<Connection, String> {
        let mut last = String::from("no such host");
        for place in places(address)? {
            match TcpStream::connect_timeout(&place, CONNECT) {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    let set = stream.set_read_timeout(timeout);
                    set.map_err(|error| error.to_string())?;
                    let stream = match secure::wrap(stream, host_of(address).0)? {
                        Ok(stream) => Stream::Tls(Box::new(stream)),
                        Err(stream) => Stream::Plain(stream),
                    };
                    let stream = BufReader::new(stream);
                    return Ok(Connection { stream });
                }
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    }

    pub fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Answer, String> {
        self.send(words)?;
        self.answer()
    }

    pub fn send(&mut self, words: &[impl AsRef<[u8]>]) -> Result<(), String> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        let stream = self.stream.get_mut();
        let sent = stream.write_all(&request).and_then(|()| stream.flush());
        sent.map_err(|error| error.to_string())
    }

    /// The next answer, or a message that nobody asked for.
    pub fn answer(&mut self) -> Result<Answer, String> {
        answer::read(&mut self.stream).map_err(|error| error.to_string())
    }
}

/// An address that is a name may be several; `[::1]:6379` and `::1:6379` are both understood.
fn places(address: &str) -> Result<impl Iterator<Item = std::net::SocketAddr>, String> {
    let (host, port) = host_of(address);
    let port: u16 = port.parse().map_err(|_| "expected host:port")?;
    (host, port)
        .to_socket_addrs()
        .map_err(|error| error.to_string())
}

/// Host and port, the host without brackets.
fn host_of(address: &str) -> (&str, &str) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.strip_prefix('[').unwrap_or(host);
    (host.strip_suffix(']').unwrap_or(host), port)
}
