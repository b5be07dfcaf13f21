//! How a client of RESP reaches one server: over a connection of its own, or over one that it shares with others.
//!
//! Both connect again after a failure, with the next operation. [`Links`] knows who shares with whom: clients of a thread are
//! in groups of `--streams`, and a group has one connection per server. Connections of their own are not lines of one:
//! nothing stands between the client and its socket, which is what a client without multiplexing costs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::Settings;
use crate::phase::Failed;
use crate::resp::{Connection, Look};
use crate::shared::Line;

pub enum Link {
    Own(Own),
    Shared { line: Rc<Line>, number: usize },
}

pub struct Own {
    address: String,
    connection: Option<Connection>,
}

impl Own {
    /// The connection; a new one after a failure.
    pub async fn connection(&mut self) -> Result<&mut Connection, Failed> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.address).await?,
        };
        Ok(self.connection.insert(connection))
    }

    /// The answer; or why there is none, and the connection is given up.
    pub fn answer(&mut self, answered: Result<Result<(), Failed>, Failed>) -> Result<(), Failed> {
        answered.inspect_err(|_| self.connection = None)?
    }

    async fn ask(&mut self, args: &[impl AsRef<[u8]>], look: Look) -> Result<(), Failed> {
        let connection = self.connection().await?;
        connection.command(args);
        let answered = match connection.send().await {
            Ok(()) => connection.receive(look).await,
            Err(why) => Err(why),
        };
        self.answer(answered)
    }
}

impl Link {
    /// Connects now, so that a server that is not there is told before the load begins.
    pub async fn open(&mut self) -> Result<(), Failed> {
        match self {
            Self::Own(own) => own.connection().await.map(drop),
            Self::Shared { line, number } => line.ask(*number, &["PING"], |_| Ok(())).await,
        }
    }

    /// One operation, and its answer as `look` sees it.
    pub async fn ask(&mut self, args: &[impl AsRef<[u8]>], look: Look) -> Result<(), Failed> {
        match self {
            Self::Own(own) => own.ask(args, look).await,
            Self::Shared { line, number } => line.ask(*number, args, look).await,
        }
    }
}

/// The links of one thread's clients.
pub struct Links {
    /// None: everybody has connections of its own.
    groups: Option<usize>,
    lines: RefCell<HashMap<(String, usize), Rc<Line>>>,
}

impl Links {
    pub fn new(settings: &Settings, clients: usize) -> Self {
        let streams = settings.streams();
        Self {
            groups: (streams > 1).then(|| clients.div_ceil(streams)),
            lines: RefCell::default(),
        }
    }

    /// From the n-th client to a server.
    pub fn link(&self, n: usize, address: &str) -> Link {
        let Some(groups) = self.groups else {
            return Link::Own(Own {
                address: address.to_string(),
                connection: None,
            });
        };
        let mut lines = self.lines.borrow_mut();
        let line = lines
            .entry((address.to_string(), n % groups))
            .or_insert_with(|| Line::new(address));
        Link::Shared {
            line: Rc::clone(line),
            number: line.join(),
        }
    }
}
