//! A node joins or comes back.
//!
//! What can go wrong here loses data, so it is refused in clear words: an old or doubled data
//! directory (it may have forgotten votes and acknowledged entries), another cluster's, the address
//! of a node that is alive. A retry with the same token gets the same answer and makes no second
//! node.
//!
//! A joiner without an id at the address of a node that is *not* alive is that machine with an
//! empty disk, or with one that is not mounted. Meta's leader lets it in only if it was told so (`--replace`) and the others
//! have a majority of everything the old one held (`leader/replace.rs`, decision 43). It becomes a new node, and the old one
//! is marked replaced, so that its replicas are rebuilt at once.
//!
//! A replaced node that comes back with its data is itself again: its replicas are members with their votes and logs, or are
//! removed as those of any node that was away for long.

use base::cluster::NodeId;

use super::ids::NODES;
use super::{Node, NodeState, Outcome, Refused, Register, State};
use crate::wire::{Address, Join};

impl Join {
    pub(super) fn check(&self) -> Result<(), Refused> {
        let usable = |address: &Address| {
            !address.host.is_empty() && (1..=u32::from(u16::MAX)).contains(&address.port)
        };
        if self.token == 0 {
            return Err(Refused::BadJoin("the token must not be 0"));
        }
        if !usable(&self.profile.redis) || !usable(&self.profile.peer) {
            return Err(Refused::BadJoin("an address has no host or no port"));
        }
        if !self.profile.stores && !self.profile.metas {
            return Err(Refused::BadJoin("the node wants neither data nor meta"));
        }
        Ok(())
    }
}

impl State {
    pub(super) fn register(
        &mut self,
        register: &Register,
        stamp_ms: u64,
    ) -> Result<Outcome, Refused> {
        let join = &register.join;
        if join.cluster != 0 && join.cluster != self.cluster {
            return Err(Refused::WrongCluster {
                ours: self.cluster,
                theirs: join.cluster,
            });
        }
        join.check()?;
        if join.profile.format < self.format {
            return Err(Refused::OldFormat {
                node_reads: join.profile.format,
                cluster_writes: self.format,
            });
        }
        if let Some(node) = self.registered(join) {
            self.settle(node, join);
            return Ok(Outcome::Registered {
                node,
                replaced: None,
            });
        }
        match join.node {
            0 => self.welcome(register, stamp_ms),
            node => self.welcome_back(node, register),
        }
    }

    /// The node that this very join has registered, if it is only asked again. The token alone is not enough: a node that died
    /// before it heard of its id joined again with it, and is another node since.
    pub(crate) fn registered(&self, join: &Join) -> Option<NodeId> {
        let known = self.nodes.values().find(|known| {
            known.token == join.token
                && (join.node == 0 || join.node == known.id)
                && known.start_count == join.start_count
                && known.is_up()
        });
        known.map(|known| known.id)
    }

    /// A node without an id.
    fn welcome(&mut self, register: &Register, stamp_ms: u64) -> Result<Outcome, Refused> {
        let join = &register.join;
        let before = self.at_address(join, 0);
        if let Some(before) = before
            && register.alive.contains(&before)
        {
            return Err(Refused::AddressInUse {
                address: join.profile.peer.clone(),
                node: before,
            });
        }
        let id = self.take(NODES, 1)?;
        if let Some(old) = before.and_then(|before| self.nodes.get_mut(&before)) {
            old.state = NodeState::Replaced.into();
            old.replaced_by = id;
        }
        self.nodes.insert(
            id,
            Node {
                id,
                profile: join.profile.clone(),
                state: NodeState::Up.into(),
                token: join.token,
                start_count: join.start_count,
                joined_ms: stamp_ms,
                replaced_by: 0,
            },
        );
        self.routes_changed();
        Ok(Outcome::Registered {
            node: id,
            replaced: before,
        })
    }

    /// A node with its data directory, perhaps at another address (row 72).
    fn welcome_back(&mut self, id: NodeId, register: &Register) -> Result<Outcome, Refused> {
        let join = &register.join;
        let node = self.nodes.get(&id).ok_or(Refused::UnknownNode(id))?;
        if node.state() == NodeState::Removed {
            return Err(Refused::NodeGone {
                node: id,
                replaced_by: node.replaced_by,
            });
        }
        if join.start_count < node.start_count {
            return Err(Refused::OldDirectory {
                node: id,
                started: join.start_count,
                known: node.start_count,
            });
        }
        if join.start_count == node.start_count {
            return Err(Refused::CopiedDirectory { node: id });
        }
        if register.alive.contains(&id) && node.profile.peer != join.profile.peer {
            return Err(Refused::AliveElsewhere {
                node: id,
                address: node.profile.peer.clone(),
            });
        }
        // If that one is not alive, the two may have changed places: it will say where it is.
        if let Some(other) = self.at_address(join, id)
            && register.alive.contains(&other)
        {
            return Err(Refused::AddressInUse {
                address: join.profile.peer.clone(),
                node: other,
            });
        }
        self.settle(id, join);
        Ok(Outcome::Registered {
            node: id,
            replaced: None,
        })
    }

    fn settle(&mut self, id: NodeId, join: &Join) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let moved = node.profile != join.profile || !node.is_up();
        node.state = NodeState::Up.into();
        node.replaced_by = 0;
        node.profile = join.profile.clone();
        node.token = join.token;
        node.start_count = join.start_count;
        if moved {
            self.routes_changed();
        }
    }

    /// The node of the cluster, other than `except`, that has the joiner's peer address.
    pub(crate) fn at_address(&self, join: &Join, except: NodeId) -> Option<NodeId> {
        self.nodes
            .values()
            .find(|node| {
                node.is_up() && node.id != except && node.profile.peer == join.profile.peer
            })
            .map(|node| node.id)
    }
}
