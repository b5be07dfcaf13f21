//! The meta service's part of the loop: machines that are lost, wiped, or new, and what nodes and meta
//! say to each other.

use base::cluster::META_REGION;

use crate::check::placed;
use crate::effects::Effects;
use crate::event::Event;
use crate::heartbeats::{Asker, CALL_US, HeartbeatDriver};
use crate::machine::{Node, Status};
use crate::meta::Setup;
use crate::world::World;

/// Voters of every region.
const WANTED: u64 = 3;
const MOST_MACHINES: usize = 8;

impl World {
    /// A machine that knows nothing yet.
    pub(crate) fn new_machine(&mut self) -> u64 {
        let id = self.nodes.len() as u64 + 1;
        let rng = self.rng.fork();
        let mut node = Node::new(id, rng, self.plan.bug, self.plan.limits);
        let setup = self.plan.meta.map(|limits| Setup {
            limits,
            keep_entries: self.plan.limits.keep_entries,
        });
        let told = self.plan.nodes.max(id);
        node.catalogue = self.catalogue.clone();
        let init = (id == 1).then_some(meta::state::Settings {
            replicas: WANTED as u32,
            regions: self.plan.regions as u32,
            meta_replicas: WANTED as u32,
        });
        node.heartbeats = setup.map(|setup| HeartbeatDriver::new(setup, told, init));
        if id == 1 {
            self.directory.insert(1, 1);
        }
        self.nodes.push(node);
        id
    }

    pub(crate) fn machines(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Any region, meta's among them if there is one.
    pub(crate) fn any_region(&mut self) -> u64 {
        let first = if self.plan.meta.is_some() {
            META_REGION
        } else {
            1
        };
        self.nemesis.u64(first..=self.plan.regions)
    }

    /// A machine joins the cluster.
    pub(crate) fn join_machine(&mut self) {
        if self.nodes.len() < MOST_MACHINES {
            let node = self.new_machine();
            self.start(node);
        }
    }

    /// A machine is lost with its disk, if every region has all it should have: a cluster that loses
    /// two before it had time to mend the first has lost data, and nobody is to blame.
    pub(crate) fn lose(&mut self, machine: u64, for_good: bool) {
        let living = self.nodes.iter().filter(|node| !node.is_lost).count() as u64;
        if !self.is_whole() || self.nodes[machine as usize - 1].is_lost {
            return;
        }
        if for_good && living <= WANTED {
            return;
        }
        self.say(&[109, machine, for_good.into()], || {
            format!("machine {machine} loses its disk; for good: {for_good}")
        });
        self.losses += 1;
        let rest_us = self.nemesis.u64(1000..8_000_000);
        self.resume(machine);
        self.crash(machine, rest_us);
        let told = self.machines();
        let at = &mut self.nodes[machine as usize - 1];
        at.is_lost = for_good;
        at.wipe(told);
    }

    /// Every region has its voters, and every voter what it ever had, the change that made it one
    /// among it. Between the leader's disk and the others' a change is known to the leader only: lost
    /// with it, it leaves a majority of the members of before, some of whom were lost already.
    fn is_whole(&self) -> bool {
        (META_REGION..=self.plan.regions).all(|region| {
            let settled = self.descriptors.settled(region, WANTED as usize);
            settled.is_some_and(|(descriptor, index)| {
                descriptor.members.iter().all(|member| {
                    let machine = self.directory.get(&member.replica).copied().unwrap_or(0);
                    let at = self.nodes.iter().find(|node| node.id == machine);
                    at.is_some_and(|at| at.keeps(region, member.replica, index))
                })
            })
        })
    }

    /// Calls, replies and news leave a node; its next heartbeat is planned.
    pub(crate) fn carry_out_calls(&mut self, node: u64, out: &mut Effects) {
        let life = self.nodes[node as usize - 1].life;
        for (to, ticket, call) in out.calls.drain(..) {
            let asker = Asker {
                machine: node,
                life,
                ticket,
            };
            self.after(CALL_US, Event::NoReply { node, life, ticket });
            if to > self.nodes.len() as u64 {
                continue;
            }
            if let Some(delay_us) = self.network.call(node, to) {
                let call = Box::new(call);
                let call = Event::Call {
                    node: to,
                    asker,
                    call,
                };
                self.after(delay_us, call);
            }
        }
        for (asker, reply) in out.replies.drain(..) {
            let Asker {
                machine,
                life,
                ticket,
            } = asker;
            if let Some(delay_us) = self.network.call(node, machine) {
                let reply = Event::Reply {
                    node: machine,
                    life,
                    ticket,
                    reply: Box::new(reply),
                };
                self.after(delay_us, reply);
            }
        }
        for machine in out.news.drain(..) {
            for delay_us in self.network.send(node, machine) {
                self.after(delay_us, Event::News { node: machine });
            }
        }
        let now_us = self.now_us;
        let at = &mut self.nodes[node as usize - 1];
        if out.is_news {
            at.trigger_heartbeat(now_us);
        }
        let clock_ms = at.now_ms(now_us);
        let Some(driver) = &mut at.heartbeats else {
            return;
        };
        if let Some(due_ms) = driver.due_ms()
            && driver
                .planned
                .is_none_or(|(planned_ms, _)| planned_ms != due_ms)
        {
            let wait_us = at.clock.true_us(due_ms.saturating_sub(clock_ms) * 1000);
            driver.planned = Some((due_ms, now_us + wait_us));
            self.after(wait_us, Event::Beat { node, life });
        }
    }

    /// What keeps the end from coming, in a world with meta.
    pub(crate) fn unplaced(&self) -> Option<String> {
        self.plan.meta?;
        let leader = self.leader_of(META_REGION);
        let leader = leader.map(|node| &self.nodes[node as usize - 1]);
        let Some(leader) = leader.filter(|node| node.status == Status::Up) else {
            return Some("meta has no leader".into());
        };
        let member = leader.meta.as_ref()?;
        placed::check(member.state(), &self.nodes, self.plan.regions).err()
    }
}
