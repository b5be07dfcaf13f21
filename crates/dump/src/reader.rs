//! A dump from its first byte to its last.
//!
//! [`read`] pulls bytes from anything that is [`std::io::Read`] and hands out whole values, [`read_parts`] one element after
//! the other.

use std::io::Read;

use base::{DbIndex, limits};
use keyspace::dumped::{self, Building, Room, Sink};
use keyspace::{Kind, Owned, Tuning};
use rdb::{Error, NEWEST_VERSION, Source, opcode, skip};

/// Dumps before this version have no checksum.
const CHECKSUM_SINCE: u32 = 5;
/// Keys named in a [`Summary`] because their value was stepped over.
const SKIPPED_NAMED: usize = 16;

/// A key whose value has no place here (a stream, a module's value, an empty collection).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub db: DbIndex,
    pub key: Vec<u8>,
    /// The number a dump gives the value's layout.
    pub layout: u8,
}

/// What a dump held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    pub version: u32,
    /// Entries handed out.
    pub keys: u64,
    pub skipped_keys: u64,
    /// The first of them.
    pub skipped: Vec<Skipped>,
    /// Function libraries stepped over.
    pub functions: u64,
}

/// Reads a whole dump; `each` gets every entry, expired ones included.
///
/// After an error `each` has seen some entries: the caller discards them. The checksum is known
/// to be right only when this returns.
pub fn read<R: Read>(
    reader: R,
    tuning: &Tuning,
    each: &mut dyn FnMut(DbIndex, &[u8], Owned),
) -> Result<Summary, Error> {
    walk(reader, &mut |source, room, head| {
        let mut building = Building::new(head.kind, tuning);
        dumped::read(source, head.kind, head.layout, room, &mut |part| {
            building.add(part);
            Ok(())
        })?;
        let Some(value) = building.finish() else {
            return Ok(Taken::Skipped);
        };
        let expire_at_ms = head.expire_at_ms;
        let owned = Owned {
            value,
            expire_at_ms,
        };
        each(head.db, head.key, owned);
        Ok(Taken::Kept)
    })
}

/// Reads a whole dump without ever having a whole collection in memory. As with [`read`], the
/// checksum is known to be right only when this returns.
pub fn read_parts<R: Read>(reader: R, sink: &mut dyn Sink) -> Result<Summary, Error> {
    walk(reader, &mut |source, room, head| {
        if !sink.begin(head.db, head.key, head.kind, head.expire_at_ms) {
            dumped::read(source, head.kind, head.layout, room, &mut |_| Ok(()))?;
            return Ok(Taken::Unwanted);
        }
        dumped::read(source, head.kind, head.layout, room, &mut |part| {
            sink.part(part)
        })?;
        Ok(match sink.end()? {
            true => Taken::Kept,
            false => Taken::Skipped,
        })
    })
}

/// What is known of a value before it is read.
struct Head<'a> {
    db: DbIndex,
    key: &'a [u8],
    kind: Kind,
    layout: u8,
    expire_at_ms: Option<u64>,
}

enum Taken {
    Kept,
    /// Has no place here.
    Skipped,
    Unwanted,
}

type Take<'a, R> = dyn FnMut(&mut Source<R>, &mut Room, Head<'_>) -> Result<Taken, Error> + 'a;

fn walk<R: Read>(reader: R, take: &mut Take<'_, R>) -> Result<Summary, Error> {
    let mut source = Source::new(reader);
    let mut summary = Summary {
        version: version(&mut source)?,
        ..Summary::default()
    };
    let mut room = Room::default();
    let (mut db, mut key, mut expire_at_ms) = (0, Vec::new(), None);
    loop {
        match source.byte()? {
            opcode::EOF => break,
            opcode::SELECT_DB => db = database(source.length()?)?,
            opcode::EXPIRE_TIME_MS => {
                expire_at_ms = Some(deadline(i64::from_le_bytes(source.array()?)));
            }
            opcode::EXPIRE_TIME => {
                let at_s = i64::from(i32::from_le_bytes(source.array()?));
                expire_at_ms = Some(deadline(at_s * 1000));
            }
            opcode::RESIZE_DB => {
                source.length()?;
                source.length()?;
            }
            opcode::AUX => {
                source.skip_string()?;
                source.skip_string()?;
            }
            opcode::FREQ => drop(source.byte()?),
            opcode::IDLE => drop(source.length()?),
            opcode::MODULE_AUX => {
                source.length()?; // module
                source.length()?; // mark of an integer
                source.length()?; // before or after the keys
                skip::module_items(&mut source)?;
            }
            opcode::FUNCTION2 => {
                source.skip_string()?;
                summary.functions += 1;
            }
            layout => {
                source.string(&mut key)?;
                let expire_at_ms = expire_at_ms.take();
                let taken = match dumped::kind_of(layout) {
                    Some(kind) => {
                        let head = Head {
                            db,
                            key: &key,
                            kind,
                            layout,
                            expire_at_ms,
                        };
                        take(&mut source, &mut room, head)?
                    }
                    None => {
                        skip::value(&mut source, layout, &key)?;
                        Taken::Skipped
                    }
                };
                match taken {
                    Taken::Kept => summary.keys += 1,
                    Taken::Skipped => {
                        summary.skipped_keys += 1;
                        if summary.skipped.len() < SKIPPED_NAMED {
                            let key = key.clone();
                            summary.skipped.push(Skipped { db, key, layout });
                        }
                    }
                    Taken::Unwanted => {}
                }
            }
        }
    }
    check(&mut source, summary.version)?;
    Ok(summary)
}

fn version<R: Read>(source: &mut Source<R>) -> Result<u32, Error> {
    let magic: [u8; 5] = source.array()?;
    let digits: [u8; 4] = source.array()?;
    if &magic != b"REDIS" || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Error::NotADump);
    }
    let version = digits
        .iter()
        .fold(0, |n, digit| n * 10 + u32::from(digit - b'0'));
    if !(1..=NEWEST_VERSION).contains(&version) {
        return Err(Error::Version(version));
    }
    Ok(version)
}

fn database(n: u64) -> Result<DbIndex, Error> {
    match DbIndex::try_from(n) {
        Ok(db) if db < limits::DATABASES => Ok(db),
        _ => Err(Error::Database(n)),
    }
}

/// A deadline before 1970 has passed as surely as one at its first moment.
fn deadline(at_ms: i64) -> u64 {
    u64::try_from(at_ms).unwrap_or(0)
}

fn check<R: Read>(source: &mut Source<R>, version: u32) -> Result<(), Error> {
    if version < CHECKSUM_SINCE {
        return Ok(());
    }
    let found = source.checksum();
    let expected = u64::from_le_bytes(source.array()?);
    // Zero: written with `rdbchecksum no`.
    if expected != 0 && expected != found {
        return Err(Error::Checksum { expected, found });
    }
    Ok(())
}
