//! Regions that were taken out of their cores, and running commands over them: nobody else has them
//! meanwhile, nothing of them is on its way, and all their rows are in the store.

use base::{DbIndex, Refusal};
use command::{CommandSpec, Keys};
use keyspace::rows::{ColdRows, LoadRequest, Loaded, RowStore, Tier};
use keyspace::{Keyspace, Router, Tuning, View, rows};
use resp::{Args, Reply};

use crate::run::Again;
use crate::waiters::Watch;
use crate::{
    Context, Map, Place, PlacedKey, Ran, Region, RegionBox, begin_entry, full_refusal, lacks_room,
    ready,
};

/// Regions that were borrowed, in ascending order.
#[derive(Default)]
pub struct HeldRegions(Vec<RegionBox>);

/// The moment at which a command sees held regions.
#[derive(Clone, Copy)]
pub struct Moment<'a> {
    pub map: &'a Map,
    pub now_ms: u64,
    pub seed: u64,
    pub tuning: &'a Tuning,
}

impl<'a> Moment<'a> {
    pub fn new(cx: &Context<'a>, seed: u64) -> Moment<'a> {
        Moment {
            map: cx.map,
            now_ms: cx.now_ms,
            seed,
            tuning: cx.tuning,
        }
    }
}

/// What one attempt to run a command came to.
pub enum Attempted {
    Ran(Ran),
    /// It needs keys or rows that are not in memory. Nothing has happened, nothing is written.
    Lacks {
        keys: Vec<PlacedKey>,
        rows: Vec<ColdRows>,
    },
    /// It may not run: the log or the store has failed, or there is no room for a row it may make larger.
    Refused(Refusal),
}

impl HeldRegions {
    /// What is done to these regions from now on is their next entry.
    pub fn new(mut regions: Vec<RegionBox>) -> HeldRegions {
        regions.sort_by_key(|region| region.id);
        regions.iter_mut().for_each(|region| begin_entry(region));
        HeldRegions(regions)
    }

    /// As [`HeldRegions::new`], of regions that were held before.
    pub(crate) fn of(regions: Vec<RegionBox>) -> HeldRegions {
        HeldRegions(regions)
    }

    pub fn regions(&self) -> &[RegionBox] {
        &self.0
    }

    pub fn regions_mut(&mut self) -> &mut [RegionBox] {
        &mut self.0
    }

    pub fn into_regions(self) -> Vec<RegionBox> {
        self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keyspaces in the order of their regions.
    pub fn spaces(&mut self) -> impl Iterator<Item = &mut Keyspace> {
        self.0.iter_mut().map(|region| &mut region.space)
    }

    /// Whether these are among them.
    pub fn has_places(&self, mut places: impl Iterator<Item = Place>) -> bool {
        places.all(|id| self.0.binary_search_by_key(&id, |it| it.id).is_ok())
    }

    /// The held region of `key`.
    pub fn region_of(&mut self, map: &Map, key: &[u8]) -> Option<&mut Region> {
        let id = map.region_of(key);
        let at = self.0.binary_search_by_key(&id, |region| region.id).ok()?;
        self.0.get_mut(at).map(|region| &mut **region)
    }

    /// Whether something was changed and is not in the log yet.
    pub fn is_dirty(&self) -> bool {
        self.0.iter().any(|region| region.is_dirty())
    }

    /// Roughly the rows that were made since the last commit, values of strings left out.
    pub fn unsettled_bytes(&mut self) -> usize {
        self.spaces().map(|space| space.unsettled_bytes()).sum()
    }

    /// A view of the held regions.
    pub fn view<T>(
        &mut self,
        moment: &Moment<'_>,
        db: DbIndex,
        run: impl FnOnce(View<'_>) -> T,
    ) -> T {
        let Moment {
            map,
            now_ms,
            seed,
            tuning,
        } = *moment;
        if let [region] = &mut self.0[..] {
            let space = &mut region.space;
            return run(View::one(space, db, now_ms, seed, tuning));
        }
        let ids: Vec<Place> = self.0.iter().map(|region| region.id).collect();
        let router = HeldRouter { map, ids: &ids };
        let mut spaces: Vec<&mut Keyspace> = self.spaces().collect();
        run(View::many(&mut spaces, &router, db, now_ms, seed, tuning))
    }

    /// Of a durable node: removes the keys that a command met and whose time has come, unless expiry is
    /// paused. They go with the entry of what is held. Those that have left memory since are found by the
    /// index of deadlines; noted as missing they would make the command run twice.
    pub fn expire_met(&mut self, is_paused: bool) {
        for space in self.spaces() {
            if !space.has_met_due() {
                continue;
            }
            if is_paused {
                space.forget_met();
                continue;
            }
            for (db, key, deadline_ms) in space.take_met() {
                if space.is_resident(db, &key) {
                    space.expire_key(db, &key, deadline_ms);
                }
            }
        }
    }

    /// Keys that a command is known to need and that are not in memory.
    pub fn cold_keys(
        &mut self,
        map: &Map,
        spec: &CommandSpec,
        db: DbIndex,
        args: &Args<'_>,
    ) -> Vec<PlacedKey> {
        let mut keys = Vec::new();
        spec.each_key(db, args, &mut |db, key| keys.push((db, key.into())));
        if spec.is_write() && spec.keys == Keys::Everything {
            // Whether FLUSHALL or SWAPDB change a watched key depends on what is there.
            let interests = self.0.iter().flat_map(|it| it.keys_of_interest());
            let watched: Vec<Box<[u8]>> = interests.map(Into::into).collect();
            let dbs = 0..base::limits::DATABASES;
            keys.extend(dbs.flat_map(|db| watched.iter().map(move |key| (db, key.clone()))));
        }
        self.not_resident(map, keys)
    }

    /// Those of these keys that are not in memory.
    pub fn not_resident(&mut self, map: &Map, mut keys: Vec<PlacedKey>) -> Vec<PlacedKey> {
        keys.retain(|(db, key)| {
            let region = self.region_of(map, key);
            region.is_some_and(|region| region.space.needs_load(*db, key))
        });
        keys
    }

    /// Loads those of these keys whose rows are in the block cache; requests for the others.
    pub fn load_cached(
        &mut self,
        map: &Map,
        store: &dyn RowStore,
        keys: &[PlacedKey],
    ) -> Vec<LoadRequest> {
        let mut requests = Vec::new();
        for (db, key) in keys {
            if let Some(region) = self.region_of(map, key) {
                requests.extend(region.load_cached(store, *db, key));
            }
        }
        requests
    }

    /// The rows of a key were read.
    pub fn insert_loaded(&mut self, map: &Map, request: LoadRequest, loaded: Loaded) {
        if let Some(region) = self.region_of(map, request.key()) {
            region.space.insert_loaded(request, loaded);
        }
    }

    /// The rows of big collections that a command needs and that are not in memory, as far as that can be
    /// told now.
    pub fn cold_rows(
        &mut self,
        moment: &Moment<'_>,
        spec: &CommandSpec,
        db: DbIndex,
        args: &Args<'_>,
    ) -> Vec<ColdRows> {
        let mut found = false;
        spec.each_key(db, args, &mut |db, key| {
            let region = self.region_of(moment.map, key);
            found = found || region.is_some_and(|region| region.space.is_on_rows(db, key));
        });
        if !found {
            return Vec::new();
        }
        self.read_cached(true);
        self.view(moment, db, |view| ready::dry_run(spec, view, args));
        self.read_cached(false);
        // Keys that are missing are found out about when the command runs.
        self.take_missing();
        self.take_cold()
    }

    /// See [`keyspace::Keyspace::read_cached`].
    pub fn read_cached(&mut self, only: bool) {
        self.spaces().for_each(|space| space.read_cached(only));
    }

    pub fn take_cold(&mut self) -> Vec<ColdRows> {
        self.spaces().flat_map(|space| space.take_cold()).collect()
    }

    /// What the last command looked for in vain.
    pub fn take_missing(&mut self) -> Vec<PlacedKey> {
        self.spaces()
            .flat_map(|space| space.take_missing())
            .collect()
    }

    /// Of a durable node: runs a command by `invoke`, unless it may not run or needs what is not in memory.
    pub fn attempt(
        &mut self,
        (spec, db, args): (&CommandSpec, DbIndex, &Args<'_>),
        again: Again,
        reply: &mut Reply,
        cx: &Context<'_>,
        invoke: impl FnOnce(View<'_>, &mut Reply) -> Ran,
    ) -> Attempted {
        let is_write = spec.is_write();
        let moment = Moment::new(cx, again.seed(cx.seeds));
        // What somebody else looked for in vain is not a reason to run this one twice.
        self.take_missing();
        self.take_cold();
        if let Some(refusal) = self.unreadable(spec, db, args, cx.map) {
            return Attempted::Refused(refusal);
        }
        if is_write {
            if let Some(refusal) = self.lacks_room(spec, db, args, cx.map) {
                return Attempted::Refused(refusal);
            }
            if again.stops() {
                let rows = self.cold_rows(&moment, spec, db, args);
                if !rows.is_empty() {
                    let keys = Vec::new();
                    return Attempted::Lacks { keys, rows };
                }
            }
            if let Some(refusal) = stopped(cx) {
                // It waited meanwhile. What it did could not be undone where memory has more than the store.
                return Attempted::Refused(refusal);
            }
        }
        let before = reply.len();
        // A command that writes must see everything: it cannot be taken back.
        self.read_cached(again.stops() && !is_write);
        let ran = self.view(&moment, db, |view| invoke(view, reply));
        self.read_cached(false);
        self.expire_met(cx.host.is_expiry_paused());
        let rows = self.take_cold();
        let keys = self.take_missing();
        let failed = self.spaces().find_map(|space| space.take_failure());
        if let Some(why) = failed.filter(|_| !is_write) {
            reply.truncate(before);
            let text = format!("ERR rows cannot be read: {why}");
            return Attempted::Refused(Refusal::text_of(text));
        }
        if keys.is_empty() && rows.is_empty() {
            return Attempted::Ran(ran);
        }
        // It looked at keys its arguments do not name, or at cold rows, and changed nothing.
        reply.truncate(before);
        Attempted::Lacks { keys, rows }
    }

    /// What is said instead of running a command that needs a key which cannot be read. It is tried again by the
    /// next command.
    fn unreadable(
        &mut self,
        spec: &CommandSpec,
        db: DbIndex,
        args: &Args<'_>,
        map: &Map,
    ) -> Option<Refusal> {
        if !self.spaces().any(|space| space.has_unreadable()) {
            return None;
        }
        let mut found = None;
        spec.each_key(db, args, &mut |db, key| {
            if let Some(region) = self.region_of(map, key)
                && let Some(refusal) = region.space.unreadable(db, key)
            {
                region.quarantine(&refusal);
                found = Some(refusal);
            }
        });
        if found.is_some() {
            self.spaces().for_each(|space| space.forget_unreadable());
        }
        found
    }

    /// What is said instead of running a command that may make an SQL row larger, if there is no room for
    /// it.
    fn lacks_room(
        &mut self,
        spec: &CommandSpec,
        db: DbIndex,
        args: &Args<'_>,
        map: &Map,
    ) -> Option<Refusal> {
        if !self.0.iter().any(|region| region.space.has_tables()) {
            return None;
        }
        let mut lacks = false;
        spec.each_key(db, args, &mut |db, key| {
            if let Some(region) = self.region_of(map, key) {
                lacks |= lacks_room(region, spec, db, args, key);
            }
        });
        lacks.then(full_refusal)
    }

    /// Whether one of these keys has changed, whose regions are held and which are in memory: also by what
    /// ran on the held regions before. No flag says so yet, because that may be undone.
    pub fn has_changed(&mut self, moment: &Moment<'_>, watched: &[Watch]) -> bool {
        watched.iter().any(|watch| {
            let gone = |view: View<'_>| view.kind(&watch.key).is_none();
            let region = self.region_of(moment.map, &watch.key);
            let is_touched = region.is_some_and(|it| it.has_touched(watch.db, &watch.key));
            watch.flag.is_set() || is_touched || watch.existed && self.view(moment, watch.db, gone)
        })
    }
}

/// Why nothing may be written on held regions, if the log or the store has failed. On a cluster node others
/// lead then, and each region decides by itself.
pub(crate) fn stopped(cx: &Context<'_>) -> Option<Refusal> {
    match cx.is_cluster {
        true => None,
        false => cx.failure(),
    }
}

impl Region {
    /// Loads a key whose rows are in the block cache; else a request for it, unless it is in memory.
    pub fn load_cached(
        &mut self,
        store: &dyn RowStore,
        db: DbIndex,
        key: &[u8],
    ) -> Option<LoadRequest> {
        if !self.space.needs_load(db, key) {
            return None;
        }
        let request = self.space.load_request(db, key);
        match rows::load(store, &request, Tier::Cache) {
            Ok(loaded) => {
                self.space.insert_loaded(request, loaded);
                None
            }
            Err(_) => Some(request),
        }
    }

    /// Whether it was changed and that is not in the log yet.
    pub(crate) fn is_dirty(&self) -> bool {
        self.member.is_some() && self.space.has_changes()
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
