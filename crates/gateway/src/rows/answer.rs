//! A reply of a session as a value, and how replies are found in what a session sent.

use bytes::Bytes;
use session::forward::Looked;

/// Replies about rows are flat: three levels, MGET and SCAN one more.
const DEPTH_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Text(String),
    Error(String),
    Int(i64),
    Bulk(Bytes),
    Nil,
    List(Vec<Answer>),
}

/// The session said something that is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonsense;

impl Answer {
    /// Exactly one whole reply.
    pub fn parse(whole: &Bytes) -> Result<Answer, Nonsense> {
        let mut at = 0;
        let answer = part(whole, &mut at, 0)?;
        match at == whole.len() {
            true => Ok(answer),
            false => Err(Nonsense),
        }
    }
}

fn part(whole: &Bytes, at: &mut usize, depth: usize) -> Result<Answer, Nonsense> {
    let rest = whole.get(*at..).ok_or(Nonsense)?;
    let line = rest
        .iter()
        .position(|&byte| byte == b'\n')
        .ok_or(Nonsense)?;
    let head = rest.get(..line.saturating_sub(1)).ok_or(Nonsense)?;
    *at += line + 1;
    let (marker, text) = head.split_first().ok_or(Nonsense)?;
    let shown = || String::from_utf8_lossy(text).into_owned();
    let number = || -> Result<i64, Nonsense> {
        let text = std::str::from_utf8(text).map_err(|_| Nonsense)?;
        text.parse().map_err(|_| Nonsense)
    };
    match marker {
        b'+' => Ok(Answer::Text(shown())),
        b'-' => Ok(Answer::Error(shown())),
        b':' => Ok(Answer::Int(number()?)),
        b'$' => {
            let Ok(len) = usize::try_from(number()?) else {
                return Ok(Answer::Nil);
            };
            let end = at.checked_add(len).ok_or(Nonsense)?;
            if end.checked_add(2).is_none_or(|end| end > whole.len()) {
                return Err(Nonsense);
            }
            let bulk = whole.slice(*at..end);
            *at = end + 2;
            Ok(Answer::Bulk(bulk))
        }
        b'*' if depth < DEPTH_MAX => {
            let Ok(len) = usize::try_from(number()?) else {
                return Ok(Answer::Nil);
            };
            let mut parts = Vec::new();
            for _ in 0..len {
                parts.push(part(whole, at, depth + 1)?);
            }
            Ok(Answer::List(parts))
        }
        _ => Err(Nonsense),
    }
}

/// What a session sends, cut into replies.
#[derive(Default)]
pub struct Inbound {
    buffer: bytes::BytesMut,
    looked: Looked,
}

impl Inbound {
    /// To be read into.
    pub fn buffer(&mut self) -> &mut bytes::BytesMut {
        &mut self.buffer
    }

    /// The next whole reply, if it is there.
    pub fn next(&mut self) -> Result<Option<Answer>, Nonsense> {
        match self.looked.reply_end(&self.buffer) {
            Ok(Some(end)) => Answer::parse(&self.buffer.split_to(end).freeze()).map(Some),
            Ok(None) => Ok(None),
            Err(_) => Err(Nonsense),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_wherever_they_are_cut() {
        let sent = b"*3\r\n+ok\r\n:-7\r\n*2\r\n$3\r\nage\r\n$2\r\n\r\n\r\n-ERR no\r\n$-1\r\n";
        let expected = [
            Answer::List(vec![
                Answer::Text("ok".into()),
                Answer::Int(-7),
                Answer::List(vec![
                    Answer::Bulk(Bytes::from_static(b"age")),
                    Answer::Bulk(Bytes::from_static(b"\r\n")),
                ]),
            ]),
            Answer::Error("ERR no".into()),
            Answer::Nil,
        ];
        for step in 1..sent.len() {
            let mut inbound = Inbound::default();
            let mut found = Vec::new();
            for piece in sent.chunks(step) {
                inbound.buffer().extend_from_slice(piece);
                while let Some(answer) = inbound.next().unwrap() {
                    found.push(answer);
                }
            }
            assert_eq!(found, expected, "in steps of {step}");
        }
    }

    #[test]
    fn nonsense_is_no_reply() {
        for text in ["?\r\n", ":x\r\n", "$5\r\nab\r\n", "*1\r\n", "+a\r\n+b\r\n"] {
            let whole = Bytes::copy_from_slice(text.as_bytes());
            assert_eq!(Answer::parse(&whole), Err(Nonsense), "{text:?}");
        }
        let deep = Bytes::from("*1\r\n".repeat(20) + ":1\r\n");
        assert_eq!(Answer::parse(&deep), Err(Nonsense));
    }
}
