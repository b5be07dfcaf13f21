//! The route table as meta's leader publishes it, with versions.
//!
//! A version is `term of region 0 << 32 | count of changes seen by this leader`: it grows over
//! changes of leader. Who leads a region is in the table but not in the replicated state (it would
//! mean an entry of meta's log per election), so a new leader publishes anew: a node that comes with
//! a version of the same term gets what changed since, every other one gets the whole table.

use std::collections::BTreeMap;

use base::cluster::{NodeId, RegionId};

use crate::scheduler::Picture;
use crate::wire::{RouteNode, RouteRegion, RouteTable};

#[derive(Debug)]
pub struct Publisher {
    first: u64,
    version: u64,
    regions: BTreeMap<RegionId, (u64, RouteRegion)>,
    nodes: BTreeMap<NodeId, (u64, RouteNode)>,
    removed_regions: BTreeMap<RegionId, u64>,
    removed_nodes: BTreeMap<NodeId, u64>,
}

impl Publisher {
    pub fn new(term: u64) -> Publisher {
        let first = term << 32;
        Publisher {
            first,
            version: first,
            regions: BTreeMap::new(),
            nodes: BTreeMap::new(),
            removed_regions: BTreeMap::new(),
            removed_nodes: BTreeMap::new(),
        }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes in what is new. True if anything is.
    pub fn refresh(&mut self, picture: &Picture) -> bool {
        let next = self.version + 1;
        let mut changed = false;
        for region in picture.state.regions() {
            let id = region.descriptor.region;
            let leader = picture.view.leader(id);
            let known = self.regions.get(&id).map(|(_, known)| known);
            if known
                .is_none_or(|known| known.leader != leader || known.descriptor != region.descriptor)
            {
                let descriptor = region.descriptor.clone();
                self.regions
                    .insert(id, (next, RouteRegion { descriptor, leader }));
                self.removed_regions.remove(&id);
                changed = true;
            }
        }
        for node in picture.state.nodes().filter(|node| node.is_up()) {
            let route = RouteNode {
                node: node.id,
                redis: node.profile.redis.clone(),
                peer: node.profile.peer.clone(),
                http_port: node.profile.http_port,
                tls_port: node.profile.tls_port,
                alive: !picture.life(node.id).is_silent(),
            };
            if self
                .nodes
                .get(&node.id)
                .is_none_or(|(_, known)| *known != route)
            {
                self.nodes.insert(node.id, (next, route));
                changed = true;
            }
        }
        let gone = |id: &RegionId| picture.state.region(*id).is_none();
        let left = |id: &NodeId| picture.state.node(*id).is_none_or(|node| !node.is_up());
        changed |= drop_gone(&mut self.regions, &mut self.removed_regions, gone, next);
        changed |= drop_gone(&mut self.nodes, &mut self.removed_nodes, left, next);
        if changed {
            self.version = next;
        }
        changed
    }

    /// What a node that has `known` lacks.
    pub fn since(&self, known: u64) -> Option<RouteTable> {
        if known == self.version {
            return None;
        }
        let full = !(self.first + 1..self.version).contains(&known);
        let after = if full { 0 } else { known };
        Some(RouteTable {
            version: self.version,
            full,
            regions: newer(&self.regions, after),
            nodes: newer(&self.nodes, after),
            removed_regions: removed(&self.removed_regions, after, full),
            removed_nodes: removed(&self.removed_nodes, after, full),
        })
    }

    pub fn node(&self, node: NodeId) -> Option<&RouteNode> {
        self.nodes.get(&node).map(|(_, node)| node)
    }
}

fn drop_gone<T>(
    kept: &mut BTreeMap<u64, (u64, T)>,
    removed: &mut BTreeMap<u64, u64>,
    gone: impl Fn(&u64) -> bool,
    next: u64,
) -> bool {
    let before = kept.len();
    kept.retain(|id, _| {
        let stays = !gone(id);
        if !stays {
            removed.insert(*id, next);
        }
        stays
    });
    kept.len() != before
}

fn newer<T: Clone>(all: &BTreeMap<u64, (u64, T)>, after: u64) -> Vec<T> {
    let new = all.values().filter(|(at, _)| *at > after);
    new.map(|(_, item)| item.clone()).collect()
}

fn removed(all: &BTreeMap<u64, u64>, after: u64, full: bool) -> Vec<u64> {
    if full {
        return Vec::new();
    }
    let new = all.iter().filter(|(_, at)| **at > after);
    new.map(|(id, _)| *id).collect()
}
