//! The bytes of entries: a format number, a tag, the parts in order.
//!
//! Tags are never renumbered. Every list is as long as its bytes allow, never as long as it claims.

use super::*;
use crate::wire::{Corrupt, Reader, Writer};

const FORMAT: u8 = 1;

impl Entry {
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new(FORMAT);
        match self {
            Entry::Schema(table) => {
                to.byte(1);
                to.bytes(&table.encode());
            }
            Entry::Drop { table } => {
                to.byte(2);
                to.uint(u64::from(*table));
            }
            Entry::Loaded { term, rows } => {
                to.byte(3);
                to.uint(*term);
                to.uint(rows.len() as u64);
                for (id, found) in rows {
                    to.row_id(id);
                    match found {
                        Found::Missing => to.byte(0),
                        Found::Row(image) => {
                            to.byte(1);
                            to.bytes(&image.encode());
                        }
                    }
                }
            }
            Entry::Write(write) => {
                to.byte(4);
                to.write(write);
            }
            Entry::Flushed(rows) => {
                to.byte(5);
                to.uint(rows.len() as u64);
                for row in rows {
                    to.row_id(&row.id);
                    to.uint(row.version);
                    to.uint(row.taken);
                }
            }
            Entry::Kick(rows) => {
                to.byte(6);
                to.uint(rows.len() as u64);
                for (id, version) in rows {
                    to.row_id(id);
                    to.int(*version);
                }
            }
            Entry::Lease { lease, waited } => {
                to.byte(7);
                to.lease(lease);
                to.byte(u8::from(*waited));
            }
            Entry::Dead(dead) => {
                to.byte(8);
                to.row_id(&dead.id);
                to.dead(dead.version, dead.kind, &dead.why);
            }
            Entry::Retry { id, version, over } => {
                to.byte(9);
                to.row_id(id);
                to.int(*version);
                to.byte(u8::from(over.is_some()));
                to.uint(over.unwrap_or(0));
            }
            Entry::Discard { id, version } => {
                to.byte(10);
                to.row_id(id);
                to.int(*version);
            }
        }
        to.done()
    }

    pub fn decode(bytes: &[u8]) -> Result<Entry, Corrupt> {
        let mut from = Reader::new(bytes, FORMAT)?;
        let entry = match from.byte()? {
            1 => Entry::Schema(Table::decode(from.bytes()?)?),
            2 => Entry::Drop {
                table: from.small()?,
            },
            3 => Entry::Loaded {
                term: from.uint()?,
                rows: from.list(|from| {
                    let id = from.row_id()?;
                    let found = match from.byte()? {
                        0 => Found::Missing,
                        1 => Found::Row(Image::decode(from.bytes()?)?),
                        _ => return Err(Corrupt("neither found nor missing")),
                    };
                    Ok((id, found))
                })?,
            },
            4 => Entry::Write(from.write()?),
            5 => Entry::Flushed(from.list(|from| {
                Ok(Flushed {
                    id: from.row_id()?,
                    version: from.uint()?,
                    taken: from.uint()?,
                })
            })?),
            6 => Entry::Kick(from.list(|from| Ok((from.row_id()?, from.int()?)))?),
            7 => Entry::Lease {
                lease: from.lease()?,
                waited: from.byte()? != 0,
            },
            8 => {
                let id = from.row_id()?;
                let (version, kind, why) = from.dead()?;
                Entry::Dead(Dead {
                    id,
                    version,
                    kind,
                    why,
                })
            }
            9 => Entry::Retry {
                id: from.row_id()?,
                version: from.int()?,
                over: {
                    let is_some = from.byte()? != 0;
                    Some(from.uint()?).filter(|_| is_some)
                },
            },
            10 => Entry::Discard {
                id: from.row_id()?,
                version: from.int()?,
            },
            _ => return Err(Corrupt("an entry of no known kind")),
        };
        from.end()?;
        Ok(entry)
    }
}

impl Writer {
    pub(crate) fn row_id(&mut self, id: &RowId) {
        self.uint(u64::from(id.table));
        self.bytes(id.key.as_bytes());
    }

    pub(crate) fn lease(&mut self, lease: &Lease) {
        self.uint(lease.holder);
        self.uint(lease.term);
        self.uint(lease.until);
    }

    pub(crate) fn dead(&mut self, version: i64, kind: DeadKind, why: &str) {
        self.int(version);
        match kind {
            DeadKind::Refused => self.byte(0),
            DeadKind::Conflict { sql_version } => {
                self.byte(1);
                self.int(sql_version);
            }
        }
        self.bytes(why.as_bytes());
    }

    fn write(&mut self, write: &Write) {
        self.row_id(&write.id);
        self.uint(write.epoch);
        self.uint(write.row_max);
        match write.request {
            None => self.byte(0),
            Some(request) => {
                self.byte(1);
                self.wide(request.client);
                self.uint(request.number);
            }
        }
        match write.expect {
            Expect::Any => self.byte(0),
            Expect::Version(version) => {
                self.byte(1);
                self.int(version);
            }
            Expect::Present => self.byte(2),
        }
        match &write.ask {
            Ask::Nothing => self.byte(0),
            Ask::All => self.byte(1),
            Ask::Fields(ids) => {
                self.byte(2);
                self.uint(ids.len() as u64);
                ids.iter().for_each(|id| self.uint(u64::from(*id)));
            }
        }
        match &write.op {
            Op::Set(set) => {
                self.byte(1);
                self.fields(set);
            }
            Op::SetNx(set) => {
                self.byte(2);
                self.fields(set);
            }
            Op::Cas { when, set } => {
                self.byte(3);
                self.fields(when);
                self.fields(set);
            }
            Op::CasNx { when, set } => {
                self.byte(4);
                self.fields(when);
                self.fields(set);
            }
            Op::Incr { field, by } => {
                self.byte(5);
                self.uint(u64::from(*field));
                self.amount(*by);
            }
            Op::Del => self.byte(6),
        }
    }

    fn amount(&mut self, amount: Amount) {
        match amount {
            Amount::Integer(number) => {
                self.byte(if number < 0 { 1 } else { 0 });
                // wider ones are not made; a cut one would be a wrong sum
                self.uint(u64::try_from(number.unsigned_abs()).unwrap_or(u64::MAX));
            }
            Amount::Float(number) => {
                self.byte(2);
                self.value(&Value::Float(number));
            }
        }
    }
}

impl Reader<'_> {
    pub(crate) fn row_id(&mut self) -> Result<RowId, Corrupt> {
        let table = self.small()?;
        let key = crate::name::check_key(self.bytes()?).map_err(|_| Corrupt("a key no row has"))?;
        Ok(RowId::new(table, key))
    }

    pub(crate) fn lease(&mut self) -> Result<Lease, Corrupt> {
        Ok(Lease {
            holder: self.uint()?,
            term: self.uint()?,
            until: self.uint()?,
        })
    }

    pub(crate) fn dead(&mut self) -> Result<(i64, DeadKind, Box<str>), Corrupt> {
        let version = self.int()?;
        let kind = match self.byte()? {
            0 => DeadKind::Refused,
            1 => DeadKind::Conflict {
                sql_version: self.int()?,
            },
            _ => return Err(Corrupt("a dead letter of no known kind")),
        };
        Ok((version, kind, self.text()?.into()))
    }

    fn write(&mut self) -> Result<Write, Corrupt> {
        let id = self.row_id()?;
        let epoch = self.uint()?;
        let row_max = self.uint()?;
        let request = match self.byte()? {
            0 => None,
            1 => Some(Request {
                client: self.wide()?,
                number: self.uint()?,
            }),
            _ => return Err(Corrupt("neither request nor none")),
        };
        let expect = match self.byte()? {
            0 => Expect::Any,
            1 => Expect::Version(self.int()?),
            2 => Expect::Present,
            _ => return Err(Corrupt("an expectation of no known kind")),
        };
        let ask = match self.byte()? {
            0 => Ask::Nothing,
            1 => Ask::All,
            2 => Ask::Fields(self.list(|from| from.small())?),
            _ => return Err(Corrupt("a question of no known kind")),
        };
        let op = match self.byte()? {
            1 => Op::Set(self.fields()?),
            2 => Op::SetNx(self.fields()?),
            3 => Op::Cas {
                when: self.fields()?,
                set: self.fields()?,
            },
            4 => Op::CasNx {
                when: self.fields()?,
                set: self.fields()?,
            },
            5 => Op::Incr {
                field: self.small()?,
                by: self.amount()?,
            },
            6 => Op::Del,
            _ => return Err(Corrupt("a change of no known kind")),
        };
        Ok(Write {
            id,
            op,
            expect,
            ask,
            request,
            epoch,
            row_max,
        })
    }

    fn amount(&mut self) -> Result<Amount, Corrupt> {
        match self.byte()? {
            0 => Ok(Amount::Integer(i128::from(self.uint()?))),
            1 => Ok(Amount::Integer(-i128::from(self.uint()?))),
            2 => match self.value()? {
                Value::Float(number) => Ok(Amount::Float(number)),
                _ => Err(Corrupt("an amount that is no number")),
            },
            _ => Err(Corrupt("an amount of no known kind")),
        }
    }
}
