//! The socket of a session: read into a buffer, write from one. All a session knows of the
//! operating system, so that another driver (io_uring) can take its place.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream};

pub enum Socket {
    Tcp(TcpStream),
    /// One end of a pair; the node itself has the other.
    Unix(UnixStream),
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
        }
    }

    /// Writes some of `bytes`; how many.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let written = match self {
                Socket::Tcp(stream) => stream.try_write(bytes),
                Socket::Unix(stream) => stream.try_write(bytes),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match self {
                    Socket::Tcp(stream) => ready!(stream.poll_write_ready(cx))?,
                    Socket::Unix(stream) => ready!(stream.poll_write_ready(cx))?,
                },
                done => return Poll::Ready(done),
            }
        }
    }
}
