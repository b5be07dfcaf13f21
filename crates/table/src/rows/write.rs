//! One change asked for: what becomes of the row, and what is answered.
//!
//! Judged in this order, and the first "no" is the answer: done before, no such table, schema behind, not cached, expectation,
//! the operation itself, size. Until all have said yes the row is untouched.

use crate::entry::{Expect, Op, Write};
use crate::image::{Delta, Image};
use crate::outcome::{Cause, Outcome};
use crate::schema::Table;
use crate::value::Value;

use super::store::{Change, Place};
use super::{Row, Rows, State};

impl Rows {
    pub(super) fn write(&mut self, stamp: u64, write: Write, changes: &mut Vec<Change>) -> Outcome {
        if let Some(request) = write.request
            && let Some(outcome) = self.answers.find(request)
        {
            return outcome;
        }
        let outcome = match self.judge(stamp, &write) {
            Ok((row, outcome)) => {
                changes.push(Change::Put(Place::Row(write.id.clone()), row.encode()));
                self.place(&write.id, Some(row));
                outcome
            }
            Err(refused) => refused,
        };
        if let Some(request) = write.request
            && !matches!(outcome, Outcome::Retry(_))
        {
            self.answers.remember(request, &outcome, changes);
        }
        outcome
    }

    /// The row after the change and the answer, or the answer why not.
    fn judge(&self, stamp: u64, write: &Write) -> Result<(Row, Outcome), Outcome> {
        let table = match self.table(write.id.table) {
            Some(table) if table.epoch < write.epoch => {
                return Err(Outcome::Retry(Cause::SchemaBehind));
            }
            Some(table) => table,
            None if self.dropped.contains(&write.id.table) => {
                return Err(Outcome::error("ERR no such table"));
            }
            None => return Err(Outcome::Retry(Cause::SchemaBehind)),
        };
        let row = self
            .get(&write.id)
            .ok_or(Outcome::Retry(Cause::NotCached))?;
        let version = row.image.version;
        let present = row.state == State::Present;
        match write.expect {
            Expect::Version(expected) if expected != version => {
                let values = row.shown(table, &write.ask)?;
                return Err(Outcome::VersionMismatch { version, values });
            }
            Expect::Present if !present => return Err(Outcome::NotExist { version }),
            _ => {}
        }
        let next = i64::try_from(row.version() + 1)
            .map_err(|_| Outcome::error("ERR the row was changed too often"))?;
        let delta = match &write.op {
            Op::Set(fields) => set(table, next, fields)?,
            Op::SetNx(_) if present => {
                let values = row.shown(table, &write.ask)?;
                return Err(Outcome::Exist { version, values });
            }
            Op::SetNx(fields) => set(table, next, fields)?,
            Op::Cas { .. } if !present => return Err(Outcome::NotExist { version }),
            Op::CasNx { set: fields, .. } if !present => set(table, next, fields)?,
            Op::Cas { when, set: fields } | Op::CasNx { when, set: fields } => {
                for (id, wanted) in when {
                    if value(table, &row.image, *id)? != wanted {
                        let values = row.shown(table, &write.ask)?;
                        return Err(Outcome::CasNotEqual { version, values });
                    }
                }
                set(table, next, fields)?
            }
            Op::Incr { field, by } => {
                let name = table.field_by_id(*field).map_or("", |field| &field.name);
                let sum = value(table, &row.image, *field)?
                    .incr(name, *by)
                    .map_err(|refusal| Outcome::error(refusal.text()))?;
                set(table, next, &[(*field, sum)])?
            }
            Op::Del if !present => return Err(Outcome::NotExist { version }),
            Op::Del => Delta::new(-next),
        };
        let mut row = row.clone();
        row.image.forget_dropped(table);
        row.image.apply(delta);
        let most = write.row_max;
        if row.image.size() as u64 > most {
            let bytes = row.image.size();
            let text = format!("ERR the row would have {bytes} bytes; at most {most}");
            return Err(Outcome::error(text));
        }
        row.state = match write.op {
            Op::Del => State::Absent,
            _ => State::Present,
        };
        if row.since == 0 {
            row.since = stamp;
        }
        row.warm();
        let outcome = Outcome::Ok {
            version: row.image.version,
            values: row.shown(table, &write.ask)?,
        };
        Ok((row, outcome))
    }
}

fn set(table: &Table, version: i64, fields: &[(u16, Value)]) -> Result<Delta, Outcome> {
    let mut delta = Delta::new(version);
    for (id, value) in fields {
        let field = table.field_by_id(*id).ok_or_else(|| no_field(*id))?;
        let value = value.clone().check(field.kind, &field.name);
        let value = value.map_err(|refusal| Outcome::error(refusal.text()))?;
        delta.set(*id, value);
    }
    Ok(delta)
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
