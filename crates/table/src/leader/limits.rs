//! How much the leader of a region does at once, and how long it waits.

/// Times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Keys of one SELECT.
    pub load_keys: usize,
    /// SELECTs under way per backend.
    pub load_batches: usize,
    /// Clients that wait for loads, or for SQL.
    pub waiters: usize,
    /// Rows and bytes of one flush.
    pub flush_rows: usize,
    pub flush_bytes: usize,
    /// Flushes under way per backend.
    pub flush_batches: usize,
    /// How long a change waits for others of its row and table, if few rows do.
    pub linger: u64,
    /// Of one entry that the leader makes.
    pub entry_bytes: usize,
    pub entry_rows: usize,
    /// After the first fault, and at most; doubled in between.
    pub backoff_min: u64,
    pub backoff_max: u64,
    /// Well above the time-out of elections.
    pub lease: u64,
    /// How much earlier the holder stops, and how much later another begins: what clocks may differ.
    pub lease_margin: u64,
    /// Above this, cold rows are kicked.
    pub soft_bytes: usize,
    /// Above this, what grows waits.
    pub hard_bytes: usize,
    /// Rows that are looked at in one turn, when some must go.
    pub evict_looks: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            load_keys: 128,
            load_batches: 4,
            waiters: 16 * 1024,
            flush_rows: 512,
            flush_bytes: 1024 * 1024,
            flush_batches: 4,
            linger: 50,
            entry_bytes: 1024 * 1024,
            entry_rows: 1024,
            backoff_min: 100,
            backoff_max: 5_000,
            lease: 10_000,
            lease_margin: 1_000,
            soft_bytes: 192 * 1024 * 1024,
            hard_bytes: 256 * 1024 * 1024,
            evict_looks: 1024,
        }
    }
}
