//! Everything that can happen in the simulated world.

use std::rc::Rc;

use replica::{Message, SnapshotHead};

use crate::client::{Answer, Request};
use node::{MetaAnswer, MetaCall, Said};

use crate::database::Statement;
use crate::faults::Fault;
use crate::heartbeats::Asker;
use crate::state::Files;

pub enum Event {
    /// To a node: its timer, in this life.
    Tick {
        node: u64,
        life: u64,
    },
    /// A message of a region's replica arrives.
    Message {
        node: u64,
        region: u64,
        message: Box<Message>,
    },
    /// A node hears that another one cannot write.
    Unwell {
        node: u64,
        from: u64,
    },
    Request {
        node: u64,
        request: Request,
    },
    /// A sync of the node's log has ended.
    Synced {
        node: u64,
        life: u64,
    },
    /// Entries asked for have been read.
    Fetched {
        node: u64,
        life: u64,
        region: u64,
    },
    /// Something that took the node a while is done.
    Work {
        node: u64,
        life: u64,
        number: u64,
    },
    /// A core of a node has a message of another.
    Mail {
        node: u64,
        life: u64,
        core: usize,
    },
    Checkpoint {
        node: u64,
        life: u64,
    },
    /// A snapshot of a region has been sent to a member.
    Snapshot {
        node: u64,
        life: u64,
        region: u64,
        to: u64,
        made: Box<(SnapshotHead, Rc<Files>)>,
    },
    /// A node's heartbeat may be due.
    Beat {
        node: u64,
        life: u64,
    },
    /// A node asks for meta.
    Call {
        node: u64,
        asker: Asker,
        call: Box<MetaCall>,
    },
    Reply {
        node: u64,
        life: u64,
        ticket: u64,
        reply: Box<MetaAnswer>,
    },
    /// A node has waited long enough for a reply.
    NoReply {
        node: u64,
        life: u64,
        ticket: u64,
    },
    /// Meta has something to say to a node.
    News {
        node: u64,
    },
    /// To a session: the answer to its request.
    Answer {
        session: u32,
        ticket: u64,
        node: u64,
        answer: Answer,
    },
    /// A session does something new, or has waited long enough for this ticket.
    Wake {
        session: u32,
        ticket: u64,
    },
    /// A session asks again for what was refused.
    Again {
        session: u32,
        ticket: u64,
    },
    /// A statement comes to the database.
    Statement(Box<Statement>),
    /// The database's answer comes to a node, or the node has waited long enough.
    Sql {
        node: u64,
        life: u64,
        region: u64,
        write_back: u64,
        number: u64,
        said: Box<Said>,
    },
    /// A node hears which tables there are.
    Catalogue {
        node: u64,
        life: u64,
    },
    /// Desks of tables are tended.
    Advance {
        node: u64,
        life: u64,
    },
    AddField,
    /// Time for another fault.
    Nemesis,
    /// The script goes on.
    Script,
    /// A fault ends.
    Mend(Fault),
    /// A disk has been broken or hung for a while: from now on every region must be written again, and has to have
    /// been at the end. With the last entries, then.
    Demand {
        node: u64,
        last: Option<Vec<u64>>,
    },
    /// No more faults.
    Calm,
    /// Replicas that were removed are cleaned up.
    Tidy,
    /// Whether everybody has caught up is looked at.
    Look,
}

impl Event {
    /// The node it happens to, and the life it was meant for.
    pub fn node(&self) -> Option<(u64, Option<u64>)> {
        match *self {
            Event::Tick { node, life }
            | Event::Synced { node, life }
            | Event::Fetched { node, life, .. }
            | Event::Work { node, life, .. }
            | Event::Mail { node, life, .. }
            | Event::Checkpoint { node, life }
            | Event::Beat { node, life }
            | Event::Reply { node, life, .. }
            | Event::NoReply { node, life, .. }
            | Event::Sql { node, life, .. }
            | Event::Catalogue { node, life }
            | Event::Advance { node, life }
            | Event::Snapshot { node, life, .. } => Some((node, Some(life))),
            Event::Message { node, .. }
            | Event::Unwell { node, .. }
            | Event::Request { node, .. }
            | Event::Call { node, .. }
            | Event::News { node } => Some((node, None)),
            _ => None,
        }
    }
}
