//! A transcript file as steps.

use std::ops::Range;
use std::path::Path;

use super::notation::{self, Pattern};

/// One file of `tests/transcripts`.
pub struct Script {
    pub lines: Vec<String>,
    pub steps: Vec<Step>,
    /// Needs sessions: not for the pure table.
    pub needs_server: bool,
    /// Why a real Redis answers differently throughout, if it does.
    pub oracle_skip: Option<String>,
}

pub struct Step {
    /// Counted from 0; messages count from 1.
    pub line: usize,
    pub action: Action,
    /// Lines of the expectation, and the expectation if there is one.
    pub expected_lines: Range<usize>,
    pub expected: Option<Expected>,
    /// Repeat until the reply is as expected.
    pub eventually: bool,
    /// The reply is not compared on the oracle.
    pub oracle_skip: bool,
    /// Not run on the pure table.
    pub pure_skip: bool,
}

pub enum Action {
    Send(Vec<Vec<u8>>),
    /// Bytes as they are, for broken or inline requests.
    SendRaw(Vec<u8>),
    /// The next reply of a client that has one coming.
    Receive,
    Client(usize),
    Protocol(u8),
    Close,
    /// Let time pass: real on a server, a number in the pure table.
    Advance(u64),
}

#[derive(Debug)]
pub enum Expected {
    Reply(Pattern),
    /// The client waits; its reply is read later by `@wait`.
    Blocked,
    /// Nothing is read (`CLIENT REPLY OFF`, an unfinished request).
    NoReply,
}

impl Script {
    pub fn read(path: &Path) -> Result<Script, String> {
        let text = std::fs::read_to_string(path).map_err(|err| err.to_string())?;
        let mut script = Script {
            lines: text.lines().map(str::to_owned).collect(),
            steps: Vec::new(),
            needs_server: false,
            oracle_skip: None,
        };
        script
            .parse()
            .map_err(|(line, why)| format!("{}:{}: {why}", path.display(), line + 1))?;
        Ok(script)
    }

    fn parse(&mut self) -> Result<(), (usize, String)> {
        let mut at = 0;
        let (mut eventually, mut oracle_skip, mut pure_skip) = (false, false, false);
        while at < self.lines.len() {
            let line = self.lines[at].trim_end();
            let here = at;
            at += 1;
            let fail = |why: String| (here, why);
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let action = match word {
                "" => continue,
                _ if word.starts_with('#') => continue,
                ">" => Action::Send(words(rest).map_err(fail)?),
                ">>" => Action::SendRaw(words(rest).map_err(fail)?.concat()),
                "@wait" => Action::Receive,
                "@client" => Action::Client(rest.parse().map_err(|_| fail("@client N".into()))?),
                "@close" => Action::Close,
                "@resp3" => Action::Protocol(3),
                "@resp2" => Action::Protocol(2),
                "@advance" => Action::Advance(
                    rest.parse()
                        .map_err(|_| fail("@advance milliseconds".into()))?,
                ),
                "@server" => {
                    self.needs_server = true;
                    continue;
                }
                "@eventually" => {
                    eventually = true;
                    continue;
                }
                "@oracle-skip" | "@pure-skip" | "@oracle-skip-all" if rest.is_empty() => {
                    return Err(fail(format!("{word} needs a reason")));
                }
                "@oracle-skip" => {
                    oracle_skip = true;
                    continue;
                }
                "@pure-skip" => {
                    pure_skip = true;
                    continue;
                }
                "@oracle-skip-all" => {
                    self.oracle_skip = Some(rest.to_owned());
                    continue;
                }
                _ => return Err(fail(format!("neither command nor directive: {line}"))),
            };
            let replies = matches!(
                action,
                Action::Send(_) | Action::SendRaw(_) | Action::Receive
            );
            let first = at;
            while replies && self.lines.get(at).is_some_and(|line| is_reply(line)) {
                at += 1;
            }
            let expected = match &self.lines[first..at] {
                [] => None,
                [one] if one.trim_end() == "(blocked)" => Some(Expected::Blocked),
                [one] if one.trim_end() == "(no reply)" => Some(Expected::NoReply),
                lines => Some(Expected::Reply(
                    notation::parse(lines).map_err(|why| (first, why))?,
                )),
            };
            self.steps.push(Step {
                line: here,
                action,
                expected_lines: first..at,
                expected,
                eventually: std::mem::take(&mut eventually),
                oracle_skip: std::mem::take(&mut oracle_skip),
                pure_skip: std::mem::take(&mut pure_skip),
            });
        }
        Ok(())
    }
}

fn is_reply(line: &str) -> bool {
    !(line.trim().is_empty() || line.starts_with(['>', '@', '#']))
}

/// Splits a line into arguments as redis-cli does: `"…"` with escapes, `'…'` as it is; a bare
/// `<x*1000>` is `x` a thousand times.
pub fn words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim().as_bytes();
    while let Some(&first) = rest.first() {
        let (word, used) = match first {
            b'"' => double_quoted(rest)?,
            b'\'' => {
                let end = rest[1..].iter().position(|&b| b == b'\'');
                let end = end.ok_or("no closing '")? + 1;
                (rest[1..end].to_vec(), end + 1)
            }
            _ => {
                let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
                (repeated(&rest[..end]), end)
            }
        };
        rest = &rest[used..];
        if rest.first().is_some_and(|&b| b != b' ') {
            return Err(format!("a space must follow a closing quote: {line}"));
        }
        rest = rest.trim_ascii_start();
        words.push(word);
    }
    Ok(words)
}

fn double_quoted(text: &[u8]) -> Result<(Vec<u8>, usize), String> {
    let mut word = Vec::new();
    let mut at = 1;
    loop {
        let byte = *text.get(at).ok_or("no closing \"")?;
        at += 1;
        match byte {
            b'"' => return Ok((word, at)),
            b'\\' => {
                let escape = *text.get(at).ok_or("no closing \"")?;
                at += 1;
                word.push(match escape {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'0' => 0,
                    b'a' => 7,
                    b'b' => 8,
                    b'x' => {
                        let digits = text.get(at..at + 2).ok_or("\\x needs two digits")?;
                        at += 2;
                        let digits = std::str::from_utf8(digits).map_err(|e| e.to_string())?;
                        u8::from_str_radix(digits, 16).map_err(|e| e.to_string())?
                    }
                    other => other,
                });
            }
            other => word.push(other),
        }
    }
}

fn repeated(word: &[u8]) -> Vec<u8> {
    let parts = word
        .strip_prefix(b"<")
        .and_then(|w| w.strip_suffix(b">"))
        .and_then(|w| std::str::from_utf8(w).ok())
        .and_then(|w| w.rsplit_once('*'));
    match parts.map(|(text, n)| (text, n.parse::<usize>())) {
        Some((text, Ok(n))) => text.repeat(n).into_bytes(),
        _ => word.to_vec(),
    }
}
