//! A cluster in a few hundred lines: regions with the truth their Raft logs would have decided,
//! nodes that die, come back and lose their disks, messages that are late, lost or doubled. The
//! real `State`, `Leader` and `Routes` run in it.

use std::collections::{BTreeMap, BTreeSet};

use base::cluster::*;
use fastrand::Rng;
use meta::leader::{Leader, join_answer};
use meta::limits::Limits;
use meta::route::Routes;
use meta::state::*;
use meta::wire::*;

pub const STEP_MS: u64 = 100;
const CLUSTER: u64 = 0xFEED;

pub struct World {
    pub rng: Rng,
    pub now: u64,
    pub state: State,
    pub leader: Option<Leader>,
    pub limits: Limits,
    pub nodes: BTreeMap<NodeId, Process>,
    pub regions: BTreeMap<RegionId, Truth>,
    /// Every command that was applied, with its stamp.
    pub history: Vec<(Command, u64)>,
    /// Orders given by turns, and proposals, since last asked.
    pub activity: u64,
    /// Chance in a hundred that a message is lost, or doubled.
    pub loss: u32,
    created: BTreeSet<ReplicaId>,
    mail: Vec<(u64, Mail)>,
    tokens: u64,
}

#[allow(clippy::large_enum_variant)] // there are few of them
enum Mail {
    Heartbeat(Heartbeat),
    Answer(NodeId, HeartbeatAnswer),
}

pub struct Process {
    pub alive: bool,
    pub host: String,
    pub labels: BTreeMap<String, String>,
    start_count: u64,
    number: u64,
    next_beat: u64,
    pub routes: Routes,
    /// Kept over restarts.
    pub tables: Catalogue,
    pub replicas: BTreeMap<ReplicaId, Copy>,
    destroyed: BTreeSet<ReplicaId>,
}

/// One replica on one node.
pub struct Copy {
    region: RegionId,
    epoch: Epoch,
    applied: u64,
    /// A snapshot is being installed until then.
    installing_until: Option<u64>,
}

/// What a region's own log has decided.
pub struct Truth {
    pub descriptor: Descriptor,
    pub leader: Option<ReplicaId>,
    term: u64,
    index: u64,
    leave_joint_at: u64,
}

impl World {
    pub fn new(seed: u64, settings: Settings) -> World {
        let mut world = World {
            rng: Rng::with_seed(seed),
            now: 1_000,
            state: State::default(),
            leader: None,
            limits: Limits {
                down_after_ms: 3_000,
                dead_after_ms: 8_000,
                operator_timeout_ms: 60_000,
                transfer_timeout_ms: 3_000,
                balance_after_ms: 4_000,
                rest_ms: 5_000,
                leader_rest_ms: 1_000,
                ..Limits::default()
            },
            nodes: BTreeMap::new(),
            regions: BTreeMap::new(),
            history: Vec::new(),
            activity: 0,
            loss: 0,
            created: BTreeSet::from([1]),
            mail: Vec::new(),
            tokens: 0,
        };
        let join = world.join(0, "n1", &BTreeMap::new(), 1);
        world.apply(
            Change::Found(Found {
                cluster: CLUSTER,
                settings,
                join,
            })
            .into(),
        );
        world.nodes.insert(1, Process::new("n1", BTreeMap::new()));
        let mut first = Copy::empty(META_REGION);
        first.epoch = Epoch::FIRST;
        world.nodes.get_mut(&1).unwrap().replicas.insert(1, first);
        let descriptor = world.state.region(META_REGION).unwrap().descriptor.clone();
        world.regions.insert(META_REGION, Truth::new(descriptor));
        world
    }

    fn join(
        &mut self,
        node: NodeId,
        host: &str,
        labels: &BTreeMap<String, String>,
        starts: u64,
    ) -> Join {
        self.tokens += 1;
        Join {
            cluster: if node == 0 { 0 } else { CLUSTER },
            node,
            token: self.tokens,
            start_count: starts,
            profile: Profile {
                redis: Address::new(host, 6379),
                peer: Address::new(host, 16379),
                http_port: 0,
                tls_port: 0,
                labels: labels.clone(),
                stores: true,
                metas: true,
                format: 1,
                version: String::new(),
            },
            replace: 0,
        }
    }

    pub fn apply(&mut self, command: Command) -> Outcome {
        let outcome = self.state.apply(&command, self.now);
        self.history.push((command, self.now));
        outcome
    }

    /// A new node, tried until it is accepted; `None` if meta has no leader or refuses.
    pub fn add_node(&mut self, host: &str, labels: &BTreeMap<String, String>) -> Option<NodeId> {
        let mut join = self.join(0, host, labels, 1);
        let before = |node: &&Node| node.is_up() && node.profile.peer.host == host;
        let before = self.state.nodes().find(before).map(|node| node.id);
        let leader = self.leader.as_ref()?;
        if let Some(before) = before {
            join.replace = before;
        }
        let command = match leader.register(&self.state, join.clone(), self.now) {
            Ok(command) => command,
            Err(refused) => {
                assert!(refused.passes(), "{refused}");
                return None;
            }
        };
        let outcome = self.apply(command.clone());
        // The answer was lost: asked again, with the same token.
        let again = self.apply(command);
        assert!(
            matches!((&outcome, &again),
            (Outcome::Registered { node: a, .. }, Outcome::Registered { node: b, .. }) if a == b)
                || matches!(outcome, Outcome::Refused(_)),
            "{outcome:?} {again:?}"
        );
        let answer = join_answer(&outcome, &self.state);
        if answer.node == 0 {
            assert!(answer.retry, "{}", answer.refused);
            return None;
        }
        self.nodes
            .insert(answer.node, Process::new(host, labels.clone()));
        Some(answer.node)
    }

    /// Whether every region could go on without this node.
    pub fn can_lose(&self, node: NodeId) -> bool {
        self.regions.values().all(|truth| {
            truth
                .descriptor
                .has_quorum(|member| member.node != node && self.is_present(member))
        })
    }

    pub fn kill(&mut self, node: NodeId) {
        self.nodes.get_mut(&node).unwrap().alive = false;
    }

    /// Starts it again; false if it could not join.
    pub fn restart(&mut self, node: NodeId, host: &str) -> bool {
        let (labels, starts) = {
            let process = self.nodes.get_mut(&node).unwrap();
            process.start_count += 1;
            (process.labels.clone(), process.start_count)
        };
        let join = self.join(node, host, &labels, starts);
        let Some(leader) = &self.leader else {
            return false;
        };
        let command = leader.register(&self.state, join, self.now).unwrap();
        match self.apply(command) {
            Outcome::Registered { .. } => {
                let process = self.nodes.get_mut(&node).unwrap();
                process.alive = true;
                process.number = 0;
                process.host = host.to_owned();
                process.routes = Routes::new();
                true
            }
            Outcome::Refused(refused) => {
                assert!(
                    refused.passes() || !self.state.node(node).unwrap().is_up(),
                    "{refused}"
                );
                false
            }
            other => panic!("{other:?}"),
        }
    }

    /// Meta chooses another leader, and some of what the old one proposed is lost.
    pub fn unseat_meta(&mut self) {
        self.regions.get_mut(&META_REGION).unwrap().leader = None;
        self.leader = None;
    }

    fn is_present(&self, member: &Member) -> bool {
        self.nodes
            .get(&member.node)
            .is_some_and(|node| node.alive && node.replicas.contains_key(&member.replica))
    }

    pub fn run(&mut self, ms: u64) {
        let until = self.now + ms;
        while self.now < until {
            self.step();
        }
    }

    fn step(&mut self) {
        self.now += STEP_MS;
        let ids: Vec<RegionId> = self.regions.keys().copied().collect();
        for id in ids {
            self.step_region(id);
        }
        let due: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.alive && node.next_beat <= self.now)
            .map(|(id, _)| *id)
            .collect();
        for node in due {
            self.beat(node);
        }
        let (due, later) = std::mem::take(&mut self.mail)
            .into_iter()
            .partition(|(at, _)| *at <= self.now);
        self.mail = later;
        for (_, mail) in due {
            self.deliver(mail);
        }
        self.meta_turn();
    }

    fn post(&mut self, mail: impl Fn() -> Mail) {
        if self.rng.u32(0..100) < self.loss {
            return;
        }
        let twice = self.rng.u32(0..100) < self.loss;
        for _ in 0..1 + u32::from(twice) {
            let late = if self.rng.u32(0..100) < self.loss {
                4_000
            } else {
                200
            };
            self.mail.push((self.now + self.rng.u64(0..=late), mail()));
        }
    }

    fn step_region(&mut self, id: RegionId) {
        let truth = &self.regions[&id];
        let quorum = truth
            .descriptor
            .has_quorum(|member| self.is_present(member));
        let leads = truth
            .leader
            .and_then(|leader| truth.descriptor.member(leader))
            .is_some_and(|member| self.is_present(member) && member.role() != Role::Learner);
        if !quorum || (!leads && self.rng.u32(0..10) > 0) {
            if !leads {
                self.regions.get_mut(&id).unwrap().leader = None;
            }
            return;
        }
        if !leads {
            let fit: Vec<ReplicaId> = truth
                .descriptor
                .voters()
                .filter(|member| self.is_present(member))
                .map(|member| member.replica)
                .collect();
            let chosen = fit[self.rng.usize(0..fit.len())];
            let truth = self.regions.get_mut(&id).unwrap();
            truth.leader = Some(chosen);
            truth.term += 1;
            if id == META_REGION {
                self.leader = None;
            }
        }
        let now = self.now;
        let truth = self.regions.get_mut(&id).unwrap();
        truth.index += self.rng.u64(0..20);
        if truth.descriptor.is_joint() && truth.leave_joint_at <= now {
            truth.leave_joint();
        }
        let descriptor = truth.descriptor.clone();
        let (index, leader) = (truth.index, truth.leader);
        for member in &descriptor.members {
            let Some(node) = self.nodes.get_mut(&member.node).filter(|node| node.alive) else {
                continue;
            };
            let Some(copy) = node.replicas.get_mut(&member.replica) else {
                continue;
            };
            let new = copy.applied == 0 && copy.epoch == Epoch::default();
            if new && copy.installing_until.is_none() {
                copy.installing_until = Some(now + self.rng.u64(0..6_000));
            }
            if copy.installing_until.is_some_and(|until| until > now) {
                continue;
            }
            copy.installing_until = None;
            if Some(member.replica) == leader || self.rng.bool() {
                copy.applied = index;
                copy.epoch = descriptor.epoch;
            }
        }
    }

    fn beat(&mut self, id: NodeId) {
        let jitter = self.rng.u64(0..300);
        let node = self.nodes.get_mut(&id).unwrap();
        node.number += 1;
        node.next_beat = self.now + 900 + jitter;
        let node = &self.nodes[&id];
        let mut replicas = Vec::new();
        for (&replica, copy) in &node.replicas {
            let truth = self.regions.get(&copy.region);
            let role = truth.and_then(|truth| truth.descriptor.role_of(replica));
            let leads = truth.is_some_and(|truth| truth.leader == Some(replica));
            let mut report = ReplicaReport {
                region: copy.region,
                replica,
                role: match role {
                    _ if leads => ReplicaRole::Leader,
                    Some(Role::Learner) | None => ReplicaRole::Learner,
                    _ => ReplicaRole::Follower,
                }
                .into(),
                term: truth.map_or(0, |truth| truth.term),
                applied: copy.applied,
                epoch: copy.epoch,
                size_bytes: copy.region * 1000,
                installing: copy.installing_until.is_some(),
                ..ReplicaReport::default()
            };
            if let Some(truth) = truth.filter(|_| leads) {
                let others = truth.descriptor.members.iter();
                report.members = others
                    .filter(|member| member.replica != replica)
                    .map(|member| self.progress(member, truth))
                    .collect();
                if !node.routes.meta_knows(copy.region, copy.epoch) {
                    report.descriptor = Some(truth.descriptor.clone());
                }
            }
            replicas.push(report);
        }
        let heartbeat = Heartbeat {
            cluster: CLUSTER,
            node: id,
            start_count: node.start_count,
            number: node.number,
            route_version: node.routes.version(),
            tables_version: node.tables.version,
            users_version: 0,
            replicas,
            ..Heartbeat::default()
        };
        self.post(|| Mail::Heartbeat(heartbeat.clone()));
    }

    fn progress(&self, member: &Member, truth: &Truth) -> MemberProgress {
        let copy = self
            .nodes
            .get(&member.node)
            .filter(|node| node.alive)
            .and_then(|node| node.replicas.get(&member.replica));
        MemberProgress {
            replica: member.replica,
            lag: truth.index - copy.map_or(0, |copy| copy.applied),
            active: copy.is_some(),
            snapshot: copy.is_some_and(|copy| copy.installing_until.is_some()),
        }
    }

    fn deliver(&mut self, mail: Mail) {
        match mail {
            Mail::Heartbeat(heartbeat) => {
                let Some(leader) = &mut self.leader else {
                    return;
                };
                let node = heartbeat.node;
                let answer = leader.on_heartbeat(&self.state, heartbeat, self.now);
                self.post(|| Mail::Answer(node, answer.clone()));
            }
            Mail::Answer(id, answer) => {
                let Some(node) = self.nodes.get_mut(&id).filter(|node| node.alive) else {
                    return;
                };
                match answer.standing() {
                    Standing::Accepted => {}
                    Standing::Gone => node.alive = false,
                    // From before a restart.
                    _ => return,
                }
                if let Some(routes) = &answer.routes {
                    node.routes.update(routes);
                }
                // An old answer may come late.
                if let Some(tables) = answer.tables
                    && tables.version > node.tables.version
                {
                    node.tables = tables;
                }
                for order in answer.orders {
                    self.execute(id, &order);
                }
            }
        }
    }

    fn execute(&mut self, id: NodeId, order: &Order) {
        let now = self.now;
        let action = order.action.clone().unwrap();
        let node = self.nodes.get_mut(&id).unwrap();
        match action {
            Action::Create(create) => {
                if node.destroyed.contains(&create.replica)
                    || node.replicas.contains_key(&create.replica)
                {
                    return;
                }
                assert!(
                    self.created.insert(create.replica),
                    "replica {} made twice",
                    create.replica
                );
                let mut copy = Copy::empty(order.region);
                if create.is_founder() {
                    copy.epoch = Epoch::FIRST;
                }
                node.replicas.insert(create.replica, copy);
                self.regions
                    .entry(order.region)
                    .or_insert_with(|| Truth::new(create.descriptor));
            }
            Action::Destroy(destroy) => {
                let Some(copy) = node.replicas.get(&destroy.replica) else {
                    return;
                };
                if order.check(copy.epoch, None).is_err() {
                    return;
                }
                let role = self.regions[&order.region]
                    .descriptor
                    .role_of(destroy.replica);
                assert!(
                    !role.is_some_and(Role::votes),
                    "a voter is destroyed: {order:?}"
                );
                node.replicas.remove(&destroy.replica);
                node.destroyed.insert(destroy.replica);
            }
            Action::AddLearner(_) | Action::ChangeMembers(_) | Action::TransferLeader(_) => {
                let Some(truth) = self.regions.get_mut(&order.region) else {
                    return;
                };
                let leads = truth
                    .leader
                    .filter(|leader| node.replicas.contains_key(leader));
                let leads = leads.map(|_| truth.term);
                if order.check(truth.descriptor.epoch, leads).is_err()
                    || truth.descriptor.is_joint()
                {
                    return;
                }
                truth.change(&action, now + self.rng.u64(0..3_000));
                if let Action::TransferLeader(to) = action
                    && (self.loss == 0 || self.rng.u32(0..4) > 0)
                {
                    let member = *self.regions[&order.region]
                        .descriptor
                        .member(to.to)
                        .unwrap();
                    if self.is_present(&member) && member.role() == Role::Voter {
                        let truth = self.regions.get_mut(&order.region).unwrap();
                        truth.leader = Some(to.to);
                        truth.term += 1;
                        if order.region == META_REGION {
                            self.leader = None;
                        }
                    }
                }
            }
        }
        self.check_quorums(&format!("{} {:?}", order.name(), order));
    }

    /// The nemesis never takes a quorum away: if one is gone, an order did it.
    fn check_quorums(&self, after: &str) {
        for truth in self.regions.values() {
            let founding = truth.term == 0;
            assert!(
                founding
                    || truth
                        .descriptor
                        .has_quorum(|member| self.is_present(member)),
                "region {:?} lost its quorum after {after}",
                truth.descriptor
            );
        }
    }

    fn meta_turn(&mut self) {
        let truth = &self.regions[&META_REGION];
        let Some(member) = truth
            .leader
            .and_then(|leader| truth.descriptor.member(leader))
        else {
            self.leader = None;
            return;
        };
        let (node, term) = (member.node, truth.term);
        let leader = self
            .leader
            .get_or_insert_with(|| Leader::new(node, term, &self.state, self.now, self.limits));
        if !self.now.is_multiple_of(200) && !leader.is_urged() {
            return;
        }
        let proposals = leader.tick(&self.state, self.now);
        self.activity += proposals.len() as u64;
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            let leader = self.leader.as_mut().unwrap();
            self.activity += leader
                .answer(&self.state, node, leader.route_version())
                .orders
                .len() as u64;
        }
        for command in proposals {
            if self.rng.u32(0..100) >= self.loss {
                self.apply(command);
            }
        }
    }
}

impl Process {
    fn new(host: &str, labels: BTreeMap<String, String>) -> Process {
        Process {
            alive: true,
            host: host.to_owned(),
            labels,
            start_count: 1,
            number: 0,
            next_beat: 0,
            routes: Routes::new(),
            tables: Catalogue::default(),
            replicas: BTreeMap::new(),
            destroyed: BTreeSet::new(),
        }
    }
}

impl Copy {
    fn empty(region: RegionId) -> Copy {
        Copy {
            region,
            epoch: Epoch::default(),
            applied: 0,
            installing_until: None,
        }
    }
}

impl Truth {
    fn new(descriptor: Descriptor) -> Truth {
        Truth {
            descriptor,
            leader: None,
            term: 0,
            index: 0,
            leave_joint_at: 0,
        }
    }

    fn change(&mut self, action: &Action, leave_joint_at: u64) {
        let descriptor = &mut self.descriptor;
        match action {
            Action::AddLearner(add) => {
                if descriptor.member_on(add.node).is_some() {
                    return;
                }
                let learner = Member::new(add.replica, add.node, Role::Learner);
                descriptor.members.push(learner);
            }
            Action::ChangeMembers(change) => {
                for member in &mut descriptor.members {
                    if change.promote.contains(&member.replica) {
                        assert_eq!(member.role(), Role::Learner);
                        member.role = Role::Incoming.into();
                    } else if change.remove.contains(&member.replica) && member.role().votes() {
                        member.role = Role::Outgoing.into();
                    }
                }
                descriptor.members.retain(|member| {
                    !(change.remove.contains(&member.replica) && member.role() == Role::Learner)
                });
                self.leave_joint_at = leave_joint_at;
            }
            _ => return,
        }
        self.descriptor.epoch.members += 1;
    }

    fn leave_joint(&mut self) {
        let members = &mut self.descriptor.members;
        members.retain(|member| member.role() != Role::Outgoing);
        for member in members {
            if member.role() == Role::Incoming {
                member.role = Role::Voter.into();
            }
        }
        let leader = self.leader;
        if leader.is_some_and(|leader| self.descriptor.member(leader).is_none()) {
            self.leader = None;
        }
        self.descriptor.epoch.members += 1;
    }
}
