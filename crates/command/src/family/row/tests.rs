//! Row commands over a region with two tables, word by word.

use keyspace::{Keyspace, Tuning, View};
use resp::{Args, Protocol, Reply, Span};
use table::entry::{Flushed, Found};
use table::{Entry, Image, RowId, Table, Value, parse_fields};

use crate::table::Table as Commands;

mod among_keys;
mod changes;
mod hashes;

/// A region whose tables are `users` and `notes`. Rows are missing unless a test loads them.
struct Bed {
    space: Keyspace,
    commands: Commands,
    db: base::DbIndex,
}

const USERS: u32 = 1;

fn users() -> Table {
    Table {
        id: USERS,
        name: "users".into(),
        epoch: 3,
        backend: "main".into(),
        sql_name: "users".into(),
        fields: parse_fields(
            "age:int64=7,name:string,coins:uint64,score:float64,face:blob",
            1,
        )
        .unwrap(),
        next_field: 6,
        closed: false,
    }
}

fn notes() -> Table {
    Table {
        id: 2,
        name: "notes".into(),
        epoch: 1,
        fields: parse_fields("text:string", 1).unwrap(),
        next_field: 2,
        closed: false,
        ..users()
    }
}

impl Bed {
    fn new() -> Bed {
        let mut bed = Bed::bare();
        bed.apply(Entry::Schema(users()));
        bed.apply(Entry::Schema(notes()));
        bed
    }

    /// Without tables.
    fn bare() -> Bed {
        Bed {
            space: Keyspace::new(1),
            commands: Commands::pure(),
            db: 0,
        }
    }

    fn with(keys: &[&str]) -> Bed {
        let mut bed = Bed::new();
        bed.missing(keys);
        bed
    }

    /// Through the log, as the leader does.
    fn apply(&mut self, entry: Entry) {
        let bytes = entry.encode();
        assert_eq!(self.say_bytes(&[b"ROW.APPLY", &bytes]), "OK");
    }

    /// SQL has no such users.
    fn missing(&mut self, keys: &[&str]) {
        let rows = keys
            .iter()
            .map(|key| (RowId::new(USERS, key), Found::Missing));
        self.apply(Entry::Loaded {
            term: 1,
            rows: rows.collect(),
        });
    }

    /// SQL has this user, `age` years old.
    fn load(&mut self, key: &str, version: i64, age: i64) {
        let image = Image::of_values(&users(), version, vec![Value::Int(age)]);
        self.apply(Entry::Loaded {
            term: 1,
            rows: vec![(RowId::new(USERS, key), Found::Row(image))],
        });
    }

    /// SQL has the change.
    fn flush(&mut self, key: &str, version: u64) {
        self.apply(Entry::Flushed(vec![Flushed {
            id: RowId::new(USERS, key),
            version,
            taken: 1,
        }]));
    }

    /// Words apart by spaces.
    fn say(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.say_bytes(&words)
    }

    fn say_bytes(&mut self, words: &[&[u8]]) -> String {
        self.run(words, false)
    }

    fn run(&mut self, words: &[&[u8]], runs_dry: bool) -> String {
        let mut spans = Vec::new();
        let mut start = 0;
        for word in words {
            let len = word.len() as u32;
            spans.push(Span { start, len });
            start += len;
        }
        let buffer = words.concat();
        let args = Args::new(&buffer, &spans);
        let mut reply = Reply::new(Protocol::Resp2);
        let tuning = Tuning::default();
        let mut view = View::one(&mut self.space, self.db, 1_000, 5, &tuning);
        if runs_dry {
            view = view.dry_run();
        }
        let result = self
            .commands
            .resolve_logged(&args)
            .and_then(|(_, command)| crate::call(command, view, &args, &mut reply));
        if let Err(refusal) = result {
            reply.truncate(0);
            reply.refusal(&refusal);
        }
        let mut text = String::new();
        let rest = show(reply.as_bytes(), &mut text);
        assert_eq!(rest, b"", "one reply");
        text
    }
}

/// Appends one RESP2 value as text; what is behind it.
fn show<'a>(bytes: &'a [u8], text: &mut String) -> &'a [u8] {
    let end = bytes.windows(2).position(|two| two == b"\r\n").unwrap();
    let line = std::str::from_utf8(&bytes[1..end]).unwrap();
    let mut rest = &bytes[end + 2..];
    match bytes[0] {
        b'-' => *text += &format!("-{line}"),
        b'+' | b':' => *text += line,
        b'$' if line == "-1" => *text += "nil",
        b'$' => {
            let len: usize = line.parse().unwrap();
            *text += &String::from_utf8_lossy(&rest[..len]);
            rest = &rest[len + 2..];
        }
        b'*' => {
            *text += "[";
            for nth in 0..line.parse().unwrap() {
                *text += if nth > 0 { " " } else { "" };
                rest = show(rest, text);
            }
            *text += "]";
        }
        other => panic!("{}", other as char),
    }
    rest
}

/// Says a line and compares.
macro_rules! says {
    ($bed:expr, $($line:expr => $reply:expr),+ $(,)?) => {
        $(assert_eq!($bed.say($line), $reply, "{}", $line);)+
    };
}
use says;
