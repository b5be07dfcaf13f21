//! What a core hears from peers of its regions, and says to them: see [`node`] for what they decide.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base::cluster::{META_REGION, NodeId};
use base::milestone;
use bytes::Bytes;
use meta::wire::{Order, ReplicaReport};
use node::{Barrier, TIMEOUT_MS, Unserved, Waiter};
use replica::{Message as RaftMessage, encode_message};
use transport::{Handler, IncomingOffer, Refusal, Reply};

use super::meta_thread::MetaInput;
use super::regions::Task;
use super::unwell::UNWELL;
use super::{
    Cluster, METHOD_DIGEST, METHOD_DIGEST_OF, METHOD_SECRET, NEWS, TELL_AGAIN, digests, secret,
};
use crate::Shared;
use crate::cores::{Answer, Core, Message, Place, Ticket};

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
            if self.id == 0 {
                self.look_at_log_disk();
                self.tell_trouble();
            }
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
                milestone("the core sent messages to a peer");
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
        self.answer_waiter(waiter, Some(reply));
    }

    /// Waits until a region of this core may be read. `anywhere`: also where it is not led.
    pub async fn pass_read_barrier(
        self: &Rc<Self>,
        place: Place,
        anywhere: bool,
    ) -> Result<(), Unserved> {
        let until = Instant::now() + Duration::from_millis(TIMEOUT_MS);
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

/// What the transport tells this node.
#[derive(Default)]
pub(super) struct PeerHandler {
    pub shared: OnceLock<Arc<Shared>>,
    /// When a refusal was last told of.
    told: Mutex<Option<Instant>>,
}

impl PeerHandler {
    fn cluster(&self) -> Option<(&Arc<Shared>, &Arc<Cluster>)> {
        let shared = self.shared.get()?;
        Some((shared, shared.cluster.as_ref()?))
    }
}

impl Handler for PeerHandler {
    fn on_raft(&self, from: u64, messages: Vec<transport::RaftMessage>) {
        let Some((shared, cluster)) = self.cluster() else {
            return;
        };
        milestone("the node received messages of a peer");
        let mut by_core: Vec<Vec<(usize, Bytes)>> = vec![Vec::new(); shared.map.cores()];
        for message in messages {
            if message.region == UNWELL {
                if cluster.note_unwell(from) {
                    self.on_down(from);
                }
                continue;
            }
            if message.region == NEWS {
                cluster.trigger_heartbeat();
                continue;
            }
            if message.region == META_REGION {
                cluster.tell_meta(MetaInput::Raft {
                    from,
                    bytes: message.body,
                });
                continue;
            }
            // A region that is not here (yet, or any more): meta sees to it.
            if let Some(place) = cluster.table.place_of(message.region)
                && let Some(core) = by_core.get_mut(shared.map.core_of(place))
            {
                core.push((place, message.body));
            }
        }
        for (mailbox, messages) in shared.mailboxes.iter().zip(by_core) {
            if !messages.is_empty() {
                mailbox.send(Message::Raft { from, messages });
            }
        }
    }

    fn on_call(&self, _from: u64, method: u16, body: Bytes, reply: Reply) {
        match self.cluster() {
            Some((shared, _)) if matches!(method, METHOD_DIGEST | METHOD_DIGEST_OF) => {
                digests::on_call(shared, method, body, reply);
            }
            Some((_, cluster)) if method == METHOD_SECRET => {
                secret::on_call(&cluster.transport, body, reply);
            }
            Some((_, cluster)) => cluster.tell_meta(MetaInput::Call {
                method,
                body,
                reply,
            }),
            None => reply.reject("the node is starting"),
        }
    }

    fn on_down(&self, node: u64) {
        let Some(shared) = self.shared.get() else {
            return;
        };
        for mailbox in &shared.mailboxes {
            mailbox.send(Task::NodeDown(node).into());
        }
    }

    fn on_broken(&self, node: u64) {
        let Some(shared) = self.shared.get() else {
            return;
        };
        for mailbox in &shared.mailboxes {
            mailbox.send(Task::NodeBroken(node).into());
        }
    }

    fn on_unknown(&self, _node: u64) {
        if let Some((_, cluster)) = self.cluster() {
            cluster.trigger_heartbeat();
        }
    }

    fn on_refused(&self, node: u64, refusal: &Refusal) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() > TELL_AGAIN) {
            *told = Some(Instant::now());
            tracing::warn!(peer = node, "node {node} refuses this one: {refusal}");
        }
    }

    fn on_snapshot_offer(&self, from: u64, offer: &IncomingOffer) -> transport::Accept {
        match self.cluster() {
            Some((shared, _)) => super::snapshots::on_offer(shared, from, offer),
            None => transport::Accept::Refuse("the node is starting".into()),
        }
    }

    fn on_snapshot_complete(
        &self,
        from: u64,
        offer: &IncomingOffer,
        directory: std::path::PathBuf,
    ) -> Result<(), String> {
        match self.cluster() {
            Some((shared, _)) => super::snapshots::on_complete(shared, from, offer, directory),
            None => Err("the node is starting".into()),
        }
    }
}
