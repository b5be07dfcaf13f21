//! The first words on a connection: who are you, whom do you want, of which cluster.
//!
//! Both sides prove the cluster secret first, or show their certificates; then both check. What the acceptor does not like it says in words, so that the operator reads
//! the reason at the node that was started wrongly, not at the others.

use std::fmt;
use std::io;
use std::time::Duration;

use prost::Message;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::refusal::{Refusal, RefusalKind};
use crate::seal::{Accepting, Dialling};
use crate::secret::{Secret, Secrets};
use crate::stream::Stream;
use crate::transport::{Identity, Shared};
use crate::wire::{
    self, HELLO_BYTES_MAX, Hello, MAY_GO_ON, MODE_OPEN, MODE_SECRET, NEEDS_SECRET, NO_SECRET_HERE,
    OTHER_SECRET, PREFACE_BYTES, Purpose, VERSION, WELCOME_BYTES_MAX, Welcome, read_preface,
};

/// What the kernel holds of a connection beyond what the line carries.
const UNSENT_BYTES: u32 = 128 << 10;
/// For what a dialler of another version has said already.
const SCRAP: Duration = Duration::from_millis(200);

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

/// Connects and introduces this node; the id of the node that answers. While secrets are being replaced the two
/// sides may not prefer the same one: each is tried.
pub async fn dial(
    shared: &Shared,
    address: &str,
    to: u64,
    purpose: Purpose,
) -> Result<(Stream, u64), DialError> {
    let attempt = async {
        let Some(secrets) = shared.secrets.as_ref().map(Secrets::all) else {
            return connect(shared, address, to, purpose, None).await;
        };
        let mut refused = Refusal::new(RefusalKind::Secret, "this one has no cluster secret");
        for secret in secrets.iter() {
            match connect(shared, address, to, purpose, Some(secret)).await {
                Err(DialError::Refused(refusal)) if refusal.kind == RefusalKind::Secret => {
                    refused = refusal;
                }
                ended => return ended,
            }
        }
        Err(DialError::Refused(refused))
    };
    match tokio::time::timeout(shared.config.connect_timeout, attempt).await {
        Ok(result) => result,
        Err(_) => Err(DialError::TimedOut),
    }
}

fn tls_words(error: io::Error) -> DialError {
    DialError::Io(io::Error::new(error.kind(), format!("TLS: {error}")))
}

async fn connect(
    shared: &Shared,
    address: &str,
    to: u64,
    purpose: Purpose,
    secret: Option<&Secret>,
) -> Result<(Stream, u64), DialError> {
    let mut socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    // What the kernel has taken and not sent cannot be overtaken any more.
    let _ = SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES);
    let mut bytes = wire::preface().to_vec();
    let armour = shared.armour();
    let mut stream = if let Some(secret) = secret {
        let (dialling, message) = Dialling::begin(secret)?;
        bytes.push(MODE_SECRET);
        bytes.extend_from_slice(&message);
        socket.write_all(&bytes).await?;
        read_opening(&mut socket, false).await?;
        let sealed = dialling
            .end(socket)
            .await
            .map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => refused_for(
                    RefusalKind::Secret,
                    "what answers there does not have the cluster secret of this one",
                ),
                _ => DialError::Io(error),
            })?;
        Stream::Sealed(Box::new(sealed))
    } else {
        let mut stream = match &armour {
            Some(armour) => armour.connect(socket, address).await.map_err(tls_words)?,
            None => Stream::Plain(socket),
        };
        bytes.push(MODE_OPEN);
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        read_opening(&mut stream, armour.is_some()).await?;
        stream
    };
    let me = shared.identity();
    let hello = Hello {
        cluster: me.cluster,
        from: me.node,
        to,
        purpose: purpose.into(),
        incarnation: shared.incarnation,
    };
    stream.write_all(&wire::framed(&hello)).await?;
    stream.flush().await?;
    let welcome = read_message::<Welcome>(&mut stream, WELCOME_BYTES_MAX).await?;
    check_welcome(&me, to, &welcome).map_err(DialError::Refused)?;
    Ok((stream, welcome.node))
}

fn refused_for(kind: RefusalKind, reason: impl Into<String>) -> DialError {
    DialError::Refused(Refusal::new(kind, reason))
}

/// The acceptor's preface, and whether it wants to go on.
async fn read_opening(
    stream: &mut (impl AsyncRead + Unpin),
    has_tls: bool,
) -> Result<(), DialError> {
    let malformed = |reason: &str| {
        refused_for(
            RefusalKind::Malformed,
            format!("what answers there {reason}"),
        )
    };
    let mut preface = [0; PREFACE_BYTES];
    stream.read_exact(&mut preface).await.map_err(|error| {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            malformed("closed the connection without a word (not a node of this cluster, or of another TLS setting)")
        } else if has_tls && error.kind() == io::ErrorKind::InvalidData {
            // The other side has looked at our certificate only now, and says so with an alert.
            let words = format!("it does not accept the certificate of this node: {error}");
            tls_words(io::Error::new(error.kind(), words))
        } else {
            DialError::Io(error)
        }
    })?;
    let version = read_preface(&preface).map_err(malformed)?;
    if version != VERSION {
        let reason = format!("it speaks version {version} of the protocol, this one {VERSION}");
        return Err(refused_for(RefusalKind::Version, reason));
    }
    // Not under the secret, so nobody's words: each is a sentence of this program.
    let reason = match stream.read_u8().await? {
        MAY_GO_ON => return Ok(()),
        NEEDS_SECRET => {
            "it asks for the cluster secret, and this one has none: give it --cluster-secret-file, with a copy of the \
             file cluster-secret in the data directory of any node"
        }
        OTHER_SECRET => {
            "it does not accept the cluster secret of this one: compare the files cluster-secret in the data \
             directories of the nodes"
        }
        NO_SECRET_HERE => {
            "it uses no cluster secret (--peer-auth no), this one does: all nodes have to be started alike"
        }
        _ => return Err(malformed("says something that is no answer")),
    };
    Err(refused_for(RefusalKind::Secret, reason))
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

/// The first words of a dialler, or why there were none.
pub enum Opening {
    /// It has proved what it has to prove. With the secret it proved, if that is how.
    Hello(Stream, Hello, Option<Secret>),
    /// It is to be told why not.
    Refused(Stream, Refusal),
    /// It has been told why not, by a byte.
    Told(Refusal),
}

/// Reads the first words of a dialler. An error: it is none of us, say nothing more. `proved`: it has the secret, or
/// has recorded the words of somebody who has.
pub async fn receive_opening(
    shared: &Shared,
    socket: TcpStream,
    proved: impl FnOnce(),
) -> io::Result<Opening> {
    socket.set_nodelay(true)?;
    let mut stream = match shared.armour() {
        Some(armour) => armour
            .accept(socket)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("does not pass TLS: {error}")))?,
        None => Stream::Plain(socket),
    };
    let mut preface = [0; PREFACE_BYTES];
    stream.read_exact(&mut preface).await?;
    let wrong = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    let version = read_preface(&preface).map_err(wrong)?;
    if version != VERSION {
        // What it has said already; unread, it would break the connection before our answer is read.
        let mut rest = [0; HELLO_BYTES_MAX];
        let _ = tokio::time::timeout(SCRAP, stream.read(&mut rest)).await;
        let reason = format!("this node speaks version {VERSION} of the protocol, not {version}");
        return Ok(Opening::Refused(
            stream,
            Refusal::new(RefusalKind::Version, reason),
        ));
    }
    let mode = stream.read_u8().await?;
    let (mut stream, secret) = match (mode, &shared.secrets, stream) {
        (MODE_SECRET, Some(secrets), Stream::Plain(mut socket)) => {
            match Accepting::begin(&mut socket, &secrets.all()).await? {
                Some(accepting) => {
                    proved();
                    let head = [&preface[..], &[MAY_GO_ON]].concat();
                    let (sealed, secret) = accepting.end(socket, &head).await?;
                    (Stream::Sealed(Box::new(sealed)), Some(secret))
                }
                None => {
                    let reason = "it has another cluster secret than this node";
                    return tell(Stream::Plain(socket), OTHER_SECRET, reason).await;
                }
            }
        }
        (MODE_OPEN, None, mut stream) => {
            stream
                .write_all(&[&preface[..], &[MAY_GO_ON]].concat())
                .await?;
            stream.flush().await?;
            (stream, None)
        }
        (MODE_OPEN, Some(_), stream) => {
            return tell(stream, NEEDS_SECRET, "it has no cluster secret").await;
        }
        (MODE_SECRET, _, stream) => {
            let reason = "it has a cluster secret, and this node uses none";
            return tell(stream, NO_SECRET_HERE, reason).await;
        }
        _ => return Err(wrong("sent a broken preface")),
    };
    let hello = read_message::<Hello>(&mut stream, HELLO_BYTES_MAX).await?;
    if let Stream::Sealed(sealed) = &mut stream {
        sealed.trust();
    }
    Ok(Opening::Hello(stream, hello, secret))
}

async fn tell(mut stream: Stream, word: u8, reason: &str) -> io::Result<Opening> {
    let mut bytes = wire::preface().to_vec();
    bytes.push(word);
    stream.write_all(&bytes).await?;
    stream.shutdown().await?;
    Ok(Opening::Told(Refusal::new(RefusalKind::Secret, reason)))
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
    stream.write_all(&wire::framed(&welcome)).await?;
    stream.flush().await?;
    if refusal.is_some() {
        stream.shutdown().await?;
    }
    Ok(())
}

/// Tells a dialler of another version which one is spoken here, as version 1 did; and nothing else.
pub async fn answer_version(stream: &mut Stream, refusal: &Refusal) -> io::Result<()> {
    let welcome = Welcome {
        refusal: refusal.kind as u32,
        reason: refusal.reason.clone(),
        ..Welcome::default()
    };
    let mut bytes = wire::preface().to_vec();
    bytes.extend_from_slice(&wire::framed(&welcome));
    stream.write_all(&bytes).await?;
    stream.shutdown().await
}

/// One short frame, read to its end and not a byte further.
async fn read_message<M: Message + Default>(
    stream: &mut Stream,
    bytes_max: usize,
) -> io::Result<M> {
    let length = stream.read_u32().await? as usize;
    if length > bytes_max {
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
