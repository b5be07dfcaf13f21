//! New connections of clients: refused, or a session each.

use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::Core;
use stats::clients::is_local;
use tokio::net::TcpStream;

use crate::commands::SessionRuns;
use crate::{listener, serve};

pub async fn accept(core: Rc<Core>, runs: Arc<SessionRuns>, listener: tokio::net::TcpListener) {
    while !core.is_stopping() {
        match listener.accept().await {
            Ok((stream, _)) => on_connection(&core, &runs, stream),
            // Out of descriptors, most likely: connections wait in the backlog meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
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

fn on_connection(core: &Rc<Core>, runs: &Arc<SessionRuns>, stream: TcpStream) {
    core.refresh_settings();
    let settings = core.settings().clone();
    // The system gives the lowest descriptor that is free: one of the last says how few are left, whatever took the others.
    let descriptor = u64::try_from(stream.as_raw_fd()).unwrap_or_default();
    let is_last = descriptor >= settings.descriptors.clients_below;
    let clients = &core.shared.clients;
    let has_room = clients.count() < settings.maxclients
        && clients.strangers() < settings.maxclients.div_ceil(2);
    let refusal = if is_last || !has_room {
        Some("-ERR max number of clients reached\r\n")
    } else if settings.protected_mode
        && settings.requirepass.is_empty()
        && !stream.peer_addr().is_ok_and(is_local)
    {
        Some(PROTECTED)
    } else {
        None
    };
    if let Some(text) = refusal {
        core.stats().rejected_connections.add(1);
        let _ = stream.try_write(text.as_bytes());
        return;
    }
    core.stats().connections.add(1);
    listener::prepare(&stream, settings.tcp_keepalive_seconds);
    tokio::task::spawn_local(serve(core.clone(), runs.clone(), stream));
}
