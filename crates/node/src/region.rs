//! A region: a keyspace, its part in the log, and those who are interested in its keys.
//!
//! Plain data that moves between threads as one box.

use std::sync::Arc;

use base::DbIndex;
use keyspace::{KeyChange, Keyspace};

use crate::waiters::{Interest, Interests};
use crate::{Member, Place, Waiter, WatchFlag, Weight};

pub struct Region {
    pub id: Place,
    pub space: Keyspace,
    /// Its part in the log, on a durable node.
    pub member: Option<Box<Member>>,
    /// What was last reported of how much it holds.
    pub weight: Weight,
    /// Version of the catalogue of tables that its log has, as far as its leader has looked.
    pub catalogue_seen: u64,
    /// Memory was put back to what the store has while it was lent: what its write-back knows beyond
    /// that never was.
    pub is_undone: bool,
    pub interests: Interests,
}

/// A region on its way: only the pointer moves between cores.
pub type RegionBox = Box<Region>;

impl Region {
    pub fn new(id: Place, seed: u64) -> Self {
        Region {
            id,
            space: Keyspace::new(seed),
            member: None,
            weight: Weight::default(),
            catalogue_seen: 0,
            is_undone: false,
            interests: Interests::default(),
        }
    }

    /// A region of a durable node.
    pub fn durable(id: Place, space: Keyspace, member: Box<Member>) -> Self {
        Region {
            space,
            member: Some(member),
            ..Region::new(id, 0)
        }
    }

    /// Another state of the same region: those who watch a key do not know what became of it, those
    /// who wait go on waiting.
    pub fn replace_space(&mut self, space: Keyspace) {
        self.space = space;
        self.interests.follow(&mut self.space);
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
        !self.interests.is_empty()
    }

    pub fn interest_mut(&mut self, db: DbIndex, key: &[u8]) -> Option<&mut Interest> {
        self.interests.get_mut(db, key)
    }

    /// Forgets all interest: watches are broken, waiters are the caller's to tell.
    pub fn take_interest(&mut self) -> Vec<Arc<Waiter>> {
        self.interests.take(&mut self.space)
    }

    /// The keys somebody watches or waits for.
    pub fn keys_of_interest(&self) -> impl Iterator<Item = &[u8]> {
        self.interests.keys()
    }

    /// WATCH: `flag` will be set when the key changes.
    pub fn add_watcher(&mut self, db: DbIndex, key: &[u8], flag: &Arc<WatchFlag>) {
        let interest = self.interests.entry(&mut self.space, db, key);
        interest.watchers.push(Arc::downgrade(flag));
    }

    /// A blocked session waits for the key, behind all who do already.
    pub fn add_waiter(&mut self, db: DbIndex, key: &[u8], waiter: Arc<Waiter>) {
        let interest = self.interests.entry(&mut self.space, db, key);
        interest.waiters.push_back(waiter);
    }

    /// Back to the head of the line (it was being served and there was nothing).
    pub fn put_waiter_first(&mut self, db: DbIndex, key: &[u8], waiter: Arc<Waiter>) {
        let interest = self.interests.entry(&mut self.space, db, key);
        interest.waiters.push_front(waiter);
    }

    /// Whether a key, which somebody watches, was changed since the region was lent. Those who watch
    /// are told when it is here again.
    pub fn has_touched(&self, db: DbIndex, key: &[u8]) -> bool {
        let changes = self.space.key_changes().iter();
        changes
            .into_iter()
            .any(|KeyChange { db: of, key: it }| *of == db && **it == *key)
    }

    /// Forgets interest that is over. `all` sweeps in any case, else only when much was added.
    pub fn sweep(&mut self, all: bool) {
        self.interests.sweep(&mut self.space, all);
    }
}
