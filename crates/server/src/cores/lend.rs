//! Lending regions: how a command that needs several cores is atomic, isolated and free of locks.
//!
//! A region is a box. To run over regions of several cores, a session's core collects the boxes:
//! it asks the owners one after the other, in ascending order of cores, runs the command over all
//! of them with the very function that runs on one, and gives them back.
//!
//! ```text
//!   core 0 (session)            core 1                 core 2
//!     own regions, now
//!     Lend ───────────────────────►  home? move boxes
//!     ◄────────────────────── Lent
//!     Lend ─────────────────────────────────────────────►  lent: wait in line
//!     ◄──────────────────────────────────────────── Lent     (when they return)
//!     run
//!     Return ─────────────────────►  effects, next in line
//!     Return ───────────────────────────────────────────►
//! ```
//!
//! Invariants:
//! - Whoever has the box is the only one to touch the region. No thread ever blocks.
//! - A core grants all of a request or nothing, in the order requests came where they overlap
//!   (one line per core), so nobody starves.
//! - Owners are asked in ascending order, and a request that waits holds only regions of lower
//!   cores: the highest core's borrowers always finish, so there is no deadlock.
//! - The owner handles a region's effects (watches, blocked sessions) when it returns and before
//!   it is lent again.

use std::collections::VecDeque;
use std::rc::Rc;

use base::DbIndex;
use keyspace::{Keyspace, Router, View};
use resp::{Args, Reply};

use super::batch::BatchBox;
use super::mailbox::{Message, RegionMask};
use super::region::{Region, RegionBox};
use super::run::{Call, Ran};
use super::tickets::{Answer, Ticket};
use super::{Core, CoreId, Map, RegionId};
use crate::durable::commit;

/// The regions a core owns, those lent out missing, and who waits for them.
pub struct Home {
    first: RegionId,
    slots: Vec<Option<Box<Region>>>,
    /// By region, on a durable node: batches for its next entry. They wait here while it is lent.
    turns: Vec<Vec<BatchBox>>,
    line: VecDeque<Wanted>,
}

/// A request that could not be granted yet.
struct Wanted {
    mask: RegionMask,
    core: CoreId,
    ticket: usize,
}

impl Home {
    pub fn new(map: &Map, core: CoreId, mut seed: impl FnMut() -> u64) -> Self {
        let regions = map.regions_of(core);
        let first = regions.start;
        Home::of(
            first,
            regions
                .map(|id| Box::new(Region::new(id, seed())))
                .collect(),
        )
    }

    /// A home of these regions, the first of which has this number.
    pub fn of(first: RegionId, regions: Vec<RegionBox>) -> Self {
        Home {
            first,
            turns: regions.iter().map(|_| Vec::new()).collect(),
            slots: regions.into_iter().map(Some).collect(),
            line: VecDeque::new(),
        }
    }

    /// The batches that wait for a region's next entry. The region must be this core's.
    pub(crate) fn turn_mut(&mut self, id: RegionId) -> &mut Vec<BatchBox> {
        let at = id.wrapping_sub(self.first);
        debug_assert!(at < self.turns.len(), "a region that is not ours");
        let at = at.min(self.turns.len() - 1);
        &mut self.turns[at]
    }

    /// Whether somebody waits to borrow a region.
    pub(crate) fn is_wanted(&self, id: RegionId) -> bool {
        let at = id.wrapping_sub(self.first);
        at < self.slots.len() && self.wanted(1 << at)
    }

    /// A region, if it is this core's and not lent.
    #[inline]
    pub fn region_mut(&mut self, id: RegionId) -> Option<&mut Region> {
        let at = id.wrapping_sub(self.first);
        self.slots.get_mut(at)?.as_deref_mut()
    }

    /// Any region that is home, for commands that touch no key.
    pub fn any(&self) -> Option<RegionId> {
        let at = self.slots.iter().position(Option::is_some)?;
        Some(self.first + at)
    }

    pub fn present(&mut self) -> impl Iterator<Item = &mut Region> {
        self.slots.iter_mut().flatten().map(|region| &mut **region)
    }

    pub fn first(&self) -> RegionId {
        self.first
    }

    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Whether all of these are home and may be lent: nothing of them is on its way, and their rows
    /// are in the store.
    fn has_all(&mut self, mask: RegionMask) -> bool {
        self.slots.iter_mut().enumerate().all(|(i, slot)| {
            mask & (1 << i) == 0
                || slot
                    .as_mut()
                    .is_some_and(|r| r.is_quiet() && r.settle().is_ok())
        })
    }

    /// Moves the regions of `mask` out, in order, if all are home.
    pub fn take(&mut self, mask: RegionMask) -> Option<Vec<RegionBox>> {
        if !self.has_all(mask) {
            return None;
        }
        let mut taken = Vec::with_capacity(mask.count_ones() as usize);
        for (i, slot) in self.slots.iter_mut().enumerate() {
            if mask & (1 << i) != 0 {
                taken.extend(slot.take());
            }
        }
        Some(taken)
    }

    fn put(&mut self, region: Box<Region>) {
        let at = region.id.wrapping_sub(self.first);
        debug_assert!(at < self.slots.len(), "a region that is not ours");
        if let Some(slot) = self.slots.get_mut(at) {
            debug_assert!(slot.is_none(), "two boxes of one region");
            *slot = Some(region);
        }
    }

    /// Whether somebody in line wants any of these.
    fn wanted(&self, mask: RegionMask) -> bool {
        self.line.iter().any(|wanted| wanted.mask & mask != 0)
    }

    /// The first request in line that can be granted and overlaps no earlier one.
    fn next_grant(&mut self) -> Option<(Wanted, Vec<RegionBox>)> {
        let mut earlier: RegionMask = 0;
        let mut found = None;
        for at in 0..self.line.len() {
            let mask = self.line[at].mask;
            if mask & earlier == 0 && self.has_all(mask) {
                found = Some(at);
                break;
            }
            earlier |= mask;
        }
        let wanted = self.line.remove(found?)?;
        let regions = self.take(wanted.mask)?;
        Some((wanted, regions))
    }
}

impl Core {
    /// Takes `regions` (ascending, each once) out of their cores, waiting as long as it takes.
    pub async fn hold(self: &Rc<Self>, regions: &[RegionId]) -> Held {
        let map = self.shared.map;
        let mut held = Held {
            core: self.clone(),
            regions: Vec::with_capacity(regions.len()),
        };
        let mut rest = regions;
        while let Some(&next) = rest.first() {
            let owner = map.core_of(next);
            let first = map.regions_of(owner).start;
            let here = rest.partition_point(|&id| map.core_of(id) == owner);
            let (ours, others) = rest.split_at(here);
            let mask = ours.iter().fold(0, |mask, &id| mask | 1 << (id - first));
            held.regions.extend(self.borrow_from(owner, mask).await);
            rest = others;
        }
        if regions.iter().any(|&id| map.core_of(id) != self.id) {
            self.stats().holds.add(1);
        }
        held.regions
            .iter_mut()
            .for_each(|region| commit::begin(region));
        held
    }

    async fn borrow_from(self: &Rc<Self>, owner: CoreId, mask: RegionMask) -> Vec<RegionBox> {
        let ticket = if owner == self.id {
            let mut home = self.home.borrow_mut();
            if !home.wanted(mask)
                && let Some(regions) = home.take(mask)
            {
                return regions;
            }
            let ticket = Ticket::new(self);
            home.line.push_back(Wanted {
                mask,
                core: self.id,
                ticket: ticket.number(),
            });
            ticket
        } else {
            self.credit(owner).await;
            let ticket = Ticket::new(self);
            self.send(
                owner,
                Message::Lend {
                    from: self.id,
                    ticket: ticket.number(),
                    mask,
                },
            );
            ticket
        };
        match ticket.await {
            Answer::Regions(regions) => regions,
            _ => Vec::new(),
        }
    }

    /// Regions of this core at once, if all are home: for commands that run now and give them
    /// back before anything else happens.
    pub fn try_hold(self: &Rc<Self>, regions: &[RegionId]) -> Option<Held> {
        let mut home = self.home.borrow_mut();
        let first = home.first;
        let count = home.slots.len();
        let mut mask: RegionMask = 0;
        for &id in regions {
            let at = id.wrapping_sub(first);
            if at >= count {
                return None;
            }
            mask |= 1 << at;
        }
        let mut regions = home.take(mask)?;
        drop(home);
        regions.iter_mut().for_each(|region| commit::begin(region));
        Some(Held {
            core: self.clone(),
            regions,
        })
    }

    pub(super) fn on_lend(self: &Rc<Self>, from: CoreId, ticket: usize, mask: RegionMask) {
        let regions = {
            let mut home = self.home.borrow_mut();
            let granted = if home.wanted(mask) {
                None
            } else {
                home.take(mask)
            };
            match granted {
                Some(regions) => regions,
                None => {
                    home.line.push_back(Wanted {
                        mask,
                        core: from,
                        ticket,
                    });
                    return;
                }
            }
        };
        self.grant(from, ticket, regions);
    }

    /// Regions come home: their effects are handled, then those in line get their turn.
    pub(super) fn take_back(self: &Rc<Self>, regions: Vec<RegionBox>) {
        let mut effects = false;
        let returned: Vec<RegionId> = regions.iter().map(|region| region.id).collect();
        {
            let mut home = self.home.borrow_mut();
            for region in regions {
                effects |= region.space.has_effects();
                home.put(region);
            }
        }
        if effects {
            self.on_effects();
        }
        if self.shared.durable.is_some() {
            // What waited for the region goes before the next in line, or it might wait as long as
            // others borrow.
            returned.into_iter().for_each(|id| self.compose_first(id));
            self.compose_home();
        }
        self.grant_next();
    }

    /// Grants what can be granted. Needed whenever a region has come home.
    pub(crate) fn grant_next(self: &Rc<Self>) {
        if self.serving.get() {
            return;
        }
        loop {
            let next = {
                let mut home = self.home.borrow_mut();
                if home.line.is_empty() {
                    return;
                }
                home.next_grant()
            };
            match next {
                Some((wanted, regions)) => self.grant(wanted.core, wanted.ticket, regions),
                None => return,
            }
        }
    }

    fn grant(self: &Rc<Self>, to: CoreId, ticket: usize, regions: Vec<RegionBox>) {
        if to == self.id {
            if let Some(answer) = self.tickets.deliver(ticket, Answer::Regions(regions)) {
                self.on_unwanted(answer);
            }
        } else {
            self.send(
                to,
                Message::Lent {
                    owner: self.id,
                    ticket,
                    regions,
                },
            );
        }
    }

    /// Gives regions back to their owners.
    pub(super) fn give_back(self: &Rc<Self>, regions: Vec<RegionBox>) {
        let map = self.shared.map;
        let mut rest = regions.into_iter().peekable();
        while let Some(first) = rest.next() {
            let owner = map.core_of(first.id);
            let mut ours = vec![first];
            while let Some(next) = rest.next_if(|region| map.core_of(region.id) == owner) {
                ours.push(next);
            }
            if owner == self.id {
                self.take_back(ours);
            } else {
                self.send(owner, Message::Return { regions: ours });
            }
        }
    }
}

/// Regions taken out of their cores for one command; dropping it gives them back.
pub struct Held {
    core: Rc<Core>,
    /// Ascending.
    regions: Vec<RegionBox>,
}

impl Held {
    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(crate) fn regions(&self) -> &[RegionBox] {
        &self.regions
    }

    pub(crate) fn regions_mut(&mut self) -> &mut [RegionBox] {
        &mut self.regions
    }

    /// The keyspaces in the order of their regions.
    pub fn spaces(&mut self) -> impl Iterator<Item = &mut Keyspace> {
        self.regions.iter_mut().map(|region| &mut region.space)
    }

    /// The held region of `key`.
    pub fn region_of(&mut self, key: &[u8]) -> Option<&mut Region> {
        let id = self.core.shared.map.region_of(key);
        let at = self
            .regions
            .binary_search_by_key(&id, |region| region.id)
            .ok()?;
        self.regions.get_mut(at).map(|region| &mut **region)
    }

    /// Runs a data command over the held regions.
    pub fn run(&mut self, call: &Call<'_>, args: &Args<'_>, reply: &mut Reply) -> Ran {
        let core = self.core.clone();
        self.with_view(call.db, |view| core.invoke(call, view, args, reply))
    }

    /// A view of the held regions, at the moment of this batch.
    pub fn with_view<T>(&mut self, db: DbIndex, run: impl FnOnce(View<'_>) -> T) -> T {
        let core = self.core.clone();
        let result = self.with_view_only(db, run);
        for space in self.spaces() {
            if space.has_met_due() {
                // What is held is an entry of its own: they go with it. Those that have left memory
                // since are found by the index of deadlines; noted as missing they would make the
                // command run twice.
                for (db, key, deadline_ms) in core.expire_met(space) {
                    if space.is_resident(db, &key) {
                        space.expire_key(db, &key, deadline_ms);
                    }
                }
            }
        }
        result
    }

    /// As [`Held::with_view`]; due keys that it meets stay.
    pub fn with_view_only<T>(&mut self, db: DbIndex, run: impl FnOnce(View<'_>) -> T) -> T {
        let core = &self.core;
        let settings = core.settings().clone();
        let (now_ms, seed) = (core.now_ms(), core.again.take().seed(core));
        if let [region] = &mut self.regions[..] {
            let space = &mut region.space;
            return run(View::one(space, db, now_ms, seed, &settings.tuning));
        }
        let ids: Vec<RegionId> = self.regions.iter().map(|region| region.id).collect();
        let router = HeldRouter {
            map: core.shared.map,
            ids: &ids,
        };
        let mut spaces: Vec<&mut Keyspace> = self
            .regions
            .iter_mut()
            .map(|region| &mut region.space)
            .collect();
        run(View::many(
            &mut spaces,
            &router,
            db,
            now_ms,
            seed,
            &settings.tuning,
        ))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let dirty = self.is_dirty();
        let regions = std::mem::take(&mut self.regions);
        if dirty {
            // Whoever held them did not wait (his client is gone, say): they go home when what he
            // did is kept.
            let core = self.core.clone();
            tokio::task::spawn_local(async move {
                let mut held = Held {
                    core: core.clone(),
                    regions,
                };
                // If it fails, the node has stopped writing for good, and says so.
                let _ = held.commit().await;
                drop(held);
            });
        } else if !regions.is_empty() {
            let mut regions = regions;
            regions
                .iter_mut()
                .for_each(|region| region.space.abandon_entry());
            self.core.give_back(regions);
        }
    }
}

struct HeldRouter<'a> {
    map: Map,
    ids: &'a [RegionId],
}

impl Router for HeldRouter<'_> {
    fn position(&self, key: &[u8]) -> usize {
        let id = self.map.region_of(key);
        // A key that is in no held region: the row of the command does not name it. Better to
        // stop that command (the index is out of range) than to put the key where none finds it.
        self.ids.binary_search(&id).unwrap_or(usize::MAX)
    }
}
