//! Where a command of a cluster's client has to go: here, or to the node that leads its slot.
//!
//! A session's core looks at the slot and sends what has no replica here away at once. Whether this
//! node leads is known at the region's own core; it redirects from there.

use std::rc::Rc;

use base::{Refusal, Slot, slot::slot_of};
use command::{Command, Keys};
use resp::Args;

use super::Cluster;
use super::sure::Unserved;
use crate::cores::{BatchBox, Core, NOWHERE};

impl Cluster {
    /// The slot of a command's keys; none, if it names no key.
    pub fn slot_of(row: &Command, args: &Args<'_>) -> Result<Option<Slot>, Refusal> {
        let mut slot = None;
        let mut differ = false;
        match row.keys {
            Keys::None | Keys::Everything | Keys::Cursor => return Ok(None),
            Keys::Range { first, last, .. } if last == first as isize => {
                return Ok(args.get(first).map(slot_of));
            }
            keys => {
                // What makes no sense is refused by the command itself.
                let _ = keys.positions(args, |at| {
                    let found = slot_of(args.at(at));
                    differ |= *slot.get_or_insert(found) != found;
                });
            }
        }
        match differ {
            true => Err(Refusal::new(
                "CROSSSLOT Keys in request don't hash to the same slot",
            )),
            false => Ok(slot),
        }
    }

    /// Whether a slot has a replica here; if not, who to ask.
    #[inline]
    pub fn check_slot(&self, slot: Slot) -> Result<(), Refusal> {
        match self.places.of_slot(slot) {
            NOWHERE => Err(self.moved(slot)),
            _ => Ok(()),
        }
    }

    /// The answer for a slot that is led elsewhere, as far as this node knows.
    pub fn moved(&self, slot: Slot) -> Refusal {
        let routes = self.routes();
        if routes.region_of(slot).is_none() {
            return Refusal::new("CLUSTERDOWN Hash slot not served");
        }
        match routes.leader_of(slot) {
            // Never to itself: this node does not lead, the news have not come round yet.
            Some(found) if found.node != self.node => {
                Refusal::text_of(format!("MOVED {slot} {}", found.redis))
            }
            _ => Refusal::new("TRYAGAIN a leader for this slot is being chosen"),
        }
    }
}

impl Core {
    /// What a client is told that asks for a slot this node cannot answer for now. The replica here,
    /// if there is one, knows best who leads.
    pub(crate) fn unserved(&self, slot: Slot, why: Unserved) -> Refusal {
        let Some(cluster) = &self.shared.cluster else {
            return Refusal::new("ERR internal error");
        };
        if why == Unserved::Down {
            return Refusal::new("CLUSTERDOWN The cluster is down");
        }
        let place = cluster.places.of_slot(slot);
        let mut home = self.home.borrow_mut();
        let member = home.region_mut(place).and_then(|r| r.member.as_deref());
        let leader = member.and_then(|member| {
            let node = member.peers.as_ref()?.node_of(member.replica.leader()?)?;
            (node != cluster.node).then_some(node)
        });
        let address = leader.and_then(|node| Some(cluster.routes().node(node)?.redis.to_string()));
        match address {
            Some(address) => Refusal::text_of(format!("MOVED {slot} {address}")),
            None => cluster.moved(slot),
        }
    }

    /// Answers every command of a batch with where it should go. None of them has happened.
    pub(crate) fn redirect_batch(self: &Rc<Self>, mut batch: BatchBox) {
        batch.replies.truncate(0);
        batch.ends.clear();
        for (at, &(stat, _)) in batch.heads.iter().enumerate() {
            let row = self.shared.commands.row(stat as usize);
            let slot = Cluster::slot_of(row, &batch.commands.args(at));
            let slot = slot.ok().flatten().unwrap_or_default();
            let refusal = self.unserved(slot, Unserved::Elsewhere);
            self.refuse(&refusal, &mut batch.replies);
            batch.ends.push(batch.replies.len());
            if batch.together {
                // A transaction has one reply in all.
                batch.ends.clear();
                break;
            }
        }
        self.finish_batch(batch);
    }
}
