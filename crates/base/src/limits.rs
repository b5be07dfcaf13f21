//! Bounds that hold everywhere. Settings that a user may change live with the server's settings.

/// Databases of a non-cluster node (`SELECT 0` to `SELECT 15`).
pub const DATABASES: u8 = 16;
/// Longest bulk string a client may send, and longest string value (`proto-max-bulk-len`).
pub const MAX_BULK_BYTES: usize = 512 * 1024 * 1024;
/// Most arguments in one command.
pub const MAX_ARGS: usize = 1024 * 1024;
/// Longest inline command line, and longest line that carries a length.
pub const MAX_INLINE_BYTES: usize = 64 * 1024;
