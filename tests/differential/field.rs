//! The servers that run side by side: redis-server says what is right.

use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::process::Server;
use crate::script::CLIENTS;
use crate::transcript::wire::{self, Value};
use crate::words::Argv;

pub struct Player {
    pub name: &'static str,
    server: Server,
    durable: bool,
    /// From how many elements on collections stay in rows, from one start to the next.
    thresholds: &'static [u32],
    starts: usize,
    clients: Vec<Option<Connection>>,
    control: Option<Connection>,
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(port: u16, version: u8) -> io::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        let mut connection = Connection(BufReader::new(stream));
        if version == 3 {
            connection.send(&[vec!["HELLO".into(), "3".into()]])?;
            connection.receive()?;
        }
        Ok(connection)
    }

    fn send(&mut self, commands: &[Argv]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for argv in commands {
            let argv: Vec<Vec<u8>> = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
            bytes.extend(wire::encode(&argv));
        }
        self.0.get_mut().write_all(&bytes)
    }

    fn receive(&mut self) -> io::Result<Value> {
        match wire::decode(&mut self.0)? {
            Value::Closed => Err(io::Error::other("the server closed the connection")),
            value => Ok(value),
        }
    }
}

impl Player {
    fn new(name: &'static str, server: Server) -> Player {
        Player {
            name,
            server,
            durable: false,
            thresholds: &[],
            starts: 0,
            clients: (0..CLIENTS).map(|_| None).collect(),
            control: None,
        }
    }

    fn durable(name: &'static str, server: Server, thresholds: &'static [u32]) -> Player {
        let mut player = Player::new(name, server);
        player.durable = true;
        player.thresholds = thresholds;
        player
    }

    /// Sends to a client, which connects if it has not; every other one speaks RESP3.
    pub fn send(&mut self, client: usize, commands: &[Argv]) -> Result<(), String> {
        let connection = match &mut self.clients[client] {
            Some(connection) => Ok(connection),
            none => Connection::open(self.server.port, 2 + client as u8 % 2)
                .map(|connection| none.insert(connection)),
        };
        let sent = connection.and_then(|connection| connection.send(commands));
        sent.map_err(|error| self.lost(&error))
    }

    pub fn receive(&mut self, client: usize) -> Result<Value, String> {
        let received = match &mut self.clients[client] {
            Some(connection) => connection.receive(),
            None => Err(io::Error::other("nothing was sent")),
        };
        received.map_err(|error| self.lost(&error))
    }

    /// Commands of a client that is never in a transaction, speaks RESP2, and names its database.
    pub fn ask(&mut self, db: &str, commands: &[Argv]) -> Result<Vec<Value>, String> {
        let mut all = vec![vec!["SELECT".to_owned(), db.to_owned()]];
        all.extend_from_slice(commands);
        let mut replies = self.exchange(&all).map_err(|error| self.lost(&error))?;
        replies.remove(0);
        Ok(replies)
    }

    fn exchange(&mut self, commands: &[Argv]) -> io::Result<Vec<Value>> {
        let control = match &mut self.control {
            Some(control) => control,
            none => none.insert(Connection::open(self.server.port, 2)?),
        };
        control.send(commands)?;
        commands.iter().map(|_| control.receive()).collect()
    }

    fn lost(&self, error: &io::Error) -> String {
        format!("{}: {error}\n{}", self.name, self.server.log())
    }

    pub fn disconnect(&mut self) {
        self.clients.iter_mut().for_each(|client| *client = None);
        self.control = None;
    }

    fn tune(&mut self) -> Result<(), String> {
        if !self.thresholds.is_empty() {
            let elements = self.thresholds[self.starts % self.thresholds.len()];
            let words = ["DEBUG", "ROWS-FROM-ELEMENTS", &elements.to_string()];
            self.ask("0", &[words.map(str::to_owned).to_vec()])?;
        }
        self.starts += 1;
        Ok(())
    }
}

/// The players; the first is redis-server.
pub struct Field(pub Vec<Player>);

impl Field {
    /// `None` if there is no redis-server.
    pub fn start() -> Option<Field> {
        let unsynced = ["--log-sync", "everysec"];
        // As little as possible stays in memory, and the log is cut all the time.
        let bare = [&unsynced[..], &["--cache-size", "1", "--log-size", "64kb"]].concat();
        let mut field = Field(vec![
            Player::new("redis", Server::redis()?),
            Player::new("memory", Server::neokv(2)),
            Player::durable("rows", Server::durable(3, &unsynced), &[4096, 2]),
            Player::durable("uncached", Server::durable(2, &bare), &[4096, 0, 20]),
        ]);
        for player in &mut field.0 {
            player.tune().expect("a server that answers");
        }
        Some(field)
    }

    /// Nothing is there, nobody is connected.
    pub fn clear(&mut self) -> Result<(), String> {
        for player in &mut self.0 {
            player.disconnect();
            player.ask("0", &[vec!["FLUSHALL".to_owned()]])?;
        }
        Ok(())
    }

    pub fn kill(&mut self) -> Result<(), String> {
        for player in &mut self.0 {
            player.disconnect();
            if player.durable {
                player.server.kill_and_restart();
                player.tune()?;
            }
        }
        Ok(())
    }
}
