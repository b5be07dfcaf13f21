//! The first words on a connection: who are you, whom do you want, of which cluster.
//!
//! Both sides check. What the acceptor does not like it says in words, so that the operator reads
//! the reason at the node that was started wrongly, not at the others.

use std::fmt;
use std::io;

use prost::Message;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::refusal::{Refusal, RefusalKind};
use crate::stream::Stream;
use crate::transport::{Identity, Shared};
use crate::wire::{
    self, HANDSHAKE_BYTES_MAX, Hello, PREFACE_BYTES, Purpose, VERSION, Welcome, read_preface,
};

/// What the kernel holds of a connection beyond what the line carries.
const UNSENT_BYTES: u32 = 128 << 10;

/// Why there is no connection.
#[derive(Debug)]
pub enum DialError {
    Io(io::Error),
    TimedOut,
    Refused(Refusal),
}

impl fmt::Display for DialError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialError::Io(error) => error.fmt(out),
            DialError::TimedOut => out.write_str("no answer in time"),
            DialError::Refused(refusal) => refusal.fmt(out),
        }
    }
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> DialError {
        DialError::Io(error)
    }
}

/// Connects and introduces this node; the id of the node that answers.
pub async fn dial(
    shared: &Shared,
    address: &str,
    to: u64,
    purpose: Purpose,
) -> Result<(Stream, u64), DialError> {
    let attempt = async {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        // What the kernel has taken and not sent cannot be overtaken any more.
        let _ = SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES);
        let mut stream = match &shared.armour {
            Some(armour) => armour.connect(socket, address).await.map_err(tls_words)?,
            None => Stream::Plain(socket),
        };
        let node = introduce(shared, &mut stream, to, purpose).await?;
        Ok((stream, node))
    };
    match tokio::time::timeout(shared.config.connect_timeout, attempt).await {
        Ok(result) => result,
        Err(_) => Err(DialError::TimedOut),
    }
}

fn tls_words(error: io::Error) -> DialError {
    DialError::Io(io::Error::new(error.kind(), format!("TLS: {error}")))
}

async fn introduce(
    shared: &Shared,
    stream: &mut Stream,
    to: u64,
    purpose: Purpose,
) -> Result<u64, DialError> {
    let me = shared.identity();
    let hello = Hello {
        cluster: me.cluster,
        from: me.node,
        to,
        purpose: purpose.into(),
        incarnation: shared.incarnation,
    };
    let mut bytes = wire::preface().to_vec();
    bytes.extend_from_slice(&wire::framed(&hello));
    stream.write_all(&bytes).await?;
    stream.flush().await?;

    let malformed = |reason: &str| {
        DialError::Refused(Refusal::new(
            RefusalKind::Malformed,
            format!("what answers there {reason}"),
        ))
    };
    let mut preface = [0; PREFACE_BYTES];
    stream.read_exact(&mut preface).await.map_err(|error| {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            malformed("closed the connection without a word (not a node of this cluster, or of another TLS setting)")
        } else if shared.armour.is_some() && error.kind() == io::ErrorKind::InvalidData {
            // The other side has looked at our certificate only now, and says so with an alert.
            let words = format!("it does not accept the certificate of this node: {error}");
            tls_words(io::Error::new(error.kind(), words))
        } else {
            DialError::Io(error)
        }
    })?;
    let version = read_preface(&preface).map_err(malformed)?;
    let welcome = read_message::<Welcome>(stream).await;
    let welcome = match welcome {
        Ok(welcome) => welcome,
        Err(_) if version != VERSION => {
            let reason = format!("it speaks version {version}, this node {VERSION}");
            return Err(DialError::Refused(Refusal::new(
                RefusalKind::Version,
                reason,
            )));
        }
        Err(error) => return Err(DialError::Io(error)),
    };
    check_welcome(&me, to, &welcome).map_err(DialError::Refused)?;
    Ok(welcome.node)
}

fn check_welcome(me: &Identity, to: u64, welcome: &Welcome) -> Result<(), Refusal> {
    if welcome.refusal != 0 {
        let kind = RefusalKind::from_wire(welcome.refusal);
        return Err(Refusal::new(kind, welcome.reason.clone()));
    }
    if me.cluster != 0 && welcome.cluster != me.cluster {
        return Err(Refusal::new(
            RefusalKind::WrongCluster,
            format!(
                "it is a node of cluster {:016x}, this one of {:016x}",
                welcome.cluster, me.cluster
            ),
        ));
    }
    if to != 0 && welcome.node != to {
        return Err(Refusal::new(
            RefusalKind::WrongNode,
            format!("node {} lives there, not node {to}", welcome.node),
        ));
    }
    Ok(())
}

/// Reads the first words of a dialler. The outer error: it is none of us, say nothing more.
pub async fn receive_hello(stream: &mut Stream) -> io::Result<Result<Hello, Refusal>> {
    let mut preface = [0; PREFACE_BYTES];
    stream.read_exact(&mut preface).await?;
    let version = match read_preface(&preface) {
        Ok(version) => version,
        Err(reason) => return Err(io::Error::new(io::ErrorKind::InvalidData, reason)),
    };
    if version != VERSION {
        let reason = format!("this node speaks version {VERSION} of the protocol, not {version}");
        return Ok(Err(Refusal::new(RefusalKind::Version, reason)));
    }
    read_message::<Hello>(stream).await.map(Ok)
}

/// What the acceptor thinks of a dialler, before it looks who else is connected.
pub fn check_hello(me: &Identity, incarnation: u64, hello: &Hello) -> Result<(), Refusal> {
    let refuse = |kind, reason: String| Err(Refusal::new(kind, reason));
    if me.node == 0 {
        return refuse(
            RefusalKind::NotJoined,
            "this node has joined no cluster yet".into(),
        );
    }
    if hello.incarnation == incarnation {
        return refuse(RefusalKind::SameId, "that address is this very node".into());
    }
    // A caller without ids (a joiner, ctl) is of no cluster.
    if hello.cluster != me.cluster && (hello.cluster != 0 || hello.from != 0) {
        return refuse(
            RefusalKind::WrongCluster,
            format!(
                "wrong cluster: this is node {} of cluster {:016x}, you are of {:016x}",
                me.node, me.cluster, hello.cluster
            ),
        );
    }
    if hello.to != 0 && hello.to != me.node {
        return refuse(
            RefusalKind::WrongNode,
            format!(
                "not the node you think I am: this is node {}, not node {}",
                me.node, hello.to
            ),
        );
    }
    if hello.from == me.node {
        return refuse(
            RefusalKind::SameId,
            format!(
                "a node with this id connected from elsewhere: {} is my own",
                me.node
            ),
        );
    }
    match hello.purpose() {
        Purpose::Calls => Ok(()),
        Purpose::Peer | Purpose::Snapshot if hello.from != 0 => Ok(()),
        Purpose::Peer | Purpose::Snapshot => refuse(
            RefusalKind::NoId,
            "without a node id only calls are allowed".into(),
        ),
        Purpose::Unknown => refuse(
            RefusalKind::Malformed,
            "a connection for an unknown purpose".into(),
        ),
    }
}

pub async fn answer_hello(
    stream: &mut Stream,
    me: &Identity,
    refusal: Option<&Refusal>,
) -> io::Result<()> {
    let welcome = Welcome {
        node: me.node,
        cluster: me.cluster,
        refusal: refusal.map_or(0, |refusal| refusal.kind as u32),
        reason: refusal
            .map(|refusal| refusal.reason.clone())
            .unwrap_or_default(),
    };
    let mut bytes = wire::preface().to_vec();
    bytes.extend_from_slice(&wire::framed(&welcome));
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    if refusal.is_some() {
        stream.shutdown().await?;
    }
    Ok(())
}

/// One short frame, read to its end and not a byte further.
async fn read_message<M: Message + Default>(stream: &mut Stream) -> io::Result<M> {
    let length = stream.read_u32().await? as usize;
    if length > HANDSHAKE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "sent a greeting that is too long",
        ));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    M::decode(bytes.as_slice())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "sent a greeting that is broken"))
}
