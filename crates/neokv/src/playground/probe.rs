//! What the nodes of a playground say: each by itself, and all of them together.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use base::SLOT_COUNT;
use base::cluster::META_REGION;
use meta::wire::{Ask, NodeRow, RegionRow, Tables};

use super::book::Book;
use crate::client::{Answer, Connection};
use crate::ctl::{Access, Line};

const TIMEOUT: Duration = Duration::from_secs(2);

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Whether somebody listens here already.
pub fn is_taken(port: u16) -> bool {
    TcpListener::bind(local(port)).is_err()
}

/// A node takes commands, and to its knowledge every slot is served. With a password it only says
/// that it is there.
pub fn serves(port: u16) -> bool {
    let connection = Connection::open(&local(port).to_string(), Some(TIMEOUT));
    match connection.and_then(|mut it| it.ask(&["CLUSTER", "INFO"])) {
        Ok(Answer::Bulk(text)) => String::from_utf8_lossy(&text).contains("cluster_state:ok"),
        Ok(Answer::Error(why)) => why.starts_with(b"NOAUTH"),
        _ => false,
    }
}

/// What meta knows, if it answers.
pub struct View {
    pub nodes: Vec<NodeRow>,
    /// Without meta's own.
    pub regions: Vec<RegionRow>,
}

/// A way to ask the nodes of a playground that run.
pub fn line(book: &Book) -> Result<Line, String> {
    let running = book.nodes.iter().filter(|it| book.running(it).is_some());
    let peers: Vec<String> = running.map(|node| node.peer()).collect();
    let settings = crate::cli::settings_with(&book.flags)?.cluster;
    let access = match settings.tls {
        Some(tls) => Access::by_tls(tls),
        None if !settings.peer_auth => Access::default(),
        None => Access::by_secrets(&book.secret_files())?,
    };
    Line::new(peers, access).map_err(|why| why.to_string())
}

impl View {
    pub fn of(line: &Line) -> Option<View> {
        View::from(|ask| line.tables(ask, TIMEOUT).ok())
    }

    /// Waits while meta is choosing a leader.
    pub fn patient(line: &Line) -> Option<View> {
        View::from(|ask| line.patient_tables(ask, TIMEOUT).ok())
    }

    fn from(rows: impl Fn(Ask) -> Option<Tables>) -> Option<View> {
        let nodes = rows(Ask::Nodes(true))?.nodes;
        let mut regions = rows(Ask::Regions(true))?.regions;
        regions.retain(|row| row.descriptor.region != META_REGION);
        Some(View { nodes, regions })
    }

    /// The node at a port that has not been given up.
    pub fn at(&self, peer_port: u16) -> Option<&NodeRow> {
        self.all_at(peer_port).rfind(|row| !is_gone(row))
    }

    /// There was a node at a port, and it has been given up.
    pub fn was_removed(&self, peer_port: u16) -> bool {
        self.at(peer_port).is_none() && self.all_at(peer_port).next().is_some()
    }

    fn all_at(&self, peer_port: u16) -> impl DoubleEndedIterator<Item = &NodeRow> {
        let port = u32::from(peer_port);
        self.nodes.iter().filter(move |row| row.peer.port == port)
    }

    pub fn slots_led_by(&self, node: u64) -> usize {
        let led = self.regions.iter().filter(|row| row.leader_node == node);
        led.map(slots).sum()
    }

    pub fn led(&self) -> usize {
        let led = self.regions.iter().filter(|row| is_led(row));
        led.count()
    }

    pub fn slots_served(&self) -> usize {
        self.regions
            .iter()
            .filter(|row| is_led(row))
            .map(slots)
            .sum()
    }

    pub fn all_served(&self) -> bool {
        self.slots_served() == usize::from(SLOT_COUNT)
    }
}

fn is_gone(row: &NodeRow) -> bool {
    matches!(row.state.as_str(), "removed" | "replaced")
}

fn is_led(row: &RegionRow) -> bool {
    row.leader_node != 0 && !matches!(row.health.as_str(), "no leader" | "no quorum")
}

fn slots(row: &RegionRow) -> usize {
    let segments = row.descriptor.segments.iter();
    segments.map(|segment| segment.slots().count()).sum()
}
