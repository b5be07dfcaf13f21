//! Listening sockets: one per core and address, all on the same port (`SO_REUSEPORT`), so the
//! kernel spreads new connections over the cores.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use settings::Settings;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// Why a node does not listen.
#[derive(Debug)]
pub enum ListenError {
    InUse { port: u16 },
    HttpInUse { port: u16 },
    Address { address: String, reason: String },
}

impl std::fmt::Display for ListenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ListenError::InUse { port } => {
                write!(f, "port {port} is in use; choose another with --redis-port")
            }
            ListenError::HttpInUse { port } => write!(
                f,
                "port {port} is in use; choose another with --http-port, or 0 for none"
            ),
            ListenError::Address { address, reason } => {
                write!(f, "cannot listen on {address}: {reason} (setting `bind`)")
            }
        }
    }
}

/// The listeners of every core, and the port they have.
pub fn listen(settings: &Settings) -> Result<(Vec<Vec<TcpListener>>, u16), ListenError> {
    let mut port = settings.redis_port;
    let addresses = addresses(settings)?;
    // `SO_REUSEPORT` would let two nodes share a port without a word: look first without it. The
    // socket that looks does not listen, or a client that is quick would be cut off with it.
    let mut usable = Vec::new();
    for (ip, optional) in addresses {
        match bind(SocketAddr::new(ip, port), false) {
            Ok(probe) => {
                port = local_port(&probe).unwrap_or(port);
                usable.push(ip);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(ListenError::InUse { port });
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
                    ListenError::InUse { port }
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
    Ok((cores, port))
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

fn local_port(socket: &Socket) -> Option<u16> {
    Some(socket.local_addr().ok()?.as_socket()?.port())
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
