//! The task of a session: read, run what is complete, write, again.
//!
//! Buffers are borrowed from the core while there is something in them; a session that is idle, or waits for the log, has
//! none.

use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use base::milestone;
use resp::{Parsed, Protocol, Reply, RequestLimits, RequestParser};
use runtime::cores::Core;
use runtime::users::UNHEARD;
use stats::clients::Client;
use tokio::net::{TcpStream, UnixStream};

use super::Session;
use super::dispatch::{Slow, Step, Work};
use super::pending::Pending;
use super::prefetch::Lookahead;
use super::socket::Socket;
use crate::commands::SessionRuns;

/// Replies are written when this much waits, even if there is more to run.
const FLUSH_BYTES: usize = 16 * 1024;
/// Bytes written after which other sessions run.
const YIELD_BYTES: usize = 1 << 20;
/// Least room to read into.
const READ_BYTES: usize = 16 * 1024;

/// The session is over.
#[derive(Debug)]
pub(super) struct Ended;

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Ended
    }
}

/// What one client sent and has not been run.
pub(super) struct Input {
    pub buffer: Vec<u8>,
    /// Start of the next command.
    pub at: usize,
    pub parser: RequestParser,
    /// Length of the command being run.
    pub consumed: usize,
    limits: RequestLimits,
    /// More bytes the command at `at` needs at least.
    needed: usize,
    lookahead: Lookahead,
}

pub(super) struct Connection {
    pub socket: Socket,
    pub input: Input,
    pub work: Work,
    /// Bytes written when it let others run last.
    yielded: usize,
}

/// Why [`Connection::run_buffered`] stopped.
enum Stopped {
    /// No whole command is left.
    Drained,
    /// Enough replies wait to be written.
    Full,
    Slow(Slow),
    /// The client broke the protocol; the error is written.
    Broken,
}

/// Serves one connection to its end. It counts as a client from the call on, before its task runs.
pub(super) fn serve(
    core: Rc<Core>,
    runs: Arc<SessionRuns>,
    socket: Socket,
) -> impl Future<Output = ()> {
    let (stream, is_tls) = match &socket {
        Socket::Tcp(stream) => (Some(stream), false),
        Socket::Tls(stream) => (Some(stream.tcp()), true),
        // Those of the node itself come by `serve_internal`.
        Socket::Unix(_) => (None, false),
    };
    let address = |address: Option<io::Result<std::net::SocketAddr>>| match address {
        Some(Ok(address)) => address.to_string(),
        _ => "?:0".into(),
    };
    let mut client = Client::new(
        core.shared.clients.next_id(),
        address(stream.map(TcpStream::peer_addr)),
        address(stream.map(TcpStream::local_addr)),
        core.id,
        core.now_ms(),
    );
    client.is_tls = is_tls;
    if let Some(stream) = stream {
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(stream);
        client.fd.store(descriptor, Ordering::Relaxed);
    }
    let client = Arc::new(client);
    let (registered, connection) = open(core, runs, client, socket);
    run(registered, connection)
}

/// Serves one connection of the node itself to its end.
pub async fn serve_internal(
    core: Rc<Core>,
    runs: Arc<SessionRuns>,
    socket: std::os::unix::net::UnixStream,
    for_whom: &'static str,
) {
    let stream = socket
        .set_nonblocking(true)
        .and_then(|()| UnixStream::from_std(socket));
    // Whoever has the other end sees it closed.
    let Ok(stream) = stream else { return };
    let id = core.shared.clients.next_id();
    let client = Client::internal(id, for_whom, core.id, core.now_ms());
    let (registered, connection) = open(core, runs, Arc::new(client), Socket::Unix(stream));
    run(registered, connection).await;
}

fn open(
    core: Rc<Core>,
    runs: Arc<SessionRuns>,
    client: Arc<Client>,
    socket: Socket,
) -> (Registered, Connection) {
    let registered = Registered::new(&core, client.clone());
    let connection = Connection {
        socket,
        input: Input {
            buffer: Vec::new(),
            at: 0,
            parser: RequestParser::new(),
            consumed: 0,
            limits: RequestLimits::default(),
            needed: 1,
            lookahead: Lookahead::default(),
        },
        work: Work {
            session: Session::new(core, runs, client),
            pending: Pending::default(),
            out: Reply::new(Protocol::Resp2),
            regions: Vec::new(),
            cold: None,
            carried: Default::default(),
            suppressed: None,
            written: 0,
        },
        yielded: 0,
    };
    connection.work.session.publish();
    (registered, connection)
}

async fn run(registered: Registered, mut connection: Connection) {
    poll_fn(|cx| {
        registered.client.set_waker(cx.waker().clone());
        Poll::Ready(())
    })
    .await;
    let session = &mut connection.work.session;
    let shared = session.core.shared.clone();
    if !shared.users.is_known() {
        // A node of a cluster that has just started may have slept while users were changed.
        if !shared.users_known().await {
            connection.work.out.refusal(&UNHEARD);
            let _ = connection.flush().await;
            return;
        }
        if !registered.client.is_internal {
            session.log_out();
        }
    }
    let Err(Ended) = connection.run().await;
    drop(registered);
}

/// A client in the registries; dropping it (also when the task is torn down) takes it out.
struct Registered {
    core: Rc<Core>,
    client: Arc<Client>,
}

impl Registered {
    fn new(core: &Rc<Core>, client: Arc<Client>) -> Self {
        if !client.is_internal {
            core.shared.clients.add(client.clone());
        }
        core.clients()
            .borrow_mut()
            .insert(client.id, client.clone());
        Registered {
            core: core.clone(),
            client,
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.client.monitor.load(Ordering::Relaxed) {
            self.core.shared.clients.add_monitors(-1);
        }
        self.core.shared.clients.remove(self.client.id);
        self.core.clients().borrow_mut().remove(&self.client.id);
    }
}

impl Connection {
    async fn run(&mut self) -> Result<std::convert::Infallible, Ended> {
        loop {
            self.fill().await?;
            let core = self.work.session.core.clone();
            core.begin_batch();
            self.begin();
            loop {
                match self.run_buffered() {
                    Stopped::Drained => break,
                    Stopped::Full => {
                        self.finish_pending().await?;
                        self.flush().await?;
                        self.yield_after_much().await;
                    }
                    Stopped::Slow(slow) => {
                        self.finish_pending().await?;
                        Box::pin(self.run_slow(slow)).await?;
                        self.input.at += self.input.consumed;
                        if self.work.session.close_after_reply {
                            break;
                        }
                    }
                    Stopped::Broken => {
                        self.finish_pending().await?;
                        self.flush().await?;
                        return Err(Ended);
                    }
                }
            }
            self.finish_pending().await?;
            self.flush().await?;
            if self.work.session.close_after_reply {
                return Err(Ended);
            }
            self.tidy();
            core.poke_inbox();
        }
    }

    /// A new batch: what the parser may accept, what others see.
    fn begin(&mut self) {
        let session = &self.work.session;
        let settings = session.core.settings();
        self.input.limits.bulk_bytes = settings.proto_max_bulk_bytes;
        self.input.limits.unauthenticated = !session.authenticated;
        drop(settings);
        self.work.out.set_limit(session.reply_limit());
        let client = &session.client;
        client
            .last_active_ms
            .store(session.core.now_ms(), Ordering::Relaxed);
        if self.work.out.buffer_mut().capacity() == 0 {
            *self.work.out.buffer_mut() = self.work.session.core.take_buffer();
        }
    }

    /// Waits for bytes.
    async fn fill(&mut self) -> Result<(), Ended> {
        loop {
            if let Some(pushed) = self.work.session.client.take_pushed() {
                self.work.out.raw(&pushed);
                self.flush().await?;
            }
            let core = self.work.session.core.clone();
            let (input, socket) = (&mut self.input, &mut self.socket);
            let client = &self.work.session.client;
            let mut bytes = None;
            poll_fn(|cx| {
                if client.is_killed() || client.has_pushed() {
                    return Poll::Ready(Ok(()));
                }
                input.make_room(&core);
                match socket.poll_fill(cx, &mut input.buffer) {
                    Poll::Ready(read) => {
                        bytes = Some(read?);
                        Poll::Ready(Ok(()))
                    }
                    Poll::Pending => {
                        if input.buffer.is_empty() {
                            core.give_buffer(std::mem::take(&mut input.buffer));
                        }
                        Poll::Pending
                    }
                }
            })
            .await
            .map_err(|_: io::Error| Ended)?;
            if client.is_killed() {
                return Err(Ended);
            }
            match bytes {
                Some(0) => return Err(Ended),
                Some(n) => {
                    core.stats().net_input_bytes.add(n as u64);
                    let limit = core.settings().client_query_buffer_limit;
                    let queued = self.work.session.multi.as_ref();
                    let queued = queued.map_or(0, |multi| multi.size_bytes());
                    if limit > 0 && self.input.buffer.len() + queued > limit {
                        tracing::warn!(
                            addr = %client.addr,
                            id = client.id,
                            "Closing client that reached max query buffer length"
                        );
                        return Err(Ended);
                    }
                    return Ok(());
                }
                None => {}
            }
        }
    }

    /// Runs commands until one has to wait or none is left.
    fn run_buffered(&mut self) -> Stopped {
        let (input, work) = (&mut self.input, &mut self.work);
        loop {
            let bytes = input.buffer.get(input.at..).unwrap_or_default();
            if bytes.is_empty() {
                input.needed = 1;
                return Stopped::Drained;
            }
            input
                .lookahead
                .look(&work.session, &input.buffer, input.at, &input.limits);
            match input.parser.parse(bytes, &input.limits) {
                Ok(Parsed::Command { consumed }) => {
                    let args = input.parser.args(bytes);
                    match work.dispatch(&args) {
                        Step::Done => input.at += consumed,
                        Step::Slow(slow) => {
                            input.consumed = consumed;
                            return Stopped::Slow(slow);
                        }
                    }
                    if work.session.close_after_reply {
                        return Stopped::Drained;
                    }
                    input.limits.unauthenticated = !work.session.authenticated;
                    if work.out.len() >= FLUSH_BYTES || work.pending.is_full() {
                        return Stopped::Full;
                    }
                }
                Ok(Parsed::Nothing { consumed }) => input.at += consumed,
                Ok(Parsed::Incomplete { needed }) => {
                    input.needed = needed;
                    return Stopped::Drained;
                }
                Err(error) => {
                    work.protocol_error(&error.0);
                    return Stopped::Broken;
                }
            }
        }
    }

    /// Waits for commands on other cores; their replies are in the output then. If these are long they are written part by part, and
    /// the next part is made when the client has taken the last.
    pub(super) async fn finish_pending(&mut self) -> Result<(), Ended> {
        let work = &mut self.work;
        let is_durable = work.session.core.shared.durable.is_some();
        self.input.lookahead.run_later = is_durable && !work.pending.is_empty();
        if work.pending.is_empty() {
            return Ok(());
        }
        loop {
            self.lend_buffers();
            let work = &mut self.work;
            work.pending.finish(&mut work.session, &mut work.out).await;
            if work.pending.is_empty() {
                return Ok(());
            }
            self.flush().await?;
            self.yield_after_much().await;
        }
    }

    /// A session that writes much lets others run in between.
    async fn yield_after_much(&mut self) {
        if self.work.written - self.yielded >= YIELD_BYTES {
            self.yielded = self.work.written;
            tokio::task::yield_now().await;
            self.work.session.core.begin_batch();
        }
    }

    /// What is pending has been copied: while it is waited for, others may use the buffers that are empty. Hundreds
    /// of sessions then read into the same few buffers, which stay in the CPU's cache.
    fn lend_buffers(&mut self) {
        let core = &self.work.session.core;
        let out = &mut self.work.out;
        if out.is_empty() {
            core.give_buffer(std::mem::take(out.buffer_mut()));
        }
        self.input.give_back_drained(core);
    }

    /// Writes all replies.
    pub(super) async fn flush(&mut self) -> Result<(), Ended> {
        let out = &mut self.work.out;
        if out.is_empty() && !out.has_overflowed() {
            return Ok(());
        }
        let session = &self.work.session;
        let limit = session.core.settings().output_limit_normal;
        let is_too_much = limit.hard_bytes > 0 && out.len() > limit.hard_bytes;
        if is_too_much || out.has_overflowed() {
            tracing::warn!(
                addr = %session.client.addr,
                id = session.client.id,
                "Client closed for overcoming of output buffer limits."
            );
            return Err(Ended);
        }
        if session.client.is_tls
            && let Some(cluster) = &session.core.shared.cluster
        {
            out.rename_moved(|moved| {
                let node = cluster.routes().at(&moved.address)?.tls()?;
                Some(moved.at(&node.to_string()))
            });
        }
        milestone("the session wrote the reply");
        let mut rest = out.as_bytes();
        let socket = &mut self.socket;
        let mut since: Option<Instant> = None;
        while !rest.is_empty() {
            let soft = limit.soft_bytes > 0 && rest.len() > limit.soft_bytes;
            let mut write = poll_fn(|cx| {
                if session.client.is_killed() && !session.close_after_reply {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                socket.poll_write(cx, rest)
            });
            let written = if soft {
                let since = since.get_or_insert_with(Instant::now);
                let left = Duration::from_secs(limit.soft_seconds).saturating_sub(since.elapsed());
                match tokio::time::timeout(left, &mut write).await {
                    Ok(written) => written?,
                    Err(_) => return Err(Ended),
                }
            } else {
                since = None;
                write.await?
            };
            if written == 0 {
                return Err(Ended);
            }
            rest = rest.get(written..).unwrap_or_default();
            if written < out.len() {
                let waiting = rest.len() + self.work.pending.waiting_bytes();
                session
                    .client
                    .output_bytes
                    .store(waiting, Ordering::Relaxed);
            }
        }
        session.core.stats().net_output_bytes.add(out.len() as u64);
        self.work.written += out.len();
        out.truncate(0);
        // Room for one huge reply is not kept.
        if out.buffer_mut().capacity() > 64 * 1024 {
            *out.buffer_mut() = session.core.take_buffer();
        }
        Ok(())
    }

    /// After a batch: gives buffers back, keeps the beginning of an incomplete command.
    fn tidy(&mut self) {
        let work = &mut self.work;
        let core = &work.session.core;
        core.give_buffer(std::mem::take(work.out.buffer_mut()));
        let input = &mut self.input;
        if !input.give_back_drained(core) {
            input.buffer.drain(..input.at);
            input.at = 0;
            input.lookahead.forget();
        }
        work.session.publish();
        let waiting = input.buffer.len();
        work.session
            .client
            .input_bytes
            .store(waiting, Ordering::Relaxed);
    }
}

impl Input {
    /// If all of it has been run the core gets the buffer back.
    fn give_back_drained(&mut self, core: &Core) -> bool {
        let is_drained = self.at >= self.buffer.len();
        if is_drained {
            core.give_buffer(std::mem::take(&mut self.buffer));
            self.at = 0;
            self.lookahead.forget();
        }
        is_drained
    }

    /// Makes room to read into: the core's buffer, and then for a long string as much again as is there. What a client only
    /// announces takes no memory, and each byte is copied about once.
    pub(super) fn make_room(&mut self, core: &Core) {
        if self.buffer.capacity() == 0 {
            self.buffer = core.take_buffer();
            return;
        }
        let here = self.buffer.len();
        if self.buffer.capacity() - here >= READ_BYTES / 4 {
            return;
        }
        match self.needed > READ_BYTES {
            true => self
                .buffer
                .reserve_exact(self.needed.min(here).max(READ_BYTES)),
            false => self.buffer.reserve(READ_BYTES),
        }
    }
}
