//! A Redis Cluster client: knows which node leads a slot, and learns from MOVED.
//!
//! The slot map is one per thread; links are one per client and node, made when first needed, as the usual cluster clients
//! do: connections of its own, or of its group ([`link`](crate::link)). An operation that is redirected is one operation,
//! with the redirect in its latency.

use std::cell::RefCell;
use std::rc::Rc;

use base::slot::slot_of;

use crate::Settings;
use crate::link::{Link, Links};
use crate::phase::{Client, Failed};
use crate::resp::{Connection, Look, Reply, get_is_done, put_is_done};

const SLOTS: usize = 16_384;
const REDIRECTS_MAX: usize = 5;

/// Which node leads each slot, as far as is known.
pub struct Map {
    addresses: Vec<String>,
    /// Place in `addresses`.
    leaders: Vec<usize>,
}

impl Map {
    fn place_of(&mut self, address: &str) -> usize {
        let known = self.addresses.iter().position(|known| known == address);
        known.unwrap_or_else(|| {
            self.addresses.push(address.to_string());
            self.addresses.len() - 1
        })
    }

    /// Takes one row of `CLUSTER SLOTS`: first, last, [host, port, …] of the leader, replicas.
    fn take(&mut self, row: &Reply<'_>) -> Option<()> {
        let Reply::Array(row) = row else { return None };
        let [
            Reply::Int(first),
            Reply::Int(last),
            Reply::Array(leader),
            ..,
        ] = row.as_slice()
        else {
            return None;
        };
        let [Reply::Bulk(Some(host)), Reply::Int(port), ..] = leader.as_slice() else {
            return None;
        };
        let place = self.place_of(&format!("{}:{port}", std::str::from_utf8(host).ok()?));
        let range = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
        self.leaders.get_mut(range)?.fill(place);
        Some(())
    }
}

/// What the clients of a thread have in common.
pub struct Nodes {
    map: RefCell<Map>,
    links: Links,
}

pub struct SlotAware {
    nodes: Rc<Nodes>,
    /// Which client of its thread.
    n: usize,
    /// By place in the map's addresses.
    links: Vec<Link>,
    redirects: u64,
}

/// Slot and address that a refusal names, if that is what it is.
fn moved(refusal: &str) -> Option<(usize, &str)> {
    let (slot, address) = refusal.strip_prefix("MOVED ")?.split_once(' ')?;
    let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
    Some((slot, address))
}

impl SlotAware {
    fn link(&mut self, place: usize) -> &mut Link {
        let map = self.nodes.map.borrow();
        while self.links.len() <= place {
            let address = &map.addresses[self.links.len()];
            self.links.push(self.nodes.links.link(self.n, address));
        }
        &mut self.links[place]
    }

    async fn ask(&mut self, args: &[&[u8]], done: Look) -> Result<(), Failed> {
        let slot = usize::from(slot_of(args[1]));
        for _ in 0..REDIRECTS_MAX {
            let place = self.nodes.map.borrow().leaders[slot];
            let Err(why) = self.link(place).ask(args, done).await else {
                return Ok(());
            };
            let Some((slot, address)) = moved(&why) else {
                return Err(why);
            };
            self.redirects += 1;
            let mut map = self.nodes.map.borrow_mut();
            let leader = map.place_of(address);
            map.leaders[slot] = leader;
        }
        Err("redirected in circles".to_string())
    }
}

impl Client for SlotAware {
    type Shared = Nodes;

    async fn share(settings: &Settings, clients: usize) -> Result<Nodes, Failed> {
        let mut map = Map {
            addresses: settings.addresses.clone(),
            leaders: vec![0; SLOTS],
        };
        let mut connection = Connection::open(&settings.addresses[0]).await?;
        connection.command(&[b"CLUSTER".as_slice(), b"SLOTS"]);
        connection.send().await?;
        let understood = connection.receive(|reply| match reply {
            Reply::Array(rows) => rows.iter().all(|row| map.take(row).is_some()),
            _ => false,
        });
        if !understood.await? {
            return Err("CLUSTER SLOTS is not understood: is this a cluster?".to_string());
        }
        Ok(Nodes {
            map: RefCell::new(map),
            links: Links::new(settings, clients),
        })
    }

    async fn connect(shared: &Rc<Nodes>, n: usize) -> Result<Self, Failed> {
        let mut client = Self {
            nodes: Rc::clone(shared),
            n,
            links: Vec::new(),
            redirects: 0,
        };
        let places = client.nodes.map.borrow().addresses.len();
        for place in 0..places {
            client.link(place).open().await?;
        }
        Ok(client)
    }

    async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failed> {
        self.ask(&[b"SET", key, value], put_is_done).await
    }

    async fn get(&mut self, key: &[u8]) -> Result<(), Failed> {
        self.ask(&[b"GET", key], get_is_done).await
    }

    fn redirects(&self) -> u64 {
        self.redirects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_redirects_are_understood() {
        let mut map = Map {
            addresses: vec!["h:1".to_string()],
            leaders: vec![0; SLOTS],
        };
        let node = |port| Reply::Array(vec![Reply::Bulk(Some(b"h")), Reply::Int(port)]);
        let row = Reply::Array(vec![Reply::Int(100), Reply::Int(16_383), node(2), node(1)]);
        assert_eq!(map.take(&row), Some(()));
        assert_eq!((map.leaders[99], map.leaders[100]), (0, 1));
        let beyond = Reply::Array(vec![Reply::Int(0), Reply::Int(16_384), node(2)]);
        assert_eq!(map.take(&beyond), None);
        assert_eq!(moved("MOVED 7 h:2"), Some((7, "h:2")));
        assert_eq!(moved("MOVED 16384 h:2"), None);
        assert_eq!(moved("CLUSTERDOWN no leader"), None);
    }
}
