//! `nothing`: a server that answers every command with `+OK` and does nothing else: the bound of what
//! any server can reach with a given load generator on a given machine.
//!
//! One thread, one `epoll_wait` per turn, one `recv` and one `send` per client and turn. With `--sync`
//! everything that came in a turn is written to a file and synced once before the answers leave: the
//! least that a server must do that keeps what it acknowledged. In the cheapest way there is: past the
//! page cache, from the memory it was received in, over blocks that were written before, so that the
//! file system has nothing to note.
//!
//! ```text
//! file    ... | full | full | part........ |      a ring: at its end it begins again
//! memory                    | part + what came in this turn, padded to whole blocks |
//!                           └ written here; the last block that is not full is written again next time
//! ```
//!
//! A command is told by its `*`: enough for load generators whose values have none.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Parser;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

const LISTENER: Token = Token(usize::MAX);
const MOST_AT_ONCE: usize = 1024;
const READ_BYTES: usize = 64 << 10;
/// What writes past the page cache are aligned to, in the file and in memory.
const BLOCK: usize = 4096;
/// Of the file: far more than a turn brings.
const RING_BYTES: u64 = 64 << 20;

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
    let mut ring = settings.sync.as_deref().map(Ring::create).transpose()?;
    let mut poll = Poll::new()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.port));
    let mut listener = TcpListener::bind(address)?;
    let registry = poll.registry().try_clone()?;
    registry.register(&mut listener, LISTENER, Interest::READABLE)?;

    let mut events = Events::with_capacity(MOST_AT_ONCE);
    let mut clients: Slab<TcpStream> = Slab::new();
    let mut came = Came::new();
    let mut answers = Vec::new();
    let mut oks = Vec::new();
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            let Token(client) = event.token();
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let place = clients.vacant_entry();
                    registry.register(&mut stream, Token(place.key()), Interest::READABLE)?;
                    place.insert(stream);
                }
            } else if let Some(stream) = clients.get_mut(client) {
                match take(stream, &mut came) {
                    Ok(commands) => answers.push((client, commands)),
                    Err(_) => drop(clients.remove(client)),
                }
            }
        }
        match &mut ring {
            Some(ring) if !answers.is_empty() => ring.keep(&mut came)?,
            Some(_) => {}
            None => came.forget(),
        }
        for (client, commands) in answers.drain(..) {
            let bytes = commands * OK.len();
            while oks.len() < bytes {
                oks.extend_from_slice(OK);
            }
            let all = oks.get(..bytes).unwrap_or_default();
            let stream = clients.get_mut(client);
            if stream.is_some_and(|stream| stream.write_all(all).is_err()) {
                clients.remove(client);
            }
        }
    }
}

const OK: &[u8] = b"+OK\r\n";

/// What came and is not in a full block on disk: in memory as the disk wants it.
struct Came {
    memory: Vec<u8>,
    /// Where in it blocks begin.
    start: usize,
    len: usize,
}

impl Came {
    fn new() -> Self {
        Self::with_room(16 * READ_BYTES)
    }

    fn with_room(bytes: usize) -> Self {
        let memory = vec![0; bytes + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        let len = 0;
        Self { memory, start, len }
    }

    /// Room for the next bytes; `add` says how many came.
    fn room(&mut self) -> &mut [u8] {
        let needed = self.len + READ_BYTES + BLOCK;
        if self.memory.len() - self.start < needed {
            let mut larger = Self::with_room(needed * 2);
            larger.len = self.len;
            larger.blocks().copy_from_slice(self.blocks());
            *self = larger;
        }
        let from = self.start + self.len;
        self.memory
            .get_mut(from..from + READ_BYTES)
            .unwrap_or_default()
    }

    fn add(&mut self, bytes: usize) {
        self.len += bytes;
    }

    /// Whole blocks; the last may have anything at its end.
    fn blocks(&mut self) -> &mut [u8] {
        let end = self.start + self.len.next_multiple_of(BLOCK);
        self.memory.get_mut(self.start..end).unwrap_or_default()
    }

    /// Only the last block that is not full stays.
    fn forget_full_blocks(&mut self) {
        let full = self.len / BLOCK * BLOCK;
        let (from, to) = (self.start + full, self.start + self.len);
        self.memory.copy_within(from..to, self.start);
        self.len -= full;
    }

    fn forget(&mut self) {
        self.len = 0;
    }
}

/// The file.
struct Ring {
    file: File,
    at: u64,
}

impl Ring {
    /// Every block is written once. Past the page cache where the file system can.
    fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let direct = options.clone().custom_flags(libc::O_DIRECT).open(path);
        let file = direct.or_else(|_| options.open(path))?;
        let mut zeros = Came::with_room(1 << 20);
        zeros.len = 1 << 20;
        for at in (0..RING_BYTES).step_by(zeros.len) {
            file.write_all_at(zeros.blocks(), at)?;
        }
        file.sync_all()?;
        Ok(Self { file, at: 0 })
    }

    fn keep(&mut self, came: &mut Came) -> io::Result<()> {
        let blocks = came.blocks();
        if self.at + blocks.len() as u64 > RING_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(blocks, self.at)?;
        self.file.sync_data()?;
        self.at += (came.len / BLOCK * BLOCK) as u64;
        came.forget_full_blocks();
        Ok(())
    }
}

/// Reads what there is, notes it; how many commands came.
fn take(stream: &mut TcpStream, came: &mut Came) -> io::Result<usize> {
    let mut commands = 0;
    loop {
        let room = came.room();
        let read = match stream.read(room) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(commands),
            Err(error) => return Err(error),
        };
        let bytes = room.get(..read).unwrap_or_default();
        commands += bytes.iter().filter(|&&byte| byte == b'*').count();
        came.add(read);
        // Less than there was room for: no more came, and asking would be a call for nothing. The
        // next bytes are an event of their own.
        if read < READ_BYTES {
            return Ok(commands);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give(came: &mut Came, bytes: &[u8]) {
        for part in bytes.chunks(READ_BYTES) {
            came.room()[..part.len()].copy_from_slice(part);
            came.add(part.len());
        }
    }

    /// All that came is in the file, in order, whatever a turn brings.
    #[test]
    fn everything_is_in_the_file() {
        let folder = std::env::temp_dir().join(format!("nothing-{}", std::process::id()));
        let mut ring = Ring::create(&folder).unwrap();
        let (mut came, mut expected) = (Came::new(), Vec::new());
        for (turn, bytes) in [1, 4095, 4096, 10, 3_000_000, 100, 8191]
            .into_iter()
            .enumerate()
        {
            let bytes: Vec<u8> = (0..bytes).map(|n| (n * 7 + turn) as u8).collect();
            give(&mut came, &bytes);
            expected.extend(bytes);
            ring.keep(&mut came).unwrap();
            let mut file = std::fs::read(&folder).unwrap();
            assert_eq!(file.len() as u64, RING_BYTES);
            file.truncate(expected.len());
            assert!(file == expected, "turn {turn}");
        }
        ring.at = RING_BYTES - BLOCK as u64;
        give(&mut came, &[b'z'; 2 * BLOCK]);
        ring.keep(&mut came).unwrap();
        assert!(ring.at > 0 && ring.at < RING_BYTES / 2, "it begins again");
        std::fs::remove_file(&folder).unwrap();
    }
}
