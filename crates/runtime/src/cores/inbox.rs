//! What a core does with its messages. Nothing here waits: a message that must wait is put in line
//! ([`super::lend`]) or continued in a task ([`super::batch`]), so answers always get through.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::Core;
use super::mailbox::Message;
use super::tickets::Answer;

/// Messages handled before sessions get a turn.
const TURN: usize = 64;

impl Core {
    /// The task that empties the mailbox, until the node stops.
    pub(super) async fn run_inbox(self: Rc<Self>) {
        let mailbox = self.shared.mailboxes[self.id].clone();
        poll_fn(|cx| {
            mailbox.set_inbox(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
        poll_fn(|cx| {
            for _ in 0..TURN {
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
                let told = Message::FollowersTold {
                    owner: self.id,
                    ticket,
                    told: self.followers_here(asked),
                };
                self.send(from, told);
            }
            Message::FollowersTold {
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
                self.on_regions(|owned, cx, out| owned.on_fate(ticket, fate, cx, out));
            }
            Message::Served { ticket, reply } => {
                let _ = self.tickets.deliver(ticket, Answer::Served(Some(reply)));
            }
            Message::Unserved { ticket } => {
                let _ = self.tickets.deliver(ticket, Answer::Served(None));
            }
            Message::Logged {
                numbers,
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
                    None => self.on_logged(&numbers, ok),
                }
            }
            Message::Fetched { ticket, fetched } => {
                let _ = self.tickets.deliver(ticket, Answer::Fetched(fetched));
            }
            Message::Warmed { ticket } => {
                let _ = self.tickets.deliver(ticket, Answer::Warmed);
            }
            Message::Entries { region, entries } => self.on_entries(region, entries),
            Message::Raft { from, messages } => {
                self.begin_batch();
                self.on_regions(|owned, cx, out| owned.on_messages(from, messages, cx, out));
            }
            Message::Task(task) => self.on_task(*task),
            Message::Table(answer) => self.on_sql(*answer),
            Message::TableAsk(asked) => self.on_table_ask(*asked),
            Message::TableTold { ticket, told } => {
                let _ = self.tickets.deliver(ticket, Answer::Told(told));
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

    /// An answer came for a task that is gone. Regions must go home; the rest may be dropped.
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
