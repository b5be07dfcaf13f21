//! The receiving side: ask the handler, say what is there, append what comes, judge.

use std::io;
use std::sync::Arc;

use super::files::{Sink, check_names};
use super::line::{PeerHandler, Voice, open};
use super::{Accept, Claim, IncomingOffer, Key};
use crate::stream::Stream;
use crate::transport::Shared;
use crate::wire::{Chunk, Have, Offer, Outcome, Parcel, Verdict};

/// Serves one connection of a transfer.
pub async fn receive(shared: Arc<Shared>, stream: Stream, from: u64) {
    let (mut ear, mut voice) = open(&shared, stream);
    let offer = match voice.during(ear.hear()).await {
        Ok(Ok(Parcel {
            offer: Some(offer), ..
        })) => offer,
        Ok(Ok(_)) => {
            let line = format!("closed a snapshot connection of node {from}: it offers nothing");
            return shared.notice(&format!("snapshot from {from}"), &line);
        }
        Ok(Err(error)) | Err(error) => {
            let line = format!("closed a snapshot connection of node {from}: {error}");
            return shared.notice(&format!("snapshot from {from}"), &line);
        }
    };
    let words = format!("snapshot {:?} of region {}", offer.id, offer.region);
    let verdict = match take(&shared, &mut ear, &mut voice, from, offer).await {
        Ok(verdict) => verdict,
        // The line is broken: the sender will come again.
        Err(error) => verdict(Outcome::Again, error.to_string()),
    };
    if verdict.outcome() != Outcome::Complete {
        let line = format!("{words} from node {from}: {}", verdict.reason);
        shared.notice(&format!("snapshot from {from}"), &line);
    }
    let parcel = Parcel {
        verdict: Some(verdict),
        ..Parcel::default()
    };
    if voice.say(&parcel).await.is_ok() {
        voice.close().await;
    }
}

fn verdict(outcome: Outcome, reason: impl Into<String>) -> Verdict {
    Verdict {
        outcome: outcome.into(),
        reason: reason.into(),
    }
}

async fn take(
    shared: &Arc<Shared>,
    ear: &mut PeerHandler,
    voice: &mut Voice,
    from: u64,
    offer: Offer,
) -> io::Result<Verdict> {
    let names = offer.files.iter().map(|file| file.name.as_str());
    if let Err(reason) = check_names(names) {
        return Ok(verdict(Outcome::Refused, reason));
    }
    let mut total_bytes = 0_u64;
    for file in &offer.files {
        total_bytes = match total_bytes.checked_add(file.size) {
            Some(sum) => sum,
            None => return Ok(verdict(Outcome::Refused, "impossible sizes")),
        };
    }
    let key: Key = (from, offer.region, offer.id.clone());
    let Claim {
        number,
        stop,
        files,
    } = voice.during(shared.transfers.claim(&key)).await?;
    if shared.transfers.is_complete(&key) {
        shared.transfers.release(&key, number);
        return Ok(verdict(Outcome::Complete, ""));
    }
    let result = match shared.transfers.incoming.clone().try_acquire_owned() {
        Err(_) => Ok(verdict(Outcome::Again, "too many snapshots at once")),
        Ok(_turn) => {
            let accepted = IncomingOffer {
                region: offer.region,
                id: offer.id,
                meta: offer.meta,
                total_bytes,
                files: offer.files.iter().map(|file| file.name.clone()).collect(),
            };
            let work = async {
                let handler = shared.handler.clone();
                let accepted = Arc::new(accepted);
                let asked = accepted.clone();
                let answer = blocking(voice, move || handler.on_snapshot_offer(from, &asked));
                let directory = match answer.await? {
                    Accept::Into(directory) => directory,
                    Accept::Refuse(reason) => return Ok(verdict(Outcome::Refused, reason)),
                    Accept::Later(reason) => return Ok(verdict(Outcome::Again, reason)),
                };
                let list = offer.files;
                let sink = blocking(voice, move || Sink::prepare(directory, list, files)).await??;
                store(shared, ear, voice, from, &accepted, sink).await
            };
            tokio::select! {
                result = work => result,
                () = stop.cancelled() => {
                    Ok(verdict(Outcome::Again, "another connection took over"))
                }
            }
        }
    };
    shared.transfers.release(&key, number);
    result
}

/// Appends what comes; at the end, checks and hands over.
async fn store(
    shared: &Arc<Shared>,
    ear: &mut PeerHandler,
    voice: &mut Voice,
    from: u64,
    offer: &Arc<IncomingOffer>,
    mut sink: Sink,
) -> io::Result<Verdict> {
    let files = sink.have();
    voice
        .say(&Parcel {
            have: Some(Have { files }),
            ..Parcel::default()
        })
        .await?;
    loop {
        let parcel = voice.during(ear.hear()).await??;
        let Some(chunk) = parcel.chunk else {
            if parcel.finish {
                break;
            }
            return Ok(verdict(Outcome::Again, "a parcel that makes no sense"));
        };
        if let Err(reason) = check(&chunk) {
            return Ok(verdict(Outcome::Again, reason));
        }
        let bytes = chunk.data.len();
        voice.during(shared.transfers.receiving.take(bytes)).await?;
        let appended;
        (sink, appended) = blocking(voice, move || {
            let appended = sink.append(&chunk);
            (sink, appended)
        })
        .await?;
        if let Err(reason) = appended {
            return Ok(verdict(Outcome::Again, reason));
        }
    }
    let finished;
    (sink, finished) = blocking(voice, move || {
        let finished = sink.finish();
        (sink, finished)
    })
    .await?;
    if let Err(reason) = finished {
        return Ok(verdict(Outcome::Again, reason));
    }
    let (told, offer) = (shared.clone(), offer.clone());
    let handed = blocking(voice, move || {
        let directory = sink.directory().to_owned();
        let handed = told.handler.on_snapshot_complete(from, &offer, directory);
        if handed.is_ok() {
            // Here, not behind the wait: the line may break meanwhile, and the sender ask again.
            let key = (from, offer.region, offer.id.clone());
            told.transfers.note_complete(key);
        }
        handed
    });
    Ok(match handed.await? {
        Ok(()) => verdict(Outcome::Complete, ""),
        Err(reason) => verdict(Outcome::Refused, reason),
    })
}

fn check(chunk: &Chunk) -> Result<(), String> {
    if chunk.data.is_empty() {
        return Err("an empty chunk".into());
    }
    if crc32c::crc32c(&chunk.data) != chunk.crc32c {
        return Err(format!(
            "a chunk arrived damaged (file {}, offset {})",
            chunk.file, chunk.offset
        ));
    }
    Ok(())
}

/// Disk work, on a thread for it, while the sender hears that we are here.
async fn blocking<T: Send + 'static>(
    voice: &mut Voice,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let result = voice.during(tokio::task::spawn_blocking(work)).await?;
    result.map_err(|_| io::Error::other("the work was given up"))
}
