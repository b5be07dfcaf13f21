//! Peer connections between nodes: Raft messages, calls, heartbeats, snapshots.
//!
//! Knows bytes, node ids and addresses. It does not know Raft, regions' contents, or who should be
//! a member of what; all that is behind [`Handler`].
//!
//! ```text
//!  core ─► send_batch ─► outbox of the peer ─┐             ┌─► on_raft, on_call ─► cores, meta
//!  core ─► send_batch ─►   (bounded, drops)  ├─► one TCP ──┤
//!  meta ─► call ────────► table of calls ────┘  connection └─► answers ─► the caller
//!          ─────────── thread "peer" of A ─────────────── thread "peer" of B ──────
//! ```
//!
//! What it promises:
//! - **A core never waits.** Sending is a push to a lock-free queue and at most one wake-up per batch.
//! - **Messages of one sender for one region arrive in order, or not at all.** Raft messages may be
//!   dropped; a call ends exactly once, with an answer or an error; a snapshot is resumed.
//! - **Memory is bounded**, whatever a peer or a stranger sends; nothing it sends panics.
//! - **Nobody is heard who has not proved the cluster secret**, or shown a certificate; strangers are few.
//! - **Two nodes that talk agree who they are**: cluster id, both node ids, and one process per id.
//!
//! One file per thing: `wire` is what travels, `handshake` the first words, `link` dials and
//! `accept` listens, `connection` reads and writes, `outbox` is what waits, `drain` and `assembly` cut large messages and put them
//! together, `call` the calls,
//! `liveness` who is heard, `snapshot/` the transfers, `secret` and `seal` what connections are under, `tls` what may be
//! in its place, `reload` what changes on disk, `strangers` those who have not shaken hands, `frames` what is cut out
//! of arriving bytes. `transport` holds it together.

mod accept;
mod assembly;
mod call;
mod config;
mod connection;
mod counters;
mod drain;
mod frames;
mod handler;
mod handshake;
mod link;
mod liveness;
mod notice;
mod outbox;
mod refusal;
mod reload;
mod seal;
mod secret;
mod snapshot;
mod strangers;
mod stream;
mod tls;
mod transport;
mod wire;

pub use bytes::Bytes;
pub use call::{CallError, CallResult, PendingCall, Reply, Target};
pub use config::{Config, Snapshots, Tls};
pub use counters::Counters;
pub use handler::Handler;
pub use refusal::{Refusal, RefusalKind};
pub use secret::{Secret, Secrets, read_secrets, write_secrets};
pub use snapshot::{
    Accept, IncomingOffer, OutgoingSnapshot, Progress, SnapshotFile, Transfer, TransferError,
};
pub use transport::{Identity, Transport};
pub use wire::RaftMessage;
