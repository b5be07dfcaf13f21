//! Listening sockets: one per core and address, all on the same port (`SO_REUSEPORT`), so the
//! kernel spreads new connections over the cores.
//!
//! `CONFIG SET` of `port`, `tls-port` or `bind` opens new ones and, if that went well, shuts the old ones: whoever accepts on
//! a socket that no longer listens ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::PoisonError;
use std::time::Duration;

use runtime::Shared;
use runtime::cores::Message;
use settings::Settings;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::Session;
use crate::accept::accept;

/// What is spoken on a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    Plain,
    Tls,
}

/// Why a node does not listen.
#[derive(Debug)]
pub enum ListenError {
    InUse { port: u16, flag: &'static str },
    Address { address: String, reason: String },
    Nowhere,
}

impl std::fmt::Display for ListenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ListenError::InUse { port, flag } => {
                write!(f, "port {port} is in use; choose another with --{flag}")?;
                match *flag {
                    "http-port" => f.write_str(", or 0 for none"),
                    _ => Ok(()),
                }
            }
            ListenError::Address { address, reason } => {
                write!(f, "cannot listen on {address}: {reason} (setting `bind`)")
            }
            ListenError::Nowhere => f.write_str(
                "--redis-port 0 closes the plain port, and there is no other: give --tls-port",
            ),
        }
    }
}

/// The listeners of every core.
pub type Listeners = Vec<Vec<(Port, TcpListener)>>;

const FLAGS: [(Port, &str); 2] = [(Port::Plain, "redis-port"), (Port::Tls, "tls-port")];

fn number(settings: &Settings, port: Port) -> u16 {
    match port {
        Port::Plain => settings.redis_port,
        Port::Tls => settings.tls.port,
    }
}

/// Listens where the settings say.
pub fn listen(settings: &Settings) -> Result<Listeners, ListenError> {
    listen_anew(settings, None)
}

/// The listeners of every core. `before`: those of these settings exist; only what differs is opened.
fn listen_anew(settings: &Settings, before: Option<&Settings>) -> Result<Listeners, ListenError> {
    let shards = settings.num_shards.max(1);
    let mut cores: Listeners = (0..shards).map(|_| Vec::new()).collect();
    if before.is_none() && FLAGS.iter().all(|&(kind, _)| number(settings, kind) == 0) {
        return Err(ListenError::Nowhere);
    }
    for (kind, flag) in FLAGS {
        let port = number(settings, kind);
        let is_ours = before.is_some_and(|it| number(it, kind) == port);
        if port == 0 || is_ours && before.is_some_and(|it| it.bind == settings.bind) {
            continue;
        }
        let listeners = listen_at(settings, port, flag, is_ours)?;
        for (core, listeners) in cores.iter_mut().zip(listeners) {
            core.extend(listeners.into_iter().map(|listener| (kind, listener)));
        }
    }
    Ok(cores)
}

/// Remembers listening sockets in the place of others of their kind, which are shut.
pub fn replace(shared: &Shared, kinds: &[Port], listeners: &Listeners) {
    let mut listening = shared
        .listening
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for &kind in kinds {
        let place = match kind {
            Port::Plain => &mut listening.plain,
            Port::Tls => &mut listening.tls,
        };
        for old in place.drain(..) {
            let _ = socket2::SockRef::from(&old).shutdown(std::net::Shutdown::Both);
        }
        let new = listeners.iter().flatten().filter(|(of, _)| *of == kind);
        place.extend(new.filter_map(|(_, listener)| listener.try_clone().ok()));
    }
}

/// Listens where `next` says, no longer where `now` says: `CONFIG SET port`, `tls-port`, `bind`.
pub fn move_to(session: &Session, now: &Settings, next: &Settings) -> Result<(), ListenError> {
    let shared = session.shared();
    let is_moved = |kind| number(now, kind) != number(next, kind) || now.bind != next.bind;
    let kinds: Vec<Port> = FLAGS
        .iter()
        .map(|it| it.0)
        .filter(|&it| is_moved(it))
        .collect();
    if kinds.is_empty() {
        return Ok(());
    }
    let listeners = listen_anew(next, Some(now))?;
    replace(shared, &kinds, &listeners);
    for (mailbox, listeners) in shared.mailboxes.iter().zip(listeners) {
        let runs = session.runs.clone();
        mailbox.send(Message::Call(Box::new(move |core| {
            for (port, listener) in listeners {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => {
                        tokio::task::spawn_local(accept(
                            core.clone(),
                            runs.clone(),
                            listener,
                            port,
                        ));
                    }
                    Err(error) => tracing::error!("a port is not listened on: {error}"),
                }
            }
        })));
    }
    Ok(())
}

/// The listeners of every core at one port; `is_ours`: this node listens there already, at other addresses.
fn listen_at(
    settings: &Settings,
    port: u16,
    flag: &'static str,
    is_ours: bool,
) -> Result<Vec<Vec<TcpListener>>, ListenError> {
    // `SO_REUSEPORT` would let two nodes share a port without a word: look first without it. The
    // socket that looks does not listen, or a client that is quick would be cut off with it.
    let mut usable = Vec::new();
    for (ip, optional) in addresses(settings)? {
        match bind(SocketAddr::new(ip, port), is_ours) {
            Ok(_) => usable.push(ip),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(ListenError::InUse { port, flag });
            }
            Err(_) if optional => {}
            Err(error) => {
                return Err(ListenError::Address {
                    address: ip.to_string(),
                    reason: error.to_string(),
                });
            }
        }
    }
    if usable.is_empty() {
        return Err(no_address(settings));
    }
    let mut cores = Vec::new();
    for _ in 0..settings.num_shards.max(1) {
        let mut listeners = Vec::new();
        for &ip in &usable {
            let backlog = settings.tcp_backlog.clamp(1, 65_535) as i32;
            let listening = bind(SocketAddr::new(ip, port), true).and_then(|socket| {
                socket.listen(backlog)?;
                Ok(socket)
            });
            let listener = listening.map_err(|error| {
                if error.kind() == io::ErrorKind::AddrInUse {
                    ListenError::InUse { port, flag }
                } else {
                    ListenError::Address {
                        address: ip.to_string(),
                        reason: error.to_string(),
                    }
                }
            })?;
            listeners.push(listener.into());
        }
        cores.push(listeners);
    }
    Ok(cores)
}

/// The addresses of `bind`; true: it may be missing.
pub fn addresses(settings: &Settings) -> Result<Vec<(IpAddr, bool)>, ListenError> {
    let mut addresses = Vec::new();
    for text in &settings.bind {
        let (optional, name) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.as_str()),
        };
        match parse(name) {
            Some(ip) => addresses.push((ip, optional)),
            None if optional => {}
            None => {
                return Err(ListenError::Address {
                    address: text.clone(),
                    reason: "not an IP address".into(),
                });
            }
        }
    }
    Ok(addresses)
}

pub fn no_address(settings: &Settings) -> ListenError {
    ListenError::Address {
        address: settings.bind.join(" "),
        reason: "no usable address".into(),
    }
}

fn parse(text: &str) -> Option<IpAddr> {
    match text {
        "*" => Some(Ipv4Addr::UNSPECIFIED.into()),
        "::*" => Some(Ipv6Addr::UNSPECIFIED.into()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        other => other.parse().ok(),
    }
}

/// Bound, not listening. `shared`: others may bind the same.
pub fn bind(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// What every accepted connection gets: no delay, keepalive.
pub fn prepare(stream: &tokio::net::TcpStream, keepalive_seconds: u64) {
    let _ = stream.set_nodelay(true);
    if keepalive_seconds > 0 {
        let interval = (keepalive_seconds / 3).max(1);
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(keepalive_seconds))
            .with_interval(Duration::from_secs(interval))
            .with_retries(3);
        let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
}
