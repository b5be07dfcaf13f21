//! What a node decides about its regions: events in, effects out.
//!
//! ```text
//!   session ─► Batch ─► OwnedRegions ─► Effects ─► append to the log, send to peers, read rows,
//!   peer ────► message ─►   │  ▲                    reply to sessions, ask SQL
//!   log, rows, SQL, tick ───┘  └──── Context: time, settings, randomness, the store
//! ```
//!
//! Nothing here has a thread, a clock, a socket or an async function. A core of the server calls
//! it, and so does the simulator; both carry out the [`Effects`] and report what came of them.
//!
//! The life of a write, one file per stage:
//!
//! | stage | question | file |
//! |---|---|---|
//! | route | which region has the keys? | `route.rs`, `map.rs` |
//! | order | which commands become the next entry? is it in the log, on a quorum? | `order.rs` |
//! | ready | is everything it reads in memory? | `ready.rs` |
//! | execute | the one function that runs an entry | `execute.rs` |
//! | settle | rows to the store, replies to the clients | `apply.rs`, `member.rs`, `audience.rs`, `refuse.rs` |
//!
//! Reads: `reads.rs`, `run.rs`, `read_barrier.rs`. SQL rows: `write_back.rs`. Commands that are logged by their effect:
//! `effect_request.rs`, `effect_groups.rs`, `held.rs`, `commit.rs`, `effect_batch.rs`; blocked clients that
//! they serve: `serve_lines.rs`. Regions lent to other cores: `owned.rs`, `lend.rs`. The member of the meta
//! service: `meta_member.rs`, `meta_record.rs`. Joining a cluster, heartbeats and meta's orders: `join.rs`,
//! `heartbeat.rs`.

mod apply;
mod audience;
mod batch;
mod blocking;
pub mod catalogue;
mod command_list;
mod commit;
mod context;
mod effect_batch;
mod effect_groups;
mod effect_request;
mod effects;
mod execute;
mod expire;
mod feed;
mod follow;
mod heartbeat;
mod held;
mod join;
mod lend;
mod map;
mod member;
mod membership;
mod meta_effects;
mod meta_member;
mod meta_record;
mod open;
mod order;
mod outcome;
pub mod outgoing;
mod owned;
mod parsed;
mod peers;
mod progress;
mod read_barrier;
mod reads;
pub mod ready;
mod refuse;
mod region;
mod replay;
mod replica_log;
pub mod replica_record;
mod requester;
mod route;
mod row_needs;
mod run;
mod serve_after;
mod serve_lines;
mod stalled;
mod unreadable;
mod waiters;
mod weight;
mod write_back;

pub use audience::{Audience, Nobody};
pub use batch::{Batch, BatchBox, REPLY_BYTES};
pub use catalogue::Catalogue;
pub use command::Specs;
pub use command_list::{CommandList, clear_room};
pub use context::{Context, Executing, Host, Seeds};
pub use effect_batch::{BatchOutcome, EffectBatch, begin_entry, open_space, state_row};
pub use effect_groups::GROUPS;
pub use effect_request::EffectRequest;
pub use effects::{
    Borrow, DigestRequest, Effects, Fetched, Grant, HeldLoad, Load, LogJob, Logged, RowsRequest,
    Served,
};
pub use execute::{Executed, PlacedKey, execute_payload, run_payload, seed_of};
pub use heartbeat::{
    HeartbeatContext, HeartbeatEffect, HeartbeatNotice, Heartbeats, MetaTarget, NOT_DESTROYED,
    NodeReport, OpenHeartbeats, heartbeat_elsewhere, join_elsewhere,
};
pub use held::{Attempted, HeldRegions, Moment};
pub use join::{Newcomer, NewcomerStep, Start, StartOptions};
pub use map::{CoreId, MOST_REGIONS, Map, NOWHERE, Place, Places, REGIONS_PER_CORE};
pub use member::{Eviction, Member, Proposal, Serve, Unwritten};
pub use membership::{Newcomers, lead, report_of, report_of_replica};
pub use meta_effects::{MetaAnswer, MetaCall, MetaContext, MetaEffects, MetaObserver, Unobserved};
pub use meta_member::{MetaMember, OpenMeta};
pub use meta_record::{MetaEntry, MetaRecord};
pub use open::{Open, Pace};
pub use order::is_logged_as_given;
pub use outcome::{CHANGING, Outcome, Unserved, in_doubt, too_large, try_again};
pub use owned::OwnedRegions;
pub use peers::{Peers, TIMEOUT_MS, Wait};
pub use progress::Progress;
pub use read_barrier::{Barrier, Serving};
pub use reads::READS;
pub use region::{Region, RegionBox};
pub use replay::{Paused, Replay, ReplayError};
pub use replica_log::{forget_log, has_log};
pub use replica_record::{Identity, ReplicaRecord};
pub use requester::Requester;
pub use route::{Route, regions_of, route};
pub use row_needs::{full_refusal, lacks_room, refusal_of};
pub use run::{Absent, Access, Again, Cold, Ran};
pub use serve_after::awaited_keys;
pub use serve_lines::First;
pub use waiters::{
    Claim, Interest, Interests, Waiter, Watch, WatchFlag, attempt_for, nil, only_key,
};
pub use weight::{DataSet, Weight};
pub use write_back::{Said, Wanted, WriteBack};
