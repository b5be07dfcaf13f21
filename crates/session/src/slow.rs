//! Commands that wait. Before any of them runs, everything of this session on other cores is done
//! and its replies are in the output; after it, the session goes on.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use base::Refusal;
use command::{Keys, Traits};
use keyspace::CURSOR_BITS;
use keyspace::rows::Loaded;
use resp::Args;
use runtime::cluster::{Cluster, Unserved};
use runtime::cores::{Again, Batch, Call, CommandList, Place, Tally, call_function};
use runtime::now_ms;

use super::connection::{Connection, Ended};
use super::dispatch::{Slow, Step};
use crate::commands::LaterFn;
use node::EffectRequest;

impl Connection {
    pub(super) async fn run_slow(&mut self, slow: Slow) -> Result<(), Ended> {
        let before = self.work.written + self.work.out.len();
        self.run_step(slow).await?;
        if self.work.session.shared().cluster.is_some() {
            self.chase(before).await?;
        }
        self.work.suppress_reply();
        Ok(())
    }

    pub(super) async fn run_step(&mut self, slow: Slow) -> Result<(), Ended> {
        let mut next = Some(slow);
        while let Some(slow) = next {
            next = self.run_once(slow).await?;
        }
        Ok(())
    }

    /// One step of a command that waits; what it has to wait for next, if it is not answered.
    async fn run_once(&mut self, slow: Slow) -> Result<Option<Slow>, Ended> {
        match slow {
            Slow::Again => return self.again().await,
            Slow::Pause { writes } => {
                self.flush().await?;
                self.pause(writes).await?;
                return self.again().await;
            }
            Slow::Hold { stat } => {
                let regions = std::mem::take(&mut self.work.regions);
                self.run_held(stat, &regions).await;
                self.work.regions = regions;
            }
            Slow::HoldAll { stat } => {
                let all: Vec<Place> = (0..self.work.session.shared().map.regions()).collect();
                self.run_held(stat, &all).await;
            }
            Slow::Cold => {
                if let Some(cold) = self.work.cold.take() {
                    let core = self.work.session.core.clone();
                    core.load_cold(*cold).await;
                }
                return self.again().await;
            }
            Slow::Unconfirmed { region } => return self.run_after_barrier(region).await,
            Slow::Scan { stat } => self.scan(stat, None).await,
            Slow::Block { stat } => self.block(stat).await?,
            Slow::Later { stat, run } => self.later(stat, run).await?,
            Slow::Elsewhere { slot } => self.answer_elsewhere(slot),
            Slow::AllNodes { stat } => self.run_on_all_nodes(stat).await?,
        }
        Ok(None)
    }

    /// The same command once more: nothing is pending now. What it has to wait for, if it is not answered.
    async fn again(&mut self) -> Result<Option<Slow>, Ended> {
        let bytes = self.input.buffer.get(self.input.at..).unwrap_or_default();
        let args = self.input.parser.args(bytes);
        let step = self.work.dispatch(&args);
        let core = &self.work.session.core;
        core.is_confirmed.set(false);
        // Other sessions run before this command does again.
        self.work.carried = (core.row_failure.take(), core.again.take());
        match step {
            Step::Done => Ok(None),
            Step::Slow(slow) => {
                self.finish_pending().await?;
                Ok(Some(slow))
            }
        }
    }

    /// A read that needs proof that it may be answered here.
    async fn run_after_barrier(&mut self, region: Place) -> Result<Option<Slow>, Ended> {
        let session = &self.work.session;
        let core = session.core.clone();
        let sure = core.pass_read_barrier(region, session.readonly).await;
        core.begin_batch();
        match sure {
            Ok(()) => {
                core.is_confirmed.set(true);
                let (row_failure, again) = std::mem::take(&mut self.work.carried);
                core.row_failure.set(row_failure);
                core.again.set(again);
                self.again().await
            }
            Err(why) => {
                let refusal = self.unserved(why);
                core.refuse(&refusal, &mut self.work.out);
                Ok(None)
            }
        }
    }

    /// What the client is told whose command this node cannot answer.
    pub(super) fn unserved(&self, why: Unserved) -> Refusal {
        let bytes = self.input.buffer.get(self.input.at..).unwrap_or_default();
        let args = self.input.parser.args(bytes);
        let core = &self.work.session.core;
        let resolved = core.shared.commands.table.resolve(&args);
        let slot = resolved
            .ok()
            .and_then(|(_, spec)| Cluster::slot_of(spec, &args).ok().flatten());
        core.unserved(slot.unwrap_or_default(), why)
    }

    /// CLIENT PAUSE: waits until it is over.
    async fn pause(&mut self, writes: bool) -> Result<(), Ended> {
        let session = &self.work.session;
        loop {
            let until_ms = session.shared().paused_until_ms(writes);
            let left_ms = until_ms.saturating_sub(now_ms());
            if left_ms == 0 {
                break;
            }
            if session.client.is_killed() {
                return Err(Ended);
            }
            session.client.paused.store(true, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(left_ms.min(5))).await;
        }
        session.client.paused.store(false, Ordering::Relaxed);
        session.core.begin_batch();
        Ok(())
    }

    /// A data command over regions that must be fetched or waited for.
    pub(super) async fn run_held(&mut self, stat: usize, regions: &[Place]) {
        let bytes = self.input.buffer.get(self.input.at..).unwrap_or_default();
        let args = self.input.parser.args(bytes);
        let session = &self.work.session;
        let core = session.core.clone();
        let call = Call {
            spec: core.shared.commands.spec(stat),
            stat,
            db: session.db,
            client: &session.client.requester,
            is_held: true,
        };
        if let Err(refusal) = core.admit(&call) {
            core.stats().on_rejected(Some(stat));
            core.refuse(&refusal, &mut self.work.out);
            return;
        }
        if core.shared.cluster.is_some() && call.spec.is(Traits::COUNTS_DATABASE) {
            let totals = core.tally(Tally::Sure).await;
            let keys = totals.databases().nth(usize::from(call.db));
            let keys = keys.map_or(0, |(_, sums)| sums.keys);
            self.work.out.int(keys as i64);
            return core.account(stat, false, &args, &call);
        }
        let any = [core.shared.map.any_of(core.id)];
        let regions = if regions.is_empty() { &any } else { regions };
        let out = &mut self.work.out;
        if core.shared.durable.is_some() && call.spec.is_write() {
            let mut batch = Batch::new(core.id, core.id, session.client.requester.clone());
            batch.writes = true;
            batch.replies.set_protocol(session.protocol);
            batch.replies.set_limit(session.reply_limit());
            batch.commands.push(&args);
            batch.heads.push((stat as u16, session.db));
            let request = EffectRequest::new(regions.to_vec(), batch, None);
            match core.run_effects(request).await {
                Some(batch) => out.append(&batch.replies),
                None => core.refuse(&Refusal::new("ERR internal error"), out),
            }
            return;
        }
        core.load_named_rows(std::iter::once((call.spec, call.db, args)))
            .await;
        let before = out.len();
        let mut again = Again::chosen(core.next_seed());
        let mut held = loop {
            let mut held = core.hold(regions).await;
            core.begin_batch();
            if call.spec.keys != Keys::Everything && !held.has(regions) {
                drop(held);
                let refusal = self.unserved(Unserved::Elsewhere);
                return core.refuse(&refusal, &mut self.work.out);
            }
            if core.shared.durable.is_none() {
                held.run(&call, &args, out);
                break held;
            }
            held.load_named(call.spec, call.db, &args).await;
            match held.attempt(&call, &args, out, again).await {
                Ok(_) => break held,
                Err(cold) => {
                    // Nobody waits for these regions while the disk is read.
                    drop(held);
                    let unreadable = core.warm(cold, again.tries()).await;
                    if let Some((_, Loaded::Unreadable(why))) = unreadable.into_iter().next() {
                        let text = format!("ERR rows cannot be read: {why}");
                        return core.refuse(&Refusal::text_of(text), out);
                    }
                    again = again.next();
                }
            }
        };
        if let Err(refusal) = held.commit().await {
            out.truncate(before);
            core.refuse(&refusal, out);
        }
    }

    /// SCAN goes through the cores one after the other; the region in the cursor says where it is.
    /// Cores that end before COUNT keys are found are followed by the next at once: a small
    /// database is one step, as in Redis.
    /// `from`: another cursor than the client's.
    pub(super) async fn scan(&mut self, stat: usize, from: Option<u64>) {
        let bytes = self.input.buffer.get(self.input.at..).unwrap_or_default();
        let args = self.input.parser.args(bytes);
        let session = &self.work.session;
        let core = session.core.clone();
        let call = Call {
            spec: core.shared.commands.spec(stat),
            stat,
            db: session.db,
            client: &session.client.requester,
            is_held: true,
        };
        let out = &mut self.work.out;
        let map = &core.shared.map;
        let Some(mut cursor) = from.or_else(|| base::number::parse_u64(args.at(1))) else {
            // The command itself says what is wrong with the cursor.
            let any = map.any_of(core.id);
            let mut held = core.hold(&[any]).await;
            held.run(&call, &args, out);
            return;
        };
        let start = out.len();
        let (mut keys, mut found, enough) = (Vec::new(), 0, scan_count(&args));
        loop {
            let region = (cursor >> CURSOR_BITS) as Place;
            let regions = map.scanned_with(region);
            let first = (regions.start as u64) << CURSOR_BITS;
            let command = with_cursor(&args, &(cursor - first).to_string());
            let mut again = Again::default();
            let result = loop {
                let mut held = core.hold(&regions.clone().collect::<Vec<_>>()).await;
                core.begin_batch();
                held.read_cached(again.stops());
                let result = held.with_view(call.db, |view| {
                    call_function(call.spec, view, &command.args(0), out)
                });
                held.read_cached(false);
                let cold = held.take_cold();
                if cold.is_empty() {
                    break result;
                }
                // Nobody waits for these regions while the disk is read.
                drop(held);
                out.truncate(start);
                let unreadable = core.warm(cold, again.tries()).await;
                if let Some((_, Loaded::Unreadable(why))) = unreadable.into_iter().next() {
                    let text = format!("ERR rows cannot be read: {why}");
                    break Err(Refusal::text_of(text));
                }
                again = again.next();
            };
            if let Err(refusal) = &result {
                out.truncate(start);
                core.refuse(refusal, out);
                core.account(stat, true, &args, &call);
                return;
            }
            let reply = out.buffer_mut().split_off(start);
            let Some(step) = split_scan(&reply) else {
                out.raw(&reply);
                break;
            };
            keys.extend_from_slice(step.keys);
            found += step.found;
            cursor = match step.cursor {
                0 if regions.end >= map.regions() => 0,
                0 => (regions.end as u64) << CURSOR_BITS,
                next => first + next,
            };
            if step.cursor != 0 || cursor == 0 || found >= enough {
                out.array(2);
                out.bulk(cursor.to_string().as_bytes());
                out.array(found);
                out.raw(&keys);
                break;
            }
        }
        core.account(stat, false, &args, &call);
    }

    /// A session command that waits.
    async fn later(&mut self, stat: usize, run: LaterFn) -> Result<(), Ended> {
        // What is there to be read is written first: it may wait for long. Transactions do not.
        let spec = self.work.session.shared().commands.spec(stat);
        let is_left_open = spec.is(Traits::ENDS_WITH_CLIENT);
        if spec.group != command::Group::Transactions {
            self.flush().await?;
        }
        let bytes = self.input.buffer.get(self.input.at..).unwrap_or_default();
        let args = self.input.parser.args(bytes);
        if is_left_open {
            let mut command = CommandList::default();
            command.push(&args);
            return self.later_while_open(stat, run, &command).await;
        }
        let work = &mut self.work;
        work.session
            .run_later(stat, run, &args, &mut work.out)
            .await;
        Ok(())
    }

    /// As [`Connection::later`] for a command that may wait for long and changes nothing: it ends with the client. What
    /// that sends meanwhile is read (up to a bound) to notice when it goes.
    async fn later_while_open(
        &mut self,
        stat: usize,
        run: LaterFn,
        command: &CommandList,
    ) -> Result<(), Ended> {
        let core = self.work.session.core.clone();
        let (work, input, socket) = (&mut self.work, &mut self.input, &mut self.socket);
        let args = command.args(0);
        let running = work.session.run_later(stat, run, &args, &mut work.out);
        let mut running = pin!(running);
        poll_fn(|cx| {
            if running.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            while input.buffer.len() < 1024 * 1024 {
                input.make_room(&core);
                match socket.poll_fill(cx, &mut input.buffer) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Ended)),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => break,
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl super::Session {
    pub(super) async fn run_later(
        &mut self,
        stat: usize,
        run: LaterFn,
        args: &Args<'_>,
        out: &mut resp::Reply,
    ) {
        let core = self.core.clone();
        self.client
            .last_command
            .store(stat as u32, std::sync::atomic::Ordering::Relaxed);
        let before = out.len();
        let started = core.shared.clock.raw();
        let result: Result<(), Refusal> = run(self, args, out).await;
        if let Err(refusal) = &result {
            out.truncate(before);
            core.refuse(refusal, out);
        }
        self.account_since(started, stat, result.is_err(), args);
        core.begin_batch();
    }
}

/// The command with another cursor.
pub(super) fn with_cursor(args: &Args<'_>, cursor: &str) -> CommandList {
    let mut kept = CommandList::default();
    let head = [args.at(0), cursor.as_bytes()];
    kept.push_all(head.into_iter().chain(args.iter_from(2)));
    kept
}

/// COUNT of a SCAN, whose options the command itself has looked at.
pub(super) fn scan_count(args: &Args<'_>) -> usize {
    let mut options = args.iter_from(2);
    let mut count = 10;
    while let (Some(name), Some(value)) = (options.next(), options.next()) {
        if name.eq_ignore_ascii_case(b"count") {
            count = base::number::parse_u64(value).unwrap_or(count);
        }
    }
    count.try_into().unwrap_or(usize::MAX)
}

/// A SCAN reply, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scanned<'a> {
    pub cursor: u64,
    pub found: usize,
    /// The keys as encoded.
    pub keys: &'a [u8],
}

pub(super) fn split_scan(reply: &[u8]) -> Option<Scanned<'_>> {
    let (_, rest) = split_line(reply.strip_prefix(b"*2\r\n$")?)?;
    let (cursor, rest) = split_line(rest)?;
    let (found, keys) = split_line(rest.strip_prefix(b"*")?)?;
    Some(Scanned {
        cursor,
        found: found.try_into().ok()?,
        keys,
    })
}

/// A number that ends its line, and what follows.
fn split_line(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|&b| b == b'\r')?;
    let number = base::number::parse_u64(text.get(..end)?)?;
    Some((number, text.get(end + 2..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_reply_is_taken_apart() {
        let reply = b"*2\r\n$2\r\n17\r\n*1\r\n$1\r\na\r\n";
        let expected = Scanned {
            cursor: 17,
            found: 1,
            keys: b"$1\r\na\r\n",
        };
        assert_eq!(split_scan(reply), Some(expected));
    }
}
