//! The route table as every node keeps it: slot → region → leader, members, addresses.
//!
//! News comes from meta (whole tables or changes) and from the node's own replicas, which often
//! know of a new leader or new members first. All of it merges by one rule: the larger epoch, the
//! higher term wins. So nothing has to arrive in order, and an old word does no harm.
//!
//! Cheap to clone (the slots are shared): a node keeps one and hands copies to its cores.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use base::cluster::{Descriptor, Epoch, META_REGION, NodeId, RegionId, ReplicaId};
use base::{SLOT_COUNT, Slot};

use crate::wire::{Leadership, ReplicaReport, RouteNode, RouteRegion, RouteTable};

#[derive(Debug, Clone)]
pub struct Routes {
    version: u64,
    regions: BTreeMap<RegionId, Known>,
    nodes: BTreeMap<NodeId, RouteNode>,
    /// Region of each slot; 0 (meta, which has none) for nobody's.
    slots: Arc<[RegionId]>,
}

#[derive(Debug, Clone)]
struct Known {
    route: RouteRegion,
    /// The newest epoch meta itself has named.
    told: Epoch,
}

/// A run of slots with the same leader and the same followers: a row of `CLUSTER SLOTS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRange {
    pub slots: RangeInclusive<Slot>,
    /// `None` if no leader was ever heard of.
    pub leader: Option<NodeId>,
    /// Nodes of the other voters, ascending.
    pub followers: Vec<NodeId>,
}

impl Default for Routes {
    fn default() -> Routes {
        Routes {
            version: 0,
            regions: BTreeMap::new(),
            nodes: BTreeMap::new(),
            slots: vec![META_REGION; usize::from(SLOT_COUNT)].into(),
        }
    }
}

impl Routes {
    pub fn new() -> Routes {
        Routes::default()
    }

    /// Of the newest table from meta; goes into heartbeats.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes in a table from meta. True if anything changed.
    pub fn update(&mut self, table: &RouteTable) -> bool {
        let mut changed = false;
        let mut reslot = false;
        for route in &table.regions {
            let id = route.descriptor.region;
            let (new, moved) = self.merge(&route.descriptor, route.leader);
            changed |= new;
            reslot |= moved;
            if let Some(known) = self.regions.get_mut(&id)
                && known.told.is_older_than(&route.descriptor.epoch)
            {
                known.told = route.descriptor.epoch;
            }
        }
        for node in &table.nodes {
            // An older table may come late, and nodes have no epoch.
            if table.version >= self.version && self.nodes.get(&node.node) != Some(node) {
                self.nodes.insert(node.node, node.clone());
                changed = true;
            }
        }
        let before = (self.regions.len(), self.nodes.len());
        if table.full && table.version >= self.version {
            let regions = |id: &RegionId| table.regions.iter().any(|r| r.descriptor.region == *id);
            let nodes = |id: &NodeId| table.nodes.iter().any(|node| node.node == *id);
            self.nodes.retain(|id, _| nodes(id));
            let gone: Vec<RegionId> = self
                .regions
                .keys()
                .copied()
                .filter(|id| !regions(id))
                .collect();
            gone.iter().for_each(|id| drop(self.regions.remove(id)));
        }
        if table.version >= self.version {
            self.regions
                .retain(|id, _| !table.removed_regions.contains(id));
            self.nodes.retain(|id, _| !table.removed_nodes.contains(id));
        }
        if before.0 != self.regions.len() {
            reslot = true;
        }
        changed |= before != (self.regions.len(), self.nodes.len());
        self.version = self.version.max(table.version);
        if reslot {
            self.place_slots();
        }
        changed
    }

    /// Takes in what a replica of this node says.
    pub fn hear(&mut self, report: &ReplicaReport) {
        if let Some(descriptor) = &report.descriptor {
            self.on_descriptor(descriptor);
        }
        if report.leader != 0 {
            self.on_leader(report.region, report.leader, report.term);
        }
    }

    /// Whether there is anything to be taken in.
    pub fn is_news(&self, report: &ReplicaReport) -> bool {
        let known = self.region(report.region);
        let leads = Leadership {
            term: report.term,
            replica: report.leader,
        };
        let other_leader = report.leader != 0
            && known.is_some_and(|known| known.leader.is_none_or(|old| old < leads));
        let other_members = report.descriptor.as_ref().is_some_and(|descriptor| {
            known.is_none_or(|known| known.descriptor.epoch.is_older_than(&descriptor.epoch))
        });
        other_leader || other_members
    }

    /// A replica of this node saw its leader.
    pub fn on_leader(&mut self, region: RegionId, replica: ReplicaId, term: u64) -> bool {
        let Some(known) = self.regions.get_mut(&region) else {
            return false;
        };
        let leads = Leadership { term, replica };
        let newer = known.route.leader.is_none_or(|old| old < leads);
        if newer {
            known.route.leader = Some(leads);
        }
        newer
    }

    /// A replica of this node applied (or was refused with) this descriptor.
    pub fn on_descriptor(&mut self, descriptor: &Descriptor) -> bool {
        let (changed, moved) = self.merge(descriptor, None);
        if moved {
            self.place_slots();
        }
        changed
    }

    /// Whether meta has named this epoch or a later one: a leader need not report its descriptor.
    pub fn meta_knows(&self, region: RegionId, epoch: Epoch) -> bool {
        self.regions
            .get(&region)
            .is_some_and(|known| !known.told.is_older_than(&epoch))
    }

    /// True if anything is new, and true if slots moved.
    fn merge(&mut self, descriptor: &Descriptor, leader: Option<Leadership>) -> (bool, bool) {
        let Some(known) = self.regions.get_mut(&descriptor.region) else {
            let route = RouteRegion {
                descriptor: descriptor.clone(),
                leader,
            };
            let told = Epoch::default();
            self.regions
                .insert(descriptor.region, Known { route, told });
            return (true, true);
        };
        let mut changed = false;
        let mut moved = false;
        let current = &mut known.route.descriptor;
        if current.epoch.is_older_than(&descriptor.epoch)
            && !descriptor.epoch.is_older_than(&current.epoch)
        {
            moved = current.segments != descriptor.segments;
            current.clone_from(descriptor);
            changed = true;
        }
        if leader > known.route.leader {
            known.route.leader = leader;
            changed = true;
        }
        (changed, moved)
    }

    /// Where two regions claim a slot (one of them not yet told of a split) the later epoch of
    /// segments has it.
    fn place_slots(&mut self) {
        let mut slots = vec![META_REGION; usize::from(SLOT_COUNT)];
        let mut order: Vec<&Descriptor> = self.regions().map(|route| &route.descriptor).collect();
        order.sort_by_key(|descriptor| descriptor.epoch.segments);
        for descriptor in order {
            for segment in &descriptor.segments {
                let range = segment.slots();
                let range = usize::from(*range.start())..=usize::from(*range.end());
                if let Some(part) = slots.get_mut(range) {
                    part.fill(descriptor.region);
                }
            }
        }
        self.slots = slots.into();
    }

    #[inline]
    pub fn region_of(&self, slot: Slot) -> Option<RegionId> {
        let region = self.slots.get(usize::from(slot)).copied()?;
        (region != META_REGION).then_some(region)
    }

    pub fn region(&self, region: RegionId) -> Option<&RouteRegion> {
        self.regions.get(&region).map(|known| &known.route)
    }

    /// All of them, region 0 among them.
    pub fn regions(&self) -> impl Iterator<Item = &RouteRegion> {
        self.regions.values().map(|known| &known.route)
    }

    pub fn node(&self, node: NodeId) -> Option<&RouteNode> {
        self.nodes.get(&node)
    }

    /// The node that others know by this address.
    pub fn at(&self, redis: &str) -> Option<&RouteNode> {
        self.nodes().find(|node| node.redis.to_string() == redis)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &RouteNode> {
        self.nodes.values()
    }

    /// Nodes that are members of meta, as far as is known.
    pub fn meta_nodes(&self) -> impl Iterator<Item = &RouteNode> {
        let members = self.region(META_REGION).map(|it| &it.descriptor.members);
        let members = members.into_iter().flatten();
        members.filter_map(|member| self.node(member.node))
    }

    /// The node that leads a region, as far as is known.
    pub fn leader(&self, region: RegionId) -> Option<NodeId> {
        self.region(region)?.leader_node()
    }

    /// The node to send a command for `slot` to.
    pub fn leader_of(&self, slot: Slot) -> Option<&RouteNode> {
        self.node(self.leader(self.region_of(slot)?)?)
    }

    /// Every slot that belongs to a region, ascending, neighbours with equal nodes as one.
    pub fn ranges(&self) -> Vec<SlotRange> {
        let mut ranges: Vec<SlotRange> = Vec::new();
        let mut last = META_REGION;
        for (slot, &region) in (0..).zip(self.slots.iter()) {
            if region == last && region != META_REGION {
                if let Some(range) = ranges.last_mut() {
                    range.slots = *range.slots.start()..=slot;
                }
                continue;
            }
            last = region;
            let Some(route) = self.region(region).filter(|_| region != META_REGION) else {
                continue;
            };
            let next = route.range(slot);
            match ranges.last_mut() {
                Some(range)
                    if *range.slots.end() + 1 == slot
                        && range.leader == next.leader
                        && range.followers == next.followers =>
                {
                    range.slots = *range.slots.start()..=slot;
                }
                _ => ranges.push(next),
            }
        }
        ranges
    }

    /// The slots that `node` leads, neighbours as one: a line of `CLUSTER NODES`.
    pub fn led_by(&self, node: NodeId) -> Vec<RangeInclusive<Slot>> {
        let mut led: Vec<RangeInclusive<Slot>> = Vec::new();
        let ranges = self.ranges().into_iter();
        for range in ranges.filter(|range| range.leader == Some(node)) {
            match led.last_mut() {
                Some(last) if last.end() + 1 == *range.slots.start() => {
                    *last = *last.start()..=*range.slots.end();
                }
                _ => led.push(range.slots),
            }
        }
        led
    }
}

impl RouteRegion {
    pub fn leader_node(&self) -> Option<NodeId> {
        let leader = self.leader?.replica;
        self.descriptor.member(leader).map(|member| member.node)
    }

    fn range(&self, slot: Slot) -> SlotRange {
        let leader = self.leader_node();
        let mut followers: Vec<NodeId> = self
            .descriptor
            .voters()
            .map(|member| member.node)
            .filter(|node| Some(*node) != leader)
            .collect();
        followers.sort_unstable();
        SlotRange {
            slots: slot..=slot,
            leader,
            followers,
        }
    }
}
