//! The TLS half of a session's socket: rustls between the buffers of the session and TCP.
//!
//! ```text
//!   poll_fill    TCP → read_tls → plaintext → the session's input buffer
//!   poll_write   the session's output → records → TCP, until the system has all of them
//! ```
//!
//! A write counts as done when its records are with the operating system, so nothing is left here when a session ends
//! or waits for input. At the end the client is told that nothing follows (`close_notify`), if the socket takes it.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tls::rustls::{Error, ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

pub struct TlsStream {
    stream: TcpStream,
    connection: ServerConnection,
    /// Plaintext of a write whose records are not all with the system yet.
    accepted: usize,
}

/// Longest plaintext of one record; more would wait for the last byte before the first is used.
const RECORD_BYTES: usize = 16 * 1024;

impl TlsStream {
    pub fn new(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<TlsStream> {
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        // Of plaintext that is taken before records are written: one record each time.
        connection.set_buffer_limit(Some(4 * RECORD_BYTES));
        Ok(TlsStream {
            stream,
            connection,
            accepted: 0,
        })
    }

    pub fn tcp(&self) -> &TcpStream {
        &self.stream
    }

    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.connection.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// See `Socket::poll_fill`.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let taken = self.take_plaintext(buffer)?;
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
            // Answers of the protocol itself; what the client asked for goes by `poll_write`.
            if self.connection.wants_write() {
                ready!(self.poll_send(cx))?;
            }
            if ready!(self.poll_receive(cx))? == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// See `Socket::poll_write`. After `Pending` the same bytes must come again.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.accepted == 0 {
            self.accepted = self.connection.writer().write(bytes)?;
        }
        ready!(self.poll_send(cx))?;
        Poll::Ready(Ok(std::mem::take(&mut self.accepted)))
    }

    /// What has been decrypted goes behind the bytes of `buffer`, as much as there is room for.
    fn take_plaintext(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            let room = buffer.capacity() - buffer.len();
            let chunk = match self.connection.reader().into_first_chunk() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(taken),
                // Closed without a word of TLS: to a session it is the same.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(taken),
                Err(error) => return Err(error),
            };
            let count = chunk.len().min(room);
            if count == 0 {
                return Ok(taken);
            }
            buffer.extend_from_slice(chunk.get(..count).unwrap_or_default());
            io::BufRead::consume(&mut self.connection.reader(), count);
            taken += count;
        }
    }

    /// Reads from TCP and decrypts. 0: the client has closed.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut tcp = Tcp {
            stream: &mut self.stream,
            cx,
        };
        let read = match self.connection.read_tls(&mut tcp) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        match self.connection.process_new_packets() {
            Ok(state) if state.peer_has_closed() && state.plaintext_bytes_to_read() == 0 => {
                Poll::Ready(Ok(0))
            }
            Ok(_) => Poll::Ready(Ok(read)),
            Err(error) => {
                // The client is told what was wrong, if it speaks TLS at all.
                if !matches!(error, Error::InvalidMessage(_)) {
                    let _ = self.poll_send(cx);
                }
                Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)))
            }
        }
    }

    /// Gives all records to the system.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.connection.wants_write() {
            let mut tcp = Tcp {
                stream: &mut self.stream,
                cx,
            };
            match self.connection.write_tls(&mut tcp) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        if self.connection.is_handshaking() {
            return;
        }
        self.connection.send_close_notify();
        let mut out = Vec::new();
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut out).is_err() {
                return;
            }
        }
        let _ = self.stream.try_write(&out);
    }
}

/// TCP as rustls wants it: `WouldBlock` means that the task will be woken.
struct Tcp<'a, 'b> {
    stream: &'a mut TcpStream,
    cx: &'a mut Context<'b>,
}

impl Read for Tcp<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        match Pin::new(&mut *self.stream).poll_read(self.cx, &mut buffer) {
            Poll::Ready(done) => done.map(|()| buffer.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Tcp<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written(|stream| stream.try_write(bytes))
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.written(|stream| stream.try_write_vectored(parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tcp<'_, '_> {
    fn written(&mut self, write: impl Fn(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match write(self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.stream.poll_write_ready(self.cx) {
                        Poll::Ready(ready) => ready?,
                        Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
                    }
                }
                done => return done,
            }
        }
    }
}
