//! `maxmemory` with a policy on a durable node: the data set is kept below it by entries of the log
//! (decision 30).
//!
//! ```text
//!   applied ─► data set too large? ─► victims of regions led here ─► entry ─► log ─► removed by every replica
//!      ▲                                                                                  │
//!      └──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Only the leader chooses. Its choice is an ordinary entry: DEL of the keys, or, where the policy asks
//! for a deadline, their removal if they still have it, which is what expiry proposes too. So replicas are
//! equal, a crash neither loses nor repeats anything, and no node needs to know of a new kind of entry.
//!
//! One such entry of a region is on its way at a time. A core takes of the excess the part that its led
//! regions have of the data set, so that all cores and leaders together take it once.

use std::rc::Rc;

use keyspace::rows::{ColdRows, Victim, Wanted};
use keyspace::{EvictionPolicy, Tuning};
use node::Member;

use crate::cores::{Core, Place};

/// Keys of one entry.
const KEYS: usize = 1024;
/// Of these, such that are in rows only and are read before they go, and their bytes.
const COLD_KEYS: usize = 64;
const COLD_BYTES: u64 = 16 << 20;

/// What choosing from one region came to.
enum Chosen {
    Victims(Vec<Victim>),
    /// Rows have to be read first.
    Cold(Vec<ColdRows>),
    /// Somebody has it, or an entry of it is on its way.
    Busy,
}

/// Rows of a region are being read to find keys to give up, however that ends.
struct Warming {
    core: Rc<Core>,
    id: Place,
}

impl Warming {
    fn begin(core: &Rc<Core>, id: Place) -> Warming {
        core.warming.borrow_mut().insert(id);
        Warming {
            core: core.clone(),
            id,
        }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        self.core.warming.borrow_mut().remove(&self.id);
    }
}

/// Before keys are looked for again among rows that cannot be read.
const UNREADABLE_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

impl Core {
    /// What the data set may have; `None` if nothing is evicted.
    pub(super) fn most_data_bytes(&self) -> Option<u64> {
        let settings = self.settings();
        let evicts = settings.tuning.policy != EvictionPolicy::NoEviction;
        (settings.maxmemory > 0 && evicts && self.shared.durable.is_some())
            .then_some(settings.maxmemory as u64)
    }

    /// Keys are to be given up soon.
    pub(crate) fn ask_for_eviction(&self) {
        if !self.eviction_asked.replace(true) {
            self.wake_to_propose();
        }
    }

    pub(crate) fn is_eviction_asked(&self) -> bool {
        self.eviction_asked.get()
    }

    /// An entry of a region was applied.
    pub(crate) fn evict_after(self: &Rc<Self>, id: Place) {
        let Some(most_bytes) = self.most_data_bytes() else {
            return;
        };
        if let Some(region) = self.regions.borrow_mut().region_mut(id) {
            region.tell_weight(&self.shared.data_set);
        }
        if self.shared.data_set.bytes() > most_bytes {
            self.evict_by_log();
        }
    }

    /// Regions have come back, which may have grown.
    pub(crate) fn evict_returned(&self) {
        let data_bytes = self.shared.data_set.bytes();
        if self.most_data_bytes().is_some_and(|most| data_bytes > most) {
            self.ask_for_eviction();
        }
    }

    /// Proposes to remove keys while the data set is too large.
    pub(crate) fn evict_by_log(self: &Rc<Self>) {
        self.eviction_asked.set(false);
        let mine = &self.shared.evictions[self.id];
        let data_bytes = self.shared.data_set.bytes();
        let Some(most_bytes) = self.most_data_bytes().filter(|&most| data_bytes > most) else {
            return mine.set_found(true);
        };
        if self.shared.is_expiry_paused(self.now_ms()) || self.is_evicting.replace(true) {
            return;
        }
        let (led, led_bytes, leaving_bytes) = self.led();
        let part = u128::from(data_bytes - most_bytes) * u128::from(led_bytes);
        let part = (part / u128::from(data_bytes)) as u64;
        let wanted = part.max(1).saturating_sub(leaving_bytes);
        let settings = self.settings().clone();
        let start = self.next_seed() as usize;
        let mut found = leaving_bytes > 0;
        let mut chosen_bytes = 0;
        for nth in 0..led.len() {
            let Some(&(id, bytes)) = led.get((start.wrapping_add(nth)) % led.len()) else {
                break;
            };
            if chosen_bytes >= wanted {
                break;
            }
            let part = u128::from(wanted) * u128::from(bytes) / u128::from(led_bytes.max(1));
            let wanted = Wanted {
                bytes: (part as u64).max(1),
                keys: KEYS,
                cold_keys: COLD_KEYS,
                cold_bytes: COLD_BYTES,
            };
            match self.choose(id, wanted, &settings.tuning) {
                Chosen::Busy => found = true,
                Chosen::Cold(rows) => {
                    found = true;
                    self.warm_for_eviction(id, rows);
                }
                Chosen::Victims(victims) if victims.is_empty() => {}
                Chosen::Victims(victims) => {
                    found = true;
                    chosen_bytes += victims.iter().map(|victim| victim.bytes).sum::<u64>();
                    self.propose_victims(id, victims);
                }
            }
        }
        self.is_evicting.set(false);
        mine.set_found(found);
    }

    /// The regions that are led here with what each weighs, the sum of that, and what is leaving them already.
    fn led(&self) -> (Vec<(Place, u64)>, u64, u64) {
        let mut owned = self.regions.borrow_mut();
        let mut led = Vec::new();
        let (mut led_bytes, mut leaving_bytes) = (0, 0);
        for region in owned.present() {
            let bytes = region.space.data_bytes();
            let Some(member) = region.member.as_deref().filter(|it| it.replica.is_leader()) else {
                continue;
            };
            leaving_bytes += member.leaving_bytes();
            led_bytes += bytes;
            led.push((region.id, bytes));
        }
        (led, led_bytes, leaving_bytes)
    }

    fn choose(&self, id: Place, wanted: Wanted, tuning: &Tuning) -> Chosen {
        let mut owned = self.regions.borrow_mut();
        if owned.is_wanted(id) {
            return Chosen::Busy;
        }
        let Some(region) = owned.region_mut(id) else {
            return Chosen::Busy;
        };
        let Some(member) = region.member.as_deref_mut() else {
            return Chosen::Victims(Vec::new());
        };
        // If nobody knows what it weighs, nobody knows how much is to go, and how much went.
        let is_known = region.space.doubtful_bytes().is_some();
        if !is_known || member.failed || member.is_evicting() || self.warming.borrow().contains(&id)
        {
            return Chosen::Busy;
        }
        // The same as the last time if that has met rows that are not in memory.
        let seed = *member.eviction.seed.get_or_insert_with(|| self.next_seed());
        let space = &mut region.space;
        space.read_cached(true);
        let victims = space.victims(wanted, self.now_ms(), seed, tuning);
        space.read_cached(false);
        if space.has_missing() {
            let rows = space.take_cold();
            space.take_missing();
            if victims.is_empty() {
                return Chosen::Cold(rows);
            }
        }
        member.eviction.seed = None;
        member.eviction.tries = 0;
        Chosen::Victims(victims)
    }

    fn warm_for_eviction(self: &Rc<Self>, id: Place, rows: Vec<ColdRows>) {
        let core = self.clone();
        let warming = Warming::begin(self, id);
        tokio::task::spawn_local(async move {
            let tries = core.with_member(id, |member| {
                member.eviction.tries = member.eviction.tries.saturating_add(1);
                member.eviction.tries - 1
            });
            let unreadable = core.warm(rows, tries.unwrap_or(0)).await;
            if !unreadable.is_empty() {
                // The disk is asked again, but not in a circle.
                tokio::time::sleep(UNREADABLE_PAUSE).await;
            }
            drop(warming);
            core.ask_for_eviction();
        });
    }

    fn with_member<T>(&self, id: Place, with: impl FnOnce(&mut Member) -> T) -> Option<T> {
        let mut owned = self.regions.borrow_mut();
        let member = owned.region_mut(id)?.member.as_deref_mut()?;
        Some(with(member))
    }

    fn propose_victims(self: &Rc<Self>, id: Place, victims: Vec<Victim>) {
        self.on_regions(|regions, cx, out| regions.propose_eviction(id, &victims, cx, out));
    }
}
