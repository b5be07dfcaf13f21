//! Bounds that hold everywhere. Settings that a user may change live with the server's settings.

/// Databases of a non-cluster node (`SELECT 0` to `SELECT 15`).
pub const DATABASES: u8 = 16;
/// Longest bulk string a client may send, and longest string value (`proto-max-bulk-len`).
pub const MAX_BULK_BYTES: usize = 512 * 1024 * 1024;
/// What `proto-max-bulk-len` can be raised to, and the longest string a dump may bring: an element of a collection,
/// its lengths and the spare room around it have to fit 32-bit numbers.
pub const MOST_BULK_BYTES: usize = 2 << 30;
/// Most arguments in one command, as Redis 7.0 has it (older ones stopped at 1024 * 1024).
pub const MAX_ARGS: usize = i32::MAX as usize;
/// Longest inline command line, and longest line that carries a length.
pub const MAX_INLINE_BYTES: usize = 64 * 1024;
