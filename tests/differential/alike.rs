//! Whether two replies say the same.
//!
//! Byte for byte, but where Redis promises no order they are compared as multisets, and what is left of a deadline may
//! differ by the moments between two servers. A zero score has a sign in Redis' large sorted sets and none in its small
//! ones; here it never has.

use crate::transcript::wire::Value;
use crate::words::Argv;

/// Seconds that may lie between the moments at which two servers got a command.
const APART_S: i64 = 20;

enum Rule {
    Exact,
    /// Elements in any order, in pairs if they come so.
    Unordered,
    Pairs,
    /// A number that the clock moves.
    Clock(i64),
    /// A random choice: only whether there is one.
    Chosen,
}

fn rule(argv: &Argv) -> Rule {
    let has = |word: &str| argv.iter().any(|arg| arg.eq_ignore_ascii_case(word));
    match argv[0].as_str() {
        "SMEMBERS" | "SUNION" | "SINTER" | "SDIFF" | "HKEYS" | "HVALS" | "KEYS" | "SRANDMEMBER"
        | "SPOP" => Rule::Unordered,
        "SORT" if has("nosort") => Rule::Unordered,
        "HGETALL" => Rule::Pairs,
        "HRANDFIELD" | "ZRANDMEMBER" if argv.len() == 4 => Rule::Pairs,
        "HRANDFIELD" | "ZRANDMEMBER" => Rule::Unordered,
        "TTL" | "EXPIRETIME" => Rule::Clock(APART_S),
        "PTTL" | "PEXPIRETIME" => Rule::Clock(APART_S * 1000),
        "RANDOMKEY" => Rule::Chosen,
        _ => Rule::Exact,
    }
}

pub fn alike(argv: &Argv, a: &Value, b: &Value) -> bool {
    match (rule(argv), a, b) {
        (Rule::Clock(apart), Value::Int(a), Value::Int(b)) => near(*a, *b, apart),
        (Rule::Chosen, Value::Bulk(_), Value::Bulk(_)) => true,
        (Rule::Unordered, a, b) => same(&sorted(a, 1), &sorted(b, 1)),
        (Rule::Pairs, a, b) => same(&sorted(a, 2), &sorted(b, 2)),
        _ => same(a, b),
    }
}

/// Equal, but for the sign of zeros.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) | (Value::Set(a), Value::Set(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Bulk(a), Value::Bulk(b)) => a == b || is_zero(a) && is_zero(b),
        (Value::Double(a), Value::Double(b)) => {
            a == b || is_zero(a.as_bytes()) && is_zero(b.as_bytes())
        }
        _ => a == b,
    }
}

fn is_zero(score: &[u8]) -> bool {
    score == b"0" || score == b"-0"
}

/// Two deadlines; negative numbers are not one.
pub fn near(a: i64, b: i64, apart: i64) -> bool {
    a == b || a >= 0 && b >= 0 && (a - b).abs() <= apart
}

/// The elements in some order, by `together` if the array is flat.
pub fn sorted(value: &Value, together: usize) -> Value {
    let in_order = |items: &[Value]| {
        let flat = items.iter().all(|item| matches!(item, Value::Bulk(_)));
        let together = if flat { together } else { 1 };
        let mut groups: Vec<&[Value]> = items.chunks(together).collect();
        groups.sort_by_cached_key(|group| format!("{group:?}"));
        groups.concat()
    };
    match value {
        Value::Array(items) => Value::Array(in_order(items)),
        Value::Set(items) => Value::Set(in_order(items)),
        Value::Map(pairs) => {
            let mut pairs = pairs.clone();
            pairs.sort_by_cached_key(|pair| format!("{pair:?}"));
            Value::Map(pairs)
        }
        value => value.clone(),
    }
}

/// A reply for the eye.
pub fn show(value: &Value) -> String {
    let list = |items: &[Value]| items.iter().map(show).collect::<Vec<_>>().join(" ");
    let text = match value {
        Value::Bulk(text) => format!("\"{}\"", text.escape_ascii()),
        Value::Simple(text) => format!("+{}", text.escape_ascii()),
        Value::Error(text) => format!("-{}", text.escape_ascii()),
        Value::Array(items) => format!("[{}]", list(items)),
        Value::Set(items) => format!("~[{}]", list(items)),
        value => format!("{value:?}"),
    };
    match text.char_indices().nth(2000) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()),
        None => text,
    }
}

/// What a client has queued: the replies of EXEC are compared as those of its commands.
#[derive(Default)]
pub struct Queue(Option<Vec<Argv>>);

impl Queue {
    /// Compares the replies to a command, and remembers it if it was queued.
    pub fn alike(&self, argv: &Argv, expected: &Value, got: &Value) -> bool {
        match (&self.0, expected, got) {
            (Some(queued), Value::Array(a), Value::Array(b)) if argv[0] == "EXEC" => {
                let same_number = a.len() == queued.len() && b.len() == queued.len();
                let replies = a.iter().zip(b);
                same_number
                    && queued
                        .iter()
                        .zip(replies)
                        .all(|(argv, (a, b))| alike(argv, a, b))
            }
            _ => alike(argv, expected, got),
        }
    }

    /// Whether the client is between MULTI and EXEC.
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }

    pub fn remember(&mut self, argv: &Argv, reply: &Value) {
        let ends = match reply {
            Value::Error(text) => text.starts_with(b"EXECABORT"),
            _ => true,
        };
        match argv[0].as_str() {
            _ if *reply == Value::Simple(b"QUEUED".to_vec()) => {
                if let Some(queued) = &mut self.0 {
                    queued.push(argv.clone());
                }
            }
            "MULTI" if *reply == Value::Simple(b"OK".to_vec()) => self.0 = Some(Vec::new()),
            "EXEC" | "DISCARD" if ends => self.0 = None,
            _ => {}
        }
    }
}
