//! The regions a core owns, those lent out missing, with what waits for each.

use bytes::Bytes;
use meta::wire::ReplicaReport;

use crate::effect_groups::EffectGroups;
use crate::lend::Line;
use crate::outgoing::Outgoing;
use crate::reads::Reads;
use crate::{BatchBox, CoreId, Map, Member, Place, Region, RegionBox};

/// The regions of one core. What happens to them is in the files of this crate, one per stage.
pub struct OwnedRegions {
    /// Whose they are.
    pub(crate) core: CoreId,
    pub(crate) slots: Slots,
    pub(crate) line: Line,
    pub outgoing: Outgoing,
    /// Regions for whose next entry something waits.
    pub(crate) queued: Vec<Place>,
    /// Regions whose last write is in the log and not applied yet.
    pub(crate) logged: Vec<Place>,
    pub(crate) reads: Reads,
    pub(crate) groups: EffectGroups,
}

/// The places of a core.
pub(crate) struct Slots {
    /// The core's first place, and how far it is to the next.
    first: Place,
    step: usize,
    all: Vec<Slot>,
}

/// One place of a core.
#[derive(Default)]
pub(crate) struct Slot {
    /// Whether there is a region at all; on a cluster node they come and go.
    is_used: bool,
    pub region: Option<RegionBox>,
    /// On a durable node: batches for the region's next entry. They wait here while it is lent.
    queue: Vec<BatchBox>,
    /// Messages of peers that came while it was lent: node, bytes.
    pub parked: Vec<(u64, Bytes)>,
    /// Entries of its log that were read while it was lent.
    pub parked_entries: Option<FetchedEntries>,
    /// What meta was told last of its replica.
    pub last_report: Option<ReplicaReport>,
}

/// Entries of a log that were read, or why not.
pub(crate) type FetchedEntries = Result<Vec<replica::Entry>, String>;

impl Slots {
    #[inline]
    fn position(&self, place: Place) -> Option<usize> {
        let from_first = place.checked_sub(self.first)?;
        match self.step {
            1 => Some(from_first),
            step => from_first.is_multiple_of(step).then_some(from_first / step),
        }
    }

    #[inline]
    pub fn slot_mut(&mut self, place: Place) -> Option<&mut Slot> {
        let at = self.position(place)?;
        self.all.get_mut(at)
    }

    #[inline]
    pub fn region_mut(&mut self, place: Place) -> Option<&mut Region> {
        self.slot_mut(place)?.region.as_deref_mut()
    }

    /// The slot of a place where there is a region; it may be lent.
    pub fn used_mut(&mut self, place: Place) -> Option<&mut Slot> {
        self.slot_mut(place).filter(|slot| slot.is_used)
    }
}

impl OwnedRegions {
    pub fn new(map: &Map, core: CoreId, mut seed: impl FnMut() -> u64) -> Self {
        let regions = map.regions_of(core);
        let regions = regions.map(|place| Box::new(Region::new(place, seed())));
        OwnedRegions::of(map, core, regions.collect())
    }

    /// Of these regions, all of which are this core's.
    pub fn of(map: &Map, core: CoreId, regions: Vec<RegionBox>) -> Self {
        let (first, step) = map.first_of(core);
        let mut owned = OwnedRegions {
            core,
            slots: Slots {
                first,
                step,
                all: Vec::new(),
            },
            line: Line::default(),
            outgoing: Outgoing::default(),
            queued: Vec::new(),
            logged: Vec::new(),
            reads: Reads::default(),
            groups: EffectGroups::default(),
        };
        regions.into_iter().for_each(|region| owned.add(region));
        owned
    }

    /// A region begins to be here.
    pub fn add(&mut self, region: RegionBox) {
        let Some(at) = self.slots.position(region.id) else {
            debug_assert!(false, "a region that is not ours");
            return;
        };
        if at >= self.slots.all.len() {
            self.slots.all.resize_with(at + 1, Slot::default);
        }
        if let Some(slot) = self.slots.all.get_mut(at) {
            debug_assert!(!slot.is_used, "two regions at one place");
            slot.is_used = true;
            slot.region = Some(region);
        }
    }

    /// A region ends to be here; with the batches that waited for it. `None` while it is lent.
    pub fn remove(&mut self, place: Place) -> Option<(RegionBox, Vec<BatchBox>)> {
        let slot = self.slots.slot_mut(place)?;
        let region = slot.region.take()?;
        slot.is_used = false;
        slot.parked.clear();
        slot.parked_entries = None;
        slot.last_report = None;
        Some((region, std::mem::take(&mut slot.queue)))
    }

    /// The batches that wait for a region's next entry; none, if it is not this core's.
    pub fn queue_mut(&mut self, place: Place) -> Option<&mut Vec<BatchBox>> {
        self.slots.used_mut(place).map(|slot| &mut slot.queue)
    }

    /// Whether there is a region at this place; it may be lent.
    pub fn is_used(&mut self, place: Place) -> bool {
        self.slots.used_mut(place).is_some()
    }

    /// A region, if it is this core's and not lent.
    #[inline]
    pub fn region_mut(&mut self, place: Place) -> Option<&mut Region> {
        self.slots.region_mut(place)
    }

    /// As [`OwnedRegions::region_mut`], to look at it.
    pub fn region(&self, place: Place) -> Option<&Region> {
        let at = self.slots.position(place)?;
        self.slots.all.get(at)?.region.as_deref()
    }

    /// The part in the log of a region that is this core's and not lent.
    #[inline]
    pub fn member_mut(&mut self, place: Place) -> Option<&mut Member> {
        self.slots.region_mut(place)?.member.as_deref_mut()
    }

    /// Any region that is here, for commands that touch no key.
    pub fn any(&self) -> Option<Place> {
        let slots = &self.slots;
        let at = slots.all.iter().position(|slot| slot.region.is_some())?;
        Some(slots.first + at * slots.step)
    }

    /// The regions that are not lent.
    pub fn present(&mut self) -> impl Iterator<Item = &mut Region> {
        let slots = self.slots.all.iter_mut();
        slots.filter_map(|slot| slot.region.as_deref_mut())
    }

    /// The places of this core, empty ones too.
    pub fn places(&self) -> impl ExactSizeIterator<Item = Place> + use<> {
        let (first, step) = (self.slots.first, self.slots.step);
        (0..self.slots.all.len()).map(move |at| first + at * step)
    }

    /// Something waits for a region's next entry.
    pub(crate) fn note_queued(&mut self, place: Place) {
        if !self.queued.contains(&place) {
            self.queued.push(place);
        }
    }
}
