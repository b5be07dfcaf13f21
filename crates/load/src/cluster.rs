//! A Redis Cluster client: knows which node leads a slot, and learns from MOVED.
//!
//! The slot map is one per thread; connections are one per client and node, opened when first needed, as the usual
//! cluster clients do. An operation that is redirected is one operation, with the redirect in its latency.

use std::cell::RefCell;
use std::rc::Rc;

use base::slot::slot_of;

use crate::Settings;
use crate::phase::{Client, Failed};
use crate::resp::{Connection, Reply, get_is_done, put_is_done};

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

pub struct SlotAware {
    map: Rc<RefCell<Map>>,
    /// By place in the map's addresses.
    connections: Vec<Option<Connection>>,
    redirects: u64,
}

/// How a node answered.
enum Answer {
    Done,
    /// Slot and address that MOVED names.
    Elsewhere(usize, String),
    Refused(Failed),
}

impl Answer {
    fn of(reply: Reply<'_>, done: fn(Reply<'_>) -> Result<(), Failed>) -> Self {
        if let Reply::Error(text) = reply
            && let Some((slot, address)) = moved(text)
        {
            return Self::Elsewhere(slot, address);
        }
        match done(reply) {
            Ok(()) => Self::Done,
            Err(why) => Self::Refused(why),
        }
    }
}

fn moved(text: &[u8]) -> Option<(usize, String)> {
    let rest = std::str::from_utf8(text).ok()?.strip_prefix("MOVED ")?;
    let (slot, address) = rest.split_once(' ')?;
    let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
    Some((slot, address.to_string()))
}

impl SlotAware {
    async fn connection(&mut self, place: usize) -> Result<&mut Connection, Failed> {
        if self.connections.len() <= place {
            self.connections.resize_with(place + 1, || None);
        }
        let connection = match self.connections[place].take() {
            Some(connection) => connection,
            None => {
                let address = self.map.borrow().addresses[place].clone();
                Connection::open(&address).await?
            }
        };
        Ok(self.connections[place].insert(connection))
    }

    async fn ask(
        &mut self,
        args: &[&[u8]],
        done: fn(Reply<'_>) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let slot = usize::from(slot_of(args[1]));
        for _ in 0..REDIRECTS_MAX {
            let place = self.map.borrow().leaders[slot];
            let connection = self.connection(place).await?;
            connection.command(args);
            let answered = match connection.send().await {
                Ok(()) => connection.receive(|reply| Answer::of(reply, done)).await,
                Err(why) => Err(why),
            };
            match answered {
                Ok(Answer::Done) => return Ok(()),
                Ok(Answer::Refused(why)) => return Err(why),
                Ok(Answer::Elsewhere(slot, address)) => {
                    self.redirects += 1;
                    let mut map = self.map.borrow_mut();
                    let leader = map.place_of(&address);
                    map.leaders[slot] = leader;
                }
                Err(why) => {
                    self.connections[place] = None;
                    return Err(why);
                }
            }
        }
        Err("redirected in circles".to_string())
    }
}

impl Client for SlotAware {
    type Shared = Rc<RefCell<Map>>;

    async fn share(settings: &Settings, _clients: usize) -> Result<Self::Shared, Failed> {
        let mut map = Map {
            addresses: settings.addresses.clone(),
            leaders: vec![0; SLOTS],
        };
        let mut connection = Connection::open(&settings.addresses[0]).await?;
        connection.command(&[b"CLUSTER", b"SLOTS"]);
        connection.send().await?;
        let understood = connection.receive(|reply| match reply {
            Reply::Array(rows) => rows.iter().all(|row| map.take(row).is_some()),
            _ => false,
        });
        if !understood.await? {
            return Err("CLUSTER SLOTS is not understood: is this a cluster?".to_string());
        }
        Ok(Rc::new(RefCell::new(map)))
    }

    async fn connect(shared: &Rc<Self::Shared>, _n: usize) -> Result<Self, Failed> {
        let mut client = Self {
            map: Rc::clone(shared),
            connections: Vec::new(),
            redirects: 0,
        };
        let places = client.map.borrow().addresses.len();
        for place in 0..places {
            client.connection(place).await?;
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
        assert_eq!(moved(b"MOVED 7 h:2"), Some((7, "h:2".to_string())));
        assert_eq!(moved(b"MOVED 16384 h:2"), None);
        assert_eq!(moved(b"CLUSTERDOWN no leader"), None);
    }
}
