//! What a core hears from peers of its regions, and says to them: see [`node`] for what they decide.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use base::cluster::NodeId;
use meta::wire::{Order, ReplicaReport};
use node::{Barrier, PATIENCE_MS, Unserved, Waiter};
use replica::{Message as RaftMessage, encode_message};

use crate::cores::{Answer, Core, Place, Ticket};

/// Messages for one node, gathered during a turn.
#[derive(Default)]
pub struct Outbox {
    by_node: HashMap<NodeId, Vec<transport::RaftMessage>>,
}

impl Outbox {
    fn push(&mut self, node: NodeId, region: u64, message: &RaftMessage) {
        let mut bytes = Vec::with_capacity(128);
        encode_message(message, &mut bytes);
        let queue = self.by_node.entry(node).or_default();
        queue.push(transport::RaftMessage {
            region,
            body: bytes.into(),
            overtakes: !replica::keeps_order(message),
        });
    }
}

impl Core {
    /// The task that lets time pass.
    pub(crate) async fn run_ticks(self: Rc<Self>) {
        let tick_ms = self.shared.cluster.as_ref().map_or(100, |it| it.tick_ms);
        let mut timer = tokio::time::interval(Duration::from_millis(tick_ms));
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_stopping() {
            timer.tick().await;
            self.begin_batch();
            let cluster = self.shared.cluster.as_ref();
            let heard = cluster.map_or_else(Vec::new, |it| it.heard_nodes());
            self.on_regions(|regions, cx, out| regions.tick(&heard, cx, out));
            self.end_turn();
        }
    }

    /// Messages for peers leave with the end of the turn.
    pub(crate) fn gather_messages(&self, messages: &mut Vec<(NodeId, u64, RaftMessage)>) {
        let mut outbox = self.outbox.borrow_mut();
        for (node, region, message) in messages.drain(..) {
            // A large one is on its way: Raft, which hears answers to heartbeats meanwhile and no
            // acknowledgement, would send it again with every one of them.
            if self.has_room(node, &message) {
                outbox.push(node, region, &message);
            }
        }
    }

    fn has_room(&self, node: NodeId, message: &RaftMessage) -> bool {
        let cluster = self.shared.cluster.as_ref();
        let bytes = replica::payload_bytes(message);
        bytes == 0 || cluster.is_none_or(|it| it.transport.has_room(node, bytes))
    }

    /// Sends what was gathered.
    pub(crate) fn flush_outbox(&self) {
        let Some(cluster) = &self.shared.cluster else {
            return;
        };
        let mut outbox = self.outbox.borrow_mut();
        for (node, messages) in &mut outbox.by_node {
            if !messages.is_empty() {
                let messages = std::mem::take(messages);
                cluster.transport.send_batch(*node, messages);
            }
        }
    }

    /// Nothing can be kept here any more: others have to lead.
    pub(crate) fn has_failed(&self) -> bool {
        let durable = self.shared.durable.as_ref();
        durable.is_some_and(|durable| durable.is_failed())
    }

    /// A blocked session, claimed by this core, whose region is led elsewhere now.
    pub(crate) fn unblock_claimed(&self, waiter: &Waiter) {
        waiter.claim.served();
        let mut reply = resp::Reply::new(waiter.protocol);
        reply.refusal(&base::Refusal::new(
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> \
             replica?)",
        ));
        self.answer_waiter(waiter, Some(reply.into_bytes()));
    }

    /// Waits until a region of this core may be read. `anywhere`: also where it is not led.
    pub async fn pass_read_barrier(
        self: &Rc<Self>,
        place: Place,
        anywhere: bool,
    ) -> Result<(), Unserved> {
        let until = Instant::now() + Duration::from_millis(PATIENCE_MS);
        if self.has_failed() {
            return Err(Unserved::Elsewhere);
        }
        loop {
            let ticket = Ticket::new(self);
            let number = ticket.number();
            let barrier = self.on_regions(|regions, cx, out| {
                regions.read_barrier(place, anywhere, number, cx, out)
            });
            match barrier {
                Barrier::None => return Ok(()),
                Barrier::Unserved(why) => return Err(why),
                Barrier::Wait => {}
            }
            self.end_turn();
            match tokio::time::timeout_at(until.into(), ticket).await {
                Ok(Answer::MayRead(true)) => return Ok(()),
                Ok(_) => {}
                Err(_) => return Err(Unserved::Down),
            }
        }
    }

    /// Carries out an order to the leader of a region.
    pub(super) fn on_lead_order(
        self: &Rc<Self>,
        place: Place,
        order: &Order,
    ) -> Result<(), String> {
        let done = self.on_regions(|regions, cx, out| regions.on_lead_order(place, order, cx, out));
        self.end_turn();
        done
    }

    /// The leader asks all replicas for a digest, by its log.
    pub(super) fn on_digest_asked(self: &Rc<Self>, place: Place, id: u64) -> bool {
        let asked = self.on_regions(|regions, cx, out| regions.ask_digest(place, id, cx, out));
        self.end_turn();
        asked
    }

    /// How the replicas of this core stand.
    pub(super) fn report(&self) -> Vec<ReplicaReport> {
        self.regions.borrow_mut().reports()
    }

    /// Quiet followers of leaders on this node look after themselves from now on.
    pub(super) fn on_node_down(self: &Rc<Self>, node: NodeId) {
        self.on_regions(|regions, cx, out| regions.on_node_down(node, cx, out));
        self.end_turn();
    }
}
