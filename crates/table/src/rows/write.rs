//! One change asked for: what becomes of the row, and what is answered.
//!
//! Judged in this order, and the first "no" is the answer: done before, no such table, schema behind, closed, not cached, expectation,
//! the operation itself, size. Until all have said yes the row is untouched.

use crate::entry::{Ask, Expect, Fields, Op, Write};
use crate::image::Image;
use crate::outcome::{Cause, Outcome};
use crate::schema::Table;
use crate::value::Value;

use super::{Row, Rows, State};

impl Rows {
    /// What is answered, and whether the row was clean before and is not any more. `stamp`: see [`Rows::run`].
    pub fn write(&mut self, stamp: u64, write: Write) -> (Outcome, bool) {
        let stamp = self.stamp(stamp);
        let request = write.request;
        if let Some(outcome) = request.and_then(|request| self.answers.find(request)) {
            return (outcome, false);
        }
        let (outcome, is_new) = match self.try_write(stamp, write) {
            Ok(done) => done,
            Err(refused) => (refused, false),
        };
        if let Some(request) = request
            && !matches!(outcome, Outcome::Retry(_))
        {
            self.answers.remember(request, &outcome, &mut self.unsaved);
        }
        (outcome, is_new)
    }

    fn try_write(&mut self, stamp: u64, write: Write) -> Result<(Outcome, bool), Outcome> {
        match self.table(write.id.table) {
            Some(table) if table.epoch < write.epoch => {
                return Err(Outcome::Retry(Cause::SchemaBehind));
            }
            Some(table) if table.closed => return Err(Outcome::Retry(Cause::Closed)),
            Some(_) => {}
            None if self.dropped.contains(&write.id.table) => {
                return Err(Outcome::error("ERR no such table"));
            }
            None => return Err(Outcome::Retry(Cause::SchemaBehind)),
        }
        let Write {
            id,
            op,
            expect,
            ask,
            row_max,
            ..
        } = write;
        let not_cached = Outcome::Retry(Cause::NotCached);
        self.change(&id, not_cached, |table, row| {
            match judge(table, row, op, expect, &ask)? {
                After::Deleted => {
                    let image = Image::deleted(next_version(row)?);
                    check_size(&image, row_max)?;
                    row.image = image;
                    row.state = State::Absent;
                }
                After::Set(fields) => {
                    check_sum(table, row, &fields, row_max)?;
                    check_ask(table, &ask)?;
                    let next = next_version(row)?;
                    row.image.forget_dropped(table);
                    row.image.set(next, fields);
                    row.state = State::Present;
                }
            }
            if row.since == 0 {
                row.since = stamp;
            }
            row.warm();
            Ok(Outcome::Ok {
                version: row.image.version,
                values: row.shown(table, &ask).unwrap_or_default(),
            })
        })
    }
}

/// What a change makes of a row.
enum After {
    /// These values, and those it had.
    Set(Fields),
    Deleted,
}

/// Whether the row may be changed so, or the answer why not.
fn judge(table: &Table, row: &Row, op: Op, expect: Expect, ask: &Ask) -> Result<After, Outcome> {
    let version = row.image.version;
    let present = row.state == State::Present;
    match expect {
        Expect::Version(expected) if expected != version => {
            let values = row.shown(table, ask)?;
            return Err(Outcome::VersionMismatch { version, values });
        }
        Expect::Present if !present => return Err(Outcome::NotExist { version }),
        _ => {}
    }
    next_version(row)?;
    let set = match op {
        Op::Set(fields) => fields,
        Op::SetNx(_) if present => {
            let values = row.shown(table, ask)?;
            return Err(Outcome::Exist { version, values });
        }
        Op::SetNx(fields) => fields,
        Op::Cas { .. } if !present => return Err(Outcome::NotExist { version }),
        Op::CasNx { set: fields, .. } if !present => fields,
        Op::Cas { when, set: fields } | Op::CasNx { when, set: fields } => {
            for (id, wanted) in &when {
                if value(table, &row.image, *id)? != wanted {
                    let values = row.shown(table, ask)?;
                    return Err(Outcome::CasNotEqual { version, values });
                }
            }
            fields
        }
        Op::Incr { field, by } => {
            let name = table.field_by_id(field).map_or("", |field| &field.name);
            let sum = value(table, &row.image, field)?
                .incr(name, by)
                .map_err(|refusal| Outcome::error(refusal.text()))?;
            vec![(field, sum)]
        }
        Op::Del if !present => return Err(Outcome::NotExist { version }),
        Op::Del => return Ok(After::Deleted),
    };
    Ok(After::Set(checked(table, set)?))
}

fn next_version(row: &Row) -> Result<i64, Outcome> {
    i64::try_from(row.version() + 1)
        .map_err(|_| Outcome::error("ERR the row was changed too often"))
}

/// Values as their fields take them.
fn checked(table: &Table, mut fields: Fields) -> Result<Fields, Outcome> {
    for (id, value) in &mut fields {
        let field = table.field_by_id(*id).ok_or_else(|| no_field(*id))?;
        let given = std::mem::replace(value, Value::Int(0));
        let given = given.check(field.kind, &field.name);
        *value = given.map_err(|refusal| Outcome::error(refusal.text()))?;
    }
    Ok(fields)
}

/// Whether the row is not too large with these values.
fn check_sum(table: &Table, row: &Row, fields: &Fields, most: u64) -> Result<(), Outcome> {
    if (row.image.size() + Image::size_of(fields)) as u64 <= most {
        return Ok(()); // nearly always, and what they replace need not be known
    }
    let mut image = row.image.clone();
    image.forget_dropped(table);
    image.set(image.version, fields.clone());
    check_size(&image, most)
}

fn check_size(image: &Image, most: u64) -> Result<(), Outcome> {
    let bytes = image.size();
    if bytes as u64 <= most {
        return Ok(());
    }
    let text = format!("ERR the row would have {bytes} bytes; at most {most}");
    Err(Outcome::error(text))
}

/// Whether the table has the fields that are asked for.
fn check_ask(table: &Table, ask: &Ask) -> Result<(), Outcome> {
    let Ask::Fields(ids) = ask else {
        return Ok(());
    };
    let lacks = |id: &&u16| table.field_by_id(**id).is_none();
    match ids.iter().find(lacks) {
        Some(id) => Err(no_field(*id)),
        None => Ok(()),
    }
}

/// The value a row shows: what was set, or the default.
pub(super) fn value<'a>(table: &'a Table, image: &'a Image, id: u16) -> Result<&'a Value, Outcome> {
    let field = table.field_by_id(id).ok_or_else(|| no_field(id))?;
    let set = image.get(id).filter(|value| value.kind() == field.kind);
    Ok(set.unwrap_or(&field.default))
}

/// Whoever named it knew an older schema: names become ids before a request comes here.
fn no_field(id: u16) -> Outcome {
    Outcome::error(format!("ERR field {id} was dropped from the table"))
}
