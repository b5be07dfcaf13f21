//! One Raft member around raft-rs, generic over what is replicated: bytes in, committed bytes out.
//!
//! Pure: it reads no clock, starts no thread, touches no disk. Time comes in as ticks and as the
//! owner's clock, what must be on disk leaves as a [`LogWrite`], and the word that it is there
//! comes back as a number.
//!
//! ```text
//!  propose ─►┐                        ┌─► write: LogWrite ──► writer thread, fsync ─┐
//!  step    ─►├─► Replica ─► ready ────┼─► messages ─────────► peers                 │
//!  tick    ─►│      ▲                 ├─► committed ────────► apply ──► on_applied ─┤
//!  read    ─►┘      │                 ├─► fetch ────────────► log store, on_fetched ┤
//!                   │                 ├─► install ──────────► state, on_installed ──┤
//!                   │                 └─► reads, snapshots_wanted, roles            │
//!                   └───────────────── on_persisted(number) ◄───────────────────────┘
//! ```
//!
//! A turn of the core that owns it:
//!
//! ```
//! # use replica::*;
//! # struct Owner { log: MapLog, applied: u64, waiting: Vec<Confirmed> }
//! # impl Owner {
//! # fn send(&mut self, _: Message) {} fn apply(&mut self, _: &Committed) {}
//! # fn keep_members(&mut self, _: Members) {} fn install(&mut self, _: &SnapshotHead) {}
//! # fn make_snapshot(&mut self, _: u64) {} fn serve(&mut self, _: u64) {} fn redirect(&mut self, _: u64) {}
//! fn turn(&mut self, replica: &mut Replica, out: &mut Ready) -> Result<(), ReplicaError> {
//!     while replica.has_ready() {
//!         replica.ready(out);
//!         // 1. To a writer thread, in this order; it says `on_persisted` later. Several may be
//!         //    under way: proposals go on while earlier entries travel to the disk.
//!         if let Some(write) = out.write.take() {
//!             let number = write.number;
//!             self.log.write(&[write], true)?;
//!             replica.on_persisted(number);
//!         }
//!         // 2. Now: what must wait for the disk is held back inside.
//!         out.messages.drain(..).for_each(|message| self.send(message));
//!         // 3. A whole new state; durable, with its position and members, before `on_installed`.
//!         if let Some(head) = out.install.take() {
//!             self.install(&head);
//!             self.applied = head.index;
//!             replica.on_installed(head.index);
//!         }
//!         // 4. In order. Members are kept with the applied index of their entry.
//!         for entry in out.committed.drain(..) {
//!             match &entry.change {
//!                 Some(change) => {
//!                     let members = replica.apply_members(change);
//!                     self.keep_members(members);
//!                 }
//!                 None => self.apply(&entry),
//!             }
//!             self.applied = entry.index;
//!             replica.on_applied(entry.index);
//!         }
//!         // 5. On a thread, or in place at start.
//!         if let Some(fetch) = out.fetch.take() {
//!             replica.fetch_now(&fetch, &self.log)?;
//!         }
//!         // 6. Reads wait for their index; the others are told who leads now.
//!         self.waiting.append(&mut out.reads);
//!         let applied = self.applied;
//!         let (now, later) = self.waiting.drain(..).partition(|read| read.index <= applied);
//!         self.waiting = later;
//!         let now: Vec<Confirmed> = now;
//!         now.iter().for_each(|read| self.serve(read.number));
//!         out.reads_failed.drain(..).for_each(|number| self.redirect(number));
//!         // 7. Elsewhere; when the files are there, `on_snapshot_made`.
//!         out.snapshots_wanted.drain(..).for_each(|to| self.make_snapshot(to));
//!     }
//!     Ok(())
//! }
//! # }
//! # let mut replica = Replica::new(ReplicaConfig::default(), &MapLog::new())?;
//! # let mut owner = Owner { log: MapLog::new(), applied: 0, waiting: Vec::new() };
//! # owner.turn(&mut replica, &mut Ready::default())?;
//! # assert!(replica.may_serve(0));
//! # Ok::<(), ReplicaError>(())
//! ```
//!
//! One file per operation: `propose`, `step`, `tick`, `read` are the ways in, `ready` is the way
//! out, `persist`, `apply` and `fetch` take in results. With several members: `membership` (who),
//! `promise` and `lease` (the two sides of serving without asking), `transfer`, `leave`, `snapshot`,
//! `quiet`, `version`. `start` reads a log, `truncate` shortens it, `force` takes out what only a lost majority could
//! decide. What is in an entry is in
//! [`entry`]. `docs/internals/replica.md` tells how they belong together.
//!
//! Who this crate trusts: its owner, not its peers (`step`) and not the disk (`start`, `fetch`).
//! It never panics over what they bring. It does not know nodes or addresses: a replica's id is
//! all there is.

mod apply;
mod config;
mod election;
pub mod entry;
mod fetch;
mod force;
mod lease;
mod leave;
mod log;
mod log_watch;
mod map_log;
mod mark;
mod members;
mod membership;
mod persist;
mod promise;
mod propose;
mod quiet;
mod read;
mod ready;
mod recent;
mod replica;
mod sizes;
mod snapshot;
mod standing;
mod start;
mod step;
mod terms;
mod tick;
mod transfer;
mod truncate;
mod version;
mod wire;

pub use bytes::Bytes;
pub use config::{FOUNDED, Position, ReplicaConfig, ReplicaError};
pub use fetch::Fetch;
pub use force::{Tail, force, members_after, tail};
pub use log::{LogError, LogStore, LogWrite};
pub use log_watch::LogWatch;
pub use map_log::MapLog;
pub use members::Members;
pub use membership::{Change, MemberChange};
pub use propose::Refused;
pub use raft::eraftpb::{Entry, EntryType, HardState, Message, MessageType};
pub use read::{Confirmed, Read};
pub use ready::{Committed, Ready};
pub use replica::Replica;
pub use snapshot::{SnapshotHead, snapshot_head};
pub use standing::Standing;
pub use step::Unfit;
pub use wire::{decode_message, encode_message, keeps_order, payload_bytes};
