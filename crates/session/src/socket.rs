//! The socket of a session: read into a buffer, write from one. All a session knows of the
//! operating system, so that another driver (io_uring) can take its place.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream};

use super::tls::TlsStream;

pub enum Socket {
    Tcp(TcpStream),
    /// One end of a pair; the node itself has the other.
    Unix(UnixStream),
    /// In a box: most sessions have none.
    Tls(Box<TlsStream>),
}

impl Socket {
    /// Reads what is there behind the bytes of `buffer`, into the room it has. 0: the client has
    /// closed.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        // The futures keep nothing between polls.
        match self {
            Socket::Tcp(stream) => pin!(stream.read_buf(buffer)).poll(cx),
            Socket::Unix(stream) => pin!(stream.read_buf(buffer)).poll(cx),
            Socket::Tls(stream) => stream.poll_fill(cx, buffer),
        }
    }

    /// Writes some of `bytes`; how many. After `Pending` the same bytes must come again.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Socket::Tcp(stream) => {
                let write = || stream.try_write(bytes);
                until_written(cx, write, |cx| stream.poll_write_ready(cx))
            }
            Socket::Unix(stream) => {
                let write = || stream.try_write(bytes);
                until_written(cx, write, |cx| stream.poll_write_ready(cx))
            }
            Socket::Tls(stream) => stream.poll_write(cx, bytes),
        }
    }
}

#[inline]
fn until_written(
    cx: &mut Context<'_>,
    write: impl Fn() -> io::Result<usize>,
    writable: impl Fn(&mut Context<'_>) -> Poll<io::Result<()>>,
) -> Poll<io::Result<usize>> {
    loop {
        match write() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(writable(cx))?,
            done => return Poll::Ready(done),
        }
    }
}
