//! The sending side: measure, offer, send what is missing, and again until it is there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::line::{PeerHandler, Voice, open};
use super::{Measure, OutgoingSnapshot, Transfer, TransferError, files};
use crate::handshake::dial;
use crate::link::Backoff;
use crate::transport::Shared;
use crate::wire::{
    Chunk, OVERHEAD_BYTES, Offer, OfferedFile, Outcome, Parcel, Prefix, Purpose, Verdict,
};

/// Starts a transfer; it needs nobody to wait for it.
pub fn start(shared: &Arc<Shared>, to: u64, snapshot: OutgoingSnapshot) -> Transfer {
    let (sender, result) = watch::channel(None);
    let transfer = Transfer {
        progress: Arc::default(),
        result,
        cancel: CancellationToken::new(),
    };
    let (shared, progress) = (shared.clone(), transfer.progress.clone());
    let cancel = transfer.cancel.clone();
    shared.snapshot_runtime.clone().spawn(async move {
        let result = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(TransferError::Cancelled),
            result = deliver(&shared, to, &snapshot, &progress) => result,
        };
        let (handler, said) = (shared.handler.clone(), result.clone());
        let told = tokio::task::spawn_blocking(move || {
            handler.on_snapshot_sent(to, snapshot.region, &snapshot.id, said.as_ref().map(|_| ()));
        });
        let _ = told.await;
        let _ = sender.send(Some(result));
    });
    transfer
}

/// Why an attempt ended.
enum Stop {
    For(TransferError),
    Again(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Again(error.to_string())
    }
}

async fn deliver(
    shared: &Arc<Shared>,
    to: u64,
    snapshot: &OutgoingSnapshot,
    progress: &Measure,
) -> Result<(), TransferError> {
    let turn = async || {
        let turn = shared.transfers.outgoing.clone().acquire_owned().await;
        turn.map_err(|_| TransferError::Stopped)
    };
    let mut my_turn = turn().await?;
    let offer = measure(snapshot).await?;
    if prost::Message::encoded_len(&offer) + OVERHEAD_BYTES > shared.config.frame_bytes_max {
        return Err(TransferError::Source("too many files for one offer".into()));
    }
    let total = offer.files.iter().map(|file| file.size).sum();
    progress.total.store(total, Ordering::Relaxed);
    let paths: Vec<PathBuf> = snapshot
        .files
        .iter()
        .map(|file| file.path.clone())
        .collect();
    let mut backoff = Backoff::new(shared);
    let (mut best, mut since) = (0, Instant::now());
    loop {
        progress.attempts.fetch_add(1, Ordering::Relaxed);
        let mut confirmed = 0;
        let why = match attempt(shared, to, &offer, &paths, progress, &mut confirmed).await {
            Ok(()) => return Ok(()),
            Err(Stop::For(error)) => return Err(error),
            Err(Stop::Again(why)) => why,
        };
        if confirmed > best {
            (best, since) = (confirmed, Instant::now());
            backoff.reset();
        }
        if since.elapsed() > shared.config.snapshots.timeout {
            return Err(TransferError::GaveUp(why));
        }
        let (region, id) = (snapshot.region, &snapshot.id);
        let line = format!("snapshot {id} of region {region} to node {to}: {why}; trying again");
        shared.notice(&format!("snapshot {to}"), &line);
        // A receiver that is away must not keep others from theirs.
        drop(my_turn);
        tokio::time::sleep(backoff.next()).await;
        my_turn = turn().await?;
    }
}

/// Sizes and checksums of all files.
async fn measure(snapshot: &OutgoingSnapshot) -> Result<Offer, TransferError> {
    let names = snapshot.files.iter().map(|file| file.name.as_str());
    files::check_names(names).map_err(TransferError::Source)?;
    let list = snapshot.files.clone();
    let measured = tokio::task::spawn_blocking(move || {
        let mut files = Vec::with_capacity(list.len());
        for file in list {
            let words = |error: io::Error| {
                TransferError::Source(format!("{}: {error}", file.path.display()))
            };
            let prefix = match file.crc32c {
                Some(crc32c) => Prefix {
                    size: file.path.metadata().map_err(words)?.len(),
                    crc32c,
                },
                None => files::measure(&file.path, u64::MAX).map_err(words)?,
            };
            files.push(OfferedFile {
                name: file.name,
                size: prefix.size,
                crc32c: prefix.crc32c,
            });
        }
        Ok(files)
    });
    let files = measured.await.map_err(|_| TransferError::Stopped)??;
    Ok(Offer {
        region: snapshot.region,
        id: snapshot.id.clone(),
        meta: snapshot.meta.clone(),
        files,
    })
}

async fn attempt(
    shared: &Arc<Shared>,
    to: u64,
    offer: &Offer,
    paths: &[PathBuf],
    progress: &Measure,
    confirmed: &mut u64,
) -> Result<(), Stop> {
    let Some(address) = shared.address_of(to) else {
        return Err(Stop::For(TransferError::UnknownNode(to)));
    };
    let (stream, _) = dial(shared, &address, to, Purpose::Snapshot)
        .await
        .map_err(|error| Stop::Again(error.to_string()))?;
    let (mut ear, mut voice) = open(shared, stream);
    voice
        .say(&Parcel {
            offer: Some(offer.clone()),
            ..Parcel::default()
        })
        .await?;
    let parcel = voice.during(ear.hear()).await??;
    let have = match (parcel.have, parcel.verdict) {
        (Some(have), _) => have.files,
        (None, Some(verdict)) => return judge(verdict),
        (None, None) => return Err(Stop::Again("an answer that is no answer".into())),
    };
    if have.len() != offer.files.len() {
        return Err(Stop::Again("an answer to another offer".into()));
    }
    *confirmed = have.iter().map(|prefix| prefix.size).sum();
    let list = paths.to_vec();
    let checking = tokio::task::spawn_blocking(move || recognize(&list, &have));
    let starts = voice
        .during(checking)
        .await?
        .map_err(|_| Stop::For(TransferError::Stopped))??;
    progress.sent.store(starts.iter().sum(), Ordering::Relaxed);
    // The receiver may end it at any time, while we write.
    let mut verdict = std::pin::pin!(hear_verdict(&mut ear));
    tokio::select! {
        biased;
        verdict = &mut verdict => return judge(verdict?),
        sent = send_all(shared, &mut voice, offer, paths, &starts, progress) => sent?,
    }
    judge(voice.during(verdict).await??)
}

fn judge(verdict: Verdict) -> Result<(), Stop> {
    match verdict.outcome() {
        Outcome::Complete => Ok(()),
        Outcome::Refused => Err(Stop::For(TransferError::Refused(verdict.reason))),
        Outcome::Again | Outcome::Unknown => Err(Stop::Again(verdict.reason)),
    }
}

async fn hear_verdict(ear: &mut PeerHandler) -> io::Result<Verdict> {
    let parcel = ear.hear().await?;
    let words = "something else than a verdict";
    parcel
        .verdict
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, words))
}

/// Where to begin with each file: behind what the receiver has, if that is what we have.
fn recognize(paths: &[PathBuf], have: &[Prefix]) -> Result<Vec<u64>, Stop> {
    let mut starts = Vec::with_capacity(have.len());
    for (path, prefix) in paths.iter().zip(have) {
        let same = prefix.size == 0 || files::measure(path, prefix.size)? == *prefix;
        starts.push(if same { prefix.size } else { 0 });
    }
    Ok(starts)
}

async fn send_all(
    shared: &Shared,
    voice: &mut Voice,
    offer: &Offer,
    paths: &[PathBuf],
    starts: &[u64],
    progress: &Measure,
) -> Result<(), Stop> {
    let bucket = &shared.transfers.sending;
    for (at, (file, path)) in offer.files.iter().zip(paths).enumerate() {
        let mut offset = starts.get(at).copied().unwrap_or(0);
        if offset >= file.size {
            continue;
        }
        let words = |error: io::Error| {
            Stop::For(TransferError::Source(format!(
                "{}: {error}",
                path.display()
            )))
        };
        let source = Arc::new(File::open(path).map_err(words)?);
        while offset < file.size {
            let rest = usize::try_from(file.size - offset).unwrap_or(usize::MAX);
            let length = rest.min(chunk_bytes(shared));
            let reader = source.clone();
            let reading = tokio::task::spawn_blocking(move || {
                let mut data = vec![0; length];
                reader.read_exact_at(&mut data, offset)?;
                Ok(Bytes::from(data))
            });
            let data = voice
                .during(reading)
                .await?
                .map_err(|_| Stop::For(TransferError::Stopped))?
                .map_err(words)?;
            voice.during(bucket.take(length)).await?;
            let chunk = Chunk {
                file: u32::try_from(at).unwrap_or(u32::MAX),
                offset,
                crc32c: crc32c::crc32c(&data),
                data,
            };
            voice
                .say(&Parcel {
                    chunk: Some(chunk),
                    ..Parcel::default()
                })
                .await?;
            offset += length as u64;
            progress.sent.fetch_add(length as u64, Ordering::Relaxed);
        }
    }
    voice
        .say(&Parcel {
            finish: true,
            ..Parcel::default()
        })
        .await?;
    Ok(())
}

/// Small enough that a low rate still flows, and that it fits a frame.
fn chunk_bytes(shared: &Shared) -> usize {
    let config = &shared.config;
    let most = config
        .snapshots
        .chunk_bytes
        .min(config.frame_bytes_max.saturating_sub(2 * OVERHEAD_BYTES))
        .max(1);
    match usize::try_from(shared.transfers.sending.rate()).unwrap_or(usize::MAX) {
        0 => most,
        rate => (rate / 8).clamp(4096.min(most), most),
    }
}
