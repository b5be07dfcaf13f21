//! The socket of a session: read into a buffer, write from one. All a session knows of the
//! operating system, so that another driver (io_uring) can take its place.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

pub struct Socket {
    stream: TcpStream,
}

impl Socket {
    pub fn new(stream: TcpStream) -> Self {
        Socket { stream }
    }

    /// Reads what is there behind the bytes of `buffer`, into the room it has. 0: the client has
    /// closed.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        // The future keeps nothing between polls.
        pin!(self.stream.read_buf(buffer)).poll(cx)
    }

    /// Writes some of `bytes`; how many.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.poll_write_ready(cx))?;
                }
                done => return Poll::Ready(done),
            }
        }
    }
}
