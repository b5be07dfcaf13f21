//! A session of this node at the other end of a pair of sockets: commands go in one after the other, answers come back in the same
//! order.
//!
//! Two tasks have the socket, one writes and one reads. Dropping the link ends both, and with them the session.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::answer::{Answer, Inbound};
use super::words::Words;

/// Commands on their way to a session; more are refused.
pub const WAITING_MAX: usize = 1024;

/// The session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

pub struct Link {
    state: Arc<State>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Default)]
struct State {
    queue: Mutex<Queue>,
    filled: Notify,
}

#[derive(Default)]
struct Queue {
    /// Not yet written.
    out: Vec<u8>,
    /// Those who wait for the next answers, and since when.
    waiting: VecDeque<(oneshot::Sender<Answer>, Instant)>,
    has_ended: bool,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits is told by what it holds being gone.
    fn end(&self) {
        let mut queue = self.lock();
        queue.has_ended = true;
        queue.waiting.clear();
    }
}

/// How busy a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub waiting: usize,
    /// How long the first of them has waited.
    pub oldest: Duration,
}

impl Link {
    pub fn new(stream: UnixStream) -> Link {
        let (read, write) = stream.into_split();
        let state = Arc::new(State::default());
        let tasks = [
            tokio::spawn(write_all(state.clone(), write)),
            tokio::spawn(read_all(state.clone(), read)),
        ];
        Link { state, tasks }
    }

    /// None if the session has ended.
    pub fn load(&self) -> Option<Load> {
        let queue = self.state.lock();
        let first = queue.waiting.front();
        (!queue.has_ended).then(|| Load {
            waiting: queue.waiting.len(),
            oldest: first.map_or(Duration::ZERO, |(_, since)| since.elapsed()),
        })
    }

    /// Sends a command; its answer will be received. Whoever stops waiting leaves the answer to be thrown away.
    pub fn send(&self, words: &Words) -> Result<oneshot::Receiver<Answer>, Ended> {
        let (tell, told) = oneshot::channel();
        let mut queue = self.state.lock();
        if queue.has_ended {
            return Err(Ended);
        }
        words.encode(&mut queue.out);
        queue.waiting.push_back((tell, Instant::now()));
        drop(queue);
        self.state.filled.notify_one();
        Ok(told)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn write_all(state: Arc<State>, mut socket: OwnedWriteHalf) {
    let mut bytes = Vec::new();
    loop {
        state.filled.notified().await;
        std::mem::swap(&mut bytes, &mut state.lock().out);
        if socket.write_all(&bytes).await.is_err() {
            return state.end();
        }
        bytes.clear();
        bytes.shrink_to(64 * 1024);
    }
}

async fn read_all(state: Arc<State>, mut socket: OwnedReadHalf) {
    let _ = read_answers(&state, &mut socket).await;
    state.end();
}

async fn read_answers(state: &State, socket: &mut OwnedReadHalf) -> io::Result<()> {
    let mut inbound = Inbound::default();
    loop {
        inbound.buffer().reserve(16 * 1024);
        if socket.read_buf(inbound.buffer()).await? == 0 {
            return Ok(());
        }
        loop {
            match inbound.next() {
                Ok(Some(answer)) => {
                    let first = state.lock().waiting.pop_front();
                    let Some((tell, _)) = first else {
                        return Err(io::ErrorKind::InvalidData.into());
                    };
                    let _ = tell.send(answer);
                }
                Ok(None) => break,
                Err(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    }

    #[test]
    fn answers_find_who_asked() {
        runtime().block_on(async {
            let (near, mut far) = UnixStream::pair().unwrap();
            let link = Link::new(near);
            let asked: Vec<_> = (0..3)
                .map(|n| link.send(Words::new("X").number(n)).unwrap())
                .collect();
            assert_eq!(link.load().unwrap().waiting, 3);
            let mut asked = asked.into_iter();
            let (first, second, third) = (
                asked.next().unwrap(),
                asked.next().unwrap(),
                asked.next().unwrap(),
            );
            drop(second); // nobody waits for it any more
            let mut sent = vec![0; 3 * "*2\r\n$1\r\nX\r\n$1\r\n0\r\n".len()];
            far.read_exact(&mut sent).await.unwrap();
            far.write_all(b":1\r\n:2\r\n:3\r\n").await.unwrap();
            assert_eq!(first.await, Ok(Answer::Int(1)));
            assert_eq!(third.await, Ok(Answer::Int(3)));
            // The session ends: who waits hears it, and nothing more is taken.
            let last = link.send(&Words::new("X")).unwrap();
            drop(far);
            assert!(last.await.is_err());
            assert!(link.load().is_none());
            assert_eq!(link.send(&Words::new("X")).unwrap_err(), Ended);
        });
    }

    #[test]
    fn an_answer_nobody_asked_for_ends_it() {
        runtime().block_on(async {
            let (near, mut far) = UnixStream::pair().unwrap();
            let link = Link::new(near);
            far.write_all(b":1\r\n").await.unwrap();
            let mut rest = Vec::new();
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(link.load().is_none());
            drop(link);
            let _ = far.read_to_end(&mut rest).await;
        });
    }
}
