//! Which node to ask: connections by address, and who was found to lead a slot.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rowapi::RequestId;
use rowapi::table_client::TableClient;
use tonic::transport::{Channel, Endpoint};

use crate::Error;

const CONNECT: Duration = Duration::from_secs(2);
/// As much as a server sends.
const MESSAGE_BYTES: usize = 64 << 20;

pub struct Route {
    /// As given; asked in turn while nothing better is known.
    nodes: Vec<String>,
    turn: AtomicUsize,
    channels: Mutex<BTreeMap<String, Channel>>,
    leaders: Mutex<HashMap<u16, String>>,
    lanes: Lanes,
}

/// Names for requests. A server remembers the last few dozen answers of a name, and refuses numbers that are older than those; so
/// each name has one request on its way at a time, and there are as many names as requests at once.
struct Lanes {
    id: u128,
    made: AtomicU64,
    free: Mutex<Vec<RequestId>>,
}

/// A request's own name, until it is answered.
pub struct Lane<'a> {
    lanes: &'a Lanes,
    request: RequestId,
}

impl Lane<'_> {
    pub fn request(&self) -> RequestId {
        self.request.clone()
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        lock(&self.lanes.free).push(std::mem::take(&mut self.request));
    }
}

impl Route {
    pub fn new(nodes: Vec<String>) -> Result<Route, Error> {
        if nodes.is_empty() {
            return Err(Error::Address(String::new()));
        }
        let route = Route {
            turn: AtomicUsize::new(random() as usize % nodes.len()),
            nodes,
            channels: Mutex::default(),
            leaders: Mutex::default(),
            lanes: Lanes {
                id: u128::from(random()) << 64 | u128::from(random()),
                made: AtomicU64::new(0),
                free: Mutex::default(),
            },
        };
        for node in &route.nodes {
            endpoint(node)?;
        }
        Ok(route)
    }

    pub fn lane(&self) -> Lane<'_> {
        let lanes = &self.lanes;
        let free = lock(&lanes.free).pop();
        let mut request = free.unwrap_or_else(|| {
            let made = lanes.made.fetch_add(1, Ordering::Relaxed);
            RequestId {
                client: lanes.id.wrapping_add(made.into()).to_be_bytes().to_vec(),
                number: 0,
            }
        });
        request.number += 1;
        Lane { lanes, request }
    }

    /// Whom to ask about a slot.
    pub fn node_of(&self, slot: Option<u16>) -> String {
        let known = slot.and_then(|slot| lock(&self.leaders).get(&slot).cloned());
        known.unwrap_or_else(|| {
            let turn = self.turn.load(Ordering::Relaxed) % self.nodes.len();
            self.nodes.get(turn).cloned().unwrap_or_default()
        })
    }

    /// The node `asked` said who leads a slot, or that it does not know.
    pub fn learn(&self, slot: Option<u16>, asked: &str, leader: &str) {
        let Some(slot) = slot else {
            return self.avoid(None, asked);
        };
        match leader.is_empty() || endpoint(leader).is_err() {
            true => self.avoid(Some(slot), asked),
            false => {
                lock(&self.leaders).insert(slot, leader.into());
            }
        }
    }

    /// The node could not answer: not this one again, for now.
    pub fn avoid(&self, slot: Option<u16>, node: &str) {
        if let Some(slot) = slot {
            let mut leaders = lock(&self.leaders);
            if leaders.get(&slot).is_some_and(|known| known == node) {
                leaders.remove(&slot);
            }
        }
        let turn = self.turn.load(Ordering::Relaxed);
        if self
            .nodes
            .get(turn % self.nodes.len())
            .is_some_and(|it| it == node)
        {
            let next = turn.wrapping_add(1);
            let _ = self
                .turn
                .compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The connection is of no use, not even to connect again: it lived in a runtime that has ended.
    pub fn forget(&self, node: &str) {
        lock(&self.channels).remove(node);
    }

    /// Connects when it is first used, and again when that broke.
    pub fn client(&self, node: &str) -> Result<TableClient<Channel>, Error> {
        let mut channels = lock(&self.channels);
        let channel = match channels.get(node) {
            Some(channel) => channel.clone(),
            None => {
                let channel = endpoint(node)?.connect_lazy();
                channels.insert(node.into(), channel.clone());
                channel
            }
        };
        Ok(TableClient::new(channel).max_decoding_message_size(MESSAGE_BYTES))
    }
}

fn endpoint(node: &str) -> Result<Endpoint, Error> {
    let wrong = || Error::Address(node.into());
    let (host, port) = node.rsplit_once(':').ok_or_else(wrong)?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    let endpoint = Endpoint::from_shared(format!("http://{node}")).map_err(|_| wrong())?;
    Ok(endpoint.connect_timeout(CONNECT).tcp_nodelay(true))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seeded by the system, another one at every call.
fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Route {
        Route::new(vec!["a:1".into(), "b:2".into()]).unwrap()
    }

    #[test]
    fn what_is_learned_is_used_until_it_fails() {
        let route = route();
        let first = route.node_of(Some(7));
        route.learn(Some(7), &first, "c:3");
        assert_eq!(route.node_of(Some(7)), "c:3");
        assert_eq!(route.node_of(Some(8)), first);
        route.avoid(Some(7), "c:3");
        assert_eq!(route.node_of(Some(7)), first);
        // Who does not know, or cannot be reached, is not asked at once again.
        route.learn(Some(7), &first, "");
        assert_ne!(route.node_of(Some(7)), first);
        route.learn(None, &route.node_of(None), "");
        assert_eq!(route.node_of(None), first);
    }

    #[test]
    fn addresses() {
        assert!(Route::new(vec![]).is_err());
        for wrong in ["a", ":1", "a:", "a:x", "a b:1"] {
            assert!(Route::new(vec![wrong.into()]).is_err(), "{wrong}");
        }
        assert!(Route::new(vec!["[::1]:8379".into()]).is_ok());
    }

    #[test]
    fn requests_have_ids_of_their_own() {
        let (one, other) = (route(), route());
        assert_ne!(one.lane().request().client, other.lane().request().client);
        let first = one.lane();
        let at_once = one.lane();
        assert_eq!(first.request().client.len(), 16);
        assert_ne!(first.request().client, at_once.request().client);
        let before = at_once.request();
        drop(at_once);
        let next = one.lane().request();
        assert_eq!(
            (next.client, next.number),
            (before.client, before.number + 1)
        );
    }
}
