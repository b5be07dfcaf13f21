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

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, Response};
use rowapi::table_server::TableServer;
use tonic::body::Body;
use tonic::codegen::Service as _;

use crate::Shared;
use service::Service;

/// Longest message: a row of the default limit, and as much again of everything else several times over.
const MESSAGE_BYTES: usize = 4 << 20;

pub struct Rows(TableServer<Service>);

/// Whether a path is a call of the service.
pub fn is_ours(path: &str) -> bool {
    path.starts_with("/neokv.table.v1.Table/")
}

impl Rows {
    pub fn new(shared: &Arc<Shared>) -> Rows {
        let server = TableServer::new(Service::new(shared));
        Rows(server.max_decoding_message_size(MESSAGE_BYTES))
    }

    pub async fn call(&self, request: Request<Incoming>) -> Response<Body> {
        let answered: Result<_, Infallible> = self.0.clone().call(request).await;
        match answered {
            Ok(response) => response,
        }
    }
}
