//! The words behind the key of a `ROW.*` command.
//!
//! They are read twice: first where everything is, then what the fields are. In between the epoch is compared, so that
//! a client that knows a newer schema is told to try again, and not that a field of it does not exist.

use base::{Refusal, number};
use keyspace::RowRef;
use resp::Args;
use table::entry::{Ask, Expect, Fields, Op, Request, Write};
use table::{Cause, Table, Value};

use super::{change, shown, unanswered};

/// What a command takes.
#[derive(Clone, Copy)]
pub struct Takes {
    pub fields: Words,
    pub when: bool,
    /// Expectations, requests, what is to be returned: for commands that change a row.
    pub change: bool,
    /// `VERSION`, of a read: the one the client has.
    pub version: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Words {
    None,
    Names,
    /// They must be there.
    Pairs,
}

/// A counted list among the arguments.
#[derive(Clone, Copy)]
struct Part {
    first: usize,
    count: usize,
}

enum Return {
    Default,
    All,
    None,
    Fields(Part),
}

pub struct Options<'a> {
    args: Args<'a>,
    fields: Option<Part>,
    when: Option<Part>,
    version: Option<i64>,
    present: bool,
    request: Option<Request>,
    epoch: u64,
    shown: Return,
}

impl<'a> Options<'a> {
    /// Reads the words from argument `first` on.
    pub fn parse(args: &Args<'a>, first: usize, takes: Takes) -> Result<Options<'a>, Refusal> {
        let mut options = Options {
            args: *args,
            fields: None,
            when: None,
            version: None,
            present: false,
            request: None,
            epoch: 0,
            shown: Return::Default,
        };
        let mut at = first;
        while at < args.len() {
            at = options.word(at, takes)?;
        }
        if takes.fields == Words::Pairs && options.fields.is_none() {
            return Err(options.lacks("FIELDS n field value ..."));
        }
        if takes.when && options.when.is_none() {
            return Err(options.lacks("WHEN n field value ..."));
        }
        if options.present && options.version.is_some() {
            return Err(Refusal::new(
                "ERR XX and VERSION exclude each other: a version says whether there is a row",
            ));
        }
        Ok(options)
    }

    /// Reads the option at `at`; where the next one begins.
    fn word(&mut self, at: usize, takes: Takes) -> Result<usize, Refusal> {
        let args = self.args;
        let is = |word| args.is(at, word);
        if is("FIELDS") && takes.fields != Words::None && self.fields.is_none() {
            let part = self.part(at + 1, takes.fields == Words::Pairs)?;
            self.fields = Some(part.0);
            return Ok(part.1);
        }
        if is("WHEN") && takes.when && self.when.is_none() {
            let part = self.part(at + 1, true)?;
            self.when = Some(part.0);
            return Ok(part.1);
        }
        if is("VERSION") && (takes.change || takes.version) && self.version.is_none() {
            self.version = Some(args.int(self.there(at + 1)?)?);
            return Ok(at + 2);
        }
        if is("EPOCH") && self.epoch == 0 {
            let text = args.at(self.there(at + 1)?);
            self.epoch = number::parse_u64(text).ok_or(Refusal::NotInteger)?;
            return Ok(at + 2);
        }
        if !takes.change {
            return Err(self.strange(at));
        }
        if is("XX") {
            self.present = true;
            return Ok(at + 1);
        }
        if is("REQUEST") && self.request.is_none() {
            let number = args.at(self.there(at + 2)?);
            self.request = Some(Request {
                client: parse_client(args.at(at + 1))?,
                number: number::parse_u64(number).ok_or(Refusal::NotInteger)?,
            });
            return Ok(at + 3);
        }
        if is("RETURN") && matches!(self.shown, Return::Default) {
            let what = self.there(at + 1)?;
            if args.is(what, "ALL") {
                self.shown = Return::All;
                return Ok(what + 1);
            }
            if args.is(what, "NONE") {
                self.shown = Return::None;
                return Ok(what + 1);
            }
            let (part, next) = self.part(what, false)?;
            self.shown = Return::Fields(part);
            return Ok(next);
        }
        Err(self.strange(at))
    }

    /// The argument, if there is one.
    fn there(&self, at: usize) -> Result<usize, Refusal> {
        match self.args.get(at) {
            Some(_) => Ok(at),
            None => Err(Refusal::Syntax),
        }
    }

    /// A count at `at` and what it counts; where the next option begins.
    fn part(&self, at: usize, pairs: bool) -> Result<(Part, usize), Refusal> {
        let count = self.args.int(self.there(at)?)?;
        let first = at + 1;
        let words = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(if pairs { 2 } else { 1 }))
            .filter(|words| *words <= self.args.len() - first);
        match words {
            Some(words) => {
                let count = count as usize;
                Ok((Part { first, count }, first + words))
            }
            None => Err(Refusal::text_of(format!(
                "ERR {} {count}: so many {} do not follow",
                shown(self.args.at(at - 1)),
                if pairs { "pairs" } else { "fields" }
            ))),
        }
    }

    #[cold]
    fn strange(&self, at: usize) -> Refusal {
        Refusal::text_of(format!(
            "ERR syntax error: '{}' is not expected here by {}",
            shown(self.args.at(at)),
            shown(self.args.at(0)).to_ascii_uppercase()
        ))
    }

    #[cold]
    fn lacks(&self, what: &str) -> Refusal {
        Refusal::text_of(format!(
            "ERR syntax error: {} needs {what}",
            shown(self.args.at(0)).to_ascii_uppercase()
        ))
    }

    /// The version the client of a read has.
    pub fn have(&self) -> Option<i64> {
        self.version
    }

    /// Whether the table is as new as the client knows it.
    pub fn check_epoch(&self, table: &Table) -> Result<(), Refusal> {
        match self.epoch > table.epoch {
            true => Err(unanswered(Cause::SchemaBehind)),
            false => Ok(()),
        }
    }

    /// What a read shows.
    pub fn asked(&self, table: &Table) -> Result<Ask, Refusal> {
        match self.fields {
            None => Ok(Ask::All),
            Some(part) => self.names(table, part),
        }
    }

    /// The pairs behind `FIELDS`.
    pub fn set(&self, table: &Table) -> Result<Fields, Refusal> {
        self.pairs(table, self.fields)
    }

    /// The pairs behind `WHEN`.
    pub fn when(&self, table: &Table) -> Result<Fields, Refusal> {
        self.pairs(table, self.when)
    }

    /// The change with its conditions. `ask` is what is returned unless the client says.
    pub fn change(&self, row: &RowRef, op: Op, ask: Ask) -> Result<Write, Refusal> {
        Ok(Write {
            expect: match self.version {
                Some(version) => Expect::Version(version),
                None if self.present => Expect::Present,
                None => Expect::Any,
            },
            ask: match self.shown {
                Return::Default => ask,
                Return::All => Ask::All,
                Return::None => Ask::Nothing,
                Return::Fields(part) => self.names(&row.table, part)?,
            },
            request: self.request,
            epoch: self.epoch,
            ..change(row, op)
        })
    }

    fn names(&self, table: &Table, part: Part) -> Result<Ask, Refusal> {
        let end = part.first + part.count;
        let id = |at| Ok(table.field_or_refuse(self.args.at(at))?.id);
        let ids: Result<Vec<u16>, Refusal> = (part.first..end).map(id).collect();
        Ok(Ask::Fields(ids?))
    }

    fn pairs(&self, table: &Table, part: Option<Part>) -> Result<Fields, Refusal> {
        let Some(part) = part else {
            return Ok(Fields::new());
        };
        parse_pairs(table, &self.args, part.first, part.count)
    }
}

/// `count` pairs of field and value from argument `first` on.
pub fn parse_pairs(
    table: &Table,
    args: &Args<'_>,
    first: usize,
    count: usize,
) -> Result<Fields, Refusal> {
    let mut fields = Fields::with_capacity(count);
    for nth in 0..count {
        let at = first + nth * 2;
        let field = table.field_or_refuse(args.at(at))?;
        let value = Value::parse(field.kind, &field.name, args.at(at + 1))?;
        fields.push((field.id, value));
    }
    Ok(fields)
}

fn parse_client(text: &[u8]) -> Result<u128, Refusal> {
    let digits = text.len() == 32 && text.iter().all(u8::is_ascii_hexdigit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)
        .and_then(|text| u128::from_str_radix(text, 16).ok())
        .ok_or(Refusal::new(
            "ERR REQUEST takes the client as 32 hexadecimal digits, then a number that grows",
        ))
}
