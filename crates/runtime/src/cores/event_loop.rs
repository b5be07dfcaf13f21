//! What a core does besides its sessions: it handles the messages in its mailbox, and it ends turns.
//!
//! Nothing here waits: a message that must wait is put in line ([`super::lend`]) or continued in a task
//! ([`super::batch`]), so answers always get through.
//!
//! **The end of a turn** (durable nodes). What reached the regions of the core meanwhile becomes entries of their
//! logs, and leaves as one job. The task that does it is woken by the first batch and runs behind all sessions that
//! were ready then. When the disk has an entry, sessions that are ready then run, the next entry is sent, then the
//! former is applied.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::Core;
use super::mailbox::Message;
use super::tickets::Answer;

/// Messages handled, and bytes of replies made, before sessions get a turn.
const TURN: usize = 64;
const TURN_BYTES: usize = 4 << 20;

impl Core {
    /// The task that empties the mailbox, until the node stops.
    pub(super) async fn run_messages(self: Rc<Self>) {
        let mailbox = self.shared.mailboxes[self.id].clone();
        poll_fn(|cx| {
            mailbox.set_inbox(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
        poll_fn(|cx| {
            self.answered_bytes.set(0);
            for _ in 0..TURN {
                if self.answered_bytes.get() > TURN_BYTES {
                    break;
                }
                match mailbox.receive() {
                    Some(message) => self.on_message(message),
                    None => break,
                }
            }
            if self.shared.durable.is_some() {
                self.end_turn();
            }
            if self.is_stopping() {
                return Poll::Ready(());
            }
            if !mailbox.is_empty() {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }

    pub(crate) fn wake_to_propose(&self) {
        self.propose_asked.set(true);
        self.wake_to_flush();
    }

    /// Something was gathered: should nobody end this turn, the turn_ender will.
    pub(crate) fn wake_to_flush(&self) {
        if let Some(waker) = &*self.turn_ender.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The task that ends turns.
    pub(crate) async fn run_turn_ends(self: Rc<Self>) {
        while !self.is_stopping() {
            poll_fn(|cx| {
                *self.turn_ender.borrow_mut() = Some(cx.waker().clone());
                let is_flush_asked = self.regions.borrow().outgoing.is_flush_asked;
                match self.propose_asked.get() || is_flush_asked || self.is_stopping() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            if !self.propose_asked.take() {
                self.end_turn();
                continue;
            }
            if self.regions.borrow().has_logged() {
                // What clients have sent meanwhile is read first: it shares the sync.
                tokio::task::yield_now().await;
            }
            self.begin_batch();
            self.on_regions(|regions, cx, out| {
                regions.run_groups(cx, out);
                regions.propose_queued(cx, out);
            });
            if self.is_eviction_asked() {
                self.evict_by_log();
            }
            if self.regions.borrow().has_logged() {
                // The disk and the peers have work while the former entries are applied.
                self.end_turn();
                self.on_regions(|regions, cx, out| regions.drive_logged(cx, out));
            }
            self.end_turn();
        }
    }

    /// Sends what was gathered: log writes, and messages for peers.
    pub(crate) fn end_turn(self: &Rc<Self>) {
        self.on_regions(|regions, _, out| regions.outgoing.flush(out));
        self.flush_outbox();
    }

    fn on_message(self: &Rc<Self>, message: Message) {
        match message {
            Message::Batch(batch) => self.on_batch(batch),
            Message::Done(batch) => {
                let target = batch.target;
                self.credit_back(target);
                let ticket = batch.ticket;
                let _ = self.tickets.deliver(ticket, Answer::Batch(batch));
            }
            Message::Lend {
                from,
                ticket,
                regions,
            } => self.on_lend(from, ticket, regions),
            Message::Lent {
                owner,
                ticket,
                regions,
            } => {
                self.credit_back(owner);
                if ticket > node::GROUPS {
                    self.begin_batch();
                    self.on_regions(|owned, cx, out| owned.on_lent(ticket, regions, cx, out));
                } else if let Some(answer) = self.tickets.deliver(ticket, Answer::Regions(regions))
                {
                    self.on_unwanted(answer);
                }
            }
            Message::Return { regions } => {
                self.begin_batch();
                self.take_back(regions);
            }
            Message::Tally {
                from,
                ticket,
                regions,
                tally,
            } => {
                let counted = Message::Counted {
                    owner: self.id,
                    ticket,
                    counted: Box::new(self.tally_here(regions, tally)),
                };
                self.send(from, counted);
            }
            Message::Counted {
                owner,
                ticket,
                counted,
            } => {
                self.credit_back(owner);
                let _ = self.tickets.deliver(ticket, Answer::Counted(counted));
            }
            Message::Followers {
                from,
                ticket,
                asked,
            } => {
                let told = Message::FollowersAnswered {
                    owner: self.id,
                    ticket,
                    told: self.followers_here(asked),
                };
                self.send(from, told);
            }
            Message::FollowersAnswered {
                owner,
                ticket,
                told,
            } => {
                self.credit_back(owner);
                let _ = self.tickets.deliver(ticket, Answer::Followers(told));
            }
            Message::Keep(batch) => {
                self.begin_batch();
                self.on_regions(|owned, cx, out| owned.on_effect_batch(*batch, cx, out));
            }
            Message::Settled { ticket, fate } => {
                self.begin_batch();
                self.on_regions(|owned, cx, out| owned.on_batch_outcome(ticket, fate, cx, out));
            }
            Message::Served { ticket, reply } => {
                let _ = self.tickets.deliver(ticket, Answer::Served(Some(reply)));
            }
            Message::Unserved { ticket } => {
                let _ = self.tickets.deliver(ticket, Answer::Served(None));
            }
            Message::Logged {
                written,
                commit,
                is_ours,
                ok,
            } => {
                self.shared.mailboxes[self.id].on_log();
                if is_ours {
                    self.regions.borrow_mut().outgoing.note_written();
                }
                match commit {
                    Some(ticket) => {
                        self.begin_batch();
                        self.on_regions(|owned, cx, out| {
                            owned.on_commit_logged(ticket, ok, cx, out);
                        });
                    }
                    None => {
                        self.begin_batch();
                        self.on_regions(|owned, cx, out| owned.on_logged(&written, ok, cx, out));
                    }
                }
            }
            Message::Fetched { ticket, fetched } => {
                let _ = self.tickets.deliver(ticket, Answer::Fetched(fetched));
            }
            Message::Warmed { ticket, unreadable } => {
                let _ = self.tickets.deliver(ticket, Answer::Warmed(unreadable));
            }
            Message::Entries { region, entries } => {
                self.begin_batch();
                self.on_regions(|owned, cx, out| owned.on_entries(region, entries, cx, out));
            }
            Message::Raft { from, messages } => {
                self.begin_batch();
                self.on_regions(|owned, cx, out| owned.on_messages(from, messages, cx, out));
            }
            Message::Task(task) => self.on_task(*task),
            Message::Table(answer) => self.on_sql(*answer),
            Message::TableAsk(asked) => self.on_table_ask(*asked),
            Message::TableAnswered { ticket, told } => {
                let _ = self.tickets.deliver(ticket, Answer::TableAnswer(told));
            }
            Message::Cut {
                region,
                index,
                keep_bytes,
            } => self.regions.borrow_mut().on_cut(region, index, keep_bytes),
            Message::Evict => self.evict_for_others(),
            Message::Call(call) => call(self),
            Message::Stop => self.stop(),
        }
    }

    /// An answer came for a task that is gone. Regions must go back; the rest may be dropped.
    pub(super) fn on_unwanted(self: &Rc<Self>, answer: Answer) {
        match answer {
            Answer::Regions(regions) => self.give_back(regions),
            Answer::Committed(committed) => self.give_back(committed.1),
            _ => {}
        }
    }

    /// Ends this core's sessions; the thread ends with its main task.
    fn stop(&self) {
        self.with_regions(|regions, cx, _| regions.settle_all(cx));
        self.stopping.set(true);
        for client in self.clients.borrow().values() {
            client.kill();
        }
    }
}
