//! What the transport tells the server: one trait.
//!
//! `on_raft`, `on_call`, `on_up`, `on_down`, `on_broken`, `on_refused`, `on_unknown` run on the peer thread, which serves all
//! connections: hand over and return. Those about snapshots run on threads that may touch a disk.

use std::path::PathBuf;

use bytes::Bytes;

use crate::call::Reply;
use crate::refusal::Refusal;
use crate::snapshot::{Accept, IncomingOffer, TransferError};
use crate::wire::RaftMessage;

pub trait Handler: Send + Sync + 'static {
    /// A whole frame, in the order of sending.
    fn on_raft(&self, from: u64, messages: Vec<RaftMessage>);

    /// `from` is 0 if the caller has no node id. The answer may come later, from any thread.
    fn on_call(&self, from: u64, method: u16, body: Bytes, reply: Reply);

    /// The node can be heard.
    fn on_up(&self, _node: u64) {}

    /// Nothing was heard of the node for `down_after`, or its connections broke and cannot be made again.
    fn on_down(&self, _node: u64) {}

    /// The connection to the node broke: what was sent last may not have arrived.
    fn on_broken(&self, _node: u64) {}

    /// The node at the address of `node` does not want us. Tried again, with back-off.
    fn on_refused(&self, _node: u64, _refusal: &Refusal) {}

    /// Somebody who has proved to be one of us calls itself a node that was not introduced (`Config::known_only`). If
    /// it has joined just now, it had better be introduced soon.
    fn on_unknown(&self, _node: u64) {}

    /// A peer wants to send a snapshot. An accepted one is written to the directory, which must be
    /// the same one when the same snapshot (from, region, id) is offered again after a break.
    fn on_snapshot_offer(&self, _from: u64, _offer: &IncomingOffer) -> Accept {
        Accept::Refuse("this node takes no snapshots".into())
    }

    /// All files of an accepted snapshot are in the directory, verified and on disk. The sender is
    /// told of success after this returns; an error is the sender's final result.
    fn on_snapshot_complete(
        &self,
        _from: u64,
        _offer: &IncomingOffer,
        _directory: PathBuf,
    ) -> Result<(), String> {
        Ok(())
    }

    /// The end of a transfer this node has sent.
    fn on_snapshot_sent(
        &self,
        _to: u64,
        _region: u64,
        _id: &str,
        _result: Result<(), &TransferError>,
    ) {
    }

    /// A line for the operator; already limited in rate.
    fn on_notice(&self, line: &str) {
        tracing::warn!(target: "transport", "{line}");
    }
}
