//! The process around the regions of a simulated node: what they tell, and what they must know at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::Refusal;
use node::{Executing, Host, Peers, ReplicaRecord};
use replica::{Ready, Replica, SnapshotHead};

use crate::check::agree::Applied;
use crate::effects::Fact;
use crate::state::{self, Files};
use crate::trace::hash_of;

/// The process of a node, for the time of one event.
pub struct Process<'a> {
    pub facts: RefCell<Vec<Fact>>,
    pub is_news: RefCell<bool>,
    pub failure: RefCell<Option<String>>,
    pub files: &'a BTreeMap<u64, Rc<Files>>,
    pub limits: &'a table::leader::Limits,
    /// Of the disk of the log.
    pub stalled_ms: Option<u64>,
}

impl Host for Process<'_> {
    fn on_executed(&self, place: usize, replica: &Replica, entry: &Executing<'_>) {
        self.facts.borrow_mut().push(Fact::Applied(Applied {
            region: place as u64,
            replica: replica.id(),
            index: entry.index,
            term: entry.term,
            entry: hash_of(&[entry.payload]),
            digest: None,
        }));
    }

    fn on_ready(&self, place: usize, replica: &Replica, _peers: &Peers, ready: &Ready) {
        if let Some(term) = ready.became_leader {
            self.facts.borrow_mut().push(Fact::Leads {
                region: place as u64,
                replica: replica.id(),
                term,
            });
            *self.is_news.borrow_mut() = true;
        }
    }

    fn on_members(&self, _place: usize, index: u64, record: &ReplicaRecord) {
        self.facts.borrow_mut().push(Fact::Members {
            replica: record.replica,
            index,
            descriptor: record.descriptor.clone(),
        });
        *self.is_news.borrow_mut() = true;
    }

    fn claim_snapshot(&self, peers: &mut Peers, head: &SnapshotHead) -> bool {
        !peers.is_installing && state::files_of(head, self.files).is_some()
    }

    fn table_limits(&self) -> table::leader::Limits {
        self.limits.clone()
    }

    fn log_stalled_ms(&self) -> Option<u64> {
        self.stalled_ms
    }

    fn fail(&self, reason: &str) {
        self.failure
            .borrow_mut()
            .get_or_insert_with(|| reason.into());
    }

    fn failure(&self) -> Option<Refusal> {
        let failure = self.failure.borrow();
        failure.as_ref().map(|why| Refusal::text_of(why.clone()))
    }
}
