//! Connections of a session to the nodes that lead what it asks for (`redis-cluster-enabled no`).
//!
//! A plain client does not follow MOVED, so its session does. It asks the other node as a client
//! would, with the same protocol, in a session of its own there, which trusts it by a token that only nodes know (what a user may do
//! was checked here): what is watched
//! or waited for there ends when this session does. That session is told to redirect (`CLUSTER
//! REDIRECTS`), or two nodes that each think the other leads would send a command in circles.
//!
//! What may have happened is never sent again: if a connection ends before a reply has come, a write
//! is in doubt; only reads are tried anew.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use resp::{Args, Protocol};
use runtime::Shared;
use tls::rustls::pki_types::ServerName;
use tls::{ClientStream, TlsConnector};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(1);
const ROOM_BYTES: usize = 16 * 1024;
/// How often a silent node is thought about.
const GLANCE: Duration = Duration::from_millis(200);

/// A session with another node.
pub struct Upstream {
    stream: Stream,
    received: BytesMut,
    /// How far the reply at the beginning of `received` has been looked at.
    looked: Looked,
    protocol: Protocol,
    no_touch: bool,
    /// Its client id there, for CLIENT UNBLOCK.
    pub client: i64,
    /// Which connection of this session it is: watches end with it.
    pub serial: u64,
}

/// The sessions with other nodes, by address.
#[derive(Default)]
pub struct Upstreams {
    open: HashMap<String, Upstream>,
    opened: u64,
}

/// How a session presents itself.
#[derive(Clone)]
pub struct Introduction {
    /// The `requirepass` of this node, which all nodes share where there are no users.
    pub password: Vec<u8>,
    /// What shows that this is a node of the cluster, once there are users; else empty.
    pub token: Vec<u8>,
    pub protocol: Protocol,
    /// What it reads counts as no access (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// Knows which nodes there are, and how to speak TLS with them.
    pub shared: Arc<Shared>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<ClientStream<TcpStream>>),
}

impl Introduction {
    /// Connects to the node that others know by this address: to its port for TLS if it has no other, or if commands are
    /// to be forwarded by TLS (`tls-cluster`).
    async fn connect(&self, address: &str) -> io::Result<Stream> {
        let secured = self.shared.cluster.as_ref().and_then(|cluster| {
            let routes = cluster.routes();
            let node = routes.at(address)?;
            let wanted = node.is_tls_only() || self.shared.settings.current().tls.forwards;
            node.tls().filter(|_| wanted)
        });
        let plain = || TcpStream::connect(address);
        let Some(there) = secured else {
            let stream = plain().await?;
            stream.set_nodelay(true)?;
            return Ok(Stream::Plain(stream));
        };
        let config = self.shared.tls.current();
        let config = config.and_then(|it| it.upstream.clone()).ok_or_else(|| {
            tracing::warn!("commands cannot be forwarded to {there}, which speaks TLS only: give tls-ca-cert-file, and tls-cert-file");
            io::Error::from(io::ErrorKind::Unsupported)
        })?;
        let stream = TcpStream::connect(there.to_string()).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(there.host.clone()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// What came of asking another node.
pub struct Asked {
    /// In the order of the commands; fewer, if the connection ended.
    pub replies: Vec<Bytes>,
    /// The commands were not sent, not even in part.
    pub unsent: bool,
}

impl Upstreams {
    /// The session with the node at `address`; taken out, to be given back if it is well.
    pub async fn take(&mut self, address: &str, who: &Introduction) -> io::Result<Upstream> {
        let mut upstream = match self.open.remove(address) {
            Some(upstream) => upstream,
            None => {
                self.opened += 1;
                Upstream::open(address, who, self.opened).await?
            }
        };
        if upstream.protocol != who.protocol {
            upstream.speak(who.protocol).await?;
        }
        if upstream.no_touch != who.no_touch {
            let mode: &[u8] = if who.no_touch { b"ON" } else { b"OFF" };
            upstream.order(&[b"CLIENT", b"NO-TOUCH", mode]).await?;
            upstream.no_touch = who.no_touch;
        }
        Ok(upstream)
    }

    pub fn give(&mut self, address: &str, upstream: Upstream) {
        self.open.insert(address.into(), upstream);
    }

    /// Ends the session with a node.
    pub fn close(&mut self, address: &str) {
        self.open.remove(address);
    }

    /// Whether that very connection is still there.
    pub fn has(&self, address: &str, serial: u64) -> bool {
        self.open.get(address).is_some_and(|it| it.serial == serial)
    }

    /// Asks a node; `gave_up` is looked at while it is silent.
    pub async fn ask(
        &mut self,
        address: &str,
        who: &Introduction,
        request: &[u8],
        count: usize,
        gave_up: impl Fn(Duration) -> bool,
    ) -> Asked {
        let Ok(mut upstream) = self.take(address, who).await else {
            return Asked {
                replies: Vec::new(),
                unsent: true,
            };
        };
        let mut replies = Vec::with_capacity(count);
        let asked = upstream.exchange(request, count, &mut replies, gave_up);
        if asked.await.is_ok() {
            self.give(address, upstream);
        }
        Asked {
            replies,
            unsent: false,
        }
    }
}

impl Upstream {
    pub async fn open(address: &str, who: &Introduction, serial: u64) -> io::Result<Upstream> {
        let connected = tokio::time::timeout(CONNECT, who.connect(address));
        let stream = connected.await.map_err(|_| io::ErrorKind::TimedOut)??;
        let mut upstream = Upstream {
            stream,
            received: BytesMut::new(),
            looked: Looked::default(),
            protocol: Protocol::Resp2,
            no_touch: false,
            client: 0,
            serial,
        };
        // A node that has not heard of the users yet does not know the token either.
        let order = [b"CLUSTER".as_slice(), b"REDIRECTS", &who.token];
        let is_trusted = !who.token.is_empty() && upstream.order(&order).await.is_ok();
        if !is_trusted {
            if !who.password.is_empty() {
                upstream.order(&[b"AUTH", &who.password]).await?;
            }
            upstream.order(&[b"CLUSTER", b"REDIRECTS"]).await?;
        }
        let id = upstream.order(&[b"CLIENT", b"ID"]).await?;
        let digits = id
            .strip_prefix(b":")
            .and_then(|it| it.strip_suffix(b"\r\n"));
        let digits = digits.and_then(|it| std::str::from_utf8(it).ok());
        upstream.client = digits.and_then(|it| it.parse().ok()).unwrap_or_default();
        Ok(upstream)
    }

    async fn speak(&mut self, protocol: Protocol) -> io::Result<()> {
        let version: &[u8] = match protocol {
            Protocol::Resp2 => b"2",
            Protocol::Resp3 => b"3",
        };
        self.order(&[b"HELLO", version]).await?;
        self.protocol = protocol;
        Ok(())
    }

    /// A command that must not fail.
    async fn order(&mut self, words: &[&[u8]]) -> io::Result<Bytes> {
        let mut request = Vec::new();
        encode(words.iter().copied(), &mut request);
        let mut replies = Vec::new();
        let gives_up = |silent| silent > CONNECT;
        self.exchange(&request, 1, &mut replies, gives_up).await?;
        match replies.pop() {
            Some(reply) if !reply.starts_with(b"-") => Ok(reply),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Sends a request and reads so many replies. Replies that came before it failed are there.
    pub async fn exchange(
        &mut self,
        request: &[u8],
        count: usize,
        replies: &mut Vec<Bytes>,
        gave_up: impl Fn(Duration) -> bool,
    ) -> io::Result<()> {
        let Upstream {
            stream,
            received,
            looked,
            ..
        } = self;
        let input = Received { received, looked };
        match stream {
            Stream::Plain(stream) => {
                let (from, to) = stream.split();
                input
                    .exchange(from, to, request, count, replies, gave_up)
                    .await
            }
            Stream::Tls(stream) => {
                let (from, to) = tokio::io::split(&mut **stream);
                input
                    .exchange(from, to, request, count, replies, gave_up)
                    .await
            }
        }
    }

    pub async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(request).await,
            Stream::Tls(stream) => {
                stream.write_all(request).await?;
                stream.flush().await
            }
        }
    }

    /// The next reply, however long it takes. Nothing is lost if it is given up.
    pub async fn receive(&mut self) -> io::Result<Bytes> {
        loop {
            if let Some(end) = self.looked.reply_end(&self.received)? {
                return Ok(self.received.split_to(end).freeze());
            }
            self.received.reserve(ROOM_BYTES);
            let count = match &mut self.stream {
                Stream::Plain(stream) => stream.read_buf(&mut self.received).await?,
                Stream::Tls(stream) => stream.read_buf(&mut self.received).await?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// What has come from a node.
struct Received<'a> {
    received: &'a mut BytesMut,
    looked: &'a mut Looked,
}

impl Received<'_> {
    /// Sends a request and reads so many replies. Both at once: neither side may wait for the other to read.
    async fn exchange(
        self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        request: &[u8],
        count: usize,
        replies: &mut Vec<Bytes>,
        gave_up: impl Fn(Duration) -> bool,
    ) -> io::Result<()> {
        let Received { received, looked } = self;
        let write = async {
            to.write_all(request).await?;
            to.flush().await
        };
        let read = async {
            let mut silent_since = Instant::now();
            while replies.len() < count {
                if let Some(end) = looked.reply_end(received)? {
                    replies.push(received.split_to(end).freeze());
                    continue;
                }
                received.reserve(ROOM_BYTES);
                match tokio::time::timeout(GLANCE, from.read_buf(received)).await {
                    Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(Ok(_)) => silent_since = Instant::now(),
                    Ok(Err(error)) => return Err(error),
                    Err(_) if gave_up(silent_since.elapsed()) => {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    Err(_) => {}
                }
            }
            Ok(())
        };
        tokio::try_join!(write, read).map(drop)
    }
}

/// Writes a command as it is sent.
pub fn encode<'a>(words: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

pub fn encode_args(args: &Args<'_>, out: &mut Vec<u8>) {
    encode(args.iter_from(0), out);
}

/// How far a reply has been looked at: everything before `at` is whole, `left` parts follow.
pub struct Looked {
    at: usize,
    left: u64,
}

impl Default for Looked {
    fn default() -> Self {
        Looked { at: 0, left: 1 }
    }
}

impl Looked {
    /// Where the first reply in `bytes` ends; `None` if it is not all there.
    pub fn reply_end(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        while self.left > 0 {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some(line) = rest.iter().position(|&b| b == b'\n') else {
                return Ok(None);
            };
            let head = rest.get(..line.saturating_sub(1)).unwrap_or_default();
            let mut end = self.at + line + 1;
            let (&marker, text) = head.split_first().ok_or(io::ErrorKind::InvalidData)?;
            let count = || -> io::Result<u64> {
                let text = std::str::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData)?;
                let count: i64 = text.parse().map_err(|_| io::ErrorKind::InvalidData)?;
                Ok(count.try_into().unwrap_or(0))
            };
            let mut parts = 0;
            match marker {
                b'+' | b'-' | b':' | b',' | b'(' | b'#' | b'_' => {}
                b'$' | b'=' if text.starts_with(b"-") => {}
                b'$' | b'=' => end += count()? as usize + 2,
                b'*' | b'~' | b'>' => parts = count()?,
                b'%' => parts = 2 * count()?,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            if end > bytes.len() {
                return Ok(None);
            }
            self.at = end;
            self.left = self.left - 1 + parts;
        }
        let end = self.at;
        *self = Looked::default();
        Ok(Some(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_reply_is_found_wherever_it_is_cut() {
        let replies: [&[u8]; 9] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":17\r\n",
            b"$-1\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"*-1\r\n",
            b"*2\r\n*1\r\n$0\r\n\r\n%1\r\n+a\r\n:1\r\n",
            b"=7\r\ntxt:abc\r\n",
            b"*0\r\n",
        ];
        for reply in replies {
            let mut looked = Looked::default();
            for cut in 0..reply.len() {
                assert_eq!(looked.reply_end(&reply[..cut]).unwrap(), None, "{cut}");
            }
            let mut longer = reply.to_vec();
            longer.extend_from_slice(b"+next\r\n");
            assert_eq!(looked.reply_end(&longer).unwrap(), Some(reply.len()));
        }
        assert!(Looked::default().reply_end(b"?what\r\n").is_err());
    }
}
