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
use super::mailbox::Message;
use super::region::{Region, RegionBox};
use super::run::{Call, Ran};
use super::tickets::{Answer, Ticket};
use super::{Core, CoreId, Map, RegionId};
use crate::cluster::Serving;
use crate::durable::commit;

/// The regions a core owns, those lent out missing, and who waits for them.
pub struct Home {
    /// The core's first place, and how far it is to the next.
    first: RegionId,
    step: usize,
    slots: Vec<Slot>,
    line: VecDeque<Wanted>,
}

/// One place of a core.
#[derive(Default)]
struct Slot {
    /// Whether there is a region at all; on a cluster node they come and go.
    is_used: bool,
    region: Option<RegionBox>,
    /// On a durable node: batches for the region's next entry. They wait here while it is lent.
    turn: Vec<BatchBox>,
}

/// A request that could not be granted yet: regions of this core, ascending.
struct Wanted {
    regions: Vec<RegionId>,
    core: CoreId,
    ticket: usize,
}

impl Home {
    pub fn new(map: &Map, core: CoreId, mut seed: impl FnMut() -> u64) -> Self {
        let regions = map.regions_of(core);
        let regions = regions.map(|id| Box::new(Region::new(id, seed())));
        Home::of(map, core, regions.collect())
    }

    /// A home of these regions, all of which are this core's.
    pub fn of(map: &Map, core: CoreId, regions: Vec<RegionBox>) -> Self {
        let (first, step) = map.first_of(core);
        let mut home = Home {
            first,
            step,
            slots: Vec::new(),
            line: VecDeque::new(),
        };
        regions.into_iter().for_each(|region| home.add(region));
        home
    }

    /// A region begins to be here.
    pub fn add(&mut self, region: RegionBox) {
        let Some(at) = self.position(region.id) else {
            debug_assert!(false, "a region that is not ours");
            return;
        };
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, Slot::default);
        }
        if let Some(slot) = self.slots.get_mut(at) {
            debug_assert!(!slot.is_used, "two regions at one place");
            slot.is_used = true;
            slot.region = Some(region);
        }
    }

    /// A region ends to be here; with the batches that waited for it. `None` while it is lent.
    pub fn remove(&mut self, id: RegionId) -> Option<(RegionBox, Vec<BatchBox>)> {
        let slot = self.slot_mut(id)?;
        let region = slot.region.take()?;
        slot.is_used = false;
        Some((region, std::mem::take(&mut slot.turn)))
    }

    #[inline]
    fn position(&self, id: RegionId) -> Option<usize> {
        let from_first = id.checked_sub(self.first)?;
        match self.step {
            1 => Some(from_first),
            step => from_first.is_multiple_of(step).then_some(from_first / step),
        }
    }

    #[inline]
    fn slot_mut(&mut self, id: RegionId) -> Option<&mut Slot> {
        let at = self.position(id)?;
        self.slots.get_mut(at)
    }

    /// The batches that wait for a region's next entry; none, if it is not this core's.
    pub(crate) fn turn_mut(&mut self, id: RegionId) -> Option<&mut Vec<BatchBox>> {
        let slot = self.slot_mut(id)?;
        slot.is_used.then_some(&mut slot.turn)
    }

    /// Whether there is a region at this place, home or lent.
    pub fn is_used(&mut self, id: RegionId) -> bool {
        self.slot_mut(id).is_some_and(|slot| slot.is_used)
    }

    /// Whether somebody waits to borrow a region.
    pub(crate) fn is_wanted(&self, id: RegionId) -> bool {
        self.wanted(&[id])
    }

    /// A region, if it is this core's and not lent.
    #[inline]
    pub fn region_mut(&mut self, id: RegionId) -> Option<&mut Region> {
        self.slot_mut(id)?.region.as_deref_mut()
    }

    /// Any region that is home, for commands that touch no key.
    pub fn any(&self) -> Option<RegionId> {
        let at = self.slots.iter().position(|slot| slot.region.is_some())?;
        Some(self.first + at * self.step)
    }

    pub fn present(&mut self) -> impl Iterator<Item = &mut Region> {
        self.slots
            .iter_mut()
            .filter_map(|slot| slot.region.as_deref_mut())
    }

    /// The places of this core, empty ones too.
    pub fn places(&self) -> impl ExactSizeIterator<Item = RegionId> + use<> {
        let (first, step) = (self.first, self.step);
        (0..self.slots.len()).map(move |at| first + at * step)
    }

    /// Whether these are home and may be lent: nothing of them is on its way, and their rows are in
    /// the store. A place that is empty, or a region that is led elsewhere, is no reason to wait.
    fn has_all(&mut self, regions: &[RegionId]) -> bool {
        regions.iter().all(|&id| match self.slot_mut(id) {
            Some(slot) if slot.is_used => match slot.region.as_mut() {
                Some(region) => match region.serving() {
                    Serving::Now => region.is_quiet() && region.settle().is_ok(),
                    Serving::Later => false,
                    Serving::No => true,
                },
                None => false,
            },
            _ => true,
        })
    }

    /// Moves regions out, in order, if all are home; those that are led elsewhere stay.
    fn take(&mut self, regions: &[RegionId]) -> Option<Vec<RegionBox>> {
        if !self.has_all(regions) {
            return None;
        }
        let take = |&id: &RegionId| {
            let is_led = |region: &mut RegionBox| region.serving() != Serving::No;
            self.slot_mut(id)?.region.take_if(is_led)
        };
        Some(regions.iter().filter_map(take).collect())
    }

    fn put(&mut self, region: Box<Region>) {
        if let Some(slot) = self.slot_mut(region.id) {
            debug_assert!(slot.region.is_none(), "two boxes of one region");
            slot.region = Some(region);
        } else {
            debug_assert!(false, "a region that is not ours");
        }
    }

    /// Whether somebody in line wants any of these.
    fn wanted(&self, regions: &[RegionId]) -> bool {
        let line = self.line.iter();
        line.into_iter()
            .any(|wanted| overlap(&wanted.regions, regions))
    }

    /// The first request in line that can be granted and overlaps no earlier one.
    fn next_grant(&mut self) -> Option<(Wanted, Vec<RegionBox>)> {
        for at in 0..self.line.len() {
            let regions = std::mem::take(&mut self.line[at].regions);
            let mut earlier = self.line.iter().take(at);
            let free = !earlier.any(|wanted| overlap(&wanted.regions, &regions));
            let taken = if free { self.take(&regions) } else { None };
            self.line[at].regions = regions;
            if let Some(taken) = taken {
                return self.line.remove(at).map(|wanted| (wanted, taken));
            }
        }
        None
    }
}

/// Whether two ascending lists have something in common.
fn overlap(one: &[RegionId], other: &[RegionId]) -> bool {
    match (one, other) {
        ([one], [other]) => one == other,
        ([one], many) | (many, [one]) => many.binary_search(one).is_ok(),
        (one, other) => one.iter().any(|id| other.binary_search(id).is_ok()),
    }
}

impl Core {
    /// Takes `regions` (ascending, each once) out of their cores, waiting as long as it takes.
    pub async fn hold(self: &Rc<Self>, regions: &[RegionId]) -> Held {
        let map = &self.shared.map;
        let mut held = Held {
            core: self.clone(),
            regions: Vec::with_capacity(regions.len()),
        };
        let owners = match regions {
            [one] => map.core_of(*one)..map.core_of(*one) + 1,
            _ => 0..map.cores(),
        };
        for owner in owners {
            let ours = regions.iter().filter(|&&id| map.core_of(id) == owner);
            let ours: Vec<RegionId> = ours.copied().collect();
            if !ours.is_empty() {
                held.regions.extend(self.borrow_from(owner, ours).await);
            }
        }
        held.regions.sort_by_key(|region| region.id);
        if regions.iter().any(|&id| map.core_of(id) != self.id) {
            self.stats().holds.add(1);
        }
        held.regions
            .iter_mut()
            .for_each(|region| commit::begin(region));
        held
    }

    async fn borrow_from(self: &Rc<Self>, owner: CoreId, regions: Vec<RegionId>) -> Vec<RegionBox> {
        let ticket = if owner == self.id {
            let mut home = self.home.borrow_mut();
            if !home.wanted(&regions)
                && let Some(taken) = home.take(&regions)
            {
                return taken;
            }
            let ticket = Ticket::new(self);
            home.line.push_back(Wanted {
                regions: regions.clone(),
                core: self.id,
                ticket: ticket.number(),
            });
            drop(home);
            self.ask_lease(&regions);
            ticket
        } else {
            self.credit(owner).await;
            let ticket = Ticket::new(self);
            self.send(
                owner,
                Message::Lend {
                    from: self.id,
                    ticket: ticket.number(),
                    regions,
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
        let map = &self.shared.map;
        if regions.iter().any(|&id| map.core_of(id) != self.id) {
            return None;
        }
        let mut home = self.home.borrow_mut();
        let mut regions = home.take(regions)?;
        drop(home);
        regions.iter_mut().for_each(|region| commit::begin(region));
        Some(Held {
            core: self.clone(),
            regions,
        })
    }

    pub(super) fn on_lend(self: &Rc<Self>, from: CoreId, ticket: usize, regions: Vec<RegionId>) {
        let mut home = self.home.borrow_mut();
        let granted = match home.wanted(&regions) {
            true => None,
            false => home.take(&regions),
        };
        let Some(granted) = granted else {
            home.line.push_back(Wanted {
                regions: regions.clone(),
                core: from,
                ticket,
            });
            drop(home);
            return self.ask_lease(&regions);
        };
        drop(home);
        self.grant(from, ticket, granted);
    }

    /// Regions come home: their effects are handled, then those in line get their turn.
    pub(crate) fn take_back(self: &Rc<Self>, mut regions: Vec<RegionBox>) {
        let mut effects = false;
        for region in &mut regions {
            if std::mem::take(&mut region.is_undone) {
                self.close_desk(region); // here, where those are who wait for it
            }
        }
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
        returned.iter().for_each(|&id| self.unpark(id));
        self.hear_words();
        if self.shared.durable.is_some() {
            // What waited for the region goes before the next in line, or it might wait as long as
            // others borrow.
            returned.into_iter().for_each(|id| self.compose_first(id));
            self.compose_home();
            self.evict_returned();
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
        let map = &self.shared.map;
        let mut rest = regions;
        while let Some(first) = rest.first() {
            let owner = map.core_of(first.id);
            let of_owner = |region: &mut RegionBox| map.core_of(region.id) == owner;
            let ours: Vec<RegionBox> = rest.extract_if(.., of_owner).collect();
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

    pub(crate) fn regions_vec(&mut self) -> &mut Vec<RegionBox> {
        &mut self.regions
    }

    /// The keyspaces in the order of their regions.
    pub fn spaces(&mut self) -> impl Iterator<Item = &mut Keyspace> {
        self.regions.iter_mut().map(|region| &mut region.space)
    }

    /// Whether it has all of these: on a cluster node some may be led elsewhere.
    pub fn has(&self, regions: &[RegionId]) -> bool {
        self.regions.len() == regions.len()
    }

    /// Whether these are among those it has.
    pub fn has_places(&self, mut places: impl Iterator<Item = RegionId>) -> bool {
        places.all(|id| self.regions.binary_search_by_key(&id, |it| it.id).is_ok())
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
            map: &core.shared.map,
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
                // If it fails it is undone, or the node has stopped writing for good and says so.
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
    map: &'a Map,
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
