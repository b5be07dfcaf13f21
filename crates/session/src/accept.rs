//! New connections of clients: refused, or a session each. Those on the port for TLS shake hands first.
//!
//! A handshake costs a stranger nothing and us a signature, so there are few at a time on a core, each has a deadline,
//! and when there are too many the oldest ends: a client's takes a moment, the old ones are of those that never finish.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::Core;
use socket2::SockRef;
use stats::clients::is_local;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use crate::commands::SessionRuns;
use crate::connection::serve;
use crate::listener::{self, Port};
use crate::socket::Socket;
use crate::tls::TlsStream;

/// Handshakes at a time, on each core.
const HANDSHAKES: usize = 256;
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

pub async fn accept(
    core: Rc<Core>,
    runs: Arc<SessionRuns>,
    listener: tokio::net::TcpListener,
    port: Port,
) {
    let handshakes = Rc::new(Handshakes::default());
    while !core.is_stopping() {
        match (listener.accept().await, port) {
            (Ok((stream, _)), Port::Plain) => on_connection(&core, &runs, stream),
            (Ok((stream, _)), Port::Tls) => handshakes.begin(&core, &runs, stream),
            // The port has moved (`listener::move_to`).
            (Err(_), _) if !SockRef::from(&listener).is_listener().unwrap_or(true) => return,
            // Out of descriptors, most likely: connections wait in the backlog meanwhile.
            (Err(_), _) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What a client from another machine reads while `protected-mode` is on and no password set:
/// Redis' words, which clients and people know.
const PROTECTED: &str = "-DENIED Redis is running in protected mode because protected mode is \
enabled and no password is set for the default user. In this mode connections are only accepted \
from the loopback interface. If you want to connect from external computers to Redis you may adopt \
one of the following solutions: 1) Just disable protected mode sending the command 'CONFIG SET \
protected-mode no' from the loopback interface by connecting to Redis from the same host the server \
is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use \
CONFIG REWRITE to make this change permanent. 2) Alternatively you can just disable the protected \
mode by editing the Redis configuration file, and setting the protected mode option to 'no', and \
then restarting the server. 3) If you started the server manually just for testing, restart it with \
the '--protected-mode no' option. 4) Setup a an authentication password for the default user. NOTE: \
You only need to do one of the above things in order for the server to start accepting connections \
from the outside.\r\n";

/// Whether there is no room for one more client.
fn is_full(core: &Core, stream: &TcpStream) -> bool {
    let settings = core.settings();
    // The system gives the lowest descriptor that is free: one of the last says how few are left, whatever took the others.
    let descriptor = u64::try_from(stream.as_raw_fd()).unwrap_or_default();
    let clients = &core.shared.clients;
    descriptor >= settings.descriptors.clients_below
        || clients.count() >= settings.maxclients
        || clients.strangers() >= settings.maxclients.div_ceil(2)
}

/// Why a client may not come, if so.
fn refusal(core: &Core, stream: &TcpStream) -> Option<&'static str> {
    let settings = core.settings();
    if is_full(core, stream) {
        Some("-ERR max number of clients reached\r\n")
    } else if settings.protected_mode
        && !core.shared.users.has_default_password()
        && !stream.peer_addr().is_ok_and(is_local)
    {
        Some(PROTECTED)
    } else {
        None
    }
}

fn on_connection(core: &Rc<Core>, runs: &Arc<SessionRuns>, stream: TcpStream) {
    core.refresh_settings();
    if let Some(text) = refusal(core, &stream) {
        core.stats().rejected_connections.add(1);
        let _ = stream.try_write(text.as_bytes());
        return;
    }
    core.stats().connections.add(1);
    listener::prepare(&stream, core.settings().tcp_keepalive_seconds);
    tokio::task::spawn_local(serve(core.clone(), runs.clone(), Socket::Tcp(stream)));
}

/// The handshakes of one listener.
#[derive(Default)]
struct Handshakes {
    begun: Cell<u64>,
    /// Oldest first.
    open: RefCell<BTreeMap<u64, AbortHandle>>,
}

impl Handshakes {
    fn begin(self: &Rc<Self>, core: &Rc<Core>, runs: &Arc<SessionRuns>, stream: TcpStream) {
        core.refresh_settings();
        let settings = core.settings().clone();
        let open = self.open.borrow().len();
        // Before the handshake there is nobody who could read why.
        if is_full(core, &stream) {
            core.stats().rejected_connections.add(1);
            return;
        }
        let Some(tls) = core.shared.tls.current() else {
            return;
        };
        listener::prepare(&stream, settings.tcp_keepalive_seconds);
        let Ok(stream) = TlsStream::new(stream, tls.redis.clone()) else {
            return;
        };
        if open >= HANDSHAKES
            && let Some((_, oldest)) = self.open.borrow_mut().pop_first()
        {
            core.stats().rejected_connections.add(1);
            oldest.abort();
        }
        let number = self.begun.get();
        self.begun.set(number + 1);
        let (core, runs, all) = (core.clone(), runs.clone(), self.clone());
        let task = tokio::task::spawn_local(async move {
            let shaken = tokio::time::timeout(HANDSHAKE_TIME, shake(stream)).await;
            all.open.borrow_mut().remove(&number);
            match shaken {
                Ok(Ok(stream)) => on_secured(core, runs, stream).await,
                Ok(Err(error)) => {
                    core.stats().rejected_connections.add(1);
                    tracing::debug!("TLS: a handshake failed: {error}");
                }
                Err(_) => {
                    core.stats().rejected_connections.add(1);
                    tracing::debug!("TLS: a handshake was not finished in time");
                }
            }
        });
        let mut open = self.open.borrow_mut();
        open.insert(number, task.abort_handle());
    }
}

async fn shake(mut stream: TlsStream) -> io::Result<Box<TlsStream>> {
    poll_fn(|cx| stream.poll_handshake(cx)).await?;
    Ok(Box::new(stream))
}

/// A client whose handshake is done: it can read why it may not come.
async fn on_secured(core: Rc<Core>, runs: Arc<SessionRuns>, stream: Box<TlsStream>) {
    core.refresh_settings();
    let refused = refusal(&core, stream.tcp());
    let mut socket = Socket::Tls(stream);
    if let Some(text) = refused {
        core.stats().rejected_connections.add(1);
        // A socket that has just been opened has room for a line.
        poll_fn(|cx| std::task::Poll::Ready(socket.poll_write(cx, text.as_bytes()).is_ready()))
            .await;
        return;
    }
    core.stats().connections.add(1);
    serve(core, runs, socket).await;
}
