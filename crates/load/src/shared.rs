//! A connection that several callers share, as multiplexing Redis clients have it (redis-rs, ioredis, lettuce).
//!
//! ```text
//! caller 1 ── SET a ─┐                 ┌── one write ──▶
//! caller 2 ── GET b ─┼─ out, waiting ─ driver             server
//! caller 3 ── SET c ─┘                 └── read ◀───────
//!      ▲                                    │
//!      └────────── callers: answers ◀─────────┘
//! ```
//!
//! A caller has one operation in flight and waits for its own answer. It only adds its command to `out` and itself to
//! `waiting`; a task of the line, the driver, does all reading and writing. The event loop runs tasks in the order in which
//! they were woken: the answers of one read wake their callers, the first of these that asks again wakes the driver, which
//! so comes after all of them. What callers ask in one turn leaves in one write without anybody waiting for others.
//!
//! *Invariants*: `waiting` has one entry per answer that is to come, in the order of the commands; when the connection
//! breaks, all of them fail, and the driver connects again when somebody asks. No memory is taken per operation.
//! *Absent*: commands that block a connection (WAIT).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::phase::Failed;
use crate::resp::{Look, dial, encode, parse};

const ROOM: usize = 64 << 10;

pub struct Line {
    address: String,
    state: RefCell<State>,
}

/// Where callers and the driver meet.
struct State {
    /// Commands that are not sent yet.
    out: Vec<u8>,
    /// Seats of those who wait, and how each looks at its answer.
    waiting: VecDeque<(usize, Look)>,
    callers: Vec<Caller>,
    driver: Waker,
}

/// Of one caller.
struct Caller {
    answer: Option<Result<(), Failed>>,
    caller: Waker,
}

impl Line {
    /// Connects when somebody asks.
    pub fn new(address: &str) -> Rc<Self> {
        let line = Rc::new(Self {
            address: address.to_string(),
            state: RefCell::new(State {
                out: Vec::with_capacity(4096),
                waiting: VecDeque::new(),
                callers: Vec::new(),
                driver: Waker::noop().clone(),
            }),
        });
        tokio::task::spawn_local(drive(Rc::clone(&line)));
        line
    }

    /// A number for one more caller.
    pub fn join(&self) -> usize {
        let callers = &mut self.state.borrow_mut().callers;
        callers.push(Caller {
            answer: None,
            caller: Waker::noop().clone(),
        });
        callers.len() - 1
    }

    /// One command, and its answer as `look` sees it.
    pub async fn ask(
        &self,
        number: usize,
        args: &[impl AsRef<[u8]>],
        look: Look,
    ) -> Result<(), Failed> {
        {
            let state = &mut *self.state.borrow_mut();
            if state.out.is_empty() {
                state.driver.wake_by_ref();
            }
            encode(&mut state.out, args);
            state.waiting.push_back((number, look));
        }
        poll_fn(|cx| {
            let number = &mut self.state.borrow_mut().callers[number];
            match number.answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => {
                    number.caller.clone_from(cx.waker());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Until somebody has asked.
    fn poll_asked(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        state.driver.clone_from(cx.waker());
        if state.out.is_empty() {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }

    /// Sends what was asked, hands out what was answered; ends when the connection is broken.
    fn poll_turn(
        &self,
        stream: &mut TcpStream,
        input: &mut Input,
        cx: &mut Context<'_>,
    ) -> Poll<Failed> {
        loop {
            if let Err(why) = self.write(stream, cx) {
                return Poll::Ready(why);
            }
            let handed = match ready!(input.poll_fill(stream, cx)) {
                Ok(()) => self.hand_out(input),
                Err(why) => Err(why),
            };
            if let Err(why) = handed {
                return Poll::Ready(why);
            }
        }
    }

    fn write(&self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Result<(), Failed> {
        let state = &mut *self.state.borrow_mut();
        state.driver.clone_from(cx.waker());
        while !state.out.is_empty() {
            match Pin::new(&mut *stream).poll_write(cx, &state.out) {
                Poll::Ready(Ok(sent)) => drop(state.out.drain(..sent)),
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Gives every whole answer to the one who has waited longest.
    fn hand_out(&self, input: &mut Input) -> Result<(), Failed> {
        let state = &mut *self.state.borrow_mut();
        let mut at = 0;
        while let Some(reply) = parse(&input.bytes[..input.filled], &mut at)? {
            let Some((number, look)) = state.waiting.pop_front() else {
                return Err("an answer that nobody asked for".to_string());
            };
            state.callers[number].give(look(reply));
        }
        input.taken(at);
        Ok(())
    }

    fn fail_all(&self, why: &Failed) {
        let state = &mut *self.state.borrow_mut();
        state.out.clear();
        for (number, _) in state.waiting.drain(..) {
            state.callers[number].give(Err(why.clone()));
        }
    }
}

impl Caller {
    fn give(&mut self, answer: Result<(), Failed>) {
        self.answer = Some(answer);
        self.caller.wake_by_ref();
    }
}

/// One connection after another, for as long as the thread has an event loop.
async fn drive(line: Rc<Line>) {
    loop {
        poll_fn(|cx| line.poll_asked(cx)).await;
        let why = match dial(&line.address).await {
            Ok(mut stream) => {
                let mut input = Input::new();
                poll_fn(|cx| line.poll_turn(&mut stream, &mut input, cx)).await
            }
            Err(why) => why,
        };
        line.fail_all(&why);
    }
}

/// What was read and is not handed out yet: the first `filled` bytes.
struct Input {
    bytes: Vec<u8>,
    filled: usize,
}

impl Input {
    fn new() -> Self {
        Self {
            bytes: vec![0; ROOM],
            filled: 0,
        }
    }

    /// One read. A short one tells the event loop that there is no more, so that it is not followed by an empty one.
    fn poll_fill(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        if self.filled == self.bytes.len() {
            self.bytes.resize(2 * self.filled, 0); // one answer is larger than all the room
        }
        let mut room = ReadBuf::new(&mut self.bytes[self.filled..]);
        let read = ready!(Pin::new(stream).poll_read(cx, &mut room));
        let count = room.filled().len();
        self.filled += count;
        Poll::Ready(match read {
            Ok(()) if count == 0 => Err("the server closed the connection".to_string()),
            Ok(()) => Ok(()),
            Err(error) => Err(error.to_string()),
        })
    }

    fn taken(&mut self, count: usize) {
        self.bytes.copy_within(count..self.filled, 0);
        self.filled -= count;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::{JoinHandle, LocalSet, spawn_local};

    use super::*;
    use crate::resp::{Reply, get_is_done};

    /// Callers whose n-th asks `GET n`; an answer is right for one caller only.
    fn callers(line: &Rc<Line>, count: usize) -> Vec<JoinHandle<Result<(), Failed>>> {
        let ask = |n: usize| {
            let (line, number) = (Rc::clone(line), line.join());
            spawn_local(async move { line.ask(number, &["GET", &n.to_string()], LOOKS[n]).await })
        };
        (0..count).map(ask).collect()
    }

    const LOOKS: [Look; 3] = [is::<0>, is::<1>, is::<2>];

    fn is<const N: u8>(reply: Reply<'_>) -> Result<(), Failed> {
        match reply {
            Reply::Bulk(Some([digit])) if *digit == b'0' + N => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    async fn listen() -> (TcpListener, Rc<Line>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let line = Line::new(&listener.local_addr().unwrap().to_string());
        (listener, line)
    }

    async fn outcomes(tasks: Vec<JoinHandle<Result<(), Failed>>>) -> Vec<Result<(), Failed>> {
        let mut all = Vec::new();
        for task in tasks {
            all.push(task.await.unwrap());
        }
        all
    }

    const THREE: &[u8] =
        b"*2\r\n$3\r\nGET\r\n$1\r\n0\r\n*2\r\n$3\r\nGET\r\n$1\r\n1\r\n*2\r\n$3\r\nGET\r\n$1\r\n2\r\n";

    #[tokio::test]
    async fn one_write_for_all_and_to_each_its_own_answer() {
        let run = async {
            let (listener, line) = listen().await;
            let tasks = callers(&line, 3);
            let (mut server, _) = listener.accept().await.unwrap();
            let mut got = [0; 1024];
            // One read finds all: they left in one write.
            let count = server.read(&mut got).await.unwrap();
            assert_eq!(&got[..count], THREE);
            // In pieces that cut an answer.
            server.write_all(b"$1\r\n0\r\n$1\r").await.unwrap();
            tokio::task::yield_now().await;
            server.write_all(b"\n1\r\n-ERR no\r\n").await.unwrap();
            let refused = Err("Error([69, 82, 82, 32, 110, 111])".to_string());
            assert_eq!(outcomes(tasks).await, [Ok(()), Ok(()), refused]);
            assert!(line.state.borrow().waiting.is_empty());
        };
        LocalSet::new().run_until(run).await;
    }

    #[tokio::test]
    async fn all_fail_with_the_connection_and_the_next_has_a_new_one() {
        let run = async {
            let (listener, line) = listen().await;
            let tasks = callers(&line, 3);
            let (mut server, _) = listener.accept().await.unwrap();
            server.read_exact(&mut [0; THREE.len()]).await.unwrap();
            server.write_all(b"$1\r\n0\r\n").await.unwrap();
            drop(server);
            let closed = Err("the server closed the connection".to_string());
            assert_eq!(
                outcomes(tasks).await,
                [Ok(()), closed.clone(), closed.clone()]
            );

            let tasks = callers(&line, 3);
            let (mut server, _) = listener.accept().await.unwrap();
            server.read_exact(&mut [0; THREE.len()]).await.unwrap();
            let answers = b"$1\r\n0\r\n$1\r\n1\r\n$1\r\n2\r\n";
            server.write_all(answers).await.unwrap();
            assert_eq!(outcomes(tasks).await, [Ok(()), Ok(()), Ok(())]);

            drop((listener, server));
            let refused = outcomes(callers(&line, 2)).await;
            assert!(refused.iter().all(Result::is_err), "{refused:?}");
        };
        LocalSet::new().run_until(run).await;
    }

    #[tokio::test]
    async fn an_answer_larger_than_the_room() {
        let run = async {
            let (listener, line) = listen().await;
            let number = line.join();
            let large = format!("${}\r\n{}\r\n", 3 * ROOM, "x".repeat(3 * ROOM));
            let serve = async {
                let (mut server, _) = listener.accept().await.unwrap();
                assert!(server.read(&mut [0; 1024]).await.unwrap() > 0);
                server.write_all(large.as_bytes()).await.unwrap();
            };
            let (answer, ()) = tokio::join!(line.ask(number, &["GET", "k"], get_is_done), serve);
            assert_eq!(answer, Ok(()));
        };
        LocalSet::new().run_until(run).await;
    }
}
