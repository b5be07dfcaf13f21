//! What leaves a core at the end of a turn: the log writes of all its regions as one job.
//!
//! Whatever happens in a turn (messages of peers, reports of the log writer, commands of clients), each
//! may give several regions something to write. Handed over one by one they would cost a wake-up of the
//! log writer each. So [`crate::OwnedRegions::drive`] only gathers, and whoever ends the turn calls
//! [`Outgoing::flush`].
//!
//! **On a cluster node: one job of proposals at a time.** While a job with entries that this core
//! proposed is on its way to the disk, its regions gather commands for the next. A second job could not
//! be on disk sooner, for there is one writer; but each region would be in another one, with an entry
//! for a few commands, and its followers would have to write and to answer each alone.
//!
//! **On a node alone: as the turns end.** From the writer's report to the core's next job two threads
//! have to be woken, and the core may be busy: the disk would stand still meanwhile. So jobs leave while
//! others are on their way, and the writer takes all that waits for it as one, with one sync (decision
//! 26).

use std::sync::atomic::Ordering;

use replica::LogWrite;

use crate::effects::{Effects, LogJob};
use crate::{CoreId, Place, Requester};

/// Log writes on their way out of a core.
#[derive(Default)]
pub struct Outgoing {
    places: Vec<Place>,
    writes: Vec<LogWrite>,
    /// Of their entries.
    bytes: usize,
    /// Something among them was proposed here.
    is_ours: bool,
    /// Jobs of this kind that the writer has.
    jobs_of_ours: usize,
    /// Something was gathered since the last flush.
    pub is_flush_asked: bool,
    /// Clients that wait for what leaves next.
    clients: u32,
    /// Jobs that have left.
    number: u64,
}

/// Jobs with entries of one core that may be on their way, on a node alone.
const MOST_JOBS: usize = 16;
/// A job is no larger, unless it is one write: it is one record of the log, and the log has a largest
/// one.
const JOB_BYTES: usize = 16 << 20;

impl Outgoing {
    /// A region has something to write; it leaves with the end of the turn. What was gathered before it
    /// leaves now, if the two are too much for one job.
    pub(crate) fn push(&mut self, place: Place, write: LogWrite, is_ours: bool, out: &mut Effects) {
        let bytes = size_bytes(&write);
        if self.bytes + bytes > JOB_BYTES {
            self.send(out);
        }
        self.is_ours |= is_ours;
        self.bytes += bytes;
        self.places.push(place);
        self.writes.push(write);
    }

    /// A client has something for the log, which most often leaves with the end of the turn; whether it
    /// is new to the next job. Each client counts once, however many of its batches leave together.
    pub fn note_client(&mut self, core: CoreId, client: &Requester) -> bool {
        let job = (core as u64) << 48 | self.number;
        let is_new = client.wrote_with.swap(job, Ordering::Relaxed) != job;
        self.clients += u32::from(is_new);
        is_new
    }

    /// Ends the turn: what was gathered leaves.
    pub fn flush(&mut self, out: &mut Effects) {
        self.is_flush_asked = false;
        self.send(out);
    }

    fn send(&mut self, out: &mut Effects) {
        if self.writes.is_empty() {
            return;
        }
        self.bytes = 0;
        self.number += 1;
        let is_ours = std::mem::take(&mut self.is_ours);
        self.jobs_of_ours += usize::from(is_ours);
        out.jobs.push(LogJob {
            places: std::mem::take(&mut self.places),
            writes: std::mem::take(&mut self.writes),
            is_ours,
            clients: std::mem::take(&mut self.clients),
            commit: None,
        });
    }

    /// As many entries of this core are on their way as may be.
    pub fn is_full(&self, is_cluster: bool) -> bool {
        self.jobs_of_ours >= most_jobs(is_cluster) || self.bytes >= JOB_BYTES
    }

    /// The writer has written such a job.
    pub fn note_written(&mut self) {
        self.jobs_of_ours = self.jobs_of_ours.saturating_sub(1);
    }
}

/// Jobs of a core, and so writes of one of its regions, that may be on their way.
pub(crate) fn most_jobs(is_cluster: bool) -> usize {
    match is_cluster {
        true => 1,
        false => MOST_JOBS,
    }
}

/// Bytes of the entries of a write.
pub fn size_bytes(write: &LogWrite) -> usize {
    write.entries.iter().map(|entry| entry.data.len()).sum()
}

#[cfg(test)]
mod tests {
    use replica::Entry;

    use super::*;

    /// A region of its own for each, as on a follower that hears of several at once.
    fn write(region: u64, bytes: usize) -> LogWrite {
        let entry = Entry {
            index: 1,
            term: 1,
            data: vec![0; bytes].into(),
            ..Entry::default()
        };
        LogWrite {
            region,
            number: region,
            entries: vec![entry],
            ..LogWrite::default()
        }
    }

    /// The numbers of the writes of each job.
    fn jobs_of(sizes: &[usize]) -> Vec<Vec<u64>> {
        let (mut outgoing, mut out) = (Outgoing::default(), Effects::default());
        for (number, &bytes) in (100..).zip(sizes) {
            outgoing.push(0, write(number, bytes), true, &mut out);
        }
        outgoing.flush(&mut out);
        assert_eq!(outgoing.jobs_of_ours, out.jobs.len());
        let numbers = |job: LogJob| job.writes.iter().map(|it| it.number).collect();
        out.jobs.into_iter().map(numbers).collect()
    }

    #[test]
    fn a_job_is_one_write_or_not_large() {
        assert_eq!(jobs_of(&[100, 100, 100]), [vec![100, 101, 102]]);
        let half = JOB_BYTES / 2;
        assert_eq!(jobs_of(&[half, half, 1]), [vec![100, 101], vec![102]]);
        let huge = JOB_BYTES + 1;
        let alone = [vec![100], vec![101], vec![102], vec![103]];
        assert_eq!(jobs_of(&[1, huge, huge, 1]), alone);
        assert_eq!(jobs_of(&[]), Vec::<Vec<u64>>::new());
    }
}
