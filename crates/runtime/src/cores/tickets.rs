//! Tickets: what a task of this core waits for from elsewhere.
//!
//! A request carries a ticket's number; the answer names it. A task that goes away while waiting
//! leaves its ticket abandoned, so that the answer (a box of regions, say) is not lost but handled
//! by whoever delivers it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use keyspace::rows::{LoadRequest, Loaded, RowError};
use node::{Batch, RegionBox};
use slab::Slab;

use super::Core;
use super::followers::Followers;
use super::tally::Counted;

pub enum Answer {
    Batch(Box<Batch>),
    Regions(Vec<RegionBox>),
    Counted(Box<Counted>),
    Followers(Vec<Followers>),
    /// Reply of a blocked command; `None` if it was cancelled while being served.
    Served(Option<resp::Reply>),
    /// Rows of a key that was not in memory.
    Fetched(Box<(LoadRequest, Result<Loaded, RowError>)>),
    /// Rows are in the block cache, or cannot be read: then what the keyspace is to be told.
    Warmed(Option<Box<(LoadRequest, Loaded)>>),
    /// Something has changed about a region: look again.
    Changed,
    /// What became of changes to held regions, and those of them that are not here.
    Committed(Box<(Result<(), base::Refusal>, Vec<RegionBox>)>),
    /// Whether a region may be read now; false: look again (cluster).
    MayRead(bool),
    /// What became of a wait for rows of tables; `None`: the write-back ended, look again.
    Table(Option<table::leader::End>),
    TableAnswer(Box<Result<crate::tables::TableAnswer, base::Refusal>>),
}

enum State {
    Waiting(Option<Waker>),
    Ready(Answer),
    Abandoned,
}

#[derive(Default)]
pub struct Tickets(RefCell<Slab<State>>);

impl Tickets {
    pub fn new() -> Self {
        Self::default()
    }

    /// Delivers an answer; gives it back if nobody waits for it any more.
    pub fn deliver(&self, ticket: usize, answer: Answer) -> Option<Answer> {
        let waker = {
            let mut all = self.0.borrow_mut();
            match all.get_mut(ticket) {
                Some(state @ State::Waiting(_)) => {
                    match std::mem::replace(state, State::Ready(answer)) {
                        State::Waiting(waker) => waker,
                        _ => None,
                    }
                }
                Some(State::Abandoned) => {
                    all.remove(ticket);
                    return Some(answer);
                }
                Some(State::Ready(_)) | None => return Some(answer),
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        None
    }
}

/// A ticket and the task waiting for its answer.
pub struct Ticket {
    core: Rc<Core>,
    number: usize,
    taken: bool,
}

impl Ticket {
    pub fn new(core: &Rc<Core>) -> Self {
        let number = core.tickets.0.borrow_mut().insert(State::Waiting(None));
        Ticket {
            core: core.clone(),
            number,
            taken: false,
        }
    }

    pub fn number(&self) -> usize {
        self.number
    }

    /// No answer can come any more: the ticket need not be kept for it.
    pub fn close(mut self) -> Option<Answer> {
        self.taken = true;
        match self.core.tickets.0.borrow_mut().try_remove(self.number) {
            Some(State::Ready(answer)) => Some(answer),
            _ => None,
        }
    }
}

impl Future for Ticket {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let number = self.number;
        let answer = {
            let mut all = self.core.tickets.0.borrow_mut();
            match all.get_mut(number) {
                Some(State::Waiting(waker)) => {
                    if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                        *waker = Some(cx.waker().clone());
                    }
                    return Poll::Pending;
                }
                Some(State::Ready(_)) => all.try_remove(number),
                Some(State::Abandoned) | None => None,
            }
        };
        match answer {
            Some(State::Ready(answer)) => {
                self.taken = true;
                Poll::Ready(answer)
            }
            // Polled after it was answered: a bug of the caller, who waits for ever.
            _ => Poll::Pending,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let left = {
            let mut all = self.core.tickets.0.borrow_mut();
            match all.get_mut(self.number) {
                Some(state @ State::Waiting(_)) => {
                    *state = State::Abandoned;
                    None
                }
                Some(State::Ready(_)) => all.try_remove(self.number),
                _ => None,
            }
        };
        if let Some(State::Ready(answer)) = left {
            self.core.on_unwanted(answer);
        }
    }
}
