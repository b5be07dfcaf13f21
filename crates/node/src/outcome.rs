//! What became of a request, as a type: sessions and gateways make their protocol's reply of it.

use base::{NotRun, Refusal};

/// What became of a batch of commands.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Its commands ran, or each was refused for a reason of its own: the replies are in the batch.
    Done,
    /// None of them ran: this node cannot serve the region.
    Unserved(Unserved),
    /// None of them ran: another leader's entry took the place of theirs. A client may try again.
    TryAgain,
    /// The leader changed before a quorum confirmed the entry: they may have run, or not.
    InDoubt,
    /// None of them ran: their entry would be too large for the log.
    TooLarge,
    /// None of them ran, for this reason.
    Refused(Refusal),
}

impl Outcome {
    /// What every command of the batch is answered, unless it has its own reply ([`Outcome::Done`]) or has
    /// to be told where to go ([`Outcome::Unserved`]).
    pub fn refusal(&self) -> Refusal {
        match self {
            Outcome::Done | Outcome::Unserved(_) | Outcome::TryAgain => try_again(),
            Outcome::InDoubt => in_doubt(),
            Outcome::TooLarge => Refusal::new("ERR the command is too large for the log"),
            Outcome::Refused(refusal) => refusal.clone(),
        }
    }
}

/// Why a region cannot be served here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// Another replica leads, or the region has left this node.
    Elsewhere,
    /// No replica leads, or no quorum can be reached.
    Down,
}

/// What a client is told whose write may or may not have happened. Not a word that makes clients
/// try again by themselves: the write might happen twice.
pub fn in_doubt() -> Refusal {
    Refusal::new(
        "INDOUBT the leader changed before a majority confirmed this write; it may or may not have \
         happened, read to find out",
    )
}

/// What a client is told whose command surely did not happen: clients try again by themselves,
/// and find the new leader.
pub fn try_again() -> Refusal {
    NotRun::LeaderChanging(CHANGING).into()
}

pub const CHANGING: &str = "TRYAGAIN the leader of this slot is changing";

/// What a client is told whose changes the log cannot take.
pub fn too_large() -> Refusal {
    Refusal::new("ERR the change is too large for the log")
}
