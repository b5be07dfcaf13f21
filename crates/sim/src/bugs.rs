//! Bugs to be planted, one at a time, so that the checkers are known to find them.
//!
//! They live in the simulator's own code, where it stands in for the disk, the clock, the database and
//! the process around a node's regions: the code that ships stays as it is.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bug {
    #[default]
    None,
    /// The disk says "synced" and has not.
    SkipFsync,
    /// Whoever thinks it leads answers reads, without lease or round.
    ServeWithoutLease,
    /// A start forgets that the last entries are in the rows already.
    ApplyTwice,
    /// A start forgets whom it voted for.
    ForgetVote,
    /// A voter that has just started votes at once, though a leader may still count on it.
    VoteAtOnce,
    /// Time is counted in ticks, which stand still when the process does.
    LeaseByTicks,
    /// A start forgets the members that came and went since the replica was made.
    ForgetReplicaRecord,
    /// Meta's orders to destroy are not carried out.
    NeverDestroy,
    /// The database writes a row whatever it has of it.
    FlushUnguarded,
    /// A row is said to be in SQL, and kicked, though nobody has written it.
    KickDirty,
    /// The log is said to be written before it is.
    ReplyEarly,
    /// Two clients whose commands are settled together get each other's replies.
    SwapReplies,
    /// A client whose write may have happened is told that it has not.
    DoubtIsNo,
    /// The numbers of requests are forgotten: a retry is done again.
    ForgetRequests,
    /// An effect batch is kept, and its client is told that it is not: it is done again.
    EffectTwice,
    /// Another entry took the place of an effect batch in the log, and its client is told that it is kept.
    LosePlace,
    /// A blocked client that was served stands in line once more.
    ServeTwice,
    /// A region that was lent comes back without knowing the members that came and went.
    StaleEpoch,
    /// The entries of one commit are several records of the log.
    TornCommit,
}

impl Bug {
    pub const ALL: [Bug; 19] = [
        Bug::SkipFsync,
        Bug::ServeWithoutLease,
        Bug::ApplyTwice,
        Bug::ForgetVote,
        Bug::VoteAtOnce,
        Bug::LeaseByTicks,
        Bug::ForgetReplicaRecord,
        Bug::NeverDestroy,
        Bug::FlushUnguarded,
        Bug::KickDirty,
        Bug::ReplyEarly,
        Bug::SwapReplies,
        Bug::DoubtIsNo,
        Bug::ForgetRequests,
        Bug::EffectTwice,
        Bug::LosePlace,
        Bug::ServeTwice,
        Bug::StaleEpoch,
        Bug::TornCommit,
    ];
}
