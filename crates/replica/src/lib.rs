//! One Raft member around raft-rs, generic over what is replicated: bytes in, committed bytes out.
//!
//! Pure: it reads no clock, starts no thread, touches no disk. Time comes as ticks, what must be
//! on disk leaves as a [`LogWrite`], and the word that it is there comes back as a number.
//!
//! ```text
//!  propose ─►┐                        ┌─► write: LogWrite ──► writer thread, fsync ─┐
//!  step    ─►├─► Replica ─► ready ────┼─► messages ─────────► peers                 │
//!  tick    ─►┘      ▲                 ├─► committed ────────► apply ──► on_applied ─┤
//!                   │                 └─► fetch ────────────► log store, on_fetched ┤
//!                   └───────────────── on_persisted(number) ◄───────────────────────┘
//! ```
//!
//! A turn of the core that owns it:
//!
//! ```text
//! while replica.has_ready() {
//!     replica.ready(&mut out);
//!     // 1. hand out.write to a writer thread; it says on_persisted(write.number) later
//!     // 2. send out.messages now: what must wait for the disk is held back inside
//!     // 3. apply out.committed in order, then on_applied(index of the last)
//!     // 4. read out.fetch from the log store (a thread, or in place at start), then on_fetched
//! }
//! ```
//!
//! Several writes may be under way: proposals go on while earlier entries travel to the disk.
//!
//! One file per operation: `propose`, `step`, `tick` are the ways in, `ready` is the way out,
//! `persist`, `apply`, `fetch` bring results back, `election` chooses the leader, `read` and
//! `truncate` are what their names say. `replica` holds the fields; `recent` is the part of the
//! log in memory; [`entry`] is the format of what the server proposes (raft-rs sees only bytes).

mod apply;
mod config;
mod election;
pub mod entry;
mod fetch;
mod log;
mod map_log;
mod persist;
mod propose;
mod read;
mod ready;
mod recent;
mod replica;
mod start;
mod step;
mod terms;
mod tick;
mod truncate;

pub use bytes::Bytes;
pub use config::{ReplicaConfig, ReplicaError};
pub use fetch::Fetch;
pub use log::{LogError, LogStore, LogWrite};
pub use map_log::MapLog;
pub use propose::Refused;
pub use raft::eraftpb::{Entry, HardState, Message, MessageType};
pub use ready::{Committed, Ready};
pub use replica::Replica;
pub use step::Unfit;
