//! Nodes on loopback for the tests: a handler that writes down what it hears, a TCP proxy that can
//! cut, stall and damage, and waiting for conditions instead of for time.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use transport::{
    Accept, Bytes, Config, Handler, IncomingOffer, RaftMessage, Refusal, Reply, Secret, Secrets,
    TransferError, Transport,
};

pub const CLUSTER: u64 = 0xC1;

/// Waits until it is so; panics with `what` after half a minute.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Methods the test handler knows.
pub const ECHO: u16 = 1;
pub const KEEP: u16 = 2;
pub const FORGET: u16 = 3;
pub const REJECT: u16 = 4;

#[derive(Default)]
pub struct Ears {
    pub raft: Mutex<Vec<(u64, u64, Bytes)>>,
    pub frames: AtomicU64,
    pub count: AtomicU64,
    pub quiet: AtomicBool,
    pub ups: Mutex<Vec<(u64, bool)>>,
    pub broken: AtomicU64,
    pub refusals: Mutex<Vec<(u64, Refusal)>>,
    pub notices: Mutex<Vec<String>>,
    pub kept: Mutex<Vec<Reply>>,
    pub directory: Mutex<Option<PathBuf>>,
    pub offers: Mutex<Vec<(u64, IncomingOffer)>>,
    pub complete: Mutex<Vec<PathBuf>>,
    pub sent: Mutex<Vec<Result<(), TransferError>>>,
    pub unknown: Mutex<Vec<u64>>,
    /// While true, the peer thread stands still inside on_raft.
    pub hold: AtomicBool,
}

impl Handler for Ears {
    fn on_raft(&self, from: u64, messages: Vec<RaftMessage>) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.count
            .fetch_add(messages.len() as u64, Ordering::Relaxed);
        if !self.quiet.load(Ordering::Relaxed) {
            let mut raft = self.raft.lock().unwrap();
            raft.extend(messages.into_iter().map(|it| (from, it.region, it.body)));
        }
        while self.hold.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn on_call(&self, _from: u64, method: u16, body: Bytes, reply: Reply) {
        match method {
            ECHO => reply.done(body),
            KEEP => self.kept.lock().unwrap().push(reply),
            FORGET => drop(reply),
            _ => reply.reject("not like this"),
        }
    }

    fn on_up(&self, node: u64) {
        self.ups.lock().unwrap().push((node, true));
    }

    fn on_down(&self, node: u64) {
        self.ups.lock().unwrap().push((node, false));
    }

    fn on_broken(&self, _node: u64) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    fn on_unknown(&self, node: u64) {
        self.unknown.lock().unwrap().push(node);
    }

    fn on_refused(&self, node: u64, refusal: &Refusal) {
        self.refusals.lock().unwrap().push((node, refusal.clone()));
    }

    fn on_snapshot_offer(&self, from: u64, offer: &IncomingOffer) -> Accept {
        self.offers.lock().unwrap().push((from, offer.clone()));
        match &*self.directory.lock().unwrap() {
            Some(directory) => Accept::Into(directory.join(&offer.id)),
            None => Accept::Refuse("no room".into()),
        }
    }

    fn on_snapshot_complete(
        &self,
        _from: u64,
        _offer: &IncomingOffer,
        directory: PathBuf,
    ) -> Result<(), String> {
        self.complete.lock().unwrap().push(directory);
        Ok(())
    }

    fn on_snapshot_sent(
        &self,
        _to: u64,
        _region: u64,
        _id: &str,
        result: Result<(), &TransferError>,
    ) {
        self.sent.lock().unwrap().push(result.map_err(Clone::clone));
    }

    fn on_notice(&self, line: &str) {
        self.notices.lock().unwrap().push(line.to_owned());
    }
}

impl Ears {
    pub fn noticed(&self, part: &str) -> bool {
        let notices = self.notices.lock().unwrap();
        notices.iter().any(|line| line.contains(part))
    }

    pub fn last_up(&self, node: u64) -> Option<bool> {
        let ups = self.ups.lock().unwrap();
        ups.iter()
            .rev()
            .find(|(it, _)| *it == node)
            .map(|(_, up)| *up)
    }

    pub fn heard(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn refused(&self, part: &str) -> bool {
        let refusals = self.refusals.lock().unwrap();
        refusals.iter().any(|(_, it)| it.reason.contains(part))
    }
}

pub struct Node {
    pub transport: Transport,
    pub ears: Arc<Ears>,
    pub address: String,
}

/// The same for everybody who asks for the same number.
pub fn secret(number: u8) -> Secret {
    Secret::parse(&format!("{number:064x}")).unwrap()
}

pub fn secrets(numbers: &[u8]) -> Option<Secrets> {
    Some(Secrets::of(numbers.iter().map(|it| secret(*it)).collect()))
}

/// As [`config`], without a secret: what is said can be written by hand.
pub fn open_config(node: u64) -> Config {
    Config {
        secrets: None,
        ..config(node)
    }
}

/// Quick enough that a test waits little, slow enough for a busy machine.
pub fn config(node: u64) -> Config {
    Config {
        cluster_id: CLUSTER,
        node_id: node,
        listen: Some("127.0.0.1:0".parse().unwrap()),
        secrets: secrets(&[1]),
        heartbeat: Duration::from_millis(50),
        down_after: Duration::from_millis(600),
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        ..Config::default()
    }
}

pub fn node(config: Config) -> Node {
    let ears = Arc::new(Ears::default());
    let transport = Transport::start(config, ears.clone()).unwrap();
    let address = transport
        .local_address()
        .map_or(String::new(), |it| it.to_string());
    Node {
        transport,
        ears,
        address,
    }
}

/// Two nodes, 1 connected to 2.
pub fn pair() -> (Node, Node) {
    let (one, two) = (node(config(1)), node(config(2)));
    one.transport.set_peer(2, &two.address[..]);
    until("1 hears 2", || one.transport.is_up(2));
    (one, two)
}

pub fn message(region: u64, body: impl Into<Bytes>) -> RaftMessage {
    RaftMessage {
        region,
        body: body.into(),
        overtakes: false,
    }
}

pub fn counters(node: &Node, of: u64) -> transport::Counters {
    let all = node.transport.counters();
    all.into_iter()
        .find(|(it, _)| *it == of)
        .map(|(_, counters)| counters)
        .unwrap_or_default()
}

/// A TCP proxy that can misbehave.
pub struct Proxy {
    pub address: String,
    state: Arc<ProxyState>,
}

struct ProxyState {
    target: Mutex<SocketAddr>,
    /// Bytes from the dialler that still pass before all is cut; negative: no limit.
    cut_after: AtomicI64,
    /// Flip a bit of the byte after so many from the dialler; negative: none.
    damage_after: AtomicI64,
    stalled: AtomicBool,
    /// Bytes per second from the dialler; 0: no limit.
    rate: AtomicU64,
    closed: AtomicBool,
    passed: AtomicU64,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn new(target: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // A slow line holds little.
        let socket = socket2::SockRef::from(&listener);
        socket.set_recv_buffer_size(64 * 1024).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(ProxyState {
            target: Mutex::new(target.parse().unwrap()),
            cut_after: AtomicI64::new(-1),
            damage_after: AtomicI64::new(-1),
            stalled: AtomicBool::new(false),
            rate: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            sockets: Mutex::default(),
        });
        let seen = state.clone();
        std::thread::spawn(move || {
            for dialled in listener.incoming() {
                if seen.closed.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(dialled) = dialled else { return };
                let target = *seen.target.lock().unwrap();
                let Ok(server) = TcpStream::connect(target) else {
                    continue;
                };
                let mut sockets = seen.sockets.lock().unwrap();
                sockets.push(dialled.try_clone().unwrap());
                sockets.push(server.try_clone().unwrap());
                let (there, back) = (seen.clone(), seen.clone());
                let (a, b) = (dialled.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || there.pump(a, b, true));
                std::thread::spawn(move || back.pump(server, dialled, false));
            }
        });
        Proxy { address, state }
    }

    pub fn cut(&self) {
        for socket in self.state.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Cuts when the dialler has sent so many bytes more.
    pub fn cut_after(&self, bytes: i64) {
        self.state.cut_after.store(bytes, Ordering::SeqCst);
    }

    pub fn damage_after(&self, bytes: i64) {
        self.state.damage_after.store(bytes, Ordering::SeqCst);
    }

    pub fn stall(&self, stalled: bool) {
        self.state.stalled.store(stalled, Ordering::SeqCst);
    }

    /// From the dialler, bytes per second.
    pub fn set_rate(&self, rate: u64) {
        self.state.rate.store(rate, Ordering::SeqCst);
    }

    pub fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::SeqCst)
    }

    pub fn armed(&self) -> bool {
        self.state.cut_after.load(Ordering::SeqCst) >= 0
            || self.state.damage_after.load(Ordering::SeqCst) >= 0
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::Relaxed);
        self.state.stalled.store(false, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
        self.cut();
    }
}

impl ProxyState {
    fn pump(&self, mut from: TcpStream, mut to: TcpStream, forward: bool) {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let read = match from.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            while self.stalled.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut pass = read;
            if forward {
                let rate = self.rate.load(Ordering::SeqCst);
                if rate > 0 {
                    let taken = Duration::from_secs_f64(read as f64 / rate as f64);
                    std::thread::sleep(taken);
                }
                self.passed.fetch_add(read as u64, Ordering::SeqCst);
                let damage = self.damage_after.load(Ordering::SeqCst);
                if damage >= 0 {
                    let rest = damage - read as i64;
                    if rest < 0 {
                        buffer[damage as usize] ^= 0x10;
                        self.damage_after.store(-1, Ordering::SeqCst);
                    } else {
                        self.damage_after.store(rest, Ordering::SeqCst);
                    }
                }
                let cut = self.cut_after.load(Ordering::SeqCst);
                if cut >= 0 {
                    if cut <= read as i64 {
                        pass = cut as usize;
                        self.cut_after.store(-1, Ordering::SeqCst);
                        let _ = to.write_all(&buffer[..pass]);
                        break;
                    }
                    self.cut_after.store(cut - read as i64, Ordering::SeqCst);
                }
            }
            if to.write_all(&buffer[..pass]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
