//! What rows must be: the operations once more, as simply as possible, with no cache, log or database.

use std::collections::BTreeMap;

use table::entry::{Expect, Op, RowId, Write};
use table::{Amount, Outcome, Table, Value};

pub type Shown = BTreeMap<u16, Value>;

#[derive(Default)]
pub struct Model {
    /// Version, and all values unless it is absent.
    pub rows: BTreeMap<RowId, (i64, Option<Shown>)>,
    answered: BTreeMap<(u128, u64), Outcome>,
}

impl Model {
    pub fn get(&self, id: &RowId) -> (i64, Option<Shown>) {
        self.rows.get(id).cloned().unwrap_or_default()
    }

    /// Does what a write should do, and checks what it was answered.
    pub fn write(&mut self, table: &Table, write: &Write, outcome: &Outcome) {
        let request = write
            .request
            .map(|request| (request.client, request.number));
        if let Some(before) = request.and_then(|request| self.answered.get(&request)) {
            assert_eq!(before, outcome, "a retry was answered otherwise");
            return;
        }
        if matches!(outcome, Outcome::Retry(_)) {
            return;
        }
        let expected = self.judge(table, write);
        assert_eq!(&expected, outcome, "{write:?}");
        if let Some(request) = request {
            self.answered.insert(request, expected);
        }
    }

    fn judge(&mut self, table: &Table, write: &Write) -> Outcome {
        let (version, row) = self.get(&write.id);
        let values = |row: &Option<Shown>| {
            let one = |field: &table::Field| {
                let value = row.as_ref()?.get(&field.id);
                Some((field.id, value.unwrap_or(&field.default).clone()))
            };
            table.fields.iter().filter_map(one).collect::<Vec<_>>()
        };
        let now = values(&row);
        match write.expect {
            Expect::Version(other) if other != version => {
                return Outcome::VersionMismatch {
                    version,
                    values: now,
                };
            }
            Expect::Present if row.is_none() => return Outcome::NotExist { version },
            _ => {}
        }
        let mut new: Shown = now.iter().cloned().collect();
        let set = match &write.op {
            Op::SetNx(_) if row.is_some() => {
                return Outcome::Exist {
                    version,
                    values: now,
                };
            }
            Op::Cas { .. } | Op::Del if row.is_none() => return Outcome::NotExist { version },
            Op::Cas { when, .. } | Op::CasNx { when, .. }
                if row.is_some() && when.iter().any(|(id, value)| new.get(id) != Some(value)) =>
            {
                return Outcome::CasNotEqual {
                    version,
                    values: now,
                };
            }
            Op::Set(set) | Op::SetNx(set) | Op::Cas { set, .. } | Op::CasNx { set, .. } => {
                set.clone()
            }
            Op::Incr { field, by } => {
                let default = &table.field_by_id(*field).unwrap().default;
                let (Value::Int(old), Amount::Integer(by)) =
                    (new.get(field).unwrap_or(default), by)
                else {
                    panic!()
                };
                match old.checked_add(i64::try_from(*by).unwrap()) {
                    Some(sum) => vec![(*field, Value::Int(sum))],
                    None => {
                        return Outcome::Error("ERR increment or decrement would overflow".into());
                    }
                }
            }
            Op::Del => {
                let version = -(version.abs() + 1);
                self.rows.insert(write.id.clone(), (version, None));
                return Outcome::Ok {
                    version,
                    values: Vec::new(),
                };
            }
        };
        new.extend(set);
        let (version, row) = (version.abs() + 1, Some(new));
        let values = values(&row);
        self.rows.insert(write.id.clone(), (version, row));
        Outcome::Ok { version, values }
    }
}
