//! A `ROW.*` command being written, word by word.

use std::fmt::Display;

/// A command as it is sent: how many words, and the words.
pub struct Words {
    count: usize,
    body: Vec<u8>,
}

impl Words {
    pub fn new(name: &str) -> Words {
        let mut words = Words {
            count: 0,
            body: Vec::with_capacity(128),
        };
        words.add(name.as_bytes());
        words
    }

    pub fn add(&mut self, word: &[u8]) -> &mut Words {
        self.count += 1;
        self.body
            .extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        self.body.extend_from_slice(word);
        self.body.extend_from_slice(b"\r\n");
        self
    }

    pub fn number(&mut self, number: impl Display) -> &mut Words {
        self.add(number.to_string().as_bytes())
    }

    /// `table:key`.
    pub fn key(&mut self, table: &str, key: &str) -> &mut Words {
        self.add(format!("{table}:{key}").as_bytes())
    }

    /// `FIELDS n f …`, if any are named.
    pub fn fields(&mut self, fields: &[String]) -> &mut Words {
        if !fields.is_empty() {
            self.add(b"FIELDS").names(fields);
        }
        self
    }

    pub fn names(&mut self, fields: &[String]) -> &mut Words {
        self.number(fields.len());
        for field in fields {
            self.add(field.as_bytes());
        }
        self
    }

    /// The words one by one.
    pub fn parts(&self) -> Vec<&[u8]> {
        let mut parts = Vec::with_capacity(self.count);
        let mut rest = self.body.as_slice();
        while let Some(end) = rest.iter().position(|&byte| byte == b'\r') {
            let length = rest.get(1..end).and_then(|it| std::str::from_utf8(it).ok());
            let length: usize = length.and_then(|it| it.parse().ok()).unwrap_or(0);
            let start = end + 2;
            parts.push(rest.get(start..start + length).unwrap_or_default());
            rest = rest.get(start + length + 2..).unwrap_or_default();
        }
        parts
    }

    /// Appends the whole command.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("*{}\r\n", self.count).as_bytes());
        out.extend_from_slice(&self.body);
    }

    #[cfg(test)]
    pub fn shown(&self) -> String {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        let words: Vec<&str> = text.split("\r\n").skip(1).step_by(2).collect();
        words.join(" ")
    }
}
