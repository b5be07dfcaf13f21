//! The connection of one transfer: parcels both ways, and a sign of life when there are none.
//!
//! Work that takes long (a checksum of gigabytes, an fsync, the handler) is done [`during`](Voice::during)
//! which the other side is told that we are still there; so silence always means a broken line.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use prost::Message;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::Instant;
use tokio_util::codec::FramedRead;

use crate::frames::Frames;
use crate::stream::Stream;
use crate::transport::Shared;
use crate::wire::{Parcel, framed};

pub struct PeerHandler {
    frames: FramedRead<ReadHalf<Stream>, Frames>,
    stalled_after: Duration,
}

pub struct Voice {
    writer: WriteHalf<Stream>,
    said: Instant,
    stalled_after: Duration,
}

pub fn open(shared: &Shared, stream: Stream) -> (PeerHandler, Voice) {
    let (reader, writer) = tokio::io::split(stream);
    let stalled_after = shared.config.snapshots.stalled_after;
    let codec = Frames {
        bytes_max: shared.config.frame_bytes_max,
    };
    let ear = PeerHandler {
        frames: FramedRead::with_capacity(reader, codec, 64 * 1024),
        stalled_after,
    };
    let voice = Voice {
        writer,
        said: Instant::now(),
        stalled_after,
    };
    (ear, voice)
}

impl PeerHandler {
    /// The next parcel that says something.
    pub async fn hear(&mut self) -> io::Result<Parcel> {
        let wrong = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
        loop {
            let frame = tokio::time::timeout(self.stalled_after, self.frames.next())
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the transfer stalled"))?;
            let bytes = match frame {
                Some(bytes) => bytes?.freeze(),
                None => {
                    let words = "the other side closed the connection";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
                }
            };
            let parcel =
                Parcel::decode(bytes).map_err(|_| wrong("a parcel that cannot be parsed"))?;
            if !parcel.alive {
                return Ok(parcel);
            }
        }
    }
}

impl Voice {
    pub async fn say(&mut self, parcel: &Parcel) -> io::Result<()> {
        let bytes = framed(parcel);
        let write = async {
            self.writer.write_all(&bytes).await?;
            self.writer.flush().await
        };
        tokio::time::timeout(self.stalled_after, write)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the transfer stalled"))??;
        self.said = Instant::now();
        Ok(())
    }

    /// The result of the work; meanwhile the other side hears that we are there.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> io::Result<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                result = &mut work => return Ok(result),
                () = tokio::time::sleep_until(self.said + self.stalled_after / 4) => {
                    let alive = Parcel { alive: true, ..Parcel::default() };
                    self.say(&alive).await?;
                }
            }
        }
    }

    pub async fn close(mut self) {
        let _ = tokio::time::timeout(self.stalled_after, self.writer.shutdown()).await;
    }
}
