//! Rows of tables from Rust, over gRPC: connect to any node of a cluster, or to the one there is.
//!
//! ```no_run
//! # async fn example() -> Result<(), rowclient::Error> {
//! use rowclient::{Client, Write, Written};
//!
//! let client = Client::new(["127.0.0.1:8379"])?;
//! let users = client.table("users");
//!
//! // Any node will do: the client finds who leads a row, and remembers it.
//! users.set("alice", [("age", 7)]).await?;
//! let row = users.get("alice").await?.expect("just written");
//! assert_eq!(row.int("age"), Some(7));
//!
//! // Only if nobody else changed it meanwhile.
//! let write = Write::expecting(row.version);
//! match users.set_with("alice", [("age", 8)], write).await? {
//!     Written::Ok(row) => println!("version {}", row.version),
//!     Written::VersionMismatch(row) => println!("somebody was faster: {:?}", row.int("age")),
//!     other => println!("{other:?}"),
//! }
//!
//! let row = users.incr_by("alice", "gold", 10).await?;
//! println!("{:?} gold", row.uint("gold"));
//!
//! // Wait until the SQL database has it.
//! users.wait_sql("alice", None).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Every write has a request id of its own. Whatever happens on the way (a leader that dies, an answer that is lost) it is sent again with the
//! same id until the time of the call is up ([`Client::with_timeout`]), and is done once. A call that ends with
//! [`Error::TimedOut`] may have been done.

mod call;
mod route;
mod scan;
mod table;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;

pub use rowapi::Value;
pub use scan::Scan;
pub use table::{Changed, Fields, Row, Table, Write, Written};

use route::Route;
use std::sync::Arc;

/// A cheap handle: clones share connections.
#[derive(Clone)]
pub struct Client {
    route: Arc<Route>,
    timeout: Duration,
    /// How it introduces itself: `Basic …` or `Bearer …`.
    authorization: Option<Arc<str>>,
}

/// Why a call has no answer.
#[derive(Debug)]
pub enum Error {
    /// The server says why this cannot be done; nothing was changed.
    Refused(String),
    /// The time is up; a write may have been done or be done yet. What was heard last.
    TimedOut(String),
    /// The call was not understood or not allowed.
    Rpc(Box<tonic::Status>),
    /// An address that is none.
    Address(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Refused(why) => f.write_str(why),
            Error::TimedOut(last) if last.is_empty() => f.write_str("not answered in time"),
            Error::TimedOut(last) => write!(f, "not answered in time; last heard: {last}"),
            Error::Rpc(status) => write!(f, "{:?}: {}", status.code(), status.message()),
            Error::Address(text) => write!(f, "'{text}' is no host:port"),
        }
    }
}

impl std::error::Error for Error {}

impl Client {
    /// `host:port` of the HTTP port of one or more nodes; the others of a cluster are found through them. Nothing is connected yet.
    pub fn new<A: Into<String>>(nodes: impl IntoIterator<Item = A>) -> Result<Client, Error> {
        let nodes: Vec<String> = nodes.into_iter().map(Into::into).collect();
        Ok(Client {
            route: Arc::new(Route::new(nodes)?),
            timeout: Duration::from_secs(5),
            authorization: None,
        })
    }

    /// How long a call may take, with everything that is tried again; five seconds unless told.
    pub fn with_timeout(mut self, timeout: Duration) -> Client {
        self.timeout = timeout;
        self
    }

    /// The password of the server's default user (`requirepass`).
    pub fn with_password(mut self, password: &str) -> Client {
        self.authorization = Some(format!("Bearer {password}").into());
        self
    }

    /// A user of the server (`ACL SETUSER`) and its password.
    pub fn with_user(mut self, name: &str, password: &str) -> Client {
        let pair = STANDARD.encode(format!("{name}:{password}"));
        self.authorization = Some(format!("Basic {pair}").into());
        self
    }

    /// The table is looked for when it is used.
    pub fn table(&self, name: &str) -> Table {
        Table::new(self.clone(), name)
    }
}
