//! What `neokv ctl` gets: rows, or an operator begun by hand.

use base::cluster::{META_REGION, NodeId, RegionId};

use super::Leader;
use crate::liveness;
use crate::scheduler::{ByHand, Picture};
use crate::state::{
    Change, Command, Node, NodeState, Outcome, Refused, Region, SetNodeState, State,
};
use crate::wire::{
    AdminAnswer, AdminRequest, Ask, CatalogueAnswer, MemberRow, NodeRow, RegionRow, ReplicaMove,
    Reply, Tables,
};

impl Leader {
    /// The answer, and a command to propose if there is one: then the answer is for when it was
    /// applied, and goes through [`admin_answer`].
    pub fn admin(
        &mut self,
        state: &State,
        request: &AdminRequest,
        now_ms: u64,
    ) -> (AdminAnswer, Option<Command>) {
        self.view.expect(state, now_ms);
        let mut command = None;
        let picture = Picture::new(state, &self.view, now_ms, &self.limits);
        let tables = || Tables {
            cluster: state.cluster(),
            route_version: self.publisher.version(),
            ..Tables::default()
        };
        let reply = match &request.ask {
            None => Reply::Refused("a question this version does not know".into()),
            Some(Ask::Nodes(_)) => Reply::Tables(Tables {
                nodes: state
                    .nodes()
                    .map(|node| self.node_row(node, &picture))
                    .collect(),
                ..tables()
            }),
            Some(Ask::Regions(_)) => Reply::Tables(Tables {
                regions: state
                    .regions()
                    .map(|region| self.region_row(region, &picture))
                    .collect(),
                ..tables()
            }),
            Some(Ask::Region(id)) => match state.region(*id) {
                None => Reply::Refused(format!("there is no region {id}")),
                Some(region) => Reply::Tables(Tables {
                    regions: vec![self.region_row(region, &picture)],
                    operators: self.operator_rows(Some(*id), now_ms),
                    ..tables()
                }),
            },
            Some(Ask::Operators(_)) => Reply::Tables(Tables {
                operators: self.operator_rows(None, now_ms),
                ..tables()
            }),
            Some(Ask::TransferLeader(what)) => {
                by_hand(&mut self.scheduler, ByHand::TransferLeader, what, &picture)
            }
            Some(Ask::AddReplica(what)) => {
                by_hand(&mut self.scheduler, ByHand::AddReplica, what, &picture)
            }
            Some(Ask::RemoveReplica(what)) => {
                by_hand(&mut self.scheduler, ByHand::RemoveReplica, what, &picture)
            }
            Some(Ask::Cancel(id)) => match self.scheduler.cancel(*id, now_ms, &self.limits) {
                true => Reply::Done(format!("the operator of region {id} is cancelled")),
                false => Reply::Refused(format!("region {id} has no operator")),
            },
            Some(Ask::RemoveNode(node)) => {
                let set = SetNodeState {
                    node: *node,
                    state: NodeState::Removed.into(),
                    alive: liveness::maybe_alive(state, &self.view, now_ms, &self.limits),
                };
                let is_alive = set.alive.contains(node);
                match self.may_give_up(state, *node, now_ms) {
                    Err(why) if !is_alive => Reply::Refused(why.to_string()),
                    _ => {
                        command = Some(Change::SetNodeState(set).into());
                        Reply::Done(format!("node {node} is removed"))
                    }
                }
            }
            Some(Ask::SetTables(set)) => {
                command = Some(Change::SetTables(set.clone()).into());
                Reply::Catalogue(CatalogueAnswer::default())
            }
            Some(Ask::SetUsers(set)) => {
                command = Some(Change::SetUsers(set.clone()).into());
                Reply::Catalogue(CatalogueAnswer::default())
            }
            Some(Ask::Users(version)) => Reply::Catalogue(CatalogueAnswer {
                version: state.users_version(),
                was_set: false,
                newer: None,
                behind: self.behind_users(state, *version, now_ms),
            }),
            Some(Ask::Catalogue(version)) => Reply::Catalogue(CatalogueAnswer {
                version: state.tables_version(),
                was_set: false,
                newer: state.tables_since(*version),
                behind: self.behind(state, *version, now_ms),
            }),
        };
        self.urged = true;
        let answer = AdminAnswer {
            leader: None,
            reply: Some(reply),
        };
        (answer, command)
    }

    fn operator_rows(&self, of: Option<RegionId>, now_ms: u64) -> Vec<crate::wire::OperatorRow> {
        let mut rows = self.scheduler.rows();
        rows.retain(|row| of.is_none_or(|region| row.region == region));
        for row in &mut rows {
            row.age_ms = now_ms.saturating_sub(row.age_ms);
        }
        rows
    }

    fn node_row(&self, node: &Node, picture: &Picture) -> NodeRow {
        let heard = self.view.heard(node.id);
        let last = heard.and_then(|heard| heard.last.as_ref());
        let capacity = last.map(|last| last.capacity).unwrap_or_default();
        let reports = || last.into_iter().flat_map(|last| &last.replicas);
        let leads = |region: RegionId| picture.leader(region).map(|leader| leader.node);
        let led_here = reports()
            .filter(|report| report.region != META_REGION && leads(report.region) == Some(node.id));
        let labels: Vec<String> = node
            .profile
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let holds_meta = picture
            .state
            .region(META_REGION)
            .is_some_and(|region| region.descriptor.member_on(node.id).is_some());
        NodeRow {
            node: node.id,
            state: node_state(node, picture),
            redis: node.profile.redis.clone(),
            peer: node.profile.peer.clone(),
            http_port: node.profile.http_port,
            labels: labels.join(","),
            version: node.profile.version.clone(),
            replicas: reports()
                .filter(|report| report.region != META_REGION)
                .count() as u64,
            leaders: led_here.count() as u64,
            size_bytes: reports().map(|report| report.size_bytes).sum(),
            disk_free_bytes: capacity.disk_free_bytes,
            disk_full: capacity.disk_full,
            silent_ms: last
                .and(heard)
                .map(|heard| picture.now_ms.saturating_sub(heard.at_ms)),
            start_count: node.start_count,
            clock_ahead_ms: heard.and_then(|heard| {
                let cluster_ms = self
                    .view
                    .cluster_offset_ms(picture.now_ms, self.limits.down_after_ms)?;
                Some(heard.clock_offset_ms? - cluster_ms)
            }),
            meta: match holds_meta {
                true if node.id == self.node => "meta leader".into(),
                true => "meta".into(),
                false => String::new(),
            },
            load: capacity.load,
        }
    }

    fn region_row(&self, region: &Region, picture: &Picture) -> RegionRow {
        let descriptor = &region.descriptor;
        let id = descriptor.region;
        let leader = picture.leader(id);
        let report = leader.map(|leader| leader.report);
        let row = |replica, node: NodeId, role: &str| {
            let own = picture.report(id, replica);
            let state = match own {
                None if !picture.is_alive(node) => picture.life(node).name(),
                None => "missing",
                Some(own) if own.installing => "installing",
                Some(own) => own.role().name(),
            };
            MemberRow {
                replica,
                node,
                role: role.to_owned(),
                state: state.to_owned(),
                applied: own.map_or(0, |own| own.applied),
                lag: leader.and_then(|leader| leader.lag(replica)),
            }
        };
        let members = descriptor
            .members
            .iter()
            .map(|member| row(member.replica, member.node, member.role().name()));
        let planned = region
            .plans
            .iter()
            .filter(|plan| descriptor.member(plan.replica).is_none())
            .map(|plan| row(plan.replica, plan.node, "planned"));
        let operator = self
            .scheduler
            .operators()
            .find(|operator| operator.region == id);
        RegionRow {
            descriptor: descriptor.clone(),
            leader_node: leader.map_or(0, |leader| leader.node),
            leader_replica: report.map_or(0, |report| report.replica),
            term: report.map_or(0, |report| report.term),
            size_bytes: report.map_or(0, |report| report.size_bytes),
            keys: report.map_or(0, |report| report.keys),
            members: members.chain(planned).collect(),
            health: health(region, picture).to_owned(),
            operator: operator.map_or(String::new(), |operator| operator.kind.name().to_owned()),
            load: report.map_or(0, |report| report.load),
        }
    }
}

/// The answer to a request whose command was applied.
pub fn admin_answer(answer: AdminAnswer, outcome: &Outcome, state: &State) -> AdminAnswer {
    let reply = match outcome {
        Outcome::TablesSet { version } | Outcome::UsersSet { version } => {
            Reply::Catalogue(CatalogueAnswer {
                version: *version,
                was_set: true,
                ..CatalogueAnswer::default()
            })
        }
        Outcome::Refused(Refused::OtherTables { version }) => Reply::Catalogue(CatalogueAnswer {
            version: *version,
            newer: state.tables().cloned(),
            ..CatalogueAnswer::default()
        }),
        Outcome::Refused(Refused::OtherUsers { version }) => Reply::Catalogue(CatalogueAnswer {
            version: *version,
            ..CatalogueAnswer::default()
        }),
        Outcome::Refused(refused) => Reply::Refused(refused.to_string()),
        _ => return answer,
    };
    AdminAnswer {
        reply: Some(reply),
        ..answer
    }
}

fn by_hand(
    scheduler: &mut crate::scheduler::Scheduler,
    what: ByHand,
    of: &ReplicaMove,
    picture: &Picture,
) -> Reply {
    match scheduler.by_hand(what, of.region, of.node, picture) {
        Ok(text) => Reply::Done(text),
        Err(text) => Reply::Refused(text),
    }
}

fn node_state(node: &Node, picture: &Picture) -> String {
    let life = picture.life(node.id).name();
    match node.state() {
        NodeState::Up => match picture.view.trouble(node.id) {
            Some(trouble) => format!("{life}: {trouble}"),
            None => life.into(),
        },
        NodeState::Removed => "removed".into(),
        NodeState::Replaced => "replaced".into(),
    }
}

fn health(region: &Region, picture: &Picture) -> &'static str {
    let descriptor = &region.descriptor;
    let id = descriptor.region;
    let settings = picture.state.settings();
    let want = match id {
        META_REGION => 1,
        _ => settings.replicas as usize,
    };
    if !descriptor.has_quorum(|member| picture.is_live(id, member)) {
        return "no quorum";
    }
    if picture.leader(id).is_none() {
        return "no leader";
    }
    let all = descriptor
        .voters()
        .all(|member| picture.is_live(id, member));
    match all && descriptor.voters().count() >= want {
        true => "ok",
        false => "degraded",
    }
}
