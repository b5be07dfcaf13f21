//! What a transcript runs against: the pure command table, or a server behind a socket.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

use command::{Attempt, Nil, Run, Table};
use keyspace::{Keyspace, Tuning, Txn, View};
use resp::{Args, Protocol, Reply, Span};

use super::wire::{self, Value};

/// How long a reply or a condition may take before it counts as missing.
pub const TIMEOUT: Duration = Duration::from_secs(10);

pub trait Target {
    fn send(&mut self, client: usize, bytes: Request<'_>) -> io::Result<()>;
    fn receive(&mut self, client: usize) -> io::Result<Value>;
    fn protocol(&mut self, client: usize, version: u8) -> io::Result<()>;
    fn close(&mut self, client: usize);
    fn advance(&mut self, ms: u64);
    /// To be called before a command that is expected to block.
    fn before_block(&mut self, client: usize) -> io::Result<()>;
    /// Waits until the server says that the client is blocked.
    fn await_blocked(&mut self, client: usize) -> io::Result<()>;
    /// Empties the data and forgets the clients.
    fn reset(&mut self) -> io::Result<()>;
}

#[derive(Clone, Copy)]
pub enum Request<'a> {
    Command(&'a [Vec<u8>]),
    Raw(&'a [u8]),
}

/// The command table of the `command` crate over one keyspace: no sockets, no sessions. Every
/// client number has its own protocol and database; `SELECT` is the one session command known.
pub struct Pure {
    table: Table,
    space: Keyspace,
    tuning: Tuning,
    now_ms: u64,
    seed: u64,
    clients: BTreeMap<usize, PureClient>,
}

#[derive(Default)]
struct PureClient {
    protocol: Protocol,
    db: u8,
    replies: Vec<Value>,
}

impl Pure {
    pub fn new() -> Pure {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Pure {
            table: Table::pure(),
            space: Keyspace::new(7),
            tuning: Tuning::default(),
            now_ms: now.map_or(0, |now| now.as_millis() as u64),
            seed: 1,
            clients: BTreeMap::new(),
        }
    }

    fn run(&mut self, client: usize, argv: &[Vec<u8>]) -> Vec<u8> {
        let buffer = argv.concat();
        let mut start = 0;
        let mut spans = Vec::new();
        for arg in argv {
            spans.push(Span {
                start,
                len: arg.len() as u32,
            });
            start += arg.len() as u32;
        }
        let args = Args::new(&buffer, &spans);
        let client = self.clients.entry(client).or_default();
        let mut reply = Reply::new(client.protocol);
        if args.is(0, "select") {
            client.db = args.int(1).map_or(0, |db| db as u8);
            reply.ok();
            return reply.into_bytes();
        }
        let row = match self.table.resolve(&args) {
            Ok((_, row)) => row,
            Err(refusal) => {
                reply.refusal(&refusal);
                return reply.into_bytes();
            }
        };
        self.seed += 1;
        let view = View::one(
            &mut self.space,
            client.db,
            self.now_ms,
            self.seed,
            &self.tuning,
        );
        let result = match row.run {
            Run::Read(run) => run(&view, &args, &mut reply),
            Run::Write(run) => run(&mut Txn::new(view), &args, &mut reply),
            Run::Block(block) => {
                let attempt = (block.run)(&mut Txn::new(view), &args, &mut reply);
                attempt.map(|attempt| match (attempt, block.nil) {
                    (Attempt::Served, _) => {}
                    (Attempt::Empty, Nil::Bulk) => reply.null(),
                    (Attempt::Empty, Nil::Array) => reply.null_array(),
                })
            }
            Run::Session | Run::Container => {
                reply.error("ERR not a command of the pure table: mark the transcript @server");
                Ok(())
            }
        };
        if let Err(refusal) = result {
            reply.truncate(0);
            reply.refusal(&refusal);
        }
        self.space.take_key_changes();
        self.space.take_garbage();
        reply.into_bytes()
    }
}

impl Target for Pure {
    fn send(&mut self, client: usize, request: Request<'_>) -> io::Result<()> {
        let Request::Command(argv) = request else {
            return Err(io::Error::other("raw bytes need a server: mark it @server"));
        };
        let bytes = self.run(client, argv);
        let mut rest = bytes.as_slice();
        let value = wire::decode(&mut rest)?;
        if !rest.is_empty() {
            return Err(io::Error::other(format!(
                "bytes behind the reply: {}",
                bytes.escape_ascii()
            )));
        }
        self.clients.entry(client).or_default().replies.push(value);
        Ok(())
    }

    fn receive(&mut self, client: usize) -> io::Result<Value> {
        let replies = &mut self.clients.entry(client).or_default().replies;
        if replies.is_empty() {
            return Err(io::Error::other("no reply"));
        }
        Ok(replies.remove(0))
    }

    fn protocol(&mut self, client: usize, version: u8) -> io::Result<()> {
        self.clients.entry(client).or_default().protocol = match version {
            3 => Protocol::Resp3,
            _ => Protocol::Resp2,
        };
        Ok(())
    }

    fn close(&mut self, client: usize) {
        self.clients.remove(&client);
    }

    fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    fn before_block(&mut self, _client: usize) -> io::Result<()> {
        Ok(())
    }

    fn await_blocked(&mut self, _client: usize) -> io::Result<()> {
        Err(io::Error::other("blocking needs a server: mark it @server"))
    }

    fn reset(&mut self) -> io::Result<()> {
        *self = Pure::new();
        Ok(())
    }
}

/// A server behind a port; clients connect when first used.
pub struct Live {
    address: String,
    clients: BTreeMap<usize, Connection>,
    control: Connection,
}

struct Connection {
    stream: BufReader<TcpStream>,
    id: Option<i64>,
}

impl Connection {
    fn open(address: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Connection {
            stream: BufReader::new(stream),
            id: None,
        })
    }

    fn ask(&mut self, words: &[&str]) -> io::Result<Value> {
        let argv: Vec<_> = words.iter().map(|w| w.as_bytes().to_vec()).collect();
        self.stream.get_mut().write_all(&wire::encode(&argv))?;
        wire::decode(&mut self.stream)
    }
}

impl Live {
    pub fn new(port: u16) -> io::Result<Live> {
        Live::at(format!("127.0.0.1:{port}"))
    }

    pub fn at(address: String) -> io::Result<Live> {
        Ok(Live {
            clients: BTreeMap::new(),
            control: Connection::open(&address)?,
            address,
        })
    }

    fn client(&mut self, n: usize) -> io::Result<&mut Connection> {
        if !self.clients.contains_key(&n) {
            self.clients.insert(n, Connection::open(&self.address)?);
        }
        self.clients
            .get_mut(&n)
            .ok_or_else(|| io::Error::other("no such client"))
    }
}

impl Target for Live {
    fn send(&mut self, client: usize, request: Request<'_>) -> io::Result<()> {
        let stream = self.client(client)?.stream.get_mut();
        match request {
            Request::Command(argv) => stream.write_all(&wire::encode(argv)),
            Request::Raw(bytes) => stream.write_all(bytes),
        }
    }

    fn receive(&mut self, client: usize) -> io::Result<Value> {
        wire::decode(&mut self.client(client)?.stream)
    }

    fn protocol(&mut self, client: usize, version: u8) -> io::Result<()> {
        match self.client(client)?.ask(&["HELLO", &version.to_string()])? {
            Value::Error(text) => Err(io::Error::other(String::from_utf8_lossy(&text))),
            _ => Ok(()),
        }
    }

    fn close(&mut self, client: usize) {
        self.clients.remove(&client);
    }

    fn advance(&mut self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn before_block(&mut self, client: usize) -> io::Result<()> {
        let client = self.client(client)?;
        if client.id.is_none() {
            match client.ask(&["CLIENT", "ID"])? {
                Value::Int(id) => client.id = Some(id),
                other => return Err(io::Error::other(format!("CLIENT ID: {other:?}"))),
            }
        }
        Ok(())
    }

    fn await_blocked(&mut self, client: usize) -> io::Result<()> {
        let id = self.client(client)?.id.unwrap_or_default().to_string();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let Value::Bulk(line) = self.control.ask(&["CLIENT", "LIST", "ID", &id])? else {
                return Err(io::Error::other("CLIENT LIST ID: not a bulk string"));
            };
            let line = String::from_utf8_lossy(&line).into_owned();
            let flags = line.split(' ').find_map(|part| part.strip_prefix("flags="));
            if flags.is_some_and(|flags| flags.contains('b')) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("client does not block: {line}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn reset(&mut self) -> io::Result<()> {
        self.clients.clear();
        // A transcript that stopped half-way must not spoil the next.
        self.control.ask(&["CONFIG", "SET", "requirepass", ""])?;
        match self.control.ask(&["FLUSHALL"])? {
            Value::Simple(_) => Ok(()),
            other => Err(io::Error::other(format!("FLUSHALL: {other:?}"))),
        }
    }
}
