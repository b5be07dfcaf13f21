//! Commands that are logged by their effect, of many clients, kept by one sync.
//!
//! What needs several regions at once, or is logged by what it changed (EXEC with WATCH, MSET over regions,
//! SPOP, a blocked client served by another region), holds its regions until that is kept: alone, each would
//! cost a sync and make all others wait for it. So they gather: while one group is on its way to the disk the
//! next ones line up; then one group borrows all their regions, runs them one after the other and commits
//! once ([`crate::commit`]).
//!
//! ```text
//!   line ─► borrow, core by core ─► load named keys ─► run each ─► commit ─► regions back ─► replies
//!               ▲                        │ cold rows of big collections
//!               └── read them ◄── regions back
//! ```
//!
//! Nobody sees the regions between them, so each is atomic and isolated as if it were alone, and a reply
//! leaves when the whole group is kept. If it cannot be kept, all of the group is refused. On a cluster node
//! each region has a quorum of its own: those whose regions are kept are done, whatever became of others.
//!
//! **Too much for the log** is one of them, mostly, and the others are not to suffer for it. All of the group
//! is undone, and each runs once more, a group of its own. After one that makes many rows the group ends, so
//! few are in it that ran before.
//!
//! Groups whose regions do not overlap run side by side; a request never overtakes one that wants one of its
//! regions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use keyspace::rows::RowError;

use crate::commit::{Commit, CommitFor, Committed};
use crate::effect_request::{EffectRequest, Needs};
use crate::effects::{Borrow, Effects, Fetched, HeldLoad};
use crate::held::HeldRegions;
use crate::run::Again;
use crate::{
    Context, CoreId, Outcome, OwnedRegions, Place, PlacedKey, Region, RegionBox, seed_of, too_large,
};

/// Tickets of groups and commits; those of reads and of the host's tasks are smaller.
pub const GROUPS: usize = 1 << 41;

/// Bounds of a group: the rest is the next one.
const MOST: usize = 256;
const MOST_BYTES: usize = 1024 * 1024;
/// Behind a request with which its rows are this many, the rest is the next one, too: one that makes many
/// need not be followed by another before they are on disk.
const MOST_ROWS_BYTES: usize = 16 * 1024 * 1024;

/// So soon after a group, another is expected.
const GROUPS_GO_ON_MS: u64 = 10;

/// The effect requests of a core.
#[derive(Default)]
pub(crate) struct EffectGroups {
    waiting: VecDeque<EffectRequest>,
    /// Those who were too much together; before the others, each a group.
    alone: VecDeque<EffectRequest>,
    running: BTreeMap<usize, Group>,
    pub commits: BTreeMap<usize, Commit>,
    /// Groups that may go on.
    ready: Vec<usize>,
    is_running: bool,
    last: usize,
    /// When the last group began that could not have been an entry.
    began_ms: u64,
    /// Keys whose first waiter is being served, and whether the key has changed since.
    pub serving: BTreeMap<(Place, PlacedKey), bool>,
    /// Keys whose first waiter could not be served when it was its turn.
    pub lines: Vec<(Place, PlacedKey)>,
}

impl EffectGroups {
    pub fn ticket(&mut self) -> usize {
        self.last += 1;
        GROUPS + self.last
    }

    /// The regions that groups have or wait for.
    fn taken(&self) -> BTreeSet<Place> {
        let running = self.running.values().flat_map(|group| &group.regions);
        running.copied().collect()
    }

    /// Takes those in line that may join a group: none overtakes one that wants one of its regions.
    fn take_waiting(
        &mut self,
        members: &mut Vec<EffectRequest>,
        mut blocked: BTreeSet<Place>,
        fits: impl Fn(&[EffectRequest], &EffectRequest) -> bool,
    ) {
        let mut bytes: usize = members.iter().map(EffectRequest::size_bytes).sum();
        let mut left = VecDeque::new();
        while let Some(next) = self.waiting.pop_front() {
            let is_full = members.len() >= MOST || bytes >= MOST_BYTES;
            let is_blocked = next.regions.iter().any(|id| blocked.contains(id));
            if is_full || is_blocked || !fits(members, &next) {
                blocked.extend(&next.regions);
                left.push_back(next);
                if is_full {
                    break;
                }
                continue;
            }
            bytes += next.size_bytes();
            members.push(next);
        }
        left.append(&mut self.waiting);
        self.waiting = left;
    }
}

/// Requests that are run together.
struct Group {
    members: Vec<EffectRequest>,
    /// Nobody else joins it.
    is_alone: bool,
    /// Ascending.
    regions: Vec<Place>,
    /// Borrowed so far.
    borrowed: Vec<RegionBox>,
    held: HeldRegions,
    phase: Phase,
    /// Randomness of its commands, the same in every attempt.
    seed: u64,
    /// How often it met cold rows before it ran.
    again: Again,
}

enum Phase {
    /// It borrows regions, of this core next.
    Borrow(CoreId),
    /// It has its regions; whether the keys it names were loaded.
    Prepare {
        is_loaded: bool,
    },
    /// Its regions are here while cold rows are read.
    Warm,
    /// This member is the next to run, or runs.
    Run(usize),
    Commit,
}

/// What a step came to.
enum Step {
    Next,
    Wait,
}

impl OwnedRegions {
    /// Commands that run together over several regions, or are logged by their effect, have come. They run
    /// with [`OwnedRegions::run_groups`], and those of all clients that come before it with them.
    pub fn submit(&mut self, request: EffectRequest) {
        self.groups.waiting.push_back(request);
    }

    /// Whether groups that need several regions run here, or did a moment ago. A transaction that comes to a node alone then joins the
    /// next one: as an entry of its region's log it would wait until the region is here, and then make the
    /// next group wait for its sync.
    pub fn has_groups(&self, now_ms: u64) -> bool {
        let mut running = self.groups.running.values();
        now_ms.abs_diff(self.groups.began_ms) < GROUPS_GO_ON_MS
            || running.any(|it| !it.members.iter().all(|it| it.could_be_entry))
    }

    /// Regions that a group waited for.
    pub fn on_lent(
        &mut self,
        ticket: usize,
        regions: Vec<RegionBox>,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        match self.groups.running.get_mut(&ticket) {
            Some(group) => {
                group.borrowed.extend(regions);
                self.groups.ready.push(ticket);
            }
            None => self.give_back(regions, cx, out),
        }
        self.run_groups(cx, out);
    }

    /// Rows that a group asked for were read ([`HeldLoad`]).
    pub fn on_held_loaded(
        &mut self,
        ticket: usize,
        loaded: Vec<Fetched>,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        if let Some(group) = self.groups.running.get_mut(&ticket) {
            for (request, loaded) in loaded {
                match loaded {
                    Ok(loaded) => group.held.insert_loaded(cx.map, request, loaded),
                    Err(RowError::Failed(reason)) => cx.host.fail(&reason),
                    Err(_) => {}
                }
            }
            self.groups.ready.push(ticket);
        }
        self.run_groups(cx, out);
    }

    /// The regions that groups and commits of this core hold, for who looks on.
    pub fn held(&self) -> impl Iterator<Item = &Region> {
        let groups = self.groups.running.values();
        let groups = groups.flat_map(|it| it.borrowed.iter().chain(it.held.regions()));
        let commits = self.groups.commits.values();
        let held = groups.chain(commits.flat_map(|it| it.held.regions()));
        held.map(|region| &**region)
    }

    /// Lets groups go on, and begins new ones, until all wait for something.
    pub fn run_groups(&mut self, cx: &Context<'_>, out: &mut Effects) {
        if std::mem::replace(&mut self.groups.is_running, true) {
            return; // the caller further up goes on until nothing is left
        }
        while let Some(ticket) = self.groups.ready.pop().or_else(|| self.next_group(cx)) {
            self.go_on(ticket, cx, out);
        }
        self.groups.is_running = false;
    }

    /// Makes a group of those in line, if there is one whose regions no other group has.
    fn next_group(&mut self, cx: &Context<'_>) -> Option<usize> {
        let groups = &mut self.groups;
        if groups.alone.is_empty() && groups.waiting.is_empty() {
            return None;
        }
        let mut members = Vec::new();
        let mut taken = groups.taken();
        let alone = groups.alone.front();
        let is_free = |it: &EffectRequest| !it.regions.iter().any(|id| taken.contains(id));
        let is_alone = alone.is_some_and(is_free);
        if is_alone {
            members.extend(groups.alone.pop_front());
        } else {
            taken.extend(groups.alone.iter().flat_map(|it| &it.regions));
            groups.take_waiting(&mut members, taken, |members, next| {
                // On a cluster node each region has a quorum of its own: nobody waits for another's.
                !cx.is_cluster || members.first().is_none_or(|it| it.regions == next.regions)
            });
        }
        if members.is_empty() {
            return None;
        }
        let regions = members.iter().flat_map(|it| &it.regions);
        let regions: BTreeSet<Place> = regions.copied().collect();
        // Those who only join do not keep others joining.
        if !members.iter().all(|it| it.could_be_entry) {
            groups.began_ms = cx.now_ms;
        }
        let seed = cx.seed();
        let group = Group {
            members,
            is_alone,
            regions: regions.into_iter().collect(),
            borrowed: Vec::new(),
            held: HeldRegions::default(),
            phase: Phase::Borrow(0),
            seed,
            again: Again::chosen(seed),
        };
        let ticket = groups.ticket();
        groups.running.insert(ticket, group);
        Some(ticket)
    }

    fn go_on(&mut self, ticket: usize, cx: &Context<'_>, out: &mut Effects) {
        let Some(mut group) = self.groups.running.remove(&ticket) else {
            return;
        };
        loop {
            let step = match group.phase {
                Phase::Borrow(next) => self.borrow_next(ticket, &mut group, next, cx, out),
                Phase::Prepare { is_loaded } => {
                    self.prepare(ticket, &mut group, is_loaded, cx, out)
                }
                Phase::Warm => {
                    // What it needed is read: it begins again.
                    group.again = group.again.next();
                    group.phase = Phase::Borrow(0);
                    Step::Next
                }
                Phase::Run(at) => self.run_member(ticket, &mut group, at, cx, out),
                Phase::Commit => {
                    let held = std::mem::take(&mut group.held);
                    let by = CommitFor::Group(ticket);
                    match self.begin_commit(held, by, cx, out) {
                        Some((committed, held)) => {
                            self.settle(group.members, committed, held, cx, out);
                            return;
                        }
                        None => Step::Wait,
                    }
                }
            };
            match step {
                Step::Next => {}
                Step::Wait => {
                    self.groups.running.insert(ticket, group);
                    return;
                }
            }
        }
    }

    /// Borrows the regions of the next core: owners are asked in ascending order, which rules out a
    /// deadlock ([`crate::lend`]).
    fn borrow_next(
        &mut self,
        ticket: usize,
        group: &mut Group,
        next: CoreId,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Step {
        let owners = group.regions.iter().map(|&id| cx.map.core_of(id));
        let Some(owner) = owners.filter(|owner| *owner >= next).min() else {
            group.held = HeldRegions::new(std::mem::take(&mut group.borrowed));
            group.phase = Phase::Prepare { is_loaded: false };
            return Step::Next;
        };
        group.phase = Phase::Borrow(owner + 1);
        let ours = group.regions.iter().copied();
        let regions: Vec<Place> = ours.filter(|&id| cx.map.core_of(id) == owner).collect();
        if owner != self.core {
            out.borrows.push(Borrow {
                owner,
                ticket,
                regions,
            });
            return Step::Wait;
        }
        if let Some(regions) = self.borrow_now(&regions, cx.clock_ms) {
            group.borrowed.extend(regions);
            return Step::Next;
        }
        self.ask_leases(&regions, cx, out);
        self.borrow_later(regions, self.core, ticket);
        Step::Wait
    }

    /// Loads the keys the group names; then the rows of big collections that are cold, unless they were
    /// read often enough.
    fn prepare(
        &mut self,
        ticket: usize,
        group: &mut Group,
        is_loaded: bool,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Step {
        if !is_loaded {
            group.phase = Phase::Prepare { is_loaded: true };
            self.redirect(group, cx, out);
            let held = &mut group.held;
            let members = group.members.iter();
            let keys = members.flat_map(|member| member.cold_keys(held, cx));
            let needs = Needs::of_keys(keys.collect());
            if group.load(ticket, needs, cx, out) {
                return Step::Wait;
            }
        }
        if group.again.stops() {
            let mut rows = Vec::new();
            for (nth, member) in group.members.iter().enumerate() {
                let seed = seed_of(group.seed, nth);
                rows.append(&mut member.cold_rows(&mut group.held, seed, cx));
            }
            if !rows.is_empty() {
                // Nobody waits for these regions while the disk is read.
                let held = std::mem::take(&mut group.held);
                self.give_back(held.into_regions(), cx, out);
                group.phase = Phase::Warm;
                out.held_loads.push(HeldLoad {
                    ticket,
                    requests: Vec::new(),
                    rows,
                    tries: group.again.tries(),
                });
                return Step::Wait;
            }
        }
        if !group.is_alone {
            let regions: BTreeSet<Place> = group.regions.iter().copied().collect();
            let members = &mut group.members;
            let fits = |_: &[EffectRequest], next: &EffectRequest| {
                next.regions.iter().all(|id| regions.contains(id))
            };
            self.groups.take_waiting(members, BTreeSet::new(), fits);
            self.redirect(group, cx, out);
        }
        group.phase = Phase::Run(0);
        Step::Next
    }

    /// Those whose region is led elsewhere (cluster) are told so; FLUSHALL is for what is led here.
    fn redirect(&mut self, group: &mut Group, cx: &Context<'_>, out: &mut Effects) {
        if group.held.regions().len() == group.regions.len() {
            return;
        }
        let held = &group.held;
        let is_gone = |it: &mut EffectRequest| !held.has_places(it.needed(cx).into_iter());
        let gone: Vec<_> = group.members.extract_if(.., is_gone).collect();
        let elsewhere = Outcome::Unserved(crate::Unserved::Elsewhere);
        for member in gone {
            self.finish(member, elsewhere.clone(), cx, out);
        }
    }

    fn run_member(
        &mut self,
        ticket: usize,
        group: &mut Group,
        at: usize,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Step {
        let is_enough = at > 0 && group.held.unsettled_bytes() > MOST_ROWS_BYTES;
        if is_enough {
            // Those behind have not run: they are the next in line.
            for request in group.members.drain(at..).rev() {
                self.groups.waiting.push_front(request);
            }
        }
        let Some(member) = group.members.get_mut(at) else {
            group.phase = Phase::Commit;
            return Step::Next;
        };
        let seed = seed_of(group.seed, at);
        match member.run(&mut group.held, seed, cx, out) {
            None => {
                group.phase = Phase::Run(at + 1);
                Step::Next
            }
            Some(needs) => {
                match group.load(ticket, needs, cx, out) {
                    true => Step::Wait,
                    false => Step::Next, // all of it was in the block cache
                }
            }
        }
    }

    /// The commit of a group is over.
    pub(crate) fn settle_group(
        &mut self,
        ticket: usize,
        committed: Committed,
        held: HeldRegions,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        if let Some(group) = self.groups.running.remove(&ticket) {
            self.settle(group.members, committed, held, cx, out);
        } else {
            self.give_back(held.into_regions(), cx, out);
        }
    }

    fn settle(
        &mut self,
        members: Vec<EffectRequest>,
        committed: Committed,
        held: HeldRegions,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        // Those who watch hear of it before any reply leaves.
        self.give_back(held.into_regions(), cx, out);
        if let (Committed::TooLarge, true) = (&committed, members.len() > 1) {
            // Together they were too much for the log, and nothing has happened: each is tried alone.
            for mut member in members {
                match member.begin_again() {
                    true => self.groups.alone.push_back(member),
                    false => self.finish(member, Outcome::Done, cx, out),
                }
            }
            return;
        }
        for member in members {
            let outcome = match &committed {
                Committed::Done => Outcome::Done,
                Committed::TooLarge => Outcome::Refused(too_large()),
                Committed::Failed(refusal) => Outcome::Refused(refusal.clone()),
                Committed::Lost(lost) => fate(&member.regions, lost),
            };
            self.finish(member, outcome, cx, out);
        }
    }

    /// A request is over. If it was an attempt for a blocked client, the line goes on behind it.
    fn finish(
        &mut self,
        member: EffectRequest,
        outcome: Outcome,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        if let Some((of, is_served)) = member.finish(outcome, out) {
            let has_changed = self.groups.serving.remove(&of) == Some(true);
            if is_served || has_changed {
                self.serve_line(of.0, of.1, cx, out);
            }
        }
    }

    /// Gives regions that were borrowed and not changed back to their cores.
    pub fn give_back(&mut self, regions: Vec<RegionBox>, cx: &Context<'_>, out: &mut Effects) {
        let mut by_owner: BTreeMap<CoreId, Vec<RegionBox>> = BTreeMap::new();
        for mut region in regions {
            region.space.abandon_entry();
            let owner = cx.map.core_of(region.id);
            by_owner.entry(owner).or_default().push(region);
        }
        for (owner, regions) in by_owner {
            match owner == self.core {
                true => self.take_back(regions, cx, out),
                false => out.returns.push((owner, regions)),
            }
        }
    }
}

impl Group {
    /// Loads what it needs; whether it has to wait for that.
    fn load(&mut self, ticket: usize, needs: Needs, cx: &Context<'_>, out: &mut Effects) -> bool {
        let Some(store) = cx.rows else {
            return false;
        };
        let requests = self.held.load_cached(cx.map, &**store, &needs.keys);
        if requests.is_empty() && needs.rows.is_empty() {
            return false;
        }
        out.held_loads.push(HeldLoad {
            ticket,
            requests,
            rows: needs.rows,
            tries: needs.tries,
        });
        true
    }
}

/// What became of a request on these regions, some of which did not keep it. That nothing has happened is
/// said of all of them or of none: clients try again by themselves.
fn fate(regions: &[Place], lost: &[(Place, Outcome)]) -> Outcome {
    let mut of_these = lost.iter().filter(|(id, _)| regions.contains(id));
    match (of_these.next(), regions.len()) {
        (None, _) => Outcome::Done,
        (Some((_, Outcome::TooLarge)), 1) => Outcome::Refused(too_large()),
        (Some((_, outcome)), 1) => outcome.clone(),
        (Some(_), _) => Outcome::InDoubt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_region_lost_says_nothing_about_another() {
        let lost = [(2, Outcome::TryAgain)];
        let (kept, doubt) = (Outcome::Done, Outcome::InDoubt);
        assert_eq!(fate(&[1], &lost), kept, "it must not be tried again");
        assert_eq!(fate(&[2], &lost), Outcome::TryAgain);
        assert_eq!(fate(&[1, 2], &lost), doubt, "half of it is kept");
        assert_eq!(fate(&[1, 2], &[]), kept);
    }
}
