//! One connection after its handshake: frames in, frames out, until it ends.
//!
//! Reading, writing and listening for silence go on side by side in one task, so that a peer that
//! does not read cannot keep us from hearing it, nor from noticing that there is nothing to hear.
//! All that waits goes into one frame and one write; the next frame gathers meanwhile. Large messages go
//! in parts (`drain`, `assembly`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::codec::FramedRead;

use crate::assembly::Assembly;
use crate::call::{Asked, Reply};
use crate::counters::{Tally, add};
use crate::drain::Drain;
use crate::frames::Frames;
use crate::liveness;
use crate::outbox::Outbox;
use crate::stream::{LastHeard, Listening, Stream};
use crate::transport::Shared;
use crate::wire::{self, Frame, FrameWriter};

pub struct Connection {
    pub shared: Arc<Shared>,
    /// The other side; 0: it has no id.
    pub node: u64,
    pub side: Side,
    pub outbox: Arc<Outbox>,
    pub tally: Arc<Tally>,
    pub heard: Arc<LastHeard>,
    /// Of the node, for connections that count as a sign of its life.
    pub node_heard: Option<Arc<LastHeard>>,
}

/// What may come in depends on who dialled.
pub enum Side {
    /// We did: answers to our calls.
    Dialled { link: u64 },
    /// They did: calls, and Raft messages if they are a peer.
    Accepted { asked: Arc<Asked>, raft: bool },
}

/// Why a connection ended.
pub enum Ended {
    /// The other side closed it.
    Closed,
    Io(std::io::Error),
    /// Nothing heard for too long.
    Silent,
    /// What came in is not our protocol.
    Garbage(String),
}

impl Connection {
    pub async fn run(&self, stream: Stream) -> Ended {
        self.heard.note(self.shared.clock.now_ms());
        let (read, write) = tokio::io::split(stream);
        let read = Listening {
            inner: read,
            clock: self.shared.clock,
            connection: self.heard.clone(),
            node: self.node_heard.clone(),
        };
        let mut drain = Drain::new(self.shared.config.bounds());
        let ended = tokio::select! {
            ended = self.read(read) => ended,
            ended = self.write(write, &mut drain) => ended,
            () = liveness::silence(&self.shared, &self.heard) => Ended::Silent,
        };
        let lost = drain.abandon(&self.outbox) + self.outbox.close(self.shared.config.bounds());
        add(&self.tally.dropped_messages, lost);
        ended
    }

    async fn write(&self, mut write: impl AsyncWrite + Unpin, drain: &mut Drain) -> Ended {
        let config = &self.shared.config;
        let mut frame = FrameWriter::new();
        loop {
            frame.begin(config.batch_bytes);
            let messages = drain.fill(
                &self.outbox,
                &mut frame,
                |call| self.shared.calls.is_wanted(call),
                config.batch_bytes,
                config.frame_bytes_max,
            );
            if frame.len() == 0 {
                match tokio::time::timeout(config.heartbeat, self.outbox.wait()).await {
                    Ok(()) => continue,
                    Err(_) => frame.put_beat(),
                }
            }
            let bytes = frame.finish();
            if let Err(error) = write.write_all(bytes).await {
                return Ended::Io(error);
            }
            if let Err(error) = write.flush().await {
                return Ended::Io(error);
            }
            add(&self.tally.sent_bytes, bytes.len());
            add(&self.tally.sent_frames, 1);
            add(&self.tally.sent_messages, messages);
        }
    }

    async fn read(&self, read: impl AsyncRead + Unpin) -> Ended {
        let bytes_max = self.shared.config.frame_bytes_max;
        let mut frames = FramedRead::with_capacity(read, Frames { bytes_max }, 64 * 1024);
        let mut assembly = Assembly::default();
        loop {
            let bytes = match frames.next().await {
                Some(Ok(bytes)) => bytes.freeze(),
                Some(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return Ended::Garbage(error.to_string());
                }
                Some(Err(error)) => return Ended::Io(error),
                None => return Ended::Closed,
            };
            if let Err(reason) = self.on_frame(bytes, &mut assembly) {
                return Ended::Garbage(reason.to_owned());
            }
        }
    }

    fn on_frame(&self, bytes: Bytes, assembly: &mut Assembly) -> Result<(), &'static str> {
        add(&self.tally.received_bytes, bytes.len() + 4);
        add(&self.tally.received_frames, 1);
        let mut frame = wire::decode_frame(bytes)?;
        match &self.side {
            Side::Accepted { raft: true, .. } => {
                assembly.take(&mut frame, self.shared.config.frame_bytes_max)?;
            }
            _ if frame.part.is_some() => return Err("a part of a Raft message from no peer"),
            _ => {}
        }
        match &self.side {
            Side::Dialled { link } => self.on_answers(*link, frame),
            Side::Accepted { asked, raft } => self.on_asked(asked, *raft, frame),
        }
    }

    fn on_answers(&self, link: u64, frame: Frame) -> Result<(), &'static str> {
        if !frame.raft.is_empty() || !frame.calls.is_empty() {
            return Err("Raft messages or calls where only answers belong");
        }
        for answer in frame.answers {
            if !self.shared.calls.on_answer(link, answer) {
                add(&self.tally.late_answers, 1);
            }
        }
        Ok(())
    }

    fn on_asked(&self, asked: &Arc<Asked>, raft: bool, frame: Frame) -> Result<(), &'static str> {
        if !frame.answers.is_empty() {
            return Err("answers to calls that were not made");
        }
        if !frame.raft.is_empty() {
            if !raft {
                return Err("Raft messages where only calls belong");
            }
            add(&self.tally.received_messages, frame.raft.len());
            self.shared.handler.on_raft(self.node, frame.raft);
        }
        for call in frame.calls {
            let Ok(method) = u16::try_from(call.method) else {
                return Err("a call with an impossible method");
            };
            add(&self.tally.calls_received, 1);
            let reply = Reply::remote(asked, call.id);
            if asked.open.load(Ordering::Relaxed) > self.shared.config.calls_max {
                reply.busy();
            } else {
                self.shared
                    .handler
                    .on_call(self.node, method, call.body, reply);
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Closed => out.write_str("closed by the other side"),
            Ended::Io(error) => error.fmt(out),
            Ended::Silent => out.write_str("nothing was heard for too long"),
            Ended::Garbage(what) => write!(out, "it sent {what}"),
        }
    }
}
