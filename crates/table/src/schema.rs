//! A table as everybody agrees on it: its name, its fields, and where its rows live in SQL.
//!
//! **Invariants.** Field ids and names are unique; names also when case is ignored, because MySQL and SQLite ignore
//! it. An id is used once in the life of a table: `next_field` only grows. Every default is of its field's kind.

use base::Refusal;

use crate::name;
use crate::value::{Kind, Value, refuse};
use crate::wire::{Corrupt, Reader, Writer};

/// Most fields of a table: well below what any of the databases takes.
pub const FIELDS_MAX: usize = 256;
/// Largest image of a row unless the operator says otherwise.
pub const ROW_BYTES_MAX: usize = 1024 * 1024;

/// Fields an error line names.
const FIELDS_SHOWN_MAX: usize = 16;
const FORMAT: u8 = 1;
/// The same, of a table that is closed.
const FORMAT_CLOSED: u8 = 2;

#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Never used twice in a table.
    pub id: u16,
    pub name: String,
    pub kind: Kind,
    /// What a row that has not set the field shows; of `kind`.
    pub default: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub id: u32,
    pub name: String,
    /// +1 with every change of the schema; requests carry it.
    pub epoch: u64,
    /// Name of the SQL database.
    pub backend: String,
    /// Name of the table there.
    pub sql_name: String,
    /// In order of declaration: the order of columns, of `HGETALL`, of `Image::values`.
    pub fields: Vec<Field>,
    /// The id of the next field.
    pub next_field: u16,
    /// It takes no changes, so that SQL can have all of them before something goes that SQL is to keep.
    pub closed: bool,
}

impl Table {
    /// Whether this is a table at all. To be asked before a declaration is accepted.
    pub fn check(&self) -> Result<(), Refusal> {
        name::check("table", &self.name)?;
        name::check("SQL table", &self.sql_name)?;
        name::check("backend", &self.backend)?;
        if self.fields.is_empty() {
            return Err(Refusal::new("ERR a table needs at least one field"));
        }
        if self.fields.len() > FIELDS_MAX {
            return Err(Refusal::text_of(format!(
                "ERR a table has at most {FIELDS_MAX} fields; these are {}",
                self.fields.len()
            )));
        }
        for (at, field) in self.fields.iter().enumerate() {
            name::check("field", &field.name)?;
            let before = self.fields.get(..at).unwrap_or_default();
            if before
                .iter()
                .any(|other| other.name.eq_ignore_ascii_case(&field.name))
            {
                return Err(refuse(&field.name, "is declared twice (case is ignored)"));
            }
            if field.id >= self.next_field || before.iter().any(|other| other.id == field.id) {
                return Err(refuse(&field.name, "has an id that is not its own"));
            }
            field.default.clone().check(field.kind, &field.name)?;
        }
        Ok(())
    }

    pub fn field(&self, name: &[u8]) -> Option<&Field> {
        self.fields
            .iter()
            .find(|field| field.name.as_bytes() == name)
    }

    /// The field a client named, or what he is told.
    pub fn field_or_refuse(&self, name: &[u8]) -> Result<&Field, Refusal> {
        self.field(name).ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(name).chars().take(64).collect();
            Refusal::text_of(format!(
                "ERR table '{}' has no field '{}'; it has {}",
                self.name,
                shown.escape_default(),
                self.shown_fields()
            ))
        })
    }

    /// The names of the fields, or enough of them for an error line.
    fn shown_fields(&self) -> String {
        let names: Vec<&str> = self.fields.iter().map(|field| &*field.name).collect();
        match names.get(..FIELDS_SHOWN_MAX) {
            Some(first) => {
                let more = names.len() - first.len();
                format!("{} and {more} more", first.join(", "))
            }
            None => names.join(", "),
        }
    }

    pub fn field_by_id(&self, id: u16) -> Option<&Field> {
        self.fields.iter().find(|field| field.id == id)
    }

    /// With one more field, one epoch later. The id given in `field` is replaced by the next free one.
    pub fn with_field(&self, mut field: Field) -> Result<Table, Refusal> {
        let mut table = self.clone();
        field.id = table.next_field;
        table.next_field = table
            .next_field
            .checked_add(1)
            .ok_or_else(|| refuse(&field.name, "cannot be added: no field ids left"))?;
        table.epoch += 1;
        table.fields.push(field);
        table.check()?;
        Ok(table)
    }

    /// Without the field, one epoch later.
    pub fn without_field(&self, name: &str) -> Result<Table, Refusal> {
        self.field_or_refuse(name.as_bytes())?;
        let mut table = self.clone();
        table.fields.retain(|field| field.name != name);
        table.epoch += 1;
        table.check()?;
        Ok(table)
    }

    /// One that takes changes, or takes none, one epoch later.
    pub fn with_closed(&self, closed: bool) -> Table {
        let mut table = self.clone();
        table.epoch += 1;
        table.closed = closed;
        table
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new(match self.closed {
            true => FORMAT_CLOSED,
            false => FORMAT,
        });
        to.uint(u64::from(self.id));
        to.uint(self.epoch);
        to.uint(u64::from(self.next_field));
        for text in [&self.name, &self.backend, &self.sql_name] {
            to.bytes(text.as_bytes());
        }
        to.uint(self.fields.len() as u64);
        for field in &self.fields {
            to.uint(u64::from(field.id));
            to.bytes(field.name.as_bytes());
            to.value(&field.default); // its kind is the field's
        }
        to.done()
    }

    pub fn decode(bytes: &[u8]) -> Result<Table, Corrupt> {
        let closed = bytes.first() == Some(&FORMAT_CLOSED);
        let format = if closed { FORMAT_CLOSED } else { FORMAT };
        let mut from = Reader::new(bytes, format)?;
        let id = from.small()?;
        let epoch = from.uint()?;
        let next_field = from.small()?;
        let name = from.text()?.to_owned();
        let backend = from.text()?.to_owned();
        let sql_name = from.text()?.to_owned();
        let mut fields = Vec::new();
        for _ in 0..from.uint()? {
            let id = from.small()?;
            let name = from.text()?.to_owned();
            let default = from.value()?;
            fields.push(Field {
                id,
                name,
                kind: default.kind(),
                default,
            });
        }
        from.end()?;
        let table = Table {
            id,
            name,
            epoch,
            backend,
            sql_name,
            fields,
            next_field,
            closed,
        };
        table.check().map_err(|_| Corrupt("a table that is none"))?;
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_fields;

    fn users() -> Table {
        let fields = parse_fields("age:int64=7,name:string='x'", 1).unwrap();
        Table {
            id: 3,
            name: "users".into(),
            epoch: 1,
            backend: "main".into(),
            sql_name: "users".into(),
            next_field: 3,
            fields,
            closed: false,
        }
    }

    #[test]
    fn ids_are_not_used_again() {
        let first = users();
        assert_eq!(first.check(), Ok(()));
        let dropped = first.without_field("name").unwrap();
        let field = parse_fields("name:blob", 0).unwrap().remove(0);
        let again = dropped.with_field(field).unwrap();
        assert_eq!(again.field(b"name").unwrap().id, 3);
        assert_eq!((again.epoch, again.next_field), (3, 4));
        assert!(first.without_field("nix").is_err());
        assert!(dropped.without_field("age").is_err(), "the last one stays");
    }

    #[test]
    fn names_differ_by_more_than_case() {
        let field = parse_fields("AGE:blob", 0).unwrap().remove(0);
        assert!(users().with_field(field).is_err());
    }

    #[test]
    fn written_and_read() {
        for table in [users(), users().with_closed(true)] {
            let bytes = table.encode();
            assert_eq!(Table::decode(&bytes), Ok(table));
            for end in 0..bytes.len() {
                assert!(Table::decode(&bytes[..end]).is_err());
            }
        }
    }

    #[test]
    fn unknown_field() {
        assert_eq!(
            users().field_or_refuse(b"nix").unwrap_err().text(),
            "ERR table 'users' has no field 'nix'; it has age, name"
        );
    }
}
