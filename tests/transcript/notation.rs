//! Replies as people read them: the notation of `tests/transcripts/README.md`, both ways.
//!
//! [`render`] writes a reply, [`parse`] reads an expectation, [`Pattern::matches`] compares. An
//! expectation may say less than a reply: any order, one of several, anything.

use super::wire::Value;

/// What a reply is compared with.
#[derive(Debug, Clone)]
pub enum Pattern {
    Any,
    AnyInt,
    AnyBulk,
    /// An integer between two bounds, both included.
    Between(i64, i64),
    /// Text of a bulk, simple or verbatim string, as a glob.
    Like(String),
    ErrorLike(String),
    OneOf(Vec<Pattern>),
    Scalar(Value),
    Array(Vec<Pattern>, Order),
    Set(Vec<Pattern>),
    Push(Vec<Pattern>),
    Map(Vec<(Pattern, Pattern)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    AsWritten,
    Any,
    /// key, value, key, value: the pairs come in any order.
    AnyPairs,
}

impl Pattern {
    pub fn matches(&self, got: &Value) -> bool {
        match (self, got) {
            (Pattern::Any, got) => *got != Value::Closed,
            (Pattern::AnyInt, Value::Int(_)) => true,
            (Pattern::AnyBulk, Value::Bulk(_)) => true,
            (Pattern::Between(low, high), Value::Int(n)) => low <= n && n <= high,
            (
                Pattern::Like(glob),
                Value::Bulk(text) | Value::Simple(text) | Value::Verbatim(text),
            ) => base::glob::matches(glob.as_bytes(), text),
            (Pattern::ErrorLike(glob), Value::Error(text)) => {
                base::glob::matches(glob.as_bytes(), text)
            }
            (Pattern::OneOf(choices), got) => choices.iter().any(|one| one.matches(got)),
            // Editors strip spaces at line ends; Redis' "unknown command" line has one.
            (Pattern::Scalar(Value::Error(want)), Value::Error(got)) => {
                want == got.trim_ascii_end()
            }
            (Pattern::Scalar(want), got) => want == got,
            (Pattern::Array(want, Order::AsWritten), Value::Array(got))
            | (Pattern::Push(want), Value::Push(got)) => {
                want.len() == got.len() && want.iter().zip(got).all(|(w, g)| w.matches(g))
            }
            (Pattern::Array(want, Order::Any), Value::Array(got))
            | (Pattern::Set(want), Value::Set(got)) => {
                let got: Vec<_> = got.iter().collect();
                in_any_order(want, got, |want, got| want.matches(got))
            }
            (Pattern::Array(want, Order::AnyPairs), Value::Array(got)) => {
                let want: Vec<_> = want.chunks(2).collect();
                let got: Vec<_> = got.chunks(2).collect();
                in_any_order(&want, got, |want, got| {
                    want.len() == got.len() && want.iter().zip(*got).all(|(w, g)| w.matches(g))
                })
            }
            (Pattern::Map(want), Value::Map(got)) => {
                let got: Vec<_> = got.iter().collect();
                in_any_order(want, got, |want, got| {
                    want.0.matches(&got.0) && want.1.matches(&got.1)
                })
            }
            _ => false,
        }
    }
}

/// Each wanted item takes the first that fits. (Greedy: put patterns that fit much behind exact ones.)
fn in_any_order<W, G>(want: &[W], mut got: Vec<G>, fits: impl Fn(&W, &G) -> bool) -> bool {
    want.len() == got.len()
        && want.iter().all(|want| {
            let found = got.iter().position(|got| fits(want, got));
            found.map(|at| got.swap_remove(at)).is_some()
        })
}

/// The reply in the notation, lines without a line end.
pub fn render(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => aggregate(items, ')', "(empty array)"),
        Value::Set(items) => aggregate(items, '~', "(empty set)"),
        Value::Push(items) => aggregate(items, '>', "(empty push)"),
        Value::Map(pairs) if pairs.is_empty() => vec!["(empty map)".into()],
        Value::Map(pairs) => {
            let mut lines = Vec::new();
            for (i, (key, value)) in pairs.iter().enumerate() {
                let head = format!("{}# {} => ", i + 1, render(key).join(" "));
                indent(&mut lines, head, render(value));
            }
            lines
        }
        scalar => vec![render_scalar(scalar)],
    }
}

fn aggregate(items: &[Value], mark: char, empty: &str) -> Vec<String> {
    if items.is_empty() {
        return vec![empty.into()];
    }
    let mut lines = Vec::new();
    for (i, item) in items.iter().enumerate() {
        indent(&mut lines, format!("{}{mark} ", i + 1), render(item));
    }
    lines
}

fn indent(lines: &mut Vec<String>, head: String, inner: Vec<String>) {
    let margin = " ".repeat(head.len());
    for (i, line) in inner.into_iter().enumerate() {
        lines.push(format!("{}{line}", if i == 0 { &head } else { &margin }));
    }
}

fn render_scalar(value: &Value) -> String {
    match value {
        Value::Simple(text) => {
            let text = text.escape_ascii().to_string();
            let plain = text.starts_with(|c: char| c.is_ascii_alphabetic());
            if plain {
                text
            } else {
                format!("(simple) {text}")
            }
        }
        Value::Error(text) => format!("(error) {}", String::from_utf8_lossy(text).trim_end()),
        Value::Int(n) => format!("(integer) {n}"),
        Value::Bulk(bytes) => match repeated(bytes) {
            Some((byte, n)) => format!("{} * {n}", quote(&[byte])),
            None => quote(bytes),
        },
        Value::Verbatim(bytes) => format!("(verbatim) {}", quote(bytes)),
        Value::Double(text) => format!("(double) {text}"),
        Value::BigNumber(text) => format!("(big number) {text}"),
        Value::Bool(value) => format!("({value})"),
        Value::Nil => "(nil)".into(),
        Value::NilArray => "(nil array)".into(),
        Value::Closed => "(closed)".into(),
        Value::Array(_) | Value::Set(_) | Value::Push(_) | Value::Map(_) => unreachable!(),
    }
}

/// A long run of one byte, shown as `"x" * 1000`.
fn repeated(bytes: &[u8]) -> Option<(u8, usize)> {
    let first = *bytes.first()?;
    (bytes.len() > 64 && bytes.iter().all(|&b| b == first)).then_some((first, bytes.len()))
}

fn quote(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'\'' => text.push('\''),
            _ => text.push_str(&byte.escape_ascii().to_string()),
        }
    }
    text.push('"');
    text
}

/// Reads an expectation from its lines.
pub fn parse(lines: &[String]) -> Result<Pattern, String> {
    let mut at = 0;
    let pattern = parse_at(lines, &mut at, 0)?;
    match lines.get(at) {
        None => Ok(pattern),
        Some(line) => Err(format!("does not belong to the reply: {line}")),
    }
}

fn parse_at(lines: &[String], at: &mut usize, column: usize) -> Result<Pattern, String> {
    let text = part(lines, *at, column).ok_or("a value is missing")?;
    let order = match text.trim_end() {
        "(unordered)" => Order::Any,
        "(unordered pairs)" => Order::AnyPairs,
        _ => Order::AsWritten,
    };
    if order != Order::AsWritten {
        *at += 1;
        return match parse_at(lines, at, column)? {
            Pattern::Array(items, _) => Ok(Pattern::Array(items, order)),
            _ => Err("(unordered) goes before an array".into()),
        };
    }
    let Some((_, mark, _)) = head(text) else {
        *at += 1;
        return scalar(text);
    };
    let mut items = Vec::new();
    let mut pairs = Vec::new();
    while let Some(text) = part(lines, *at, column)
        && let Some((n, same, len)) = head(text)
        && same == mark
        && n == items.len() + pairs.len() + 1
        && (n == 1 || lines[*at][..column].trim().is_empty())
    {
        if mark != '#' {
            items.push(parse_at(lines, at, column + len)?);
            continue;
        }
        let (key, _) = text[len..]
            .split_once(" => ")
            .ok_or_else(|| format!("no => in {text}"))?;
        let value = parse_at(lines, at, column + len + key.len() + 4)?;
        pairs.push((scalar(key)?, value));
    }
    Ok(match mark {
        ')' => Pattern::Array(items, Order::AsWritten),
        '~' => Pattern::Set(items),
        '>' => Pattern::Push(items),
        _ => Pattern::Map(pairs),
    })
}

fn part(lines: &[String], at: usize, column: usize) -> Option<&str> {
    lines.get(at)?.get(column..)
}

/// `12) ` at the start of `text`: the number, the mark, how long it is.
fn head(text: &str) -> Option<(usize, char, usize)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let mark = text[digits..].chars().next()?;
    let n = text[..digits].parse().ok()?;
    let known = matches!(mark, ')' | '~' | '>' | '#') && text[digits + 1..].starts_with(' ');
    known.then_some((n, mark, digits + 2))
}

fn scalar(text: &str) -> Result<Pattern, String> {
    let text = text.trim_end();
    let value = |value| Ok(Pattern::Scalar(value));
    if text.starts_with('"') {
        let (quoted, times) = match text.rsplit_once("\" * ") {
            Some((quoted, times)) => (
                format!("{quoted}\""),
                times.parse().map_err(|_| format!("not a count: {times}"))?,
            ),
            None => (text.to_owned(), 1),
        };
        let words = super::script::words(&quoted)?;
        let [bytes] = words.as_slice() else {
            return Err(format!("not one string: {text}"));
        };
        return value(Value::Bulk(bytes.repeat(times)));
    }
    let Some((kind, rest)) = text.strip_prefix('(').and_then(|t| t.split_once(')')) else {
        return value(Value::Simple(text.as_bytes().to_vec()));
    };
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let int = |text: &str| {
        text.parse::<i64>()
            .map_err(|_| format!("not an integer: {text}"))
    };
    match kind {
        "any" => Ok(Pattern::Any),
        "any integer" => Ok(Pattern::AnyInt),
        "any bulk" => Ok(Pattern::AnyBulk),
        "integer" => match rest.split_once("..") {
            Some((low, high)) => Ok(Pattern::Between(int(low)?, int(high)?)),
            None => value(Value::Int(int(rest)?)),
        },
        "like" => Ok(Pattern::Like(rest.into())),
        "error like" => Ok(Pattern::ErrorLike(rest.into())),
        "one of" => rest
            .split(" | ")
            .map(scalar)
            .collect::<Result<_, _>>()
            .map(Pattern::OneOf),
        "error" => value(Value::Error(rest.as_bytes().to_vec())),
        "simple" => value(Value::Simple(rest.as_bytes().to_vec())),
        "verbatim" => match scalar(rest)? {
            Pattern::Scalar(Value::Bulk(bytes)) => value(Value::Verbatim(bytes)),
            _ => Err("(verbatim) needs a quoted text".into()),
        },
        "double" => value(Value::Double(rest.into())),
        "big number" => value(Value::BigNumber(rest.into())),
        "true" => value(Value::Bool(true)),
        "false" => value(Value::Bool(false)),
        "nil" => value(Value::Nil),
        "nil array" => value(Value::NilArray),
        "closed" => value(Value::Closed),
        "empty array" => value(Value::Array(Vec::new())),
        "empty set" => value(Value::Set(Vec::new())),
        "empty push" => value(Value::Push(Vec::new())),
        "empty map" => value(Value::Map(Vec::new())),
        _ => Err(format!("unknown notation: {text}")),
    }
}
