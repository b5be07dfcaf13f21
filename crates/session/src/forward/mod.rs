//! Commands for other nodes, for clients that do not follow `MOVED` (`redis-cluster-enabled no`).
//!
//! ```text
//!   upstream     connections of a session to other nodes
//!   forwards     commands of a pipeline                elsewhere    commands that wait, MULTI, WATCH
//!   all_nodes    KEYS, SCAN … over all nodes          remote_reply what other nodes say
//! ```

mod all_nodes;
mod elsewhere;
mod forwards;
pub(super) mod remote_reply;
mod upstream;

pub(super) use elsewhere::WatchedElsewhere;
pub(super) use forwards::{Forwards, PAUSE};
pub(super) use upstream::Upstreams;
pub use upstream::{Looked, encode};
