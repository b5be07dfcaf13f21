//! Borrowing regions of other cores, and running commands over them: see [`node`]'s `lend.rs` for how
//! they are lent.

use std::rc::Rc;

use base::DbIndex;
use keyspace::rows::ColdRows;
use keyspace::{Keyspace, View};
use node::{HeldRegions, Moment, Place, Ran, Region, RegionBox, Watch};
use resp::{Args, Reply};

use super::mailbox::Message;
use super::run::Call;
use super::tickets::{Answer, Ticket};
use super::{Core, CoreId};

impl Core {
    /// Takes `regions` (ascending, each once) out of their cores, waiting as long as it takes.
    pub async fn hold(self: &Rc<Self>, regions: &[Place]) -> Held {
        let map = &self.shared.map;
        let mut held = Vec::with_capacity(regions.len());
        let owners = match regions {
            [one] => map.core_of(*one)..map.core_of(*one) + 1,
            _ => 0..map.cores(),
        };
        for owner in owners {
            let ours = regions.iter().filter(|&&id| map.core_of(id) == owner);
            let ours: Vec<Place> = ours.copied().collect();
            if !ours.is_empty() {
                held.extend(self.borrow_from(owner, ours).await);
            }
        }
        if regions.iter().any(|&id| map.core_of(id) != self.id) {
            self.stats().holds.add(1);
        }
        Held {
            core: self.clone(),
            held: HeldRegions::new(held),
        }
    }

    async fn borrow_from(self: &Rc<Self>, owner: CoreId, regions: Vec<Place>) -> Vec<RegionBox> {
        let ticket = if owner == self.id {
            let taken = self
                .regions
                .borrow_mut()
                .borrow_now(&regions, self.lease_ms());
            if let Some(taken) = taken {
                return taken;
            }
            let ticket = Ticket::new(self);
            self.borrow_later(regions, self.id, ticket.number());
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

    /// Regions of this core at once, if all are here: for commands that run now and give them
    /// back before anything else happens.
    pub fn try_hold(self: &Rc<Self>, regions: &[Place]) -> Option<Held> {
        let map = &self.shared.map;
        if regions.iter().any(|&id| map.core_of(id) != self.id) {
            return None;
        }
        let mut owned = self.regions.borrow_mut();
        let regions = owned.borrow_for_a_moment(regions, self.lease_ms())?;
        drop(owned);
        Some(Held {
            core: self.clone(),
            held: HeldRegions::new(regions),
        })
    }

    pub(super) fn on_lend(self: &Rc<Self>, from: CoreId, ticket: usize, regions: Vec<Place>) {
        let granted = self
            .regions
            .borrow_mut()
            .borrow_now(&regions, self.lease_ms());
        match granted {
            Some(regions) => self.send(
                from,
                Message::Lent {
                    owner: self.id,
                    ticket,
                    regions,
                },
            ),
            None => self.borrow_later(regions, from, ticket),
        }
    }

    /// Puts a request for regions of this core in line; those without a lease get one.
    fn borrow_later(self: &Rc<Self>, regions: Vec<Place>, core: CoreId, ticket: usize) {
        self.on_regions(|owned, cx, out| {
            owned.ask_leases(&regions, cx, out);
            owned.borrow_later(regions, core, ticket);
        });
        if self.shared.cluster.is_some() {
            self.end_turn();
        }
    }

    /// Regions come back.
    pub(crate) fn take_back(self: &Rc<Self>, regions: Vec<RegionBox>) {
        match self.shared.durable.is_some() {
            true => self.on_regions(|owned, cx, out| owned.take_back(regions, cx, out)),
            false => self.take_back_in_memory(regions),
        }
    }

    /// As [`Core::take_back`], on a node without a log.
    fn take_back_in_memory(self: &Rc<Self>, regions: Vec<RegionBox>) {
        let is_watched = !self.watching_regions.borrow().is_empty();
        let returned: Vec<Place> = match is_watched {
            true => regions.iter().map(|region| region.id).collect(),
            false => Vec::new(),
        };
        let mut owned = self.regions.borrow_mut();
        let mut changes = false;
        for region in regions {
            changes |= region.space.has_key_changes();
            owned.put(region);
        }
        let has_line = owned.has_line();
        drop(owned);
        if changes {
            self.serve_key_changes();
        }
        if has_line {
            self.grant_next();
        }
        if is_watched {
            returned.iter().for_each(|&place| self.tell_watching(place));
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
    held: HeldRegions,
}

impl Held {
    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(crate) fn regions_held(&mut self) -> &mut HeldRegions {
        &mut self.held
    }

    pub(crate) fn take_regions(&mut self) -> HeldRegions {
        std::mem::take(&mut self.held)
    }

    /// Regions that are held again.
    pub(crate) fn put_regions(&mut self, regions: Vec<RegionBox>) {
        self.held = HeldRegions::new(regions);
    }

    /// The keyspaces in the order of their regions.
    pub fn spaces(&mut self) -> impl Iterator<Item = &mut Keyspace> {
        self.held.spaces()
    }

    /// Whether it has all of these: on a cluster node some may be led elsewhere.
    pub fn has(&self, regions: &[Place]) -> bool {
        self.held.regions().len() == regions.len()
    }

    /// Whether these are among those it has.
    pub fn has_places(&self, places: impl Iterator<Item = Place>) -> bool {
        self.held.has_places(places)
    }

    /// The held region of `key`.
    pub fn region_of(&mut self, key: &[u8]) -> Option<&mut Region> {
        self.held.region_of(&self.core.shared.map, key)
    }

    pub fn take_cold(&mut self) -> Vec<ColdRows> {
        self.held.take_cold()
    }

    /// See [`keyspace::Keyspace::read_cached`].
    pub fn read_cached(&mut self, only: bool) {
        self.held.read_cached(only);
    }

    /// Whether one of these keys has changed, whose regions are held and which are in memory.
    pub fn has_changed(&mut self, watched: &[Watch]) -> bool {
        let core = &self.core;
        let settings = core.settings().clone();
        let moment = core.moment(&settings.tuning);
        self.held.has_changed(&moment, watched)
    }

    /// Runs a data command over the held regions.
    pub fn run(&mut self, call: &Call<'_>, args: &Args<'_>, reply: &mut Reply) -> Ran {
        let core = self.core.clone();
        self.with_view(call.db, |view| core.invoke(call, view, args, reply))
    }

    /// A view of the held regions, at the moment of this batch.
    pub fn with_view<T>(&mut self, db: DbIndex, run: impl FnOnce(View<'_>) -> T) -> T {
        let core = self.core.clone();
        let settings = core.settings().clone();
        let result = self.held.view(&core.moment(&settings.tuning), db, run);
        let is_paused = core.shared.is_expiry_paused(core.now_ms());
        match core.shared.durable.is_some() {
            true => self.held.expire_met(is_paused),
            false => self.spaces().for_each(|space| {
                if space.has_met_due() {
                    core.expire_met(space);
                }
            }),
        }
        result
    }
}

impl Core {
    /// This moment, for a command over held regions.
    fn moment<'a>(&'a self, tuning: &'a keyspace::Tuning) -> Moment<'a> {
        Moment {
            map: &self.shared.map,
            now_ms: self.now_ms(),
            seed: self.again.take().seed(&self.seeds),
            tuning,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held.is_dirty() {
            // Whoever held them did not wait (his client is gone, say): they go back when what he did is
            // kept. If it fails it is undone, or the node has stopped writing for good and says so.
            self.core
                .on_regions(|owned, cx, out| owned.commit(held, None, cx, out));
        } else if !held.is_empty() {
            let mut regions = held.into_regions();
            regions
                .iter_mut()
                .for_each(|region| region.space.abandon_entry());
            self.core.give_back(regions);
        }
    }
}
