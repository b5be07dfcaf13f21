//! A region: a keyspace and those who are interested in its keys.
//!
//! Plain data that moves between threads as one box. Interest is added while a region is held and
//! ends by itself: a watch is a weak pointer, a waiter knows when it is over, and
//! [`Region::sweep`] drops what is dead. So ending a session needs no message to any core.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use base::DbIndex;
use keyspace::{Effect, Keyspace};
use resp::Protocol;

use super::{CoreId, Kept, RegionId};
use crate::durable::{Member, Weight};

pub struct Region {
    pub id: RegionId,
    pub space: Keyspace,
    /// Its part in the log, on a durable node.
    pub member: Option<Box<Member>>,
    /// What was last said of how much it holds.
    pub weight: Weight,
    /// Version of the catalogue of tables that its log has, as far as its leader has looked.
    pub catalogue_seen: u64,
    /// Memory was put back to what the store has while it was lent: what its desk knows beyond that never was.
    pub is_undone: bool,
    interest: HashMap<Box<[u8]>, Interest>,
    /// Interest added since the last sweep.
    added: usize,
}

/// A region on its way: only the pointer moves between cores.
pub type RegionBox = Box<Region>;

/// Who wants to know about one key.
#[derive(Default)]
pub struct Interest {
    pub watchers: Vec<Weak<WatchFlag>>,
    /// In the order they came.
    pub waiters: VecDeque<Arc<Waiter>>,
}

impl Interest {
    /// The key has changed.
    pub fn flag_watchers(&mut self) {
        for flag in self.watchers.drain(..) {
            if let Some(flag) = flag.upgrade() {
                flag.set();
            }
        }
    }

    fn is_dead(&self) -> bool {
        self.watchers.is_empty() && self.waiters.is_empty()
    }

    fn drop_dead(&mut self) {
        self.watchers.retain(|flag| flag.strong_count() > 0);
        self.waiters.retain(|waiter| !waiter.claim.is_over());
    }
}

impl Region {
    pub fn new(id: RegionId, seed: u64) -> Self {
        Region {
            id,
            space: Keyspace::new(seed),
            member: None,
            weight: Weight::default(),
            catalogue_seen: 0,
            is_undone: false,
            interest: HashMap::new(),
            added: 0,
        }
    }

    /// A region of a durable node.
    pub fn durable(id: RegionId, space: Keyspace, member: Box<Member>) -> Self {
        Region {
            space,
            member: Some(member),
            ..Region::new(id, 0)
        }
    }

    /// Another state of the same region: who watches a key does not know what became of it, who waits
    /// goes on waiting.
    pub fn replace_space(&mut self, space: Keyspace) {
        self.space = space;
        for (place, interest) in &mut self.interest {
            interest.flag_watchers();
            if let Some((&db, key)) = place.split_first() {
                self.space.watch(db, key);
            }
        }
    }

    /// Whether this replica has peers of which another leads: nothing is proposed here.
    pub fn is_led_elsewhere(&self) -> bool {
        self.member.as_ref().is_some_and(|member| {
            let replica = &member.replica;
            member.peers.is_some() && !replica.is_leader() && replica.leader().is_some()
        })
    }

    /// Whether it may be lent: nothing of it is on its way through the log.
    pub fn is_quiet(&self) -> bool {
        self.member.as_ref().is_none_or(|member| member.is_quiet())
    }

    /// Whether somebody watches or waits for any key.
    #[inline]
    pub fn has_interest(&self) -> bool {
        !self.interest.is_empty()
    }

    pub fn interest_mut(&mut self, db: DbIndex, key: &[u8]) -> Option<&mut Interest> {
        if self.interest.is_empty() {
            return None;
        }
        self.interest.get_mut(&*place(db, key))
    }

    /// Forgets all interest: watches are as good as broken, waiters are the caller's to tell.
    pub fn take_interest(&mut self) -> Vec<Arc<Waiter>> {
        let mut waiters = Vec::new();
        for (place, mut interest) in self.interest.drain() {
            interest.flag_watchers();
            waiters.extend(interest.waiters);
            if let Some((&db, key)) = place.split_first() {
                self.space.unwatch(db, key);
            }
        }
        waiters
    }

    /// The keys somebody watches or waits for.
    pub fn keys_of_interest(&self) -> impl Iterator<Item = &[u8]> {
        self.interest.keys().filter_map(|place| place.get(1..))
    }

    /// WATCH: `flag` will be set when the key changes.
    pub fn add_watcher(&mut self, db: DbIndex, key: &[u8], flag: &Arc<WatchFlag>) {
        self.entry(db, key).watchers.push(Arc::downgrade(flag));
    }

    /// A blocked session waits for the key, behind all who do already.
    pub fn add_waiter(&mut self, db: DbIndex, key: &[u8], waiter: Arc<Waiter>) {
        self.entry(db, key).waiters.push_back(waiter);
    }

    /// Back to the head of the line (it was being served and there was nothing).
    pub fn put_waiter_first(&mut self, db: DbIndex, key: &[u8], waiter: Arc<Waiter>) {
        self.entry(db, key).waiters.push_front(waiter);
    }

    fn entry(&mut self, db: DbIndex, key: &[u8]) -> &mut Interest {
        self.added += 1;
        let place = place(db, key);
        if !self.interest.contains_key(&place) {
            self.space.watch(db, key);
        }
        let interest = self.interest.entry(place).or_default();
        interest.drop_dead();
        interest
    }

    /// Whether a key, which somebody watches, was changed since the region was lent. Those who watch hear of
    /// it when it is home again.
    pub fn has_touched(&self, db: DbIndex, key: &[u8]) -> bool {
        let effects = self.space.effects().iter();
        effects
            .into_iter()
            .any(|Effect::Changed { db: of, key: it }| *of == db && **it == *key)
    }

    /// Forgets interest that is over. `all` sweeps in any case, else only when much was added.
    pub fn sweep(&mut self, all: bool) {
        if self.interest.is_empty() || (!all && self.added < 1024) {
            return;
        }
        self.added = 0;
        let space = &mut self.space;
        self.interest.retain(|place, interest| {
            interest.drop_dead();
            if interest.is_dead() {
                if let Some((&db, key)) = place.split_first() {
                    space.unwatch(db, key);
                }
                return false;
            }
            true
        });
    }
}

fn place(db: DbIndex, key: &[u8]) -> Box<[u8]> {
    let mut place = Vec::with_capacity(1 + key.len());
    place.push(db);
    place.extend_from_slice(key);
    place.into_boxed_slice()
}

/// Set when a watched key changes; EXEC looks at it while it holds the regions.
#[derive(Default)]
pub struct WatchFlag(AtomicBool);

impl WatchFlag {
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A blocked session, as it stands in the line of every key it waits on.
pub struct Waiter {
    pub claim: Claim,
    /// Core of the session and its ticket there.
    pub core: CoreId,
    pub ticket: usize,
    /// The command: its statistics number and arguments.
    pub stat: usize,
    pub command: Kept,
    pub db: DbIndex,
    pub protocol: Protocol,
}

/// Who decides how a waiter ends: a core that serves it, or its session (time is up, client gone).
///
/// ```text
///   WAITING ──serve──► SERVING ──served──► DONE
///      ▲                  │ nothing there
///      └──────────────────┘
///   any ──cancel──► + CANCELLED   (if SERVING: the server tells the session what became of it)
/// ```
#[derive(Default)]
pub struct Claim(AtomicU8);

const SERVING: u8 = 1;
const DONE: u8 = 2;
const CANCELLED: u8 = 4;

impl Claim {
    /// Takes the right to serve; false if somebody else has it or it is over.
    pub fn serve(&self) -> bool {
        self.0
            .compare_exchange(0, SERVING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    pub fn served(&self) {
        self.0.fetch_or(DONE, Ordering::AcqRel);
    }

    /// Gives the right back, nothing having happened. True if the session has cancelled meanwhile
    /// and must be told.
    #[must_use]
    pub fn unserve(&self) -> bool {
        self.0.fetch_and(!SERVING, Ordering::AcqRel) & CANCELLED != 0
    }

    /// The session gives up. False if a core is serving or has served: its word will come.
    #[must_use]
    pub fn cancel(&self) -> bool {
        self.0.fetch_or(CANCELLED, Ordering::AcqRel) & (SERVING | DONE) == 0
    }

    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) & (DONE | CANCELLED) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_one_winner() {
        let claim = Claim::default();
        assert!(claim.serve());
        assert!(!claim.serve());
        assert!(!claim.unserve());
        assert!(claim.serve());
        assert!(!claim.cancel(), "being served");
        assert!(claim.unserve(), "the session must be told");
        assert!(!claim.serve(), "cancelled");
        assert!(claim.is_over());
    }
}
