//! Commands that wait for data: BLPOP and its kin.
//!
//! The command is tried at once. If there is nothing, a [`Waiter`] is put in line at every key it
//! waits on, while their regions are still held, so nothing can come in between; on a durable node
//! the core of its region does that for a command of one region (`node::blocking`). Then the session
//! sleeps until a core serves it (`cores::serve`), its time is up, the client goes or somebody
//! unblocks it. Whoever claims the waiter first decides; nothing popped is ever lost.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use base::Refusal;
use command::Run;

use super::connection::{Connection, Ended};
use node::{EffectRequest, awaited_keys};
use runtime::cores::{Answer, Batch, Call, Claim, CommandList, Ran, Route, Ticket, Waiter};
use stats::clients::Unblock;

/// Longer timeouts end with this one: the clock counts no further than some decades.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What ended a wait.
enum End {
    Served(resp::Reply),
    Timeout,
    Unblocked(Unblock),
    Gone,
}

impl Connection {
    pub(super) async fn block(&mut self, stat: usize) -> Result<(), Ended> {
        let bytes = self.input.buffer.get(self.input.at..).unwrap_or_default();
        let args = self.input.parser.args(bytes);
        let session = &self.work.session;
        let core = session.core.clone();
        let spec = core.shared.commands.spec(stat);
        let Run::Block(block) = spec.run else {
            return Ok(());
        };
        let out = &mut self.work.out;
        let client = session.client.clone();
        client.last_command.store(stat as u32, Ordering::Relaxed);
        let call = Call {
            spec,
            stat,
            db: session.db,
            client: &client.requester,
            is_held: true,
        };
        if let Err(refusal) = core.admit(&call) {
            core.stats().on_rejected(Some(stat));
            core.refuse(&refusal, out);
            return Ok(());
        }
        let mut regions = core.regions_of(spec, &args);
        if regions.is_empty() {
            if core.shared.cluster.is_some() {
                // It names no key, which it refuses itself; there may be no region at all here.
                let _ = core.run_here(Route::Anywhere, &[], &call, &args, out);
                return Ok(());
            }
            regions.push(core.shared.map.any_of(core.id));
        }
        let ticket = Ticket::new(&core);
        let mut command = CommandList::default();
        command.push(&args);
        let waiter = Arc::new(Waiter {
            claim: Claim::default(),
            core: core.id,
            ticket: ticket.number(),
            stat,
            command,
            db: session.db,
            protocol: session.protocol,
        });
        if core.shared.durable.is_some() {
            let one = match regions[..] {
                [one] => Some(one),
                _ => None,
            };
            let target = one.map_or(core.id, |one| core.shared.map.core_of(one));
            let mut batch = Batch::new(core.id, target, client.requester.clone());
            batch.writes = true;
            batch.replies.set_protocol(session.protocol);
            batch.commands.push(&args);
            batch.heads.push((stat as u16, session.db));
            batch.waiter = Some(waiter.clone());
            let answer = match one {
                Some(one) => {
                    batch.region = one;
                    match core.send_batch(batch).await.await {
                        Answer::Batch(batch) => Some(batch),
                        _ => None,
                    }
                }
                None => {
                    let request = EffectRequest::new(regions, batch, None);
                    core.run_effects(request).await
                }
            };
            core.begin_batch();
            let Some(batch) = answer else {
                ticket.close();
                core.refuse(&Refusal::new("ERR internal error"), out);
                return Ok(());
            };
            if !batch.replies.as_bytes().is_empty() {
                ticket.close();
                out.append(&batch.replies);
                return Ok(());
            }
        } else {
            let mut held = core.hold(&regions).await;
            core.begin_batch();
            if held.run(&call, &args, out) != Ran::Empty {
                ticket.close();
                return Ok(());
            }
            for key in awaited_keys(spec, &args) {
                if let Some(region) = held.region_of(key) {
                    region.add_waiter(session.db, key, waiter.clone());
                }
            }
        }
        // The attempt has refused a wrong timeout in its place among the other checks.
        let timeout_ms = block.timeout.millis(&args).unwrap_or_default();
        let timeout = timeout_ms.map(|ms| Duration::from_millis(ms).min(LONGEST_WAIT));
        self.flush().await.inspect_err(|_| {
            let _ = waiter.claim.cancel();
        })?;
        client.take_unblock();
        client.blocked.store(true, Ordering::Release);
        core.stats().blocked_clients.add(1);
        let end = self.wait(ticket, &waiter, timeout).await;
        core.stats().blocked_clients.sub(1);
        client.blocked.store(false, Ordering::Release);
        core.begin_batch();
        let out = &mut self.work.out;
        match end {
            End::Served(reply) => out.append(&reply),
            // Always a null array, even for BLMOVE whose reply would be a string: so does Redis 7.0.
            End::Timeout | End::Unblocked(Unblock::Timeout) => out.null_array(),
            End::Unblocked(Unblock::Error) => core.refuse(
                &Refusal::new("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
                out,
            ),
            End::Gone => return Err(Ended),
        }
        Ok(())
    }

    /// Sleeps until something ends the wait.
    async fn wait(&mut self, ticket: Ticket, waiter: &Waiter, timeout: Option<Duration>) -> End {
        let client = self.work.session.client.clone();
        let core = self.work.session.core.clone();
        let mut ticket = Some(ticket);
        let mut sleep = pin!(tokio::time::sleep(timeout.unwrap_or_default()));
        let (input, socket) = (&mut self.input, &mut self.socket);
        let mut open = true;
        let end = poll_fn(|cx| {
            if let Some(waiting) = ticket.as_mut()
                && let Poll::Ready(answer) = Pin::new(waiting).poll(cx)
            {
                ticket = None;
                return Poll::Ready(match answer {
                    Answer::Served(Some(reply)) => End::Served(reply),
                    _ => End::Gone,
                });
            }
            if client.is_killed() {
                return Poll::Ready(End::Gone);
            }
            if let Some(how) = client.take_unblock() {
                return Poll::Ready(End::Unblocked(how));
            }
            if timeout.is_some() && sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(End::Timeout);
            }
            // What the client sends meanwhile is read (up to a bound) to notice when it goes.
            while open && input.buffer.len() < 1024 * 1024 {
                input.make_room(&core);
                match socket.poll_fill(cx, &mut input.buffer) {
                    Poll::Ready(Ok(0) | Err(_)) => {
                        open = false;
                        return Poll::Ready(End::Gone);
                    }
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => break,
                }
            }
            Poll::Pending
        })
        .await;
        let Some(ticket) = ticket else {
            return end;
        };
        if waiter.claim.cancel() {
            ticket.close();
            return end;
        }
        // A core is serving it just now: its word decides.
        match ticket.await {
            Answer::Served(Some(reply)) => End::Served(reply),
            _ => end,
        }
    }
}
