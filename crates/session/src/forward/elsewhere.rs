//! Commands of a cluster's client that wait, when another node leads what they are about.
//!
//! A command that was run and turns out to be for another node, or for nobody yet, is run again; a
//! session that forwards asks the leader. Transactions go to one node as a whole; WATCH and EXEC share
//! a connection there, and if that is lost EXEC answers as if a key had changed.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use base::{NotRun, Refusal, Slot};
use bytes::Bytes;
use command::Run;
use resp::{Args, Reply};

use super::forwards::{PAUSE, is_over};
use super::remote_reply::{not_run, write_remote};
use super::upstream::{Upstream, encode, encode_args};
use crate::Session;
use crate::connection::{Connection, Ended};
use crate::dispatch::Slow;
use crate::exec::Multi;
use node::{in_doubt, try_again};
use runtime::cluster::{Cluster, Leads, no_leader};
use stats::clients::Unblock;

/// Keys that are watched at another node.
pub(crate) struct WatchedElsewhere {
    pub address: String,
    pub slot: Slot,
    serial: u64,
}

/// Between two words to another node that a session there is to wait no longer: the first may come
/// before it waits.
const UNBLOCK: Duration = Duration::from_millis(20);

impl Connection {
    /// Says who leads a slot, which [`Connection::chase`] hears first.
    pub(crate) fn answer_elsewhere(&mut self, slot: Slot) {
        let core = self.work.session.core.clone();
        if let Some(cluster) = &core.shared.cluster {
            core.refuse(&cluster.moved(slot), &mut self.work.out);
        }
    }

    /// While the reply of the command that ran says that the command is for somebody else, it is taken there; while
    /// nobody leads, it is tried again. The reply is behind the first `replied` bytes that the session has to write.
    pub(crate) async fn chase(&mut self, replied: usize) -> Result<(), Ended> {
        let until = self.work.session.deadline();
        loop {
            // What came before may have been written meanwhile.
            let before = replied.saturating_sub(self.work.written);
            let session = &self.work.session;
            let is_over = Instant::now() > until;
            let address = match self.work.out.not_run_at(before) {
                None => return Ok(()),
                Some(NotRun::Moved(_)) if !session.forwards() => {
                    return self.abort_multi();
                }
                Some(NotRun::Unready(_)) if is_over => return self.abort_multi(),
                Some(NotRun::Moved(moved)) => Some(moved.address.clone()),
                Some(NotRun::LeaderChanging(_) | NotRun::Unready(_)) => None,
            };
            let core = session.core.clone();
            self.work.out.truncate(before);
            if is_over {
                core.refuse(&no_leader(), &mut self.work.out);
                return self.abort_multi();
            }
            let is_me = |address: &String| {
                let cluster = core.shared.cluster.as_ref();
                cluster.is_some_and(|cluster| cluster.is_me(address))
            };
            match address.filter(|address| !is_me(address)) {
                Some(address) => self.forward(&address).await?,
                None => {
                    tokio::time::sleep(PAUSE).await;
                    core.begin_batch();
                    Box::pin(self.run_step(Slow::Again)).await?;
                    // It may be on its way to another core now.
                    self.finish_pending().await?;
                }
            }
        }
    }

    /// A command that was not queued makes EXEC fail.
    fn abort_multi(&mut self) -> Result<(), Ended> {
        if let Some(multi) = &mut self.work.session.multi {
            multi.aborted = true;
        }
        Ok(())
    }

    /// Asks another node for the reply of the command at hand. Nothing came of it, and nothing
    /// happened: the reply is TRYAGAIN.
    async fn forward(&mut self, address: &str) -> Result<(), Ended> {
        let bytes = self.input.buffer.get(self.input.at..).unwrap_or_default();
        let args = self.input.parser.args(bytes);
        let core = self.work.session.core.clone();
        let Ok((_, spec)) = core.shared.commands.table.resolve(&args) else {
            return Ok(());
        };
        let slot = Cluster::slot_of(spec, &args).ok().flatten();
        if matches!(spec.run, Run::Session | Run::Container) {
            // WATCH goes to whoever leads by itself.
            tokio::time::sleep(PAUSE).await;
            return Box::pin(self.run_step(Slow::Again)).await;
        }
        let mut request = Vec::new();
        encode_args(&args, &mut request);
        if matches!(spec.run, Run::Block(_)) {
            return self
                .block_remote(address, slot.unwrap_or_default(), &request)
                .await;
        }
        let (is_write, session) = (spec.is_write(), &mut self.work.session);
        let replies = session.ask(address, slot.unwrap_or_default(), &request, 1);
        let reply = match replies.await {
            Ok(mut replies) => replies.pop(),
            Err(Lost::Unsent) => None,
            Err(Lost::Sent) if is_write => {
                core.refuse(&in_doubt(), &mut self.work.out);
                return Ok(());
            }
            Err(Lost::Sent) => None,
        };
        core.begin_batch();
        match reply {
            Some(reply) => write_remote(&mut self.work.out, &reply),
            None => {
                tokio::time::sleep(PAUSE).await;
                self.say_leader(slot.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// A node did not answer: who leads now?
    fn say_leader(&mut self, slot: Slot) {
        let core = self.work.session.core.clone();
        let Some(cluster) = &core.shared.cluster else {
            return;
        };
        let refusal = match cluster.leads(slot) {
            Leads::Here | Leads::Nobody | Leads::Unassigned => try_again(),
            Leads::There(address) => NotRun::moved(slot, &address).into(),
        };
        self.work.out.refusal(&refusal);
    }

    /// BLPOP and its kin, at another node: the reply, the end of the client, or a word of another
    /// client to stop waiting.
    async fn block_remote(
        &mut self,
        address: &str,
        slot: Slot,
        request: &[u8],
    ) -> Result<(), Ended> {
        self.flush().await?;
        let session = &mut self.work.session;
        let core = session.core.clone();
        let introduction = session.introduction();
        let taken = session.upstreams().take(address, &introduction).await;
        let Ok(mut upstream) = taken else {
            tokio::time::sleep(PAUSE).await;
            self.say_leader(slot);
            return Ok(());
        };
        if upstream.send(request).await.is_err() {
            core.refuse(&in_doubt(), &mut self.work.out);
            return Ok(());
        }
        let client = session.client.clone();
        client.take_unblock();
        client.blocked.store(true, Ordering::Release);
        core.stats().blocked_clients.add(1);
        let end = self.wait_remote(&mut upstream, address, slot).await;
        core.stats().blocked_clients.sub(1);
        client.blocked.store(false, Ordering::Release);
        core.begin_batch();
        match end {
            EndRemote::Served(reply) => {
                self.work.session.upstreams().give(address, upstream);
                write_remote(&mut self.work.out, &reply);
            }
            EndRemote::Lost => core.refuse(&in_doubt(), &mut self.work.out),
            EndRemote::Gone => return Err(Ended),
        }
        Ok(())
    }

    async fn wait_remote(
        &mut self,
        upstream: &mut Upstream,
        address: &str,
        slot: Slot,
    ) -> EndRemote {
        let session = &self.work.session;
        let (client, core) = (session.client.clone(), session.core.clone());
        let introduction = session.introduction();
        let waiting_client = upstream.client;
        let (input, socket) = (&mut self.input, &mut self.socket);
        let mut reply = pin!(upstream.receive());
        let mut timer = tokio::time::interval(Duration::from_millis(200));
        let mut deposed: Option<Instant> = None;
        let mut unblocking = Unblocking(None);
        poll_fn(|cx| {
            if let Poll::Ready(received) = reply.as_mut().poll(cx) {
                return Poll::Ready(received.map_or(EndRemote::Lost, EndRemote::Served));
            }
            if client.is_killed() {
                return Poll::Ready(EndRemote::Gone);
            }
            if let Some(how) = client.take_unblock() {
                let (address, introduction) = (address.to_string(), introduction.clone());
                unblocking.0 = Some(tokio::task::spawn_local(async move {
                    // If it fails, the connection to that node is as good as lost.
                    let _ = unblock(&address, &introduction, waiting_client, how).await;
                }));
            }
            while timer.poll_tick(cx).is_ready() {
                // A node that is frozen says nothing; another leads then.
                let cluster = core.shared.cluster.as_ref();
                let is_deposed = cluster
                    .is_some_and(|cluster| is_over(cluster, slot, address, Duration::from_secs(2)));
                match (is_deposed, deposed) {
                    (false, _) => deposed = None,
                    (true, None) => deposed = Some(Instant::now()),
                    (true, Some(since)) if since.elapsed() > Duration::from_secs(2) => {
                        return Poll::Ready(EndRemote::Lost);
                    }
                    (true, Some(_)) => {}
                }
            }
            while input.buffer.len() < 1024 * 1024 {
                input.make_room(&core);
                match socket.poll_fill(cx, &mut input.buffer) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(EndRemote::Gone),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => break,
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// What ended waiting at another node.
enum EndRemote {
    Served(Bytes),
    /// Nobody knows what became of it.
    Lost,
    Gone,
}

async fn unblock(
    address: &str,
    introduction: &super::upstream::Introduction,
    client: i64,
    how: Unblock,
) -> std::io::Result<()> {
    let mut upstream = Upstream::open(address, introduction, 0).await?;
    let how: &[u8] = match how {
        Unblock::Timeout => b"TIMEOUT",
        Unblock::Error => b"ERROR",
    };
    let id = client.to_string();
    let words: [&[u8]; 4] = [b"CLIENT", b"UNBLOCK", id.as_bytes(), how];
    let mut request = Vec::new();
    encode(words.into_iter(), &mut request);
    loop {
        upstream.send(&request).await?;
        if &upstream.receive().await?[..] != b":0\r\n" {
            return Ok(());
        }
        tokio::time::sleep(UNBLOCK).await;
    }
}

/// A word on its way; it ends with the wait it is to end.
struct Unblocking(Option<tokio::task::JoinHandle<()>>);

impl Drop for Unblocking {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Another node was not heard to the end.
pub(crate) enum Lost {
    /// It has heard nothing.
    Unsent,
    /// It may have done what it was asked for.
    Sent,
}

impl Session {
    /// Asks another node, for as long as it leads.
    async fn ask(
        &mut self,
        address: &str,
        slot: Slot,
        request: &[u8],
        count: usize,
    ) -> Result<Vec<Bytes>, Lost> {
        let cluster = self.shared().cluster.clone().ok_or(Lost::Unsent)?;
        let introduction = self.introduction();
        let gave_up = |silent| is_over(&cluster, slot, address, silent);
        let upstreams = self.upstreams();
        let asked = upstreams.ask(address, &introduction, request, count, gave_up);
        let asked = asked.await;
        match asked.replies.len() == count {
            true => Ok(asked.replies),
            false if asked.unsent => Err(Lost::Unsent),
            false => Err(Lost::Sent),
        }
    }

    /// WATCH, if another node leads the slot: its reply; `None` to watch here.
    pub async fn watch_remote(
        &mut self,
        slot: Slot,
        args: &Args<'_>,
        reply: &mut Reply,
    ) -> Result<Option<()>, Refusal> {
        let Some(cluster) = self.shared().cluster.clone() else {
            return Ok(None);
        };
        let cross = Refusal::new("CROSSSLOT Keys in request don't hash to the same slot");
        let of_other_slot = |key: &[u8]| base::slot::slot_of(key) != slot;
        if self.watched.iter().any(|watch| of_other_slot(&watch.key))
            || self
                .watched_elsewhere
                .as_ref()
                .is_some_and(|it| it.slot != slot)
        {
            return Err(cross);
        }
        let mut request = Vec::new();
        encode_args(args, &mut request);
        let until = self.deadline();
        let mut hint: Option<String> = None;
        while Instant::now() < until {
            let address = match hint.take().filter(|it| !cluster.is_me(it)) {
                Some(address) => address,
                None => match cluster.leads(slot) {
                    Leads::There(address) => address,
                    Leads::Unassigned => return Err(cluster.moved(slot)),
                    // Whether this node leads is known where the region is.
                    Leads::Here | Leads::Nobody => return Ok(None),
                },
            };
            let introduction = self.introduction();
            let taken = self.upstreams().take(&address, &introduction).await;
            if let Ok(mut upstream) = taken {
                let serial = upstream.serial;
                let mut replies = Vec::new();
                let gave_up = |silent| is_over(&cluster, slot, &address, silent);
                let asked = upstream.exchange(&request, 1, &mut replies, gave_up);
                let is_well = asked.await.is_ok();
                if let (true, Some(answer)) = (is_well, replies.pop()) {
                    self.upstreams().give(&address, upstream);
                    match not_run(&answer) {
                        Some(NotRun::Moved(other)) => hint = Some(other.address),
                        Some(NotRun::LeaderChanging(_)) => {}
                        // That node has waited already.
                        Some(NotRun::Unready(_)) | None => {
                            // What was watched elsewhere before is broken: EXEC notices, because
                            // that is another connection, or no longer the leader.
                            self.watched_elsewhere.get_or_insert(WatchedElsewhere {
                                address,
                                slot,
                                serial,
                            });
                            write_remote(reply, &answer);
                            return Ok(Some(()));
                        }
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(no_leader())
    }

    /// EXEC, if another node leads the transaction's slot: its reply is written; `None` to run it
    /// here.
    pub(crate) async fn exec_elsewhere(
        &mut self,
        multi: &Multi,
        watched: bool,
        hint: Option<String>,
        reply: &mut Reply,
    ) -> Result<Option<()>, Refusal> {
        let Some(cluster) = self.shared().cluster.clone() else {
            return Ok(None);
        };
        let remote = self.watched_elsewhere.take();
        let Some(slot) = multi.slot.or(remote.as_ref().map(|it| it.slot)) else {
            return Ok(None);
        };
        if let Some(remote) = &remote {
            if remote.slot != slot {
                return Err(Refusal::new(
                    "CROSSSLOT Keys in request don't hash to the same slot",
                ));
            }
            if watched || !self.upstreams().has(&remote.address, remote.serial) {
                reply.null_array(); // nobody knows what became of the keys
                return Ok(Some(()));
            }
        }
        let mut request = Vec::new();
        encode([&b"MULTI"[..]].into_iter(), &mut request);
        multi.each(|args| encode_args(args, &mut request));
        encode([&b"EXEC"[..]].into_iter(), &mut request);
        let until = self.deadline();
        let mut hint = hint;
        while Instant::now() < until {
            let address = match (&remote, hint.take().filter(|it| !cluster.is_me(it))) {
                (Some(remote), _) => remote.address.clone(),
                (None, Some(address)) => address,
                (None, None) => match cluster.leads(slot) {
                    Leads::There(address) => address,
                    Leads::Unassigned => return Err(cluster.moved(slot)),
                    Leads::Here | Leads::Nobody => return Ok(None),
                },
            };
            let count = multi.len() + 2;
            let answer = match self.ask(&address, slot, &request, count).await {
                Ok(mut replies) => {
                    let refused = replies
                        .iter()
                        .find_map(|it| not_run(it).map(|_| it.clone()));
                    refused.or_else(|| replies.pop())
                }
                Err(Lost::Sent) if multi.writes => return Err(in_doubt()),
                Err(_) => None,
            };
            match (answer.as_deref().map(not_run), answer.as_ref()) {
                // That node has waited already.
                (Some(None | Some(NotRun::Unready(_))), Some(answer)) => {
                    write_remote(reply, answer);
                    return Ok(Some(()));
                }
                _ if remote.is_some() => {
                    reply.null_array();
                    return Ok(Some(()));
                }
                (Some(Some(NotRun::Moved(other))), _) => hint = Some(other.address),
                _ => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(no_leader())
    }
}
