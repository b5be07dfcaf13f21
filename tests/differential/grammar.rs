//! The commands that are drawn, as word patterns by family.
//!
//! Words of capital letters are drawn (`words.rs`); `[…]` may be left out, `{a|b}` is one of the words, anything else
//! is itself. A pattern that begins with `!` is sent as it is, never spoiled: spoiled, its reply would be random.
//!
//! Left out because two right servers may differ: random draws of fewer elements than there are (`script.rs` has a step
//! for them), relative deadlines with GT and LT, SORT by alphabet with weights, OBJECT. And a BITFIELD that makes its
//! string longer and then fails: Redis does not tell those who watch the key.

/// What needs nothing but keys.
pub const FAMILIES: &[&[&str]] = &[
    STRINGS,
    BITS,
    HASHES,
    LISTS,
    SETS,
    SORTED_SETS,
    KEYS,
    DEADLINES,
    SORTING,
];

const STRINGS: &[&str] = &[
    "SET S V",
    "SET S V",
    "SET S V {NX|XX}",
    "SET S V [{NX|XX}] [GET] [KEEPTTL]",
    "SET S V {EX|PX} LONG [GET]",
    "SET S V {PXAT FAR|PXAT PAST}",
    "SETNX S V",
    "{SETEX|PSETEX} S LONG V",
    "GET S",
    "GETSET S V",
    "GETDEL S",
    "GETEX S [{PERSIST|PXAT FAR|EX LONG|PXAT PAST}]",
    "APPEND S V",
    "STRLEN S",
    "{GETRANGE|SUBSTR} S I I",
    "SETRANGE S OFFSET V",
    "{INCR|DECR} S",
    "{INCRBY|DECRBY} S NUMBER",
    "INCRBYFLOAT S FLOAT",
    "MSET S V S V",
    "MSET S V S V S V S V",
    "MSETNX S V S V",
    "MGET S S S K",
    "LCS S S [LEN]",
    "LCS S S IDX [MINMATCHLEN N] [WITHMATCHLEN]",
];

const BITS: &[&str] = &[
    "SETBIT S OFFSET {0|1}",
    "GETBIT S OFFSET",
    "BITCOUNT S",
    "BITCOUNT S I I [{BYTE|BIT}]",
    "BITPOS S {0|1}",
    "BITPOS S {0|1} I",
    "BITPOS S {0|1} I I [{BYTE|BIT}]",
    "BITOP {AND|OR|XOR} S S S",
    "BITOP NOT S S",
    "BITFIELD S {SET|INCRBY} WIDTH OFFSET NUMBER",
    "BITFIELD S GET WIDTH #OFFSET OVERFLOW {WRAP|SAT} INCRBY WIDTH OFFSET NUMBER GET WIDTH OFFSET",
    "BITFIELD S OVERFLOW {WRAP|SAT} SET WIDTH #OFFSET NUMBER INCRBY WIDTH #OFFSET NUMBER",
    "!BITFIELD S OVERFLOW FAIL INCRBY {u2|i2} 0 1",
    "BITFIELD_RO S GET WIDTH OFFSET [GET WIDTH #OFFSET]",
];

const HASHES: &[&str] = &[
    "HSET H F V",
    "HSET H F V F V F V",
    "HMSET H F V F V",
    "HSETNX H F V",
    "HGET H F",
    "HMGET H F F F",
    "HDEL H F [F] [F]",
    "HLEN H",
    "HSTRLEN H F",
    "HEXISTS H F",
    "HGETALL H",
    "{HKEYS|HVALS} H",
    "HINCRBY H F NUMBER",
    "HINCRBYFLOAT H F FLOAT",
    "!HRANDFIELD H 1000000 [WITHVALUES]",
    "HSET H PAIRS",
];

const LISTS: &[&str] = &[
    "LPUSH L E",
    "LPUSH L E E E",
    "RPUSH L E",
    "RPUSH L E E E E",
    "{LPUSH|RPUSH} L MANY",
    "{LPUSHX|RPUSHX} L E [E]",
    "{LPOP|RPOP} L [N]",
    "LLEN L",
    "LINDEX L I",
    "LSET L I E",
    "LRANGE L I I",
    "LRANGE L 0 -1",
    "LTRIM L I I",
    "LREM L I E",
    "LINSERT L {BEFORE|AFTER} E E",
    "LPOS L E [RANK I] [COUNT N] [MAXLEN N]",
    "LMOVE L L {LEFT|RIGHT} {LEFT|RIGHT}",
    "RPOPLPUSH L L",
    "LMPOP 1 L {LEFT|RIGHT} [COUNT N]",
    "LMPOP 2 L L {LEFT|RIGHT} [COUNT N]",
];

const SETS: &[&str] = &[
    "SADD T E",
    "SADD T E E E",
    "SADD T MANY",
    "SREM T E [E] [E]",
    "SMOVE T T E",
    "SCARD T",
    "SISMEMBER T E",
    "SMISMEMBER T E E",
    "SMEMBERS T",
    "{SUNION|SINTER|SDIFF} T T [T]",
    "{SUNIONSTORE|SINTERSTORE|SDIFFSTORE} T T T [T]",
    "SINTERCARD 2 T T [LIMIT N]",
    "!{SRANDMEMBER|SPOP} T 1000000",
];

const SORTED_SETS: &[&str] = &[
    "ZADD Z SCORE E",
    "ZADD Z SCORE E SCORE E SCORE E",
    "ZADD Z [{NX|XX}] [{GT|LT}] [CH] [INCR] SCORE E",
    "ZADD Z [{NX|XX|GT|LT}] [CH] SCORE E SCORE E",
    "ZADD Z SCORED",
    "!ZADD X 0 E 0 E 0 E",
    "!ZADD X ALIKE",
    "ZINCRBY Z SCORE E",
    "ZREM Z E [E] [E]",
    "ZCARD Z",
    "ZSCORE Z E",
    "ZMSCORE Z E [E]",
    "{ZRANK|ZREVRANK} Z E",
    "ZRANGE Z 0 -1 WITHSCORES",
    "ZRANGE Z I I [REV] [WITHSCORES]",
    "ZRANGE Z BOUND BOUND BYSCORE [REV] [LIMIT I I] [WITHSCORES]",
    "ZRANGE X BYTES BYTES BYLEX [REV] [LIMIT I I]",
    "ZRANGESTORE Z Z I I [REV]",
    "ZRANGESTORE Z Z BOUND BOUND BYSCORE [REV] [LIMIT I I]",
    "ZRANGESTORE Z X BYTES BYTES BYLEX [LIMIT I I]",
    "ZREVRANGE Z I I [WITHSCORES]",
    "{ZRANGEBYSCORE|ZREVRANGEBYSCORE} Z BOUND BOUND [WITHSCORES] [LIMIT I I]",
    "{ZRANGEBYLEX|ZREVRANGEBYLEX} X BYTES BYTES [LIMIT I I]",
    "{ZCOUNT|ZREMRANGEBYSCORE} Z BOUND BOUND",
    "{ZLEXCOUNT|ZREMRANGEBYLEX} X BYTES BYTES",
    "ZREMRANGEBYRANK Z I I",
    "{ZPOPMIN|ZPOPMAX} Z [N]",
    "ZMPOP 1 Z {MIN|MAX} [COUNT N]",
    "ZMPOP 2 Z Z {MIN|MAX} [COUNT N]",
    "{ZUNION|ZINTER} 2 Z Z [WEIGHTS SCORE SCORE] [AGGREGATE {SUM|MIN|MAX}] [WITHSCORES]",
    "{ZUNION|ZINTER} 3 Z T Z [WEIGHTS SCORE SCORE SCORE] [AGGREGATE {SUM|MIN|MAX}] WITHSCORES",
    "ZDIFF 2 Z Z [WITHSCORES]",
    "{ZUNIONSTORE|ZINTERSTORE} Z 2 Z Z [WEIGHTS SCORE SCORE] [AGGREGATE {SUM|MIN|MAX}]",
    "{ZUNIONSTORE|ZINTERSTORE} Z 2 Z T",
    "ZDIFFSTORE Z 2 Z Z",
    "ZINTERCARD 2 Z Z [LIMIT N]",
    "!ZRANDMEMBER Z 1000000 [WITHSCORES]",
];

const KEYS: &[&str] = &[
    "DEL K",
    "DEL K K K",
    "UNLINK K K",
    "EXISTS K K K K",
    "TOUCH K K",
    "TYPE K",
    "KEYS {*|s*|?0|[hz]*|nothing}",
    "RANDOMKEY",
    "RENAME K K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K",
    "COPY K K [DB DATABASE] REPLACE",
    "COPY K K DB DATABASE",
    "MOVE K DATABASE",
    "{DEL|PERSIST|TYPE} X",
    "{RENAME|COPY} X X",
    "MOVE X DATABASE",
];

const DEADLINES: &[&str] = &[
    "{EXPIRE|PEXPIRE} K LONG [{NX|XX}]",
    "PEXPIREAT K FAR",
    "PEXPIREAT K FAR [{NX|XX|GT|LT}]",
    "PEXPIREAT K PAST",
    "EXPIREAT K {2000000000|2100000000|1}",
    "PERSIST K",
    "{TTL|PTTL} K",
    "{EXPIRETIME|PEXPIRETIME} K",
];

const SORTING: &[&str] = &[
    "SORT {L|T|Z} ALPHA [LIMIT N N] [DESC]",
    "SORT {L|T|Z} [LIMIT N N] [DESC]",
    "!SORT {L|T|Z} BY s* [LIMIT N N] [GET #] [GET s*] [GET h*->a]",
    "!SORT L BY nosort GET h*->b GET #",
    "SORT {L|T|Z} ALPHA [DESC] STORE L",
    "!SORT_RO {L|T|Z} BY h*->a",
];

/// What needs a server: transactions, databases, waiting.
pub const SESSIONS: &[&str] = &[
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH K [K] [K]",
    "WATCH K",
    "UNWATCH",
    "SELECT DATABASE",
    "SELECT 0",
    "SWAPDB DATABASE DATABASE",
    "FLUSHDB [{SYNC|ASYNC}]",
    "PING",
    "ECHO V",
];

pub const WAITING: &[&str] = &[
    "!{BLPOP|BRPOP} L L 0.001",
    "!BLMOVE L L {LEFT|RIGHT} {LEFT|RIGHT} 0.001",
    "!BRPOPLPUSH L L 0.001",
    "!BLMPOP 0.001 2 L L {LEFT|RIGHT} [COUNT N]",
    "!{BZPOPMIN|BZPOPMAX} Z Z 0.001",
    "!BZMPOP 0.001 2 Z Z {MIN|MAX} [COUNT N]",
];
