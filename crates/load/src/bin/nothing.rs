//! `nothing`: a server that answers every command with `+OK` and does nothing else: the bound of what
//! any server can reach with a given load generator on a given machine.
//!
//! One thread, one `epoll_wait` per turn, one `recv` and one `send` per client and turn. With `--sync`
//! everything that came in a turn is written to a file and synced once before the answers leave: the
//! least that a server must do that keeps what it acknowledged. Over blocks that were written before,
//! because that sync is the cheapest there is.
//!
//! A command is told by its `*`: enough for redis-benchmark, whose values have none.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use clap::Parser;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);
const MOST_AT_ONCE: usize = 1024;
/// Blocks come in steps of this size.
const STEP: usize = 256 << 10;
const READ_BYTES: usize = 64 << 10;

/// Answers every command with +OK.
#[derive(Parser)]
#[command(name = "nothing")]
struct Settings {
    /// Port on loopback
    #[arg(long)]
    port: u16,
    /// A file that is written to and synced before answers leave
    #[arg(long)]
    sync: Option<PathBuf>,
}

fn main() -> io::Result<()> {
    let settings = Settings::parse();
    let mut file = settings.sync.map(Kept::create).transpose()?;
    let mut poll = Poll::new()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.port));
    let mut listener = TcpListener::bind(address)?;
    let registry = poll.registry().try_clone()?;
    registry.register(&mut listener, LISTENER, Interest::READABLE)?;

    let mut events = Events::with_capacity(MOST_AT_ONCE);
    let mut clients: HashMap<usize, TcpStream> = HashMap::new();
    let mut next = 0;
    let mut room = vec![0; READ_BYTES];
    let (mut came, mut answers) = (Vec::new(), Vec::new());
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            let Token(client) = event.token();
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    registry.register(&mut stream, Token(next), Interest::READABLE)?;
                    clients.insert(next, stream);
                    next += 1;
                }
            } else if let Some(stream) = clients.get_mut(&client) {
                match take(stream, &mut room, file.is_some().then_some(&mut came)) {
                    Ok(commands) => answers.push((client, commands)),
                    Err(_) => drop(clients.remove(&client)),
                }
            }
        }
        if let Some(file) = &mut file
            && !came.is_empty()
        {
            file.keep(&came)?;
            came.clear();
        }
        for (client, commands) in answers.drain(..) {
            let sent = match clients.get_mut(&client) {
                Some(stream) => stream.write_all("+OK\r\n".repeat(commands).as_bytes()),
                None => Ok(()),
            };
            if sent.is_err() {
                clients.remove(&client);
            }
        }
    }
}

/// What came, on disk.
struct Kept {
    file: File,
    at: u64,
    blocks_to: u64,
}

impl Kept {
    fn create(path: PathBuf) -> io::Result<Kept> {
        let file = File::create(path)?;
        let (at, blocks_to) = (0, 0);
        Ok(Kept {
            file,
            at,
            blocks_to,
        })
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        if self.at > self.blocks_to {
            self.file.write_all_at(&vec![0; STEP], self.at)?;
            self.blocks_to = self.at + STEP as u64;
        }
        self.file.sync_data()
    }
}

/// Reads what there is, notes it; how many commands came.
fn take(
    stream: &mut TcpStream,
    room: &mut [u8],
    mut came: Option<&mut Vec<u8>>,
) -> io::Result<usize> {
    let mut commands = 0;
    loop {
        let read = match stream.read(room) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(commands),
            Err(error) => return Err(error),
        };
        let bytes = room.get(..read).unwrap_or_default();
        commands += bytes.iter().filter(|&&byte| byte == b'*').count();
        if let Some(came) = &mut came {
            came.extend_from_slice(bytes);
        }
        // Less than there was room for: no more came, and asking would be a call for nothing. The
        // next bytes are an event of their own.
        if read < room.len() {
            return Ok(commands);
        }
    }
}
