//! The world: nodes, network, sessions and checkers, and the loop that lets one thing happen after
//! the other. Everything follows from the plan, and the plan from its seed.

mod facts;

use std::collections::BTreeMap;
use std::rc::Rc;

use base::cluster::{Descriptor, Epoch, META_REGION, Member, Role};
use meta::wire::Create;
use node::ReplicaRecord;
use replica::SnapshotHead;

use crate::check::{
    Broken, agree::Agree, descriptors::Descriptors, terms::Terms, written::Written,
};
use crate::client::{Answer, Session, key};
use crate::database::{Database, Statement};
use crate::effects::{Effects, Known};
use crate::event::Event;
use crate::history::History;
use crate::machine::{Node, Place, Status, TICK_US};
use crate::network::Network;
use crate::plan::Plan;
use crate::queue::Queue;
use crate::row_calls::RowState;
use crate::script::Scene;
use crate::sql::ADVANCE_US;
use crate::state::{Files, make};
use crate::trace::Trace;

/// After the last fault, everything must be well again within this time.
const RECOVERY_US: u64 = 40_000_000;
/// What was under way at the last fault has come to an end by then.
const SETTLE_US: u64 = 8_000_000;

pub struct World {
    pub(crate) plan: Plan,
    pub(crate) now_us: u64,
    queue: Queue<Event>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    pub(crate) nemesis: fastrand::Rng,
    pub(crate) rng: fastrand::Rng,
    /// Where each replica is; ids are never used again.
    pub(crate) directory: BTreeMap<u64, u64>,
    /// The last replica id given.
    pub(crate) replicas: u64,
    /// Nobody asks for anything before this.
    pub(crate) lull_us: u64,
    /// Nobody writes anything before this.
    pub(crate) reads_only_us: u64,
    pub(crate) scene: Scene,
    pub(crate) sessions: Vec<Session>,
    pub history: History,
    pub trace: Trace,
    pub(crate) agree: Agree,
    terms: Terms,
    pub(crate) descriptors: Descriptors,
    pub(crate) is_calm: bool,
    calm_us: u64,
    /// What is still to be read at the end; the first session does it.
    pub(crate) audit: Vec<String>,
    pub last: BTreeMap<String, Option<String>>,
    pub(crate) database: Database,
    pub(crate) written: Written,
    /// The newest tables there are.
    pub(crate) catalogue: Rc<Known>,
    /// Rows still to be read at the end, and what they were at the beginning.
    pub(crate) row_audit: Vec<String>,
    pub row_begin: BTreeMap<String, RowState>,
    pub broken: Option<Broken>,
    is_over: bool,
    pub installs: usize,
    /// Machines that lost their disk, and replicas that meta had made.
    pub losses: usize,
    pub made: usize,
    pub made_on_new: usize,
    /// Moments of the history and the event they happened at.
    pub(crate) moments: Vec<u64>,
}

impl World {
    pub fn new(plan: Plan, with_texts: bool) -> World {
        let mut rng = fastrand::Rng::with_seed(plan.seed ^ 0x5eed);
        // The last one reads everything at the end.
        let sessions =
            (0..=plan.sessions).map(|id| Session::new(id, rng.fork(), plan.regions, plan.keys));
        let sessions = sessions.collect();
        let kinds = ['r', 'l', 'c', 's', 'p'];
        let all = (1..=plan.regions).flat_map(|region| kinds.map(|kind| (region, kind)));
        let audit =
            all.flat_map(|(region, kind)| (0..plan.keys).map(move |nth| key(kind, region, nth)));
        let mut world = World {
            network: Network::new(rng.fork(), plan.weather),
            nemesis: rng.fork(),
            calm_us: plan.chaos_us,
            now_us: 0,
            queue: Queue::new(),
            nodes: Vec::new(),
            rng,
            directory: BTreeMap::new(),
            replicas: 1000,
            lull_us: 0,
            reads_only_us: 0,
            scene: Scene::default(),
            sessions,
            history: History::new(),
            trace: Trace::new(with_texts),
            agree: Agree::default(),
            terms: Terms::default(),
            descriptors: Descriptors::default(),
            is_calm: false,
            audit: audit.collect(),
            last: BTreeMap::new(),
            database: Database::new(plan.bug),
            written: Written::default(),
            catalogue: Rc::default(),
            row_audit: Vec::new(),
            row_begin: BTreeMap::new(),
            broken: None,
            is_over: false,
            installs: 0,
            losses: 0,
            made: 0,
            made_on_new: 0,
            moments: vec![0],
            plan,
        };
        world.found_tables();
        for _ in 0..world.plan.nodes {
            world.new_machine();
        }
        if world.plan.meta.is_none() {
            world.found_regions();
        }
        for node in 1..=world.plan.nodes {
            world.start(node);
        }
        for session in 0..world.plan.sessions {
            world.after(500_000, Event::Wake { session, ticket: 0 });
        }
        world.after(
            2_000_000,
            match world.plan.script {
                Some(_) => Event::Script,
                None => Event::Nemesis,
            },
        );
        if world.plan.meta.is_none() && !world.plan.limits.is_alone {
            world.after(2_000_000, Event::Tidy);
        }
        world.after(world.plan.chaos_us, Event::Calm);
        // What is under way when the faults end may happen first.
        let auditor = Event::Wake {
            session: world.plan.sessions,
            ticket: 0,
        };
        world.after(world.plan.chaos_us + SETTLE_US, auditor);
        world
    }

    /// Without a meta service: the regions are there, on the first nodes.
    fn found_regions(&mut self) {
        for region in 1..=self.plan.regions {
            let replicas = (1..=self.plan.replicas).map(|node| (region * 100 + node, node));
            let members = replicas.map(|(replica, node)| Member::new(replica, node, Role::Voter));
            let descriptor = Descriptor {
                region,
                epoch: Epoch::FIRST,
                segments: Vec::new(),
                members: members.collect(),
            };
            for &Member { replica, node, .. } in &descriptor.members {
                self.directory.insert(replica, node);
                let create = Create {
                    descriptor: descriptor.clone(),
                    replica,
                    campaign: false,
                };
                let place = Place {
                    record: ReplicaRecord::made(create),
                    made_us: 0,
                };
                let at = &mut self.nodes[node as usize - 1];
                make(&mut at.disk, &place.record);
                at.places.insert(region, place);
            }
        }
    }

    pub(crate) fn after(&mut self, wait_us: u64, event: Event) {
        self.queue.push(self.now_us + wait_us, event);
    }

    pub(crate) fn say(&mut self, words: &[u64], text: impl FnOnce() -> String) {
        self.trace.note(self.now_us, words, text);
    }

    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    pub fn elections(&self) -> usize {
        self.terms.count()
    }

    pub fn entries(&self) -> usize {
        self.agree.entries()
    }

    /// The event at which a moment of the history was.
    pub fn event_at(&self, moment: u64) -> u64 {
        let at = usize::try_from(moment).unwrap_or(usize::MAX);
        self.moments.get(at).copied().unwrap_or(u64::MAX)
    }

    /// Runs until everything is over, something is broken, or so many events have been.
    pub fn run(&mut self, most_events: u64) {
        while !self.is_over && self.broken.is_none() && self.trace.events() < most_events {
            let Some((at_us, _, event)) = self.queue.pop() else {
                break;
            };
            self.now_us = at_us;
            let recovery_us = match self.plan.meta {
                Some(_) => 3 * RECOVERY_US,
                None => RECOVERY_US,
            };
            if self.now_us > self.calm_us + recovery_us {
                let what = format!(
                    "{} keys and {} rows could not be read after all was mended; written back: {}",
                    self.audit.len(),
                    self.row_audit.len(),
                    self.is_drained()
                );
                let broken = match self.unplaced() {
                    Some(why) if self.audit.is_empty() && self.row_audit.is_empty() => {
                        Broken::new("placed", why)
                    }
                    Some(why) => Broken::new("progress", format!("{what}; {why}")),
                    None => Broken::new("progress", what),
                };
                self.fail(broken);
                break;
            }
            self.happen(event);
        }
    }

    pub(crate) fn fail(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }

    fn happen(&mut self, event: Event) {
        if let Some((node, life)) = event.node() {
            let at = &mut self.nodes[node as usize - 1];
            let is_past = life.is_some_and(|life| life != at.life);
            match at.status {
                _ if is_past => return,
                Status::Down => return,
                Status::Paused => return at.held.push(event),
                Status::Up => {}
            }
            let mut out = Effects::default();
            self.at_node(node, event, &mut out);
            self.carry_out(node, out);
            self.check_leases();
            return;
        }
        match event {
            Event::Answer {
                session,
                ticket,
                node,
                answer,
            } => self.on_answer(session, ticket, node, answer),
            Event::Wake { session, ticket } => self.on_wake(session, ticket),
            Event::Again { session, ticket } => {
                let current = &self.sessions[session as usize].current;
                if current
                    .as_ref()
                    .is_some_and(|it| it.request.ticket == ticket)
                {
                    self.ask(session);
                }
            }
            Event::Nemesis if !self.is_calm => self.on_nemesis(),
            Event::Script if !self.is_calm => self.on_script(),
            Event::Mend(fault) if !self.is_calm => self.on_mend(fault),
            Event::Demand { node, last } if !self.is_calm => self.on_demand(node, last),
            Event::Calm => self.on_calm(),
            Event::Tidy => self.on_tidy(),
            Event::Look => self.on_look(),
            Event::Statement(statement) => self.on_statement(*statement),
            Event::AddField => self.on_add_field(),
            _ => {}
        }
    }

    fn at_node(&mut self, node: u64, event: Event, out: &mut Effects) {
        let now_us = self.now_us;
        let at = &mut self.nodes[node as usize - 1];
        match event {
            Event::Tick { life, .. } => {
                let next_us = at.clock.true_us(TICK_US);
                at.tick(now_us, out);
                self.after(next_us, Event::Tick { node, life });
            }
            Event::Beat { .. } => at.beat(now_us, out),
            Event::Call { asker, call, .. } => {
                self.trace
                    .note(now_us, &[11, node, asker.machine, asker.ticket], || {
                        format!(
                            "node {node} is asked by machine {}: {call:?}",
                            asker.machine
                        )
                    });
                let at = &mut self.nodes[node as usize - 1];
                at.on_call(asker, *call, now_us, out);
            }
            Event::Reply { ticket, reply, .. } => {
                self.trace.note(now_us, &[12, node, ticket], || {
                    format!("machine {node} is answered: {reply:?}")
                });
                let at = &mut self.nodes[node as usize - 1];
                at.on_reply(ticket, *reply, now_us, out);
            }
            Event::NoReply { ticket, .. } => at.on_no_reply(ticket, now_us, out),
            Event::News { .. } => at.trigger_heartbeat(now_us),
            Event::Message {
                region, message, ..
            } => {
                let kind = message.get_msg_type();
                let head = [
                    node,
                    message.from,
                    message.term,
                    message.index,
                    message.commit,
                ];
                let words = [&[1, kind as u64, message.entries.len() as u64][..], &head].concat();
                self.trace.note(now_us, &words, || {
                    let [_, from, term, index, commit] = head;
                    let reject = if message.reject { " reject" } else { "" };
                    format!(
                        "node {node} hears {kind:?} of {from}: term {term} index {index} commit \
                         {commit} entries {}{reject}",
                        message.entries.len()
                    )
                });
                let at = &mut self.nodes[node as usize - 1];
                let from = self.directory.get(&message.from).copied().unwrap_or(0);
                let mut bytes = Vec::new();
                replica::encode_message(&message, &mut bytes);
                if region == META_REGION {
                    at.with_meta(now_us, out, |member, cx, _| {
                        member.on_message(from, &bytes.into(), cx);
                    });
                    return;
                }
                at.on_region(region, now_us, out, |owned, cx, asked| {
                    let messages = vec![(region as usize, bytes.into())];
                    owned.on_messages(from, messages, cx, asked);
                });
            }
            Event::Request { request, .. } => at.on_request(request, now_us, out),
            Event::Snapshot {
                region, to, made, ..
            } => self.on_snapshot(node, region, to, *made, out),
            Event::Synced { life, .. } if at.is_hung => {
                self.after(20_000, Event::Synced { node, life });
            }
            Event::Synced { .. } => at.on_synced(now_us, out),
            Event::Unwell { from, .. } => at.on_unwell(from, now_us, out),
            Event::Fetched { region, .. } => at.on_fetched(region, now_us, out),
            Event::Work { number, .. } => at.on_work(number, now_us, out),
            Event::Mail { core, .. } => at.on_mail(core, now_us, out),
            Event::Sql {
                region,
                write_back,
                number,
                said,
                ..
            } => at.on_sql((region, write_back, number), *said, now_us, out),
            Event::Catalogue { .. } => {
                at.catalogue = self.catalogue.clone();
                at.advance(now_us, out);
            }
            Event::Advance { life, .. } => {
                let next_us = at.clock.true_us(ADVANCE_US);
                at.advance(now_us, out);
                self.after(next_us, Event::Advance { node, life });
            }
            Event::Checkpoint { life, .. } => {
                at.checkpoint(out);
                let wait_us = self.plan.checkpoint_us;
                let wait_us = self.rng.u64(wait_us / 2..wait_us * 2);
                self.after(wait_us, Event::Checkpoint { node, life });
            }
            _ => {}
        }
    }

    /// What a node did reaches the others.
    pub(crate) fn carry_out(&mut self, node: u64, mut out: Effects) {
        let life = self.nodes[node as usize - 1].life;
        self.carry_out_calls(node, &mut out);
        for fact in out.facts {
            self.on_fact(node, fact);
        }
        for (region, message) in out.messages {
            let Some(&to) = self.directory.get(&message.to) else {
                continue;
            };
            self.overhear(node, to, &message);
            for delay_us in self.network.send(node, to) {
                let message = Box::new(message.clone());
                self.after(
                    delay_us,
                    Event::Message {
                        node: to,
                        region,
                        message,
                    },
                );
            }
        }
        if out.is_unwell {
            for other in (1..=self.machines()).filter(|&other| other != node) {
                for delay_us in self.network.send(node, other) {
                    let heard = Event::Unwell {
                        node: other,
                        from: node,
                    };
                    self.after(delay_us, heard);
                }
            }
        }
        for (request, answer) in out.answers {
            let answer = match answer {
                Answer::Moved(leader) => {
                    Answer::Moved(leader.and_then(|it| self.directory.get(&it).copied()))
                }
                other => other,
            };
            if let Some(delay_us) = self.network.call(node, 0) {
                let (session, ticket) = (request.session, request.ticket);
                self.after(
                    delay_us,
                    Event::Answer {
                        session,
                        ticket,
                        node,
                        answer,
                    },
                );
            }
        }
        for (region, write_back, number, ask) in out.statements {
            self.send_statement(Statement {
                node,
                life,
                region,
                write_back,
                number,
                ask,
            });
        }
        for region in out.fetches {
            let wait_us = self.rng.u64(100..20_000);
            self.after(wait_us, Event::Fetched { node, life, region });
        }
        for number in out.works {
            // Mostly soon, sometimes after a long while.
            let longest_us = match self.rng.u32(..4) {
                0 => 300_000,
                _ => 10_000,
            };
            let wait_us = self.rng.u64(100..longest_us);
            self.after(wait_us, Event::Work { node, life, number });
        }
        for core in out.mails {
            let wait_us = self.rng.u64(10..5_000);
            self.after(wait_us, Event::Mail { node, life, core });
        }
        for (region, to, head, files) in out.snapshots {
            let wait_us = self.rng.u64(1000..400_000);
            let made = Box::new((head, files));
            self.after(
                wait_us,
                Event::Snapshot {
                    node,
                    life,
                    region,
                    to,
                    made,
                },
            );
        }
        if let Some(failure) = out.failure {
            self.on_failure(node, failure);
            return;
        }
        let at = &mut self.nodes[node as usize - 1];
        if at.status != Status::Down && at.disk.begin_sync() {
            let usual_us = self.plan.sync_us + at.slow_us;
            let wait_us = self.rng.u64(usual_us / 2..usual_us * 2);
            self.after(wait_us, Event::Synced { node, life });
        }
    }

    /// The files are there, or not.
    fn on_snapshot(
        &mut self,
        node: u64,
        region: u64,
        to: u64,
        (head, files): (SnapshotHead, Rc<Files>),
        out: &mut Effects,
    ) {
        let now_us = self.now_us;
        let target = self.directory.get(&to).copied().unwrap_or(node);
        let arrives = self.network.send(node, target).next().is_some();
        let at = &mut self.nodes[target as usize - 1];
        let arrives = arrives && at.status == Status::Up;
        if arrives {
            at.disk.keep_files(files);
        }
        self.say(&[8, node, to, head.index, arrives.into()], || {
            format!(
                "node {node} sends a snapshot at {} to {to}: {arrives}",
                head.index
            )
        });
        let head = arrives.then_some(&head);
        let at = &mut self.nodes[node as usize - 1];
        at.on_snapshot_sent((region, to), head, now_us, out);
    }

    /// A node that cannot go on stops, loudly. Only a failing disk is a reason.
    fn on_failure(&mut self, node: u64, failure: String) {
        let at = &mut self.nodes[node as usize - 1];
        if !at.disk.is_failing {
            self.fail(Broken::new("node", format!("node {node}: {failure}")));
            return;
        }
        if at.stays_when_failed {
            at.failed = Some(failure);
            self.say(&[105, node], || {
                format!("node {node} has failed, and stays")
            });
            return;
        }
        self.say(&[104, node], || format!("node {node} stops: {failure}"));
        let rest_us = self.nemesis.u64(100_000..2_000_000);
        self.crash(node, rest_us);
    }

    /// The node that leads a region in the latest term.
    pub(crate) fn leader_of(&self, region: u64) -> Option<u64> {
        let leaders = self.nodes.iter();
        let leaders = leaders.filter_map(|node| Some((node.leads(region)?, node.id)));
        leaders.max().map(|(_, node)| node)
    }

    /// After the calm: whether all members of all regions are equal.
    fn on_look(&mut self) {
        let is_even = self.audit.is_empty()
            && self.is_drained()
            && self.unplaced().is_none()
            && (1..=self.plan.regions).all(|region| {
                if self.plan.limits.is_alone {
                    return true; // there is nobody to be equal to
                }
                let last = self.agree.last_index(region);
                let leader = self
                    .leader_of(region)
                    .map(|node| &self.nodes[node as usize - 1]);
                let leader = leader.and_then(|node| node.replica(region));
                let counted = leader.map(|leader| leader.members());
                let is_even = |node: &Node| {
                    let replica = node.replica(region);
                    replica.is_none_or(|replica| {
                        let counts = counted.is_some_and(|it| it.contains(replica.id()));
                        !counts || replica.applied_index() == last
                    })
                };
                counted.is_some() && self.nodes.iter().all(is_even)
            });
        match is_even {
            true => {
                self.is_over = true;
                self.check_drained();
            }
            false => self.after(50_000, Event::Look),
        }
    }
}
