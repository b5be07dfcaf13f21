//! An entry taken apart once: loading, prefetching and executing look at its commands in turn.

use base::DbIndex;
use base::limits::DATABASES;
use command::CommandSpec;
use keyspace::rows::Changes;
use replica::entry::{self, Body};
use resp::{Args, Span};

use crate::Specs;

/// What an entry of the log says.
pub(crate) enum Parsed {
    /// A leader began its term.
    Empty,
    Commands(ParsedCommands),
    /// Rows to be written; then memory follows.
    Rows(Changes),
    /// Keys that go if they still have these deadlines.
    Expire(Vec<(DbIndex, Box<[u8]>, u64)>),
    /// Every replica takes a digest of its state, under this id.
    Digest(u64),
}

/// The commands of an entry: where in its payload their arguments are.
#[derive(Default)]
pub(crate) struct ParsedCommands {
    spans: Vec<Span>,
    commands: Vec<ParsedCommand>,
}

#[derive(Clone, Copy)]
pub(crate) struct ParsedCommand {
    pub db: DbIndex,
    pub stat: u16,
    /// Where in `spans` its arguments are.
    start: u32,
    end: u32,
}

impl ParsedCommands {
    #[inline]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    #[inline]
    pub fn get(&self, nth: usize) -> Option<ParsedCommand> {
        self.commands.get(nth).copied()
    }

    #[inline]
    pub fn args<'a>(&'a self, payload: &'a [u8], command: ParsedCommand) -> Args<'a> {
        let spans = self.spans.get(command.start as usize..command.end as usize);
        Args::new(payload, spans.unwrap_or_default())
    }

    /// Calls `each` with every command.
    pub fn each<'a>(
        &'a self,
        specs: &'a Specs,
        payload: &'a [u8],
        mut each: impl FnMut(&'a CommandSpec, DbIndex, Args<'a>),
    ) {
        for &command in &self.commands {
            let spec = specs.spec(command.stat as usize);
            each(spec, command.db, self.args(payload, command));
        }
    }

    fn clear(&mut self) {
        self.spans.clear();
        self.commands.clear();
    }
}

/// A payload and what it says.
pub(crate) struct ParsedEntry {
    pub stamp_ms: u64,
    pub seed: u64,
    pub body: Parsed,
}

/// Takes an entry apart. `room` is used again.
pub(crate) fn parse(
    specs: &Specs,
    index: u64,
    payload: &[u8],
    room: &mut ParsedCommands,
) -> Result<ParsedEntry, String> {
    if payload.is_empty() {
        return Ok(ParsedEntry {
            stamp_ms: 0,
            seed: 0,
            body: Parsed::Empty,
        });
    }
    let unreadable = |error| format!("entry {index} of the log cannot be read: {error}");
    let entry = entry::decode_lazily(payload).map_err(unreadable)?;
    let check = |db: DbIndex| match db < DATABASES {
        true => Ok(()),
        false => Err(format!("entry {index} of the log names a database {db}")),
    };
    let body = match entry.body {
        Body::Rows(bytes) => match Changes::decode(bytes) {
            Some(changes) => Parsed::Rows(changes),
            None => {
                let text = format!("entry {index} of the log has rows that cannot be read");
                return Err(text);
            }
        },
        Body::Digest(id) => Parsed::Digest(id),
        Body::Expire(keys) => {
            let mut expired = Vec::with_capacity(keys.len());
            for key in keys {
                check(key.db)?;
                expired.push((key.db, key.key.into(), key.deadline_ms));
            }
            Parsed::Expire(expired)
        }
        Body::Commands(mut given) => {
            let mut parsed = std::mem::take(room);
            parsed.clear();
            parsed.commands.reserve(given.len());
            loop {
                let start = parsed.spans.len();
                let spans = &mut parsed.spans;
                let read = given.read(|start, len| spans.push(Span { start, len }));
                let Some(db) = read.map_err(unreadable)? else {
                    break;
                };
                check(db)?;
                let spans = parsed.spans.get(start..).unwrap_or_default();
                let resolved = specs.table.resolve_logged(&Args::new(payload, spans));
                let Ok((number, spec)) = resolved else {
                    return Err(format!(
                        "entry {index} of the log has a command this version does not know"
                    ));
                };
                parsed.commands.push(ParsedCommand {
                    db,
                    stat: specs.stat_number(number, spec) as u16,
                    start: start as u32,
                    end: parsed.spans.len() as u32,
                });
            }
            Parsed::Commands(parsed)
        }
    };
    Ok(ParsedEntry {
        stamp_ms: entry.stamp_ms,
        seed: entry.seed,
        body,
    })
}
