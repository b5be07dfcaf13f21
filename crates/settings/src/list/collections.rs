//! How collections are kept: up to which size a hash, list, set or sorted set stays packed. Under
//! the names Redis gives them today and (as aliases) gave them before 7.

use super::{BYTES_LONG, COUNT, SMALL, Setting, aliased, int, row};

pub(super) const ROWS: &[Setting] = &[
    aliased(
        &["hash-max-ziplist-entries"],
        row(
            "hash-max-listpack-entries",
            COUNT,
            "512",
            "A hash with more fields is indexed.",
        ),
    ),
    aliased(
        &["hash-max-ziplist-value"],
        row(
            "hash-max-listpack-value",
            BYTES_LONG,
            "64",
            "A hash with a longer field or value is indexed.",
        ),
    ),
    aliased(
        &["list-max-ziplist-size"],
        row(
            "list-max-listpack-size",
            int(i32::MIN as i64, i32::MAX as i64),
            "-2",
            "Elements in a list's chunk if > 0; −1 … −5: chunks of 4, 8, 16, 32, 64 KiB.",
        ),
    ),
    row(
        "list-compress-depth",
        SMALL,
        "0",
        "Accepted for compatibility: chunks of lists are not compressed.",
    ),
    row(
        "set-max-intset-entries",
        COUNT,
        "512",
        "A set of integers with more members is indexed.",
    ),
    aliased(
        &["zset-max-ziplist-entries"],
        row(
            "zset-max-listpack-entries",
            COUNT,
            "128",
            "A sorted set with more members is indexed.",
        ),
    ),
    aliased(
        &["zset-max-ziplist-value"],
        row(
            "zset-max-listpack-value",
            BYTES_LONG,
            "64",
            "A sorted set with a longer member is indexed.",
        ),
    ),
];
