//! The member of meta on a simulated node: `node::MetaMember`, the very code a server's thread "meta"
//! calls, with what it asks for carried out on a simulated disk and network.
//!
//! Nothing here decides anything about meta (`runtime::cluster::meta_thread` does the same with threads
//! and sockets).

use std::cell::{Cell, RefCell};

use base::cluster::META_REGION;
use meta::limits::Limits;
use meta::state::State;
use node::replica_record::members_of;
use node::{
    Executing, MetaContext, MetaEffects, MetaMember, MetaObserver, MetaRecord, OpenMeta, Pace,
    ReplicaRecord,
};
use replica::{Ready, Replica};

use crate::bugs::Bug;
use crate::check::agree::Applied;
use crate::effects::{Effects, Fact};
use crate::heartbeats::{Asker, machine_of};
use crate::machine::Node;
use crate::trace::hash_of;

/// Entries after which the state is kept and the log cut. Few, so that it happens.
const KEEP_AFTER: u64 = 24;

/// How a member of meta is set up.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub limits: Limits,
    pub keep_entries: u64,
}

pub type Member = MetaMember<Asker>;

/// Gathers what the checkers are told, for the time of one event.
#[derive(Default)]
struct Observer {
    facts: RefCell<Vec<Fact>>,
    is_news: Cell<bool>,
    broken: RefCell<Option<String>>,
}

impl Observer {
    fn tell_state(&self, replica: &Replica, state: &State) {
        let regions = state.regions();
        let descriptors = regions.map(|region| region.descriptor.clone());
        self.facts.borrow_mut().push(Fact::Meta {
            replica: replica.id(),
            descriptors: descriptors.collect(),
        });
    }
}

impl MetaObserver for Observer {
    fn on_ready(&self, replica: &Replica, _record: &ReplicaRecord, ready: &Ready) {
        if let Some(term) = ready.became_leader {
            self.facts.borrow_mut().push(Fact::Leads {
                region: META_REGION,
                replica: replica.id(),
                term,
            });
        }
    }

    fn on_executed(&self, replica: &Replica, entry: &Executing<'_>, state: &State) {
        self.facts.borrow_mut().push(Fact::Applied(Applied {
            region: META_REGION,
            replica: replica.id(),
            index: entry.index,
            term: entry.term,
            entry: hash_of(&[entry.payload]),
            digest: Some(hash_of(&[&state.encode()])),
        }));
        self.tell_state(replica, state);
    }

    fn on_members(&self, replica: &Replica, index: u64, record: &ReplicaRecord) {
        let (descriptor, members) = (&record.descriptor, replica.members());
        if members_of(descriptor) != *members {
            let text = format!("entry {index} gives {members:?}, and {descriptor:?}");
            *self.broken.borrow_mut() = Some(text);
        }
        self.facts.borrow_mut().push(Fact::Members {
            replica: replica.id(),
            index,
            descriptor: descriptor.clone(),
        });
        self.is_news.set(true);
    }

    fn on_installed(&self, replica: &Replica, index: u64, state: &State) {
        self.facts.borrow_mut().push(Fact::Installed {
            region: META_REGION,
            replica: replica.id(),
            index,
            digest: hash_of(&[&state.encode()]),
        });
        self.tell_state(replica, state);
    }
}

impl Node {
    /// Opens the member of meta from what the disk has of it.
    pub(crate) fn open_meta(&mut self, kept: MetaRecord, true_us: u64, out: &mut Effects) {
        let clock_ms = self.now_ms(true_us);
        let Some(driver) = &mut self.heartbeats else {
            return;
        };
        let open = OpenMeta {
            log: &*self.disk.log,
            node: driver.node_id(),
            founder: driver.founder.take(),
            pace: Pace {
                keep_entries: driver.setup.keep_entries,
                ..Pace::default()
            },
            keep_after: KEEP_AFTER,
            clock_ms,
            seed: self.rng.u64(..),
        };
        let opened = open.open(kept, |config| {
            if self.bug == Bug::VoteAtOnce {
                config.now_ms = 1;
            }
        });
        match opened {
            Ok(member) => {
                let member: Member = member;
                out.facts.push(Fact::Started {
                    region: META_REGION,
                    replica: member.replica().id(),
                    applied: member.replica().applied_index(),
                });
                self.meta = Some(member);
                self.with_meta(true_us, out, |_, _, _| {});
            }
            Err(error) => out.failure = Some(format!("meta cannot start: {error}")),
        }
    }

    /// Runs `what` on the member of meta, if it is here, and carries out what follows.
    pub(crate) fn with_meta(
        &mut self,
        true_us: u64,
        out: &mut Effects,
        what: impl FnOnce(&mut Member, &MetaContext<'_>, &mut MetaEffects<Asker>),
    ) {
        let (Some(mut member), Some(driver)) = (self.meta.take(), &self.heartbeats) else {
            return;
        };
        let observer = Observer::default();
        let (rows, log) = (self.disk.rows.clone(), self.disk.log.clone());
        let cx = MetaContext {
            now_ms: self.clock.time_ms(true_us),
            clock_ms: self.now_ms(true_us),
            limits: driver.setup.limits,
            rows: &*rows,
            log: &*log,
            pause: || {},
            observer: &observer,
            is_log_stalled: self.stalled_ms(true_us).is_some(),
        };
        let mut asked = MetaEffects::default();
        what(&mut member, &cx, &mut asked);
        member.drive(&cx, &mut asked);
        self.carry_out_meta(&member, &mut asked, out);
        member.keep_when_due(&cx, &mut asked);
        self.carry_out_meta(&member, &mut asked, out);

        out.facts.extend(observer.facts.into_inner());
        out.is_news |= observer.is_news.get();
        if let Some(broken) = observer.broken.into_inner() {
            out.failure = Some(broken);
        }
        if member.has_left() {
            out.facts.push(Fact::Destroyed {
                region: META_REGION,
                replica: member.record().replica,
            });
        } else {
            self.meta = Some(member);
        }
    }

    fn carry_out_meta(
        &mut self,
        member: &Member,
        asked: &mut MetaEffects<Asker>,
        out: &mut Effects,
    ) {
        for write in asked.writes.drain(..) {
            if let Err(error) = self.disk.write_log(vec![write]) {
                out.failure = Some(error.to_string());
            }
        }
        // They find their way by the replica they are for.
        let messages = asked.messages.drain(..);
        let messages = messages.map(|(_, message)| (META_REGION, message));
        out.messages.extend(messages);
        out.replies.append(&mut asked.answers);
        for node in asked.news.drain(..) {
            let known = member.state().node(node);
            let machine = known.and_then(|known| machine_of(&known.profile.peer));
            out.news.extend(machine);
        }
        let failure = asked.failure.take().or(asked.left_over.take());
        if failure.is_some() {
            out.failure = failure;
        }
    }
}
