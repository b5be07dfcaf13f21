//! The protobuf interface to rows, `proto/neokv/table/v1/table.proto`, as Rust: messages, the server's trait and the client.
//!
//! Generated when it is built, by a compiler in Rust. `crates/rowclient` is what an application uses; for other languages the
//! file is all that is needed (`examples/python`).

/// Package `neokv.table.v1`.
pub mod v1 {
    #![allow(clippy::all, missing_docs)]
    tonic::include_proto!("neokv.table.v1");
}

mod values;

pub use v1::*;
