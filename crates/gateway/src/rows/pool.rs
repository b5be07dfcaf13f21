//! The sessions that calls go through, by core: a command goes to the core that has its row, so that no other has to pass it on.
//!
//! Calls share links: many may be on their way on one. A call whose link is held up (its row is being loaded from SQL) must not hold
//! up others, so a link whose first call waits for long gets no new ones, and another is opened. Calls that are made to wait have
//! one of their own, which ends with them.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runtime::Shared;
use runtime::cores::{CoreId, Message, NOWHERE};
use session::SessionRuns;
use session::serve_internal;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::CALLER;
use super::answer::Answer;
use super::link::{Link, Load, WAITING_MAX};
use super::words::Words;
use crate::access::{self, Denied};

/// A link whose first call has waited for so long is held up.
const HELD_UP: Duration = Duration::from_millis(5);
/// So many links of a core are opened before calls share one.
const LINKS: usize = 16;
/// So many, if those are held up.
const LINKS_MAX: usize = 64;
/// Calls that wait for SQL or go through a table, at a time.
const WAITING_CALLS: usize = 128;
/// What MONITOR and the slow log show in place of an address.
const FOR_WHOM: &str = "grpc:0";

/// Why a command could not be given to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsent {
    /// The user of the call may not run it.
    Denied(String),
    /// Too much is on its way.
    Busy,
    /// The node stops, or has no socket left.
    Closed,
}

pub struct Pool {
    shared: Arc<Shared>,
    runs: Arc<SessionRuns>,
    /// By core.
    links: Box<[Mutex<Vec<Link>>]>,
    waiting: Arc<Semaphore>,
}

/// A link of one call.
pub struct Own {
    pub answer: oneshot::Receiver<Answer>,
    _link: Link,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub fn new(shared: &Arc<Shared>, runs: Arc<SessionRuns>) -> Pool {
        Pool {
            links: (0..shared.map.cores()).map(|_| Mutex::default()).collect(),
            shared: shared.clone(),
            runs,
            waiting: Arc::new(Semaphore::new(WAITING_CALLS)),
        }
    }

    /// The core that has the row `table:key`, or any.
    fn core_of(&self, key: &str) -> CoreId {
        let map = &self.shared.map;
        match map.region_of(key.as_bytes()) {
            NOWHERE => 0,
            region => map.core_of(region),
        }
    }

    /// Sends a command about `table:key` on a link that others use as well.
    pub fn send(&self, key: &str, words: &Words) -> Result<oneshot::Receiver<Answer>, Unsent> {
        self.check(words)?;
        let core = self.core_of(key);
        let links = self.links.get(core).ok_or(Unsent::Closed)?;
        let mut links = links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| link.load().is_some());
        let loads: Vec<Load> = links.iter().filter_map(Link::load).collect();
        let link = match choose(&loads) {
            Choice::Open => {
                links.push(self.open(core).ok_or(Unsent::Closed)?);
                links.last()
            }
            Choice::Use(at) => links.get(at),
            Choice::None => return Err(Unsent::Busy),
        };
        let sent = link.and_then(|link| link.send(words).ok());
        sent.ok_or(Unsent::Closed)
    }

    /// Sends a command that may wait for long.
    pub fn send_alone(&self, key: &str, words: &Words) -> Result<Own, Unsent> {
        self.check(words)?;
        let permit = self.waiting.clone().try_acquire_owned();
        let permit = permit.map_err(|_| Unsent::Busy)?;
        let link = self.open(self.core_of(key)).ok_or(Unsent::Closed)?;
        Ok(Own {
            answer: link.send(words).map_err(|_| Unsent::Closed)?,
            _link: link,
            _permit: permit,
        })
    }

    /// Whether the user of this call may run a command: the sessions behind the links may run any.
    fn check(&self, words: &Words) -> Result<(), Unsent> {
        let checked = CALLER.try_with(|user| match user.may_do_everything() {
            true => Ok(()),
            false => access::may_run(&self.shared, user, &words.parts()),
        });
        match checked {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Denied::Right(text) | Denied::Unknown(text))) => Err(Unsent::Denied(text)),
            Ok(Err(Denied::Remote)) | Err(_) => Err(Unsent::Denied("NOPERM no user".into())),
        }
    }

    fn open(&self, core: CoreId) -> Option<Link> {
        let mailbox = self.shared.mailboxes.get(core)?;
        let (near, far) = StdUnixStream::pair().ok()?;
        near.set_nonblocking(true).ok()?;
        let near = UnixStream::from_std(near).ok()?;
        let runs = self.runs.clone();
        mailbox.send(Message::Call(Box::new(move |core| {
            tokio::task::spawn_local(serve_internal(core.clone(), runs, far, FOR_WHOM));
        })));
        Some(Link::new(near))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Use(usize),
    Open,
    None,
}

/// A link with nothing to do; else a new one; else the one with the least to do, of those that are not held up if there are any.
fn choose(loads: &[Load]) -> Choice {
    let all = || loads.iter().enumerate();
    let free = all().filter(|(_, load)| load.oldest < HELD_UP);
    match free.min_by_key(|(_, load)| load.waiting) {
        Some((_, load)) if load.waiting > 0 && loads.len() < LINKS => return Choice::Open,
        Some((at, load)) if load.waiting < WAITING_MAX => return Choice::Use(at),
        _ if loads.len() < LINKS_MAX => return Choice::Open,
        _ => {}
    }
    match all().min_by_key(|(_, load)| load.waiting) {
        Some((at, load)) if load.waiting < WAITING_MAX => Choice::Use(at),
        _ => Choice::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_are_held_up_get_nothing_new() {
        let load = |waiting, ms| Load {
            waiting,
            oldest: Duration::from_millis(ms),
        };
        assert_eq!(choose(&[]), Choice::Open);
        assert_eq!(choose(&[load(3, 1), load(0, 0)]), Choice::Use(1));
        assert_eq!(choose(&[load(3, 50), load(1, 0)]), Choice::Open);
        assert_eq!(choose(&[load(3, 50)]), Choice::Open);
        let mut busy = vec![load(3, 1); LINKS];
        busy[5].waiting = 2;
        busy[6] = load(1, 50);
        assert_eq!(choose(&busy), Choice::Use(5));
        assert_eq!(choose(&vec![load(3, 50); LINKS]), Choice::Open);
        let mut all = vec![load(9, 50); LINKS_MAX];
        all[7].waiting = 2;
        assert_eq!(choose(&all), Choice::Use(7));
        assert_eq!(
            choose(&vec![load(WAITING_MAX, 50); LINKS_MAX]),
            Choice::None
        );
    }
}
