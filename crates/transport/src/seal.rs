//! A connection under the cluster secret: Noise `NNpsk0` (X25519, AES-256-GCM, SHA-256), then records.
//!
//! ```text
//!  dialler                                                     acceptor
//!   preface, mode 1, length, e + tag(secret)  ─────────────────►  the tag is right under one of its secrets?
//!                       ◄─────────────────  preface, go on, length, e + tag
//!   the tag is right: the acceptor has the secret
//!   records: | length: u16 | sealed bytes | ───────────────────►  the first is right: the dialler is no replay
//! ```
//!
//! Both sides prove the secret, both bring a fresh key, so what is recorded today cannot be read with a secret that
//! is stolen tomorrow, and nothing recorded is worth anything on another connection. The keys of the two directions
//! differ, so nothing can be reflected. A record that was changed, left out, repeated or moved does not open: the
//! connection ends.
//!
//! The first message can be a replay of a recorded one; the first record cannot. Until that has been opened the
//! dialler gets no more memory than a [short record](SHORT_RECORD_BYTES).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use snow::{Builder, HandshakeState, TransportState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use crate::secret::Secret;
use crate::wire::{MODE_SECRET, preface};

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// An ephemeral key and a tag: both messages of the handshake.
const MESSAGE_BYTES: usize = 32 + TAG_BYTES;
const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 2;
/// Noise has no longer ones.
const RECORD_BYTES: usize = 65_535;
/// No record is longer before the dialler is known to be no replay.
pub const SHORT_RECORD_BYTES: usize = 512;
/// What is sealed at once, before it is given to the kernel.
const SEALED_BYTES: usize = 256 << 10;
/// Records under one key: far below what AES-GCM allows (RFC 8446, 5.5), as a connection may live for months.
const REKEY_RECORDS: u64 = 1 << 20;

fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn noise(secret: &Secret, is_dialler: bool) -> io::Result<HandshakeState> {
    let make = || {
        // Bound to the protocol's version, so that nobody can talk two nodes into an older one.
        let mut prologue = preface().to_vec();
        prologue.push(MODE_SECRET);
        let builder = Builder::new(PATTERN.parse()?)
            .prologue(&prologue)?
            .psk(0, secret.bytes())?;
        match is_dialler {
            true => builder.build_initiator(),
            false => builder.build_responder(),
        }
    };
    make().map_err(|error: snow::Error| io::Error::other(format!("handshake: {error}")))
}

/// A dialler between its first message and the answer.
pub struct Dialling(HandshakeState);

impl Dialling {
    /// With the bytes to send.
    pub fn begin(secret: &Secret) -> io::Result<(Dialling, [u8; MESSAGE_BYTES])> {
        let mut noise = noise(secret, true)?;
        let bytes = next_message(&mut noise)?;
        Ok((Dialling(noise), bytes))
    }

    /// Reads the answer. An error of the kind `PermissionDenied`: it has not been made with the secret.
    pub async fn end(mut self, mut socket: TcpStream) -> io::Result<Sealed> {
        let mut bytes = [0; MESSAGE_BYTES];
        socket.read_exact(&mut bytes).await?;
        open_message(&mut self.0, &bytes)
            .then_some(())
            .ok_or(io::ErrorKind::PermissionDenied)?;
        let mut sealed = Sealed::new(socket, self.0)?;
        sealed.record_max = RECORD_BYTES;
        Ok(sealed)
    }
}

/// An acceptor that has opened the first message with one of its secrets.
pub struct Accepting {
    noise: HandshakeState,
    pub secret: Secret,
}

impl Accepting {
    /// Reads the dialler's message. None: it was made with none of these secrets.
    pub async fn begin(
        socket: &mut TcpStream,
        secrets: &[Secret],
    ) -> io::Result<Option<Accepting>> {
        let mut bytes = [0; MESSAGE_BYTES];
        socket.read_exact(&mut bytes).await?;
        for secret in secrets {
            let mut noise = noise(secret, false)?;
            if open_message(&mut noise, &bytes) {
                let secret = secret.clone();
                return Ok(Some(Accepting { noise, secret }));
            }
        }
        Ok(None)
    }

    /// The answer follows these bytes.
    pub async fn end(mut self, mut socket: TcpStream, head: &[u8]) -> io::Result<(Sealed, Secret)> {
        let mut bytes = head.to_vec();
        bytes.extend_from_slice(&next_message(&mut self.noise)?);
        socket.write_all(&bytes).await?;
        Ok((Sealed::new(socket, self.noise)?, self.secret))
    }
}

fn next_message(noise: &mut HandshakeState) -> io::Result<[u8; MESSAGE_BYTES]> {
    let mut bytes = [0; MESSAGE_BYTES];
    match noise.write_message(&[], &mut bytes) {
        Ok(MESSAGE_BYTES) => Ok(bytes),
        _ => Err(io::Error::other(
            "the handshake has a message of another length",
        )),
    }
}

fn open_message(noise: &mut HandshakeState, bytes: &[u8; MESSAGE_BYTES]) -> bool {
    // ring wants room for the tag, too.
    let mut empty = [0; MESSAGE_BYTES];
    noise.read_message(bytes, &mut empty).is_ok()
}

/// A socket whose bytes go in sealed records.
pub struct Sealed {
    socket: TcpStream,
    noise: TransportState,
    record_max: usize,
    /// As they came.
    incoming: BytesMut,
    /// Opened, not yet read.
    opened: BytesMut,
    opened_records: u64,
    /// Sealed, not yet taken by the kernel.
    outgoing: BytesMut,
    sealed_records: u64,
}

impl Sealed {
    fn new(socket: TcpStream, noise: HandshakeState) -> io::Result<Sealed> {
        let noise = noise.into_transport_mode().map_err(io::Error::other)?;
        Ok(Sealed {
            socket,
            noise,
            record_max: SHORT_RECORD_BYTES,
            incoming: BytesMut::new(),
            opened: BytesMut::new(),
            opened_records: 0,
            outgoing: BytesMut::new(),
            sealed_records: 0,
        })
    }

    /// A record of the other side has been opened: it is who it says it is, and may send longer ones.
    pub fn trust(&mut self) {
        self.record_max = RECORD_BYTES;
    }

    /// Opens the next record if all of it is here.
    fn open_record(&mut self) -> io::Result<bool> {
        let Some(head) = self.incoming.first_chunk::<HEAD_BYTES>() else {
            return Ok(false);
        };
        let length = usize::from(u16::from_be_bytes(*head));
        if length <= TAG_BYTES || length > self.record_max {
            return Err(broken("a sealed record of a wrong length"));
        }
        let Some(record) = self.incoming.get(HEAD_BYTES..HEAD_BYTES + length) else {
            return Ok(false);
        };
        self.opened.resize(length, 0);
        let opened = self.noise.read_message(record, &mut self.opened);
        let opened =
            opened.map_err(|_| broken("a record that this connection's key does not open"))?;
        self.opened.truncate(opened);
        self.incoming.advance(HEAD_BYTES + length);
        self.opened_records += 1;
        if self.opened_records.is_multiple_of(REKEY_RECORDS) {
            self.noise.rekey_incoming();
        }
        Ok(true)
    }

    fn seal(&mut self, bytes: &[u8]) -> io::Result<()> {
        let at = self.outgoing.len();
        let length = bytes.len() + TAG_BYTES;
        self.outgoing.resize(at + HEAD_BYTES + length, 0);
        let record = self.outgoing.get_mut(at..).unwrap_or_default();
        let (head, body) = record.split_at_mut(HEAD_BYTES);
        head.copy_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        let sealed = self.noise.write_message(bytes, body);
        sealed.map_err(|error| io::Error::other(format!("cannot seal: {error}")))?;
        self.sealed_records += 1;
        if self.sealed_records.is_multiple_of(REKEY_RECORDS) {
            self.noise.rekey_outgoing();
        }
        Ok(())
    }

    /// Gives the kernel all that is sealed.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let socket = Pin::new(&mut self.socket);
            match ready!(socket.poll_write(context, &self.outgoing))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.outgoing.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Sealed {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.opened.is_empty() {
                let length = this.opened.len().min(buffer.remaining());
                buffer.put_slice(this.opened.get(..length).unwrap_or_default());
                this.opened.advance(length);
                return Poll::Ready(Ok(()));
            }
            if this.open_record()? {
                continue;
            }
            // Never more than one record of the length allowed now, so it never grows beyond that.
            let room = (HEAD_BYTES + this.record_max).saturating_sub(this.incoming.len());
            this.incoming.reserve(room.max(1));
            let before = this.incoming.len();
            let reading = std::pin::pin!(this.socket.read_buf(&mut this.incoming));
            ready!(std::future::Future::poll(reading, context))?;
            if this.incoming.len() == before {
                return Poll::Ready(match before {
                    0 => Ok(()),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                });
            }
        }
    }
}

impl AsyncWrite for Sealed {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_drain(context))?;
        let bytes = bytes.get(..SEALED_BYTES).unwrap_or(bytes);
        for record in bytes.chunks(RECORD_BYTES - TAG_BYTES) {
            this.seal(record)?;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(context))?;
        Pin::new(&mut this.socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(context))?;
        Pin::new(&mut this.socket).poll_shutdown(context)
    }
}
