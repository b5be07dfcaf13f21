//! One replica and its keyspace on a node: the only file, with its parts, that drives
//! `replica::Replica`.
//!
//! It stands for what `server::durable` does around a replica: requests gather while a write is on
//! its way and become one entry (`compose`), committed entries are run by the server's own code
//! (`apply`), reads go by lease or round (`read`), a state is exported and installed (`state`), rows of tables
//! are loaded and written back (`tables`).

mod apply;
mod compose;
mod read;
mod state;
mod tables;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::LazyLock;

use base::cluster::Descriptor;
use keyspace::{Keyspace, Tuning};
use meta::wire::Order;
use replica::{
    Committed, Confirmed, FOUNDED, Fetch, MemberChange, Message, Ready, Replica, ReplicaConfig,
    SnapshotHead, snapshot_head,
};
use server::Commands;
use server::cluster::lead;
use server::cluster::seats::ReplicaRecord;
use table::RowId;
use tables::TableDesk;

pub use state::{Files, read_seat, remove_seat, write_seat};
pub use tables::Catalogue;

use crate::bugs::Bug;
use crate::check::agree::Applied;
use crate::check::written::Cached;
use crate::client::{Answer, Request};
use crate::database::Ask;
use crate::desk::{Asker, Call, Reply};
use crate::disk::{Disk, Voteless};

static COMMANDS: LazyLock<Commands> = LazyLock::new(Commands::new);
static TUNING: LazyLock<Tuning> = LazyLock::new(Tuning::default);

/// What a node does that others notice.
#[derive(Default)]
pub struct Effects {
    /// With their region.
    pub messages: Vec<(u64, Message)>,
    pub answers: Vec<(Request, Answer)>,
    /// Regions that wait for entries from the log.
    pub fetches: Vec<u64>,
    /// Regions that apply a little later.
    pub stalls: Vec<u64>,
    /// Snapshots made: region, for whom.
    pub snapshots: Vec<(u64, u64, SnapshotHead, Rc<Files>)>,
    pub facts: Vec<Fact>,
    /// What this node asks of others: machine, and number.
    pub calls: Vec<(u64, u64, Call)>,
    pub replies: Vec<(Asker, Reply)>,
    /// Nodes that should ask meta soon.
    pub news: Vec<u64>,
    /// This node should tell meta soon.
    pub is_news: bool,
    /// To the database: region, term, number.
    pub statements: Vec<(u64, u64, u64, Ask)>,
    /// The node cannot go on.
    pub failure: Option<String>,
}

/// What the checkers hear.
#[derive(Debug)]
pub enum Fact {
    Started {
        region: u64,
        replica: u64,
        applied: u64,
    },
    Leads {
        region: u64,
        replica: u64,
        term: u64,
    },
    Applied(Applied),
    Installed {
        region: u64,
        replica: u64,
        index: u64,
        digest: u64,
    },
    /// A replica counts with these members from this index on.
    Members {
        replica: u64,
        index: u64,
        descriptor: Descriptor,
    },
    /// An entry was about this row.
    Row {
        region: u64,
        replica: u64,
        id: RowId,
        cached: Option<Cached>,
    },
    /// The replica begins with these rows.
    Rows {
        replica: u64,
        rows: Vec<(RowId, Cached)>,
    },
    /// A member of meta has come to this state.
    Meta {
        replica: u64,
        descriptors: Vec<Descriptor>,
    },
    /// Meta ordered it, and it was done.
    Made {
        region: u64,
        replica: u64,
    },
    Destroyed {
        region: u64,
        replica: u64,
    },
}

/// The node around a member, for the time of one event.
pub struct Around<'a> {
    pub disk: &'a mut Disk,
    pub rng: &'a mut fastrand::Rng,
    pub out: &'a mut Effects,
    pub now_ms: u64,
    pub wall_ms: u64,
    pub bug: Bug,
    pub catalogue: Rc<Catalogue>,
}

/// How a replica is set up; the same on all nodes of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub keep_entries: u64,
    pub quiet_ticks: usize,
}

/// Requests that became one entry.
struct Flight {
    index: u64,
    term: u64,
    /// Proposals of the desk before the requests.
    tables: usize,
    requests: Vec<Request>,
}

pub struct Member {
    pub replica: Replica,
    space: Keyspace,
    region: u64,
    /// Position and members, as they are in the rows.
    pub seat: ReplicaRecord,
    /// Of all rows of the region.
    digest: u64,
    /// The last entry that was run: index, term, stamp. Its rows may not be written yet.
    ran: (u64, u64, u64),
    turn: Vec<Request>,
    flights: VecDeque<Flight>,
    committed: VecDeque<Committed>,
    is_stalled: bool,
    fetch: Option<Fetch>,
    /// Reads under these numbers.
    asked: Vec<(u64, Request)>,
    confirmed: Vec<Confirmed>,
    last_stamp_ms: u64,
    expiring: u64,
    ready: Ready,
    desk: Option<Box<TableDesk>>,
    /// The catalogue the region's log is known to have.
    catalogue_seen: u64,
    /// What was done to rows since the desk was last tended.
    applied: Vec<table::rows::Applied>,
}

impl Member {
    /// From what the disk holds; `made` if it holds nothing yet.
    pub fn open(
        made: &ReplicaRecord,
        limits: Limits,
        around: &mut Around<'_>,
    ) -> Result<Member, String> {
        let disk = &mut *around.disk;
        let known = read_seat(disk, made.region());
        let known = known.filter(|_| around.bug != Bug::ForgetSeat);
        let seat = known.unwrap_or_else(|| made.clone());
        let (region, id) = (seat.region(), seat.replica);
        let mut space = state::open_space(disk, region)?;
        space.note_applied(around.catalogue.is_used);
        let mut applied = space.applied_index();
        if around.bug == Bug::ApplyTwice && applied > seat.snapshot_index + 3 {
            applied -= around.rng.u64(..3);
        }
        let config = ReplicaConfig {
            region,
            replica: id,
            members: seat.members(applied),
            applied,
            snapshot: seat.snapshot(),
            seed: around.rng.u64(..),
            now_ms: match around.bug {
                Bug::VoteAtOnce => 1,
                _ => around.now_ms,
            },
            batch_bytes: 2000,
            recent_bytes: 4000,
            message_bytes: 2000,
            keep_entries: limits.keep_entries,
            quiet_ticks: limits.quiet_ticks,
            ..ReplicaConfig::default()
        };
        let replica = match around.bug {
            Bug::ForgetVote => Replica::new(config, &Voteless(disk.log.clone())),
            _ => Replica::new(config, &*disk.log),
        };
        let replica = replica.map_err(|error| error.to_string())?;
        let applied = replica.applied_index();
        let applied_term = match applied == FOUNDED.index {
            true => FOUNDED.term,
            false => space.state().applied_term,
        };
        around.out.facts.push(Fact::Started {
            region,
            replica: id,
            applied,
        });
        let member = Member {
            replica,
            region,
            seat,
            digest: disk.digest(region),
            ran: (applied, applied_term, space.last_stamp_ms()),
            turn: Vec::new(),
            flights: VecDeque::new(),
            committed: VecDeque::new(),
            is_stalled: false,
            fetch: None,
            asked: Vec::new(),
            confirmed: Vec::new(),
            last_stamp_ms: space.last_stamp_ms(),
            expiring: 0,
            ready: Ready::default(),
            desk: None,
            catalogue_seen: 0,
            applied: Vec::new(),
            space,
        };
        member.tell_all_rows(around);
        Ok(member)
    }

    pub fn id(&self) -> u64 {
        self.replica.id()
    }

    pub fn tick(&mut self, around: &mut Around<'_>) {
        if self.replica.is_leader() && (!self.replica.is_quiet() || self.replica.lacks_members()) {
            self.say_absent(around);
        }
        match self.replica.is_quiet() {
            // Now and then somebody thinks that a quiet leader's node may be gone.
            true if around.rng.u32(..15) == 0 => self.replica.wake(around.now_ms),
            true => {}
            false => self.replica.tick(around.now_ms),
        }
        self.expire(around);
        self.drive(around);
    }

    /// Now and then a leader is told that somebody's node is gone, true or not, and that it is there again.
    fn say_absent(&mut self, around: &mut Around<'_>) {
        if around.rng.u32(..10) != 0 {
            return;
        }
        let me = self.id();
        let mut absent = Vec::new();
        if around.rng.bool() {
            let all = self.replica.members().all();
            absent = all.into_iter().filter(|&id| id != me).collect();
            absent.retain(|_| around.rng.u32(..3) == 0);
        }
        self.replica.set_absent(absent);
    }

    pub fn step(&mut self, message: Message, around: &mut Around<'_>) {
        if let Some(head) = snapshot_head(&message)
            && head.index > self.replica.committed_index()
            && state::files_of(&head, around.disk).is_none()
        {
            return; // it comes again when they are here
        }
        // What does not fit is refused, and that is all.
        let _ = self.replica.step(message, around.now_ms);
        self.drive(around);
    }

    pub fn on_persisted(&mut self, number: u64, around: &mut Around<'_>) {
        self.replica.on_persisted(number);
        self.drive(around);
    }

    pub fn on_fetched(&mut self, around: &mut Around<'_>) {
        if let Some(fetch) = self.fetch.take()
            && let Err(error) = self.replica.fetch_now(&fetch, &*around.disk.log)
        {
            around.out.failure = Some(error.to_string());
        }
        self.drive(around);
    }

    /// Applying goes on.
    pub fn on_unstalled(&mut self, around: &mut Around<'_>) {
        self.is_stalled = false;
        self.apply(around);
        self.drive(around);
    }

    /// A snapshot got to `to`, or did not.
    pub fn on_snapshot_sent(
        &mut self,
        to: u64,
        head: Option<&SnapshotHead>,
        around: &mut Around<'_>,
    ) {
        match head {
            Some(head) => self.replica.on_snapshot_made(to, head),
            None => self.replica.report_snapshot(to, false),
        }
        self.drive(around);
    }

    /// An order of meta to the leader.
    pub fn on_order(&mut self, order: &Order, around: &mut Around<'_>) -> Result<(), String> {
        let leads_in = self.replica.is_leader().then(|| self.replica.term());
        let action = order.check(self.seat.descriptor.epoch, leads_in);
        let action = action.map_err(|fault| fault.to_string())?;
        let done = lead(&mut self.replica, action).ok_or("not for a leader")?;
        self.drive(around);
        done.map_err(|refused| refused.to_string())
    }

    pub(super) fn tell_descriptor(&self, index: u64, around: &mut Around<'_>) {
        let descriptor = self.seat.descriptor.clone();
        let replica = self.id();
        let fact = Fact::Members {
            replica,
            index,
            descriptor,
        };
        around.out.facts.push(fact);
        around.out.is_news = true;
    }

    /// `context` says where those are who come in.
    pub fn change_members(
        &mut self,
        changes: &[MemberChange],
        context: Vec<u8>,
        around: &mut Around<'_>,
    ) -> bool {
        let done = self.replica.propose_members(changes, context);
        self.drive(around);
        done.is_ok()
    }

    pub fn transfer(&mut self, to: u64, around: &mut Around<'_>) {
        let _ = self.replica.transfer_leader(to);
        self.drive(around);
    }

    /// Everything applied is in the rows, and they are on disk: the log before may go.
    pub fn on_flushed(&mut self, around: &mut Around<'_>) {
        let index = self.replica.truncate_to(self.space.applied_index());
        if let Err(error) = around.disk.truncate_log(self.region, index) {
            around.out.failure = Some(error.to_string());
        }
    }

    /// Whether it may answer reads right now, and in which term.
    pub fn lease(&self, now_ms: u64) -> Option<u64> {
        let may_serve = self.replica.may_serve(now_ms);
        may_serve.then(|| self.replica.term())
    }

    /// What must be done, until there is nothing more.
    pub fn drive(&mut self, around: &mut Around<'_>) {
        loop {
            self.tend(around);
            self.compose(around);
            if !self.replica.has_ready() || around.out.failure.is_some() {
                break;
            }
            let mut ready = std::mem::take(&mut self.ready);
            self.replica.ready(&mut ready);
            self.take(&mut ready, around);
            self.ready = ready;
            self.apply(around);
        }
        self.serve(around);
    }

    fn take(&mut self, ready: &mut Ready, around: &mut Around<'_>) {
        let (region, replica) = (self.region, self.id());
        if let Some(term) = ready.became_leader {
            around.out.facts.push(Fact::Leads {
                region,
                replica,
                term,
            });
        }
        if ready.lost_leadership {
            // They were never proposed.
            for request in self.turn.drain(..) {
                let answer = Answer::Moved(self.replica.leader());
                around.out.answers.push((request, answer));
            }
        }
        if let Some(write) = ready.write.take()
            && let Err(error) = around.disk.write_log(write)
        {
            around.out.failure = Some(error.to_string());
        }
        let messages = ready.messages.drain(..);
        around.out.messages.extend(messages.map(|it| (region, it)));
        if let Some(head) = ready.install.take()
            && let Err(error) = self.install(&head, around)
        {
            around.out.failure = Some(error);
        }
        self.committed.extend(ready.committed.drain(..));
        if let Some(fetch) = ready.fetch.take() {
            self.fetch = Some(fetch);
            around.out.fetches.push(region);
        }
        self.confirmed.append(&mut ready.reads);
        for number in ready.reads_failed.drain(..) {
            self.refuse_reads(number, around);
        }
        for to in ready.snapshots_wanted.drain(..) {
            self.export(to, around);
        }
    }
}
