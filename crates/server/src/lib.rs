//! A node: opens its data, listens, starts its threads, and stops them.
//!
//! ```text
//!   start     memory, durable, cluster; load a dump; stop
//!   signals   SIGTERM and SIGINT
//! ```
//!
//! Everything else is in the crates it puts together: threads and regions in `runtime`, connections in `session`, commands about
//! the server in `admin`, HTTP and gRPC in `gateway`, dumps in `dump`.

mod signals;
mod start;

pub use runtime::cluster;
pub use runtime::durable::make_room;
pub use runtime::{Shared, Stores};
pub use session::Commands;
pub use settings::{self, Settings, log};
pub use signals::on_signals;
pub use start::{Server, StartError, commands, import, start, start_cluster, start_durable};
pub use stats::memory;
