//! What a request about a row is answered: the status of the protobuf interface, and what goes with it.
//!
//! `timeout`, `not_leader`, `slot_moving` and `route_stale` are not here: who says them never came as far as the row.

use crate::entry::Fields;
use crate::wire::{Corrupt, Reader, Writer};

const FORMAT: u8 = 1;

/// A refused request has changed nothing. `values` are those asked for, as the row is now.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Ok {
        version: i64,
        values: Fields,
    },
    VersionMismatch {
        version: i64,
        values: Fields,
    },
    /// `SetNx` of a row that is there.
    Exist {
        version: i64,
        values: Fields,
    },
    /// 0, or the negative version of a row that was deleted.
    NotExist {
        version: i64,
    },
    /// A read of the version the client has.
    Unchanged {
        version: i64,
    },
    CasNotEqual {
        version: i64,
        values: Fields,
    },
    /// Not now; the same request again will do. Not remembered.
    Retry(Cause),
    /// A complete error line, code first.
    Error(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Load the row first.
    NotCached,
    /// The request knows a newer schema than the region: propose that first.
    SchemaBehind,
    /// The cache is full and what could go is not in SQL yet.
    Full,
    /// The table takes no changes at present: something of it is being dropped.
    Closed,
}

impl Outcome {
    pub(crate) fn error(text: impl Into<Box<str>>) -> Outcome {
        Outcome::Error(text.into())
    }

    /// Whether a row was changed or shown.
    pub fn is_ok(&self) -> bool {
        matches!(self, Outcome::Ok { .. })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new(FORMAT);
        let mut shown = |tag: u8, version: i64, values: &Fields| {
            to.byte(tag);
            to.int(version);
            to.fields(values);
        };
        match self {
            Outcome::Ok { version, values } => shown(1, *version, values),
            Outcome::VersionMismatch { version, values } => shown(2, *version, values),
            Outcome::Exist { version, values } => shown(3, *version, values),
            Outcome::CasNotEqual { version, values } => shown(4, *version, values),
            Outcome::NotExist { version } => shown(5, *version, &Fields::new()),
            Outcome::Unchanged { version } => shown(6, *version, &Fields::new()),
            Outcome::Retry(cause) => {
                to.byte(7);
                to.byte(match cause {
                    Cause::NotCached => 1,
                    Cause::SchemaBehind => 2,
                    Cause::Full => 3,
                    Cause::Closed => 4,
                });
            }
            Outcome::Error(text) => {
                to.byte(8);
                to.bytes(text.as_bytes());
            }
        }
        to.done()
    }

    pub fn decode(bytes: &[u8]) -> Result<Outcome, Corrupt> {
        let mut from = Reader::new(bytes, FORMAT)?;
        let outcome = match from.byte()? {
            7 => Outcome::Retry(match from.byte()? {
                1 => Cause::NotCached,
                2 => Cause::SchemaBehind,
                3 => Cause::Full,
                4 => Cause::Closed,
                _ => return Err(Corrupt("a cause of no known kind")),
            }),
            8 => Outcome::Error(from.text()?.into()),
            tag => {
                let version = from.int()?;
                let values = from.fields()?;
                match tag {
                    1 => Outcome::Ok { version, values },
                    2 => Outcome::VersionMismatch { version, values },
                    3 => Outcome::Exist { version, values },
                    4 => Outcome::CasNotEqual { version, values },
                    5 => Outcome::NotExist { version },
                    6 => Outcome::Unchanged { version },
                    _ => return Err(Corrupt("an outcome of no known kind")),
                }
            }
        };
        from.end()?;
        Ok(outcome)
    }
}
