//! Settings that shape how values are kept. They come in as values with every command.

/// Which keys may be given up when memory is short (`maxmemory-policy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EvictionPolicy {
    #[default]
    NoEviction,
    AllKeysLru,
    AllKeysLfu,
    AllKeysRandom,
    VolatileLru,
    VolatileLfu,
    VolatileRandom,
    VolatileTtl,
}

impl EvictionPolicy {
    /// Whether access is counted rather than dated.
    #[inline]
    pub fn is_lfu(self) -> bool {
        matches!(
            self,
            EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu
        )
    }

    /// Whether keys are chosen by their accesses.
    pub fn looks_at_accesses(self) -> bool {
        let is_lru = matches!(
            self,
            EvictionPolicy::AllKeysLru | EvictionPolicy::VolatileLru
        );
        is_lru || self.is_lfu()
    }
}

/// Sizes up to which small collections stay packed, and how access is recorded. Named after the
/// Redis settings they implement; the defaults are Redis 7.0's.
#[derive(Debug, Clone)]
pub struct Tuning {
    pub hash_max_packed_entries: usize, // hash-max-listpack-entries
    pub hash_max_packed_value: usize,   // hash-max-listpack-value
    pub set_max_intset_entries: usize,
    pub zset_max_packed_entries: usize,
    pub zset_max_packed_value: usize,
    /// `list-max-listpack-size`: > 0 elements per chunk, −1…−5 for 4…64 KiB.
    pub list_max_packed_size: i64,
    pub policy: EvictionPolicy,
    /// Redis would share small integers: its eviction looks at no clock of accesses (`OBJECT REFCOUNT`).
    pub shares_integers: bool,
    /// Keys looked at for each one given up (`maxmemory-samples`).
    pub maxmemory_samples: usize,
    pub lfu_log_factor: u32,
    pub lfu_decay_minutes: u32,
    /// Keys the hash of the collections' tables when they are made: clients that know it can choose
    /// elements that collide. The server draws one at start; equal contents under one seed iterate equally.
    pub hash_seed: u64,
    /// Collections of more elements stay in their rows when they are loaded (durable keyspaces).
    pub rows_from_elements: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            hash_max_packed_entries: 128,
            hash_max_packed_value: 64,
            set_max_intset_entries: 512,
            zset_max_packed_entries: 128,
            zset_max_packed_value: 64,
            list_max_packed_size: -2,
            policy: EvictionPolicy::NoEviction,
            shares_integers: true,
            maxmemory_samples: 5,
            lfu_log_factor: 10,
            lfu_decay_minutes: 1,
            hash_seed: 0x6e65_6f6b_7621,
            rows_from_elements: 4096,
        }
    }
}
