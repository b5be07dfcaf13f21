//! A socket to another node, plain, under TLS or under the cluster secret, that notes when something was last heard on it.
//!
//! Heard means bytes, not frames: a large frame on a slow line is a sign of life.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::seal::Sealed;

pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Sealed(Box<Sealed>),
}

/// Milliseconds since the transport started: fits an atomic, unlike an `Instant`.
#[derive(Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// When something was last heard.
#[derive(Default)]
pub struct LastHeard {
    pub at_ms: AtomicU64,
}

impl LastHeard {
    pub fn note(&self, now_ms: u64) {
        self.at_ms.store(now_ms, Ordering::Relaxed);
    }

    pub fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.at_ms.load(Ordering::Relaxed))
    }
}

/// The reading half with an ear: of the connection, and of the node it belongs to.
pub struct Listening<R> {
    pub inner: R,
    pub clock: Clock,
    pub connection: Arc<LastHeard>,
    pub node: Option<Arc<LastHeard>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Listening<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            let now_ms = self.clock.now_ms();
            self.connection.note(now_ms);
            if let Some(node) = &self.node {
                node.note(now_ms);
            }
        }
        result
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(inner) => Pin::new(inner).poll_read(context, buffer),
            Stream::Tls(inner) => Pin::new(inner).poll_read(context, buffer),
            Stream::Sealed(inner) => Pin::new(inner).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(inner) => Pin::new(inner).poll_write(context, bytes),
            Stream::Tls(inner) => Pin::new(inner).poll_write(context, bytes),
            Stream::Sealed(inner) => Pin::new(inner).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(inner) => Pin::new(inner).poll_flush(context),
            Stream::Tls(inner) => Pin::new(inner).poll_flush(context),
            Stream::Sealed(inner) => Pin::new(inner).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(inner) => Pin::new(inner).poll_shutdown(context),
            Stream::Tls(inner) => Pin::new(inner).poll_shutdown(context),
            Stream::Sealed(inner) => Pin::new(inner).poll_shutdown(context),
        }
    }
}
