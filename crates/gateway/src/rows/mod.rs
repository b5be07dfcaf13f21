//! Rows over gRPC: the service `neokv.table.v1.Table` of `proto/`.
//!
//! ```text
//!   call ─► service ─► commands (ROW.* words) ─► pool ─► link ═ socket pair ═ ordinary session ─► region
//!                  ◄── reply (status, typed values) ◄── answer ◄─┘
//! ```
//!
//! The one idea: a call is a command. It is routed, batched, logged and redirected as any other client's, so gRPC knows nothing of
//! regions, leaders or SQL; it translates, and keeps the deadline.

mod answer;
mod commands;
mod deadline;
mod link;
mod pool;
mod reply;
mod service;
mod values;
mod words;

use std::sync::Arc;
use std::time::Duration;

use acl::User;
use hyper::body::Incoming;
use hyper::{Request, Response};
use rowapi::table_server::TableServer;
use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use tonic::body::Body;
use tonic::codegen::Service as _;

use deadline::deadline_in;
use runtime::Shared;
use service::Service;
use session::SessionRuns;

/// Longest message: a row of the default limit, and as much again of everything else several times over.
const MESSAGE_BYTES: usize = 4 << 20;

/// Calls at a time, of all connections: each may hold a message.
const CALLS_MAX: usize = 1024;
/// A client that does not send all of its message is given up so long after its deadline.
const GRACE: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Whose call this is.
    static CALLER: Arc<User>;
}

pub struct Rows {
    server: TableServer<Service>,
    room: Semaphore,
}

/// Whether a path is a call of the service.
pub fn is_ours(path: &str) -> bool {
    path.starts_with("/neokv.table.v1.Table/")
}

impl Rows {
    pub fn new(shared: &Arc<Shared>, runs: Arc<SessionRuns>) -> Rows {
        let server = TableServer::new(Service::new(shared, runs));
        Rows {
            server: server.max_decoding_message_size(MESSAGE_BYTES),
            room: Semaphore::new(CALLS_MAX),
        }
    }

    /// A call of this user.
    pub async fn call(&self, request: Request<Incoming>, user: Arc<User>) -> Response<Body> {
        let Ok(_permit) = self.room.try_acquire() else {
            let text = "too many calls at once; try again";
            return tonic::Status::resource_exhausted(text).into_http();
        };
        let deadline = deadline_in(request.headers()) + GRACE;
        let mut server = self.server.clone();
        let called = CALLER.scope(user, async move { server.call(request).await });
        match timeout_at(deadline, called).await {
            Ok(Ok(response)) => response,
            Err(_) => tonic::Status::deadline_exceeded("not answered in time").into_http(),
        }
    }
}
