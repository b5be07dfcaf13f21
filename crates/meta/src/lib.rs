//! Meta: which nodes there are, which regions, who holds what; and what should change (DESIGN §10).
//!
//! Region 0 is a Raft group like any other; this crate is its state machine and the mind of its
//! leader. Pure: heartbeats and the time come in as values, commands and orders go out as values.
//!
//! ```text
//!              replicated (every member of region 0)          leader only, in memory
//!  join ─────► Command::Register ─┐                       ┌── View: what heartbeats said
//!  ctl  ─────► …                  ├─► State ◄── reads ────┤
//!  scheduler ─► Plan, Members … ──┘   nodes               ├── Scheduler: operators ─► orders
//!        ▲                            regions, plans      │         │
//!        └────────────────────────────ids ────────────────│─────────┘ proposals
//!                                                         └── Routes published, with versions
//! ```
//!
//! The idea: **the regions' own Raft logs decide who their members are; meta plans and follows.**
//! What must not be forgotten (ids given away, a replica that is being added and what it replaces)
//! is in the [`State`](state::State); everything else is derived again from heartbeats by whoever
//! leads meta next. So losing meta's leader in the middle of anything loses nothing.
//!
//! [`leader::Leader`] ties the leader's part together and is what a meta member calls;
//! [`route::Routes`] is what every node keeps of the published table; [`wire`] is all that travels.
//!
//! Not here: Raft, sockets, timers (edge), split, merge, hot spots and drain (later operators, one
//! file each in `scheduler/`).

pub mod leader;
pub mod limits;
pub mod liveness;
pub mod placement;
pub mod publish;
pub mod route;
pub mod scheduler;
pub mod state;
pub mod view;
pub mod wire;

/// CRC-64/XZ of `bytes`: checksum of the encoded state, its hash, and ids of orders.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    const CRC: crc::Crc<u64, crc::Table<16>> =
        crc::Crc::<u64, crc::Table<16>>::new(&crc::CRC_64_XZ);
    CRC.checksum(bytes)
}
