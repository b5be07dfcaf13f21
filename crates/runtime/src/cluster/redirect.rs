//! Where a command of a cluster's client has to go: here, or to the node that leads its slot.
//!
//! A session's core looks at the slot and sends what has no replica here away at once. Whether this
//! node leads is known at the region's own core; it redirects from there. While a leader is being
//! chosen the answer is TRYAGAIN, which the session keeps to itself and tries again ([`NotRun`]). Any
//! other TRYAGAIN (a cache of tables that is full, say) is for the client.

use std::rc::Rc;

use base::{NotRun, Refusal, Slot, slot::slot_of};
use command::{CommandSpec, Keys, OtherDatabase};
use node::Unserved;
use resp::Args;

use super::Cluster;
use crate::cores::{BatchBox, Core, NOWHERE, Place};

impl Cluster {
    /// The slot of a command's keys; none, if it names no key.
    #[inline]
    pub fn slot_of(spec: &CommandSpec, args: &Args<'_>) -> Result<Option<Slot>, Refusal> {
        let mut slot = None;
        let mut differ = false;
        match spec.keys {
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

    /// Who answers for a slot, as far as this node knows.
    #[inline]
    pub fn leads(&self, slot: Slot) -> Leads {
        let routes = self.routes();
        if routes.region_of(slot).is_none() {
            // A node that has just started has its replicas before it hears of routes.
            return match self.places.of_slot(slot) {
                NOWHERE => Leads::Unassigned,
                _ => Leads::Nobody,
            };
        }
        match routes.leader_of(slot) {
            Some(found) if found.node != self.node => Leads::There(found.redis.to_string()),
            Some(_) if self.places.of_slot(slot) != NOWHERE => Leads::Here,
            // Never to itself: this node does not lead, the news have not come round yet.
            _ => Leads::Nobody,
        }
    }

    /// Whether another node leads a slot, as far as this node knows.
    #[inline]
    pub fn is_led_there(&self, slot: Slot) -> bool {
        let routes = self.routes();
        let leader = routes
            .region_of(slot)
            .and_then(|region| routes.leader(region));
        leader.is_some_and(|node| node != self.node)
    }

    /// Whether this is the address this node has told others.
    pub fn is_me(&self, address: &str) -> bool {
        let routes = self.routes();
        let me = routes.node(self.node);
        me.is_some_and(|node| node.redis.to_string() == address)
    }

    /// The answer for a slot that is led elsewhere, as far as this node knows.
    pub fn moved(&self, slot: Slot) -> Refusal {
        match self.leads(slot) {
            Leads::Unassigned => Refusal::new("CLUSTERDOWN Hash slot not served"),
            Leads::There(address) => moved_to(slot, &address),
            Leads::Here | Leads::Nobody => unsettled(),
        }
    }

    /// What Redis Cluster does not have: other databases, and SORT by keys that are not named.
    pub fn refuses(spec: &CommandSpec, args: &Args<'_>) -> Option<Refusal> {
        if spec.other_database.is_named(args, 0) {
            return Some(match spec.other_database {
                OtherDatabase::Option { .. } => {
                    Refusal::new("ERR Copying to another database is not allowed in cluster mode")
                }
                _ => Refusal::text_of(format!(
                    "ERR {} is not allowed in cluster mode",
                    spec.name.to_ascii_uppercase()
                )),
            });
        }
        let line = match spec.keys {
            Keys::Sort { .. } if spec.keys.touches_everything(args) => {
                let is_by = (2..args.len()).any(|at| {
                    args.is(at, "BY") && args.get(at + 1).is_some_and(|it| it.contains(&b'*'))
                });
                match is_by {
                    true => "ERR BY option of SORT denied in Cluster mode.",
                    false => "ERR GET option of SORT denied in Cluster mode.",
                }
            }
            _ => return None,
        };
        Some(Refusal::new(line))
    }
}

/// Who answers for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leads {
    Here,
    /// At this advertised address.
    There(String),
    /// A leader is being chosen, or nobody has told us.
    Nobody,
    /// No region has this slot.
    Unassigned,
}

fn moved_to(slot: Slot, address: &str) -> Refusal {
    NotRun::moved(slot, address).into()
}

/// Sessions do not show this to clients before they have waited for it to end.
fn unsettled() -> Refusal {
    NotRun::LeaderChanging(CHOOSING).into()
}

pub const CHOOSING: &str = "TRYAGAIN a leader for this slot is being chosen";

/// What a client is told when nobody was found in time.
pub fn no_leader() -> Refusal {
    Refusal::new("CLUSTERDOWN The cluster is down: no leader was found for this slot in time")
}

impl Core {
    /// What a client is told that asks for a slot this node cannot answer for now. The replica here,
    /// if there is one, knows best who leads.
    pub fn unserved(&self, slot: Slot, why: Unserved) -> Refusal {
        let Some(cluster) = &self.shared.cluster else {
            return Refusal::new("ERR internal error");
        };
        if why == Unserved::Down {
            return no_leader();
        }
        let place = cluster.places.of_slot(slot);
        let mut owned = self.regions.borrow_mut();
        let member = owned.region_mut(place).and_then(|r| r.member.as_deref());
        // One that failed hears nothing any more: meta knows who leads now.
        let member = member.filter(|member| !member.failed);
        let leader = member.and_then(|member| {
            let node = member.peers.as_ref()?.node_of(member.replica.leader()?)?;
            (node != cluster.node).then_some(node)
        });
        let has_replica = member.is_some();
        drop(owned);
        let address = leader.and_then(|node| Some(cluster.routes().node(node)?.redis.to_string()));
        match address {
            Some(address) => moved_to(slot, &address),
            // It leads by now, or nobody does: what the routes say is older than that.
            None if has_replica => unsettled(),
            None => cluster.moved(slot),
        }
    }

    /// As [`Core::unserved`], of any slot of a region that is led elsewhere.
    pub(crate) fn unserved_region(&self, place: Place) -> Refusal {
        let mut slots = 0..base::SLOT_COUNT;
        let slot = slots.find(|&slot| self.shared.map.region_of_slot(slot) == place);
        self.unserved(slot.unwrap_or_default(), Unserved::Elsewhere)
    }

    /// Answers every command of a batch with where it should go. None of them has happened.
    pub(crate) fn redirect_batch(self: &Rc<Self>, mut batch: BatchBox, why: Unserved) {
        if !batch.writes {
            // Reads before may have been answered.
            self.refuse_rest(&mut batch, why);
            return self.finish_batch(batch);
        }
        batch.replies.truncate(0);
        batch.ends.clear();
        for (at, &(stat, _)) in batch.heads.iter().enumerate() {
            let spec = self.shared.commands.spec(stat as usize);
            let slot = Cluster::slot_of(spec, &batch.commands.args(at));
            let slot = slot.ok().flatten().unwrap_or_default();
            let refusal = self.unserved(slot, why);
            self.refuse(&refusal, &mut batch.replies);
            batch.ends.push(batch.replies.len());
            if batch.is_transaction {
                // A transaction has one reply in all.
                batch.ends.clear();
                break;
            }
        }
        self.finish_batch(batch);
    }
}
