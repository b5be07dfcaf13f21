//! What is decided about a node by hand.

use super::{Outcome, Refused, SetNodeState, State};

impl State {
    /// `Removed` is for good, and only for a node that is not alive: one that is would go on as if
    /// nothing had happened (draining comes later). Nobody comes back from `Removed`.
    pub(super) fn set_node_state(&mut self, set: &SetNodeState) -> Result<Outcome, Refused> {
        let node = self
            .nodes
            .get_mut(&set.node)
            .ok_or(Refused::UnknownNode(set.node))?;
        if node.state() == set.state() {
            return Ok(Outcome::Unchanged);
        }
        if !node.is_up() {
            return Err(Refused::NodeGone {
                node: set.node,
                replaced_by: node.replaced_by,
            });
        }
        if set.alive.contains(&set.node) {
            return Err(Refused::NodeAlive(set.node));
        }
        node.state = set.state;
        self.routes_changed();
        Ok(Outcome::Changed)
    }
}
