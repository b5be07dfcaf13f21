//! The sockets of the HTTP port: bound when the node starts, so that a port that is taken is told at once; listening only when it
//! serves, so that nobody waits for an answer while data is loaded.

use std::io;
use std::net::SocketAddr;

use session::listener::{self, ListenError};
use settings::{Settings, list};
use socket2::Socket;
use tokio::net::TcpListener;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 511;

pub struct Door {
    sockets: Vec<Socket>,
    port: u16,
}

impl Door {
    /// None if there is to be no HTTP port, or if nobody asked for one and the default is taken: several nodes on one machine
    /// must start.
    pub fn open(settings: &Settings) -> Result<Option<Door>, ListenError> {
        if settings.http_port == 0 {
            return Ok(None);
        }
        let is_given = list::find("http-port").is_some_and(|row| settings.is_given(row));
        match Door::bind(settings) {
            Ok(door) => Ok(Some(door)),
            Err(error) if is_given => Err(error),
            Err(error) => {
                tracing::warn!("no HTTP port (gRPC, /metrics): {error}");
                Ok(None)
            }
        }
    }

    fn bind(settings: &Settings) -> Result<Door, ListenError> {
        let port = settings.http_port;
        let mut sockets = Vec::new();
        for (ip, optional) in listener::addresses(settings)? {
            // Listening at once: of two nodes that bind the same port only one can.
            let bound = listener::bind(SocketAddr::new(ip, port), false);
            match bound.and_then(|socket| socket.listen(BACKLOG).map(|()| socket)) {
                Ok(socket) => sockets.push(socket),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    let flag = "http-port";
                    return Err(ListenError::InUse { port, flag });
                }
                Err(_) if optional => {}
                Err(error) => {
                    return Err(ListenError::Address {
                        address: SocketAddr::new(ip, port).to_string(),
                        reason: error.to_string(),
                    });
                }
            }
        }
        match sockets.is_empty() {
            true => Err(listener::no_address(settings)),
            false => Ok(Door { sockets, port }),
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Call it inside the runtime that will serve.
    pub fn listen(self) -> io::Result<Vec<TcpListener>> {
        let mut listeners = Vec::new();
        for socket in self.sockets {
            listeners.push(TcpListener::from_std(socket.into())?);
        }
        Ok(listeners)
    }
}
