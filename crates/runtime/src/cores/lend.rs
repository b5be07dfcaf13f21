//! Borrowing regions of other cores, and running commands over them: see [`node`]'s `lend.rs` for how
//! they are lent.

use std::rc::Rc;

use base::DbIndex;
use keyspace::{Keyspace, Router, View};
use node::{EffectBatch, Map, Place, Ran, Region, RegionBox, begin_entry};
use resp::{Args, Reply};

use super::mailbox::Message;
use super::run::Call;
use super::tickets::{Answer, Ticket};
use super::{Core, CoreId};

impl Core {
    /// Takes `regions` (ascending, each once) out of their cores, waiting as long as it takes.
    pub async fn hold(self: &Rc<Self>, regions: &[Place]) -> Held {
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
            let ours: Vec<Place> = ours.copied().collect();
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
            .for_each(|region| begin_entry(region));
        held
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

    /// Regions of this core at once, if all are home: for commands that run now and give them
    /// back before anything else happens.
    pub fn try_hold(self: &Rc<Self>, regions: &[Place]) -> Option<Held> {
        let map = &self.shared.map;
        if regions.iter().any(|&id| map.core_of(id) != self.id) {
            return None;
        }
        let mut home = self.regions.borrow_mut();
        let mut regions = home.borrow_for_a_moment(regions, self.lease_ms())?;
        drop(home);
        regions.iter_mut().for_each(|region| begin_entry(region));
        Some(Held {
            core: self.clone(),
            regions,
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

    /// Regions come home: their changes are handled, then those in line get their turn.
    pub(crate) fn take_back(self: &Rc<Self>, regions: Vec<RegionBox>) {
        if self.shared.durable.is_none() {
            return self.take_back_in_memory(regions);
        }
        let returned: Vec<Place> = regions.iter().map(|region| region.id).collect();
        let changes = self.on_regions(|owned, _, out| {
            let mut changes = false;
            for mut region in regions {
                if std::mem::take(&mut region.is_undone) {
                    region.close_write_back(out); // here, where those are who wait for it
                }
                changes |= region.space.has_effects();
                owned.put(region);
            }
            changes
        });
        if changes {
            self.on_effects();
        }
        self.on_regions(|owned, cx, out| {
            returned.iter().for_each(|&it| owned.unpark(it, cx, out));
        });
        if self.shared.cluster.is_some() {
            self.end_turn();
        }
        returned.iter().for_each(|&place| self.tell_watching(place));
        self.hear_sql();
        self.on_regions(|owned, cx, out| {
            // What waited for the region goes before the next in line, or it might wait as long as
            // others borrow.
            returned
                .iter()
                .for_each(|&it| owned.propose_first(it, cx, out));
            owned.propose_queued(cx, out);
        });
        self.evict_returned();
        self.grant_next();
    }

    /// As [`Core::take_back`], on a node without a log.
    fn take_back_in_memory(self: &Rc<Self>, regions: Vec<RegionBox>) {
        let is_watched = !self.watching_regions.borrow().is_empty();
        let returned: Vec<Place> = match is_watched {
            true => regions.iter().map(|region| region.id).collect(),
            false => Vec::new(),
        };
        let mut home = self.regions.borrow_mut();
        let mut changes = false;
        for region in regions {
            changes |= region.space.has_effects();
            home.put(region);
        }
        let has_line = home.has_line();
        drop(home);
        if changes {
            self.on_effects();
        }
        if has_line {
            self.grant_next();
        }
        if is_watched {
            returned.iter().for_each(|&place| self.tell_watching(place));
        }
    }

    /// A region comes home with changes to be kept.
    pub(crate) fn on_effect_batch(self: &Rc<Self>, batch: EffectBatch) {
        self.begin_batch();
        let region = self.with_regions(|owned, cx, out| owned.propose_effects(batch, cx, out));
        let place = region.id;
        self.take_back(vec![region]);
        self.drive(place);
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
    pub fn has(&self, regions: &[Place]) -> bool {
        self.regions.len() == regions.len()
    }

    /// Whether these are among those it has.
    pub fn has_places(&self, mut places: impl Iterator<Item = Place>) -> bool {
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
        let (now_ms, seed) = (core.now_ms(), core.again.take().seed(&core.seeds));
        if let [region] = &mut self.regions[..] {
            let space = &mut region.space;
            return run(View::one(space, db, now_ms, seed, &settings.tuning));
        }
        let ids: Vec<Place> = self.regions.iter().map(|region| region.id).collect();
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
    ids: &'a [Place],
}

impl Router for HeldRouter<'_> {
    fn position(&self, key: &[u8]) -> usize {
        let id = self.map.region_of(key);
        // A key that is in no held region: the row of the command does not name it. Better to
        // stop that command (the index is out of range) than to put the key where none finds it.
        self.ids.binary_search(&id).unwrap_or(usize::MAX)
    }
}
