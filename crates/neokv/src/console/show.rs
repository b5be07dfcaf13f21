//! Answers as text, as redis-cli writes them: numbered and quoted for people, or raw, one element per line, for
//! programs. `tests/console.rs` compares both with redis-cli.

use crate::client::Answer;

/// Without the last line end.
pub fn raw(answer: &Answer) -> Vec<u8> {
    match answer {
        Answer::Null => Vec::new(),
        Answer::Status(text)
        | Answer::Double(text)
        | Answer::BigNumber(text)
        | Answer::Bulk(text)
        | Answer::Verbatim(text) => text.clone(),
        // An empty line sets an error apart.
        Answer::Error(text) => [text, b"\n".as_slice()].concat(),
        Answer::Int(number) => number.to_string().into_bytes(),
        Answer::Bool(value) => if *value { "(true)" } else { "(false)" }.into(),
        Answer::Array(list) | Answer::Set(list) | Answer::Push(list) => {
            let lines: Vec<Vec<u8>> = list.iter().map(raw).collect();
            lines.join(&b'\n')
        }
        Answer::Map(pairs) => {
            let line = |(name, value): &(_, _)| [raw(name), raw(value)].join(&b' ');
            let lines: Vec<Vec<u8>> = pairs.iter().map(line).collect();
            lines.join(&b'\n')
        }
    }
}

/// With line ends, except behind a text that brings its own.
pub fn for_people(answer: &Answer) -> Vec<u8> {
    let mut text = Vec::new();
    write(answer, "", &mut text);
    text
}

/// `indent` stands before every line but the first.
fn write(answer: &Answer, indent: &str, text: &mut Vec<u8>) {
    let line = |words: &[&[u8]], text: &mut Vec<u8>| {
        words.iter().for_each(|word| text.extend_from_slice(word));
        text.push(b'\n');
    };
    match answer {
        Answer::Null => line(&[b"(nil)"], text),
        Answer::Status(status) => line(&[status], text),
        Answer::Error(why) => line(&[b"(error) ", why], text),
        Answer::Int(number) => line(&[b"(integer) ", number.to_string().as_bytes()], text),
        Answer::Bool(true) => line(&[b"(true)"], text),
        Answer::Bool(false) => line(&[b"(false)"], text),
        Answer::Double(number) => line(&[b"(double) ", number], text),
        Answer::BigNumber(number) => line(&[number], text),
        Answer::Verbatim(words) => line(&[words], text),
        Answer::Bulk(bytes) => {
            text.push(b'"');
            bytes.iter().for_each(|&byte| resp::quote(byte, text));
            text.extend_from_slice(b"\"\n");
        }
        Answer::Array(list) if list.is_empty() => line(&[b"(empty array)"], text),
        Answer::Set(list) if list.is_empty() => line(&[b"(empty set)"], text),
        Answer::Push(list) if list.is_empty() => line(&[b"(empty push)"], text),
        Answer::Map(pairs) if pairs.is_empty() => line(&[b"(empty hash)"], text),
        Answer::Array(list) | Answer::Push(list) => elements(list, ')', indent, text),
        Answer::Set(list) => elements(list, '~', indent, text),
        Answer::Map(pairs) => {
            let numbers = Numbers::of(pairs.len(), '#', indent);
            for (at, (name, value)) in pairs.iter().enumerate() {
                numbers.write(at, text);
                write(name, &numbers.indent, text);
                if text.ends_with(b"\n") {
                    text.pop();
                }
                text.extend_from_slice(b" => ");
                if elements_of(value) > 1 {
                    text.push(b'\n');
                    text.extend_from_slice(numbers.indent.as_bytes());
                }
                write(value, &numbers.indent, text);
            }
        }
    }
}

fn elements(list: &[Answer], sign: char, indent: &str, text: &mut Vec<u8>) {
    let numbers = Numbers::of(list.len(), sign, indent);
    for (at, element) in list.iter().enumerate() {
        numbers.write(at, text);
        write(element, &numbers.indent, text);
    }
}

fn elements_of(answer: &Answer) -> usize {
    match answer {
        Answer::Array(list) | Answer::Set(list) | Answer::Push(list) => list.len(),
        Answer::Map(pairs) => pairs.len(),
        _ => 0,
    }
}

/// ` 1) `, ` 2) ` … of one width.
struct Numbers<'a> {
    outer: &'a str,
    /// Of what is within an element.
    indent: String,
    width: usize,
    sign: char,
}

impl Numbers<'_> {
    fn of(count: usize, sign: char, outer: &str) -> Numbers<'_> {
        let width = count.to_string().len();
        let indent = format!("{outer}{:1$}", "", width + 2);
        Numbers {
            outer,
            indent,
            width,
            sign,
        }
    }

    fn write(&self, at: usize, text: &mut Vec<u8>) {
        // The first stands behind the number of the list it is in.
        let outer = if at == 0 { "" } else { self.outer };
        let number = format!("{outer}{:1$}{2} ", at + 1, self.width, self.sign);
        text.extend_from_slice(number.as_bytes());
    }
}
