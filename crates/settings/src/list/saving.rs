//! What survives: the data folder, the log and files of the engine rocksdb, the RDB file of the
//! engine memory, and what a signal to stop does about it.

use super::{BYTES, Setting, at_start, fixed, flagged, int, protected, row};
use crate::kind::Kind;

pub(super) const ROWS: &[Setting] = &[
    flagged(
        "data-dir",
        protected(row(
            "dir",
            Kind::Folder,
            ".",
            "Folder of the data, made if it is missing. Not given: `neokv-data` where the node is started; with engine memory, the folder it is started in.",
        )),
    ),
    protected(row(
        "dbfilename",
        Kind::FileName,
        "dump.rdb",
        "Name of the RDB file in `dir`.",
    )),
    at_start(row(
        "import",
        Kind::Path,
        "",
        "Engine rocksdb: RDB file that a new data folder begins with, read once. Without it, `dbfilename` in the folder is imported, if it is there and the folder is new.",
    )),
    row(
        "log-sync",
        Kind::Choice(&["always", "everysec", "no"]),
        "always",
        "Engine rocksdb: when a write is acknowledged. `always`: when it is on disk; `everysec`: at once, it is on disk a second later; `no`: at once, the system decides.",
    ),
    row(
        "group-commit-delay",
        int(0, 100_000),
        "400",
        "Engine rocksdb, standalone, `log-sync always`: microseconds that the log writer waits at most for more clients to share an fsync. After an fsync that served at least six clients it waits until half of the writing clients have sent their next write; if they do not come in time, the next fsyncs do not wait. 0: never.",
    ),
    row(
        "log-stall-timeout",
        int(0, 600_000),
        "1500",
        "Engine rocksdb: milliseconds that a write of the log may take. If the disk takes longer, or is slow all the time, a cluster node hands its regions over to others until the disk is well again; a node alone refuses writes three seconds later. 0: wait for ever.",
    ),
    row(
        "cache-size",
        BYTES,
        "0",
        "Engine rocksdb: memory for values; the least used leave it and stay on disk (to limit the data set: `maxmemory` with a policy). 0: a third of the machine's memory.",
    ),
    at_start(row(
        "block-cache-size",
        BYTES,
        "0",
        "Engine rocksdb: memory for blocks of files. 0: a twelfth of the machine's memory.",
    )),
    row(
        "log-size",
        BYTES,
        "64mb",
        "Engine rocksdb: the log is cut when it has grown to this size; a start after a crash replays at most about so much.",
    ),
    row(
        "disk-reserve",
        BYTES,
        "64mb",
        "Engine rocksdb: room that is kept on the disk of the data, at most a sixteenth of it. While less is free, writes are refused and reads served; they are taken again by themselves. As much again is in the file RESERVE, which is given back when even that is used up, so that a node starts on a full disk. 0: none.",
    ),
    at_start(row(
        "binlog",
        Kind::Bool,
        "no",
        "Engine rocksdb: keep a feed of all changes beside the data; `neokv feed` shows it.",
    )),
    at_start(row(
        "binlog-size",
        BYTES,
        "1gb",
        "Engine rocksdb: the feed's oldest part goes when it is larger than this.",
    )),
    row(
        "save",
        Kind::Save,
        "3600 1 300 100 60 10000",
        "Engine memory (with rocksdb only if given): save when so many seconds have passed since the last time with at least so many changes; empty: only when asked.",
    ),
    row(
        "rdbcompression",
        Kind::Bool,
        "yes",
        "Compress strings in the RDB file.",
    ),
    fixed(row(
        "rdbchecksum",
        Kind::Bool,
        "yes",
        "Write and check a checksum at the end of the RDB file.",
    )),
    row(
        "rdb-key-save-delay",
        int(i32::MIN as i64, i32::MAX as i64),
        "0",
        "For tests: wait so many microseconds after each key that is saved.",
    ),
    row(
        "stop-writes-on-bgsave-error",
        Kind::Bool,
        "yes",
        "Refuse writes when the last background save failed.",
    ),
    row(
        "appendonly",
        Kind::Off(
            "there is no append-only file here; use the engine rocksdb, whose log is always on",
        ),
        "no",
        "There is no append-only file: the log of the engine rocksdb is what Redis' file is, see `log-sync`.",
    ),
    row(
        "shutdown-on-sigterm",
        Kind::Choice(&["default", "save", "nosave", "now", "force"]),
        "default",
        "What SIGTERM does; `default`: save if `save` is set.",
    ),
    row(
        "shutdown-on-sigint",
        Kind::Choice(&["default", "save", "nosave", "now", "force"]),
        "default",
        "As shutdown-on-sigterm, for SIGINT.",
    ),
];
