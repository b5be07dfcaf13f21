//! Random commands over few keys, in the pure command table and in a real `redis-server`: every
//! reply must be the same, errors included. The seed is fixed; `NEOKV_SEED` and `NEOKV_ROUNDS`
//! search further.

#[allow(dead_code)] // shared with other tests, which use the rest
mod process;
#[allow(dead_code)]
mod transcript;

use process::Server;
use transcript::target::{Live, Pure, Request, Target};
use transcript::wire::Value;

/// Commands as word patterns; see [`word`]. `[…]` may be left out, `{a|b}` is one of the words.
const PATTERNS: &[&str] = &[
    // lists
    "LPUSH K E",
    "LPUSH K E E E",
    "RPUSH K E",
    "RPUSH K E E E E",
    "{LPUSHX|RPUSHX} K E [E]",
    "{LPOP|RPOP} K [N]",
    "LLEN K",
    "LINDEX K I",
    "LSET K I E",
    "LRANGE K I I",
    "LRANGE K 0 -1",
    "LTRIM K I I",
    "LREM K I E",
    "LINSERT K {BEFORE|AFTER} E E",
    "LPOS K E [RANK I] [COUNT N] [MAXLEN N]",
    "LMOVE K K {LEFT|RIGHT} {LEFT|RIGHT}",
    "RPOPLPUSH K K",
    "LMPOP 1 K {LEFT|RIGHT} [COUNT N]",
    "LMPOP 2 K K {LEFT|RIGHT} [COUNT N]",
    "{BLPOP|BRPOP} K K 0.001",
    "BLMOVE K K {LEFT|RIGHT} {LEFT|RIGHT} 0.001",
    "BRPOPLPUSH K K 0.001",
    "BLMPOP 0.001 2 K K {LEFT|RIGHT} [COUNT N]",
    // sorted sets
    "ZADD K S E",
    "ZADD K S E S E S E",
    "ZADD K [{NX|XX}] [{GT|LT}] [CH] [INCR] S E",
    "ZADD K [{NX|XX|GT|LT}] [CH] S E S E",
    "ZADD L 0 E 0 E 0 E",
    "ZINCRBY K S E",
    "ZREM K E [E] [E]",
    "ZCARD K",
    "ZSCORE K E",
    "ZMSCORE K E [E]",
    "{ZRANK|ZREVRANK} K E",
    "ZRANGE K 0 -1 WITHSCORES",
    "ZRANGE K I I [REV] [WITHSCORES]",
    "ZRANGE K B B BYSCORE [REV] [LIMIT I I] [WITHSCORES]",
    "ZRANGE L X X BYLEX [REV] [LIMIT I I]",
    "ZRANGESTORE K K I I [REV]",
    "ZRANGESTORE K K B B BYSCORE [REV] [LIMIT I I]",
    "ZRANGESTORE K L X X BYLEX [LIMIT I I]",
    "ZREVRANGE K I I [WITHSCORES]",
    "{ZRANGEBYSCORE|ZREVRANGEBYSCORE} K B B [WITHSCORES] [LIMIT I I]",
    "{ZRANGEBYLEX|ZREVRANGEBYLEX} L X X [LIMIT I I]",
    "{ZCOUNT|ZREMRANGEBYSCORE} K B B",
    "{ZLEXCOUNT|ZREMRANGEBYLEX} L X X",
    "ZREMRANGEBYRANK K I I",
    "{ZPOPMIN|ZPOPMAX} K [N]",
    "ZMPOP 1 K {MIN|MAX} [COUNT N]",
    "ZMPOP 2 K K {MIN|MAX} [COUNT N]",
    "{BZPOPMIN|BZPOPMAX} K K 0.001",
    "BZMPOP 0.001 2 K K {MIN|MAX} [COUNT N]",
    "{ZUNION|ZINTER} 2 K K [WEIGHTS S S] [AGGREGATE {SUM|MIN|MAX}] [WITHSCORES]",
    "{ZUNION|ZINTER} 3 K K K [WEIGHTS S S S] [AGGREGATE {SUM|MIN|MAX}] WITHSCORES",
    "ZDIFF 2 K K [WITHSCORES]",
    "{ZUNIONSTORE|ZINTERSTORE} K 2 K K [WEIGHTS S S] [AGGREGATE {SUM|MIN|MAX}]",
    "ZDIFFSTORE K 2 K K",
    "ZINTERCARD 2 K K [LIMIT N]",
    // so that other types are about, and keys go
    "SADD K E E E",
    "SET K E",
    "DEL K",
    "DEL K",
    "TYPE K",
    "EXPIRE K 1000",
    "PERSIST K",
];

const JUNK: &[&str] = &[
    "x",
    "-1",
    "nan",
    "",
    "1.5",
    "COUNT",
    "LIMIT",
    "WITHSCORES",
    "99999999999999999999",
    "1e400",
    "-9223372036854775808",
];

struct Choice(u64);

impl Choice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    /// A word of a pattern: K a key, L one for ranges by member, E an element, I an index, N a count, S a score, B a score
    /// bound, X a bound by member; anything else is itself.
    fn word(&mut self, word: &str) -> String {
        let of = match word {
            "K" => return format!("k{}", self.below(5)),
            // Sorted sets whose scores are equal: ranges by member mean nothing in others.
            "L" => return format!("l{}", self.below(2)),
            "E" => &["a", "b", "c", "d", "ab", "abc", "1", "17", "-3", "", "zz"][..],
            "I" => &["0", "1", "2", "3", "-1", "-2", "-3", "5", "-100", "100"][..],
            "N" => &["0", "1", "2", "3", "10"][..],
            "S" => &[
                "0", "1", "2", "3", "-1", "1.5", "-0", "0.1", "3.3", "inf", "-inf", "1e17", "0x10",
            ][..],
            "B" => &[
                "-inf", "+inf", "0", "1", "(1", "2", "(2", "3", "(-inf", "1.5", "(",
            ][..],
            "X" => &["-", "+", "[a", "(a", "[b", "(c", "[zz", "[", "("][..],
            _ => match word.strip_prefix('{').and_then(|w| w.strip_suffix('}')) {
                Some(words) => {
                    let words: Vec<&str> = words.split('|').collect();
                    return self.of(&words).to_owned();
                }
                None => return word.to_owned(),
            },
        };
        self.of(of).to_owned()
    }

    fn command(&mut self) -> Vec<String> {
        let pattern = self.of(PATTERNS);
        let mut argv = Vec::new();
        let mut skipping = false;
        for part in pattern.split(' ') {
            if part.starts_with('[') {
                skipping = self.below(2) == 0;
            }
            if !skipping {
                let part = part.trim_start_matches('[').trim_end_matches(']');
                let word = self.word(part);
                argv.push(word);
            }
            if part.ends_with(']') {
                skipping = false;
            }
        }
        let waits = argv[0].starts_with('B');
        match self.below(if waits { 400 } else { 40 }) {
            0 if argv.len() > 1 && !waits => {
                argv.pop();
            }
            1 if !waits => argv.push(self.of(JUNK).to_owned()),
            2 if argv.len() > 1 => {
                let at = 1 + self.below(argv.len() - 1);
                argv[at] = self.of(&JUNK[..3]).to_owned();
            }
            3 if argv.len() > 1 && !waits => {
                let at = 1 + self.below(argv.len() - 1);
                argv[at] = self.of(JUNK).to_owned();
            }
            _ => {}
        }
        argv
    }
}

fn ask(target: &mut dyn Target, argv: &[Vec<u8>]) -> Value {
    target.send(1, Request::Command(argv)).expect("send");
    target.receive(1).expect("receive")
}

/// The pure table cannot wait, so it answers as in MULTI, where BLMOVE's nothing is a bulk.
fn comparable(value: Value) -> Value {
    match value {
        Value::NilArray => Value::Nil,
        value => value,
    }
}

fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn compare(version: u8) {
    let Some(server) = Server::redis() else {
        return;
    };
    let mut redis = Live::new(server.port).expect("connect");
    let mut pure = Pure::new();
    redis.protocol(1, version).expect("protocol");
    pure.protocol(1, version).expect("protocol");
    let mut choice = Choice(setting("NEOKV_SEED", 0x9e37_79b9_7f4a_7c15));
    let mut history = Vec::new();
    for round in 0..setting("NEOKV_ROUNDS", 6_000) {
        if round % 500 == 0 {
            history.clear();
            let flush = [b"FLUSHALL".to_vec()];
            ask(&mut redis, &flush);
            ask(&mut pure, &flush);
        }
        let command = choice.command();
        history.push(command.join(" "));
        let argv: Vec<Vec<u8>> = command.into_iter().map(String::into_bytes).collect();
        let expected = ask(&mut redis, &argv);
        let got = ask(&mut pure, &argv);
        let (expected, got) = match argv[0].starts_with(b"B") {
            true => (comparable(expected), comparable(got)),
            false => (expected, got),
        };
        assert!(
            expected == got,
            "round {round}, RESP{version}: {:#?}\nredis {expected:?}\npure  {got:?}",
            &history[history.len().saturating_sub(12)..]
        );
    }
}

#[test]
fn lists_and_sorted_sets_resp2() {
    compare(2);
}

#[test]
fn lists_and_sorted_sets_resp3() {
    compare(3);
}
