//! Which tables there are, as everybody of a node or a cluster agrees on it.
//!
//! The one idea: a catalogue is a value. A change makes a new one, one version later; whoever keeps it (the store of a node that is
//! alone, meta in a cluster) replaces the old one only if it is still the one the change was made from. Published in
//! `Shared::catalogue`, it is what sessions know tables by; leaders put what it says into the logs of their regions.
//!
//! **Invariants.** Ids of tables are used once: those of dropped tables stay in `dropped` for good, so that a region that slept
//! still hears of it. No two tables have one name, or one SQL table (case ignored, as some databases do). Version 0
//! is the empty catalogue that no one has changed yet: one comparison tells that there are no tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Refusal;
use prost::Message;
use table::{Field, RowId, Table};

/// Most tables: every region keeps the schemas, and every node looks through them.
pub const TABLES_MAX: usize = 1024;

const FORMAT: u8 = 1;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Catalogue {
    /// +1 with every change.
    pub version: u64,
    /// By id.
    pub tables: BTreeMap<u32, Arc<Table>>,
    pub dropped: BTreeSet<u32>,
    next_id: u32,
    by_name: BTreeMap<String, u32>,
}

/// A table to be: what `ROW.TABLE CREATE` is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub name: String,
    pub backend: String,
    pub sql_name: String,
    /// Ids from 1.
    pub fields: Vec<Field>,
}

impl Catalogue {
    pub fn named(&self, name: &[u8]) -> Option<&Arc<Table>> {
        let name = std::str::from_utf8(name).ok()?;
        self.tables.get(self.by_name.get(name)?)
    }

    /// The table a client named, or what he is told.
    pub fn named_or_refuse(&self, name: &[u8]) -> Result<&Arc<Table>, Refusal> {
        self.named(name).ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(name).chars().take(64).collect();
            Refusal::text_of(format!(
                "ERR there is no table '{}'; see ROW.TABLE LIST",
                shown.escape_default()
            ))
        })
    }

    /// The row that a key names, if it begins with the name of a table and a colon.
    pub fn row_of(&self, key: &[u8]) -> Option<RowId> {
        let colon = key.iter().position(|&byte| byte == b':')?;
        let (name, rest) = (key.get(..colon)?, key.get(colon + 1..)?);
        let table = self.named(name)?;
        let key = table::name::check_key(rest).ok()?;
        Some(RowId::new(table.id, key))
    }

    /// With one more table, and that table.
    pub fn create(&self, wanted: Wanted) -> Result<(Catalogue, Arc<Table>), Refusal> {
        let fields = wanted.fields;
        let next_field = fields.iter().map(|field| field.id).max().unwrap_or(0);
        let table = Table {
            id: self.next_id.max(1),
            name: wanted.name,
            epoch: 1,
            backend: wanted.backend,
            sql_name: wanted.sql_name,
            next_field: next_field.saturating_add(1),
            fields,
            closed: false,
        };
        table.check()?;
        if self.tables.len() >= TABLES_MAX {
            return Err(Refusal::text_of(format!(
                "ERR there are {TABLES_MAX} tables already; drop one first"
            )));
        }
        for other in self.tables.values() {
            if other.name == table.name {
                return Err(Refusal::text_of(format!(
                    "ERR table '{}' exists already; see ROW.TABLE SHOW {}",
                    table.name, table.name
                )));
            }
            // A second cache over the same rows would see the first one's changes as conflicts.
            let same = other.sql_name.eq_ignore_ascii_case(&table.sql_name);
            if same && other.backend == table.backend {
                return Err(Refusal::text_of(format!(
                    "ERR the SQL table '{}' of backend '{}' is that of table '{}'; choose another with SQLNAME",
                    other.sql_name, other.backend, other.name
                )));
            }
        }
        let mut next = self.after();
        next.next_id = table
            .id
            .checked_add(1)
            .ok_or(Refusal::new("ERR no table ids left"))?;
        Ok(next.with(table))
    }

    /// With one more field of a table, and the table as it is then.
    pub fn with_field(
        &self,
        table: &str,
        field: Field,
    ) -> Result<(Catalogue, Arc<Table>), Refusal> {
        let table = self.open_or_refuse(table)?.with_field(field)?;
        Ok(self.after().with(table))
    }

    /// Without a field of a table, and the table as it is then: open, if it was closed for this.
    pub fn without_field(
        &self,
        table: &str,
        field: &str,
    ) -> Result<(Catalogue, Arc<Table>), Refusal> {
        let known = self.named_or_refuse(table.as_bytes())?;
        let mut table = known.without_field(field)?;
        table.closed = false;
        Ok(self.after().with(table))
    }

    /// A table that takes changes.
    pub fn open_or_refuse(&self, table: &str) -> Result<&Arc<Table>, Refusal> {
        match self.named_or_refuse(table.as_bytes())? {
            table if table.closed => Err(Refusal::text_of(format!(
                "TRYAGAIN table '{}' is closed: it, or a field of it, is being dropped; ROW.TABLE OPEN {} takes that back",
                table.name, table.name
            ))),
            table => Ok(table),
        }
    }

    /// Where a table takes no changes, and the table as it is then. Whoever had closed it before has it no more.
    pub fn close(&self, table: &str) -> Result<(Catalogue, Arc<Table>), Refusal> {
        let table = self.named_or_refuse(table.as_bytes())?.with_closed(true);
        Ok(self.after().with(table))
    }

    /// Where a table takes changes again; `None`: it does.
    pub fn open(&self, table: &str) -> Result<Option<Catalogue>, Refusal> {
        let table = self.named_or_refuse(table.as_bytes())?;
        let opened = table.closed.then(|| table.with_closed(false));
        Ok(opened.map(|table| self.after().with(table).0))
    }

    /// The table that somebody has closed, while it is as he left it.
    pub fn still(&self, closed: &Table) -> Result<&Arc<Table>, Refusal> {
        let known = self.tables.get(&closed.id);
        let same = known.filter(|known| known.epoch == closed.epoch);
        same.ok_or(Refusal::new(
            "ERR nothing was dropped, somebody else changed the table meanwhile; see ROW.TABLE LIST",
        ))
    }

    /// Without a table.
    pub fn drop(&self, table: &str) -> Result<Catalogue, Refusal> {
        let id = self.named_or_refuse(table.as_bytes())?.id;
        let mut next = self.after();
        next.tables.remove(&id);
        next.by_name.remove(table);
        next.dropped.insert(id);
        Ok(next)
    }

    /// Whether the table, or a field it has, is gone: whatever has its name in SQL by now is something else.
    pub fn has_dropped(&self, table: &Table) -> bool {
        let lacks = |known: &Arc<Table>| {
            let mut fields = table.fields.iter();
            known.epoch > table.epoch && fields.any(|it| known.field_by_id(it.id).is_none())
        };
        self.dropped.contains(&table.id) || self.tables.get(&table.id).is_some_and(lacks)
    }

    fn after(&self) -> Catalogue {
        let mut next = self.clone();
        next.version += 1;
        next
    }

    fn with(mut self, table: Table) -> (Catalogue, Arc<Table>) {
        let table = Arc::new(table);
        self.by_name.insert(table.name.clone(), table.id);
        self.tables.insert(table.id, table.clone());
        (self, table)
    }

    pub fn encode(&self) -> Vec<u8> {
        let written = Written {
            version: self.version,
            next_id: self.next_id,
            tables: self.tables.values().map(|table| table.encode()).collect(),
            dropped: self.dropped.iter().copied().collect(),
        };
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&written.encode_to_vec());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Catalogue, String> {
        let written = match bytes.split_first() {
            Some((&FORMAT, rest)) => Written::decode(rest),
            Some(_) => return Err("the catalogue of tables was written by a newer version".into()),
            None => return Err("the catalogue of tables is empty".into()),
        };
        let damaged = |what: String| format!("the catalogue of tables is damaged: {what}");
        let written = written.map_err(|error| damaged(error.to_string()))?;
        let mut catalogue = Catalogue {
            version: written.version,
            next_id: written.next_id,
            dropped: written.dropped.into_iter().collect(),
            ..Catalogue::default()
        };
        for bytes in &written.tables {
            let table = Table::decode(bytes).map_err(|error| damaged(error.to_string()))?;
            let is_new = catalogue.named(table.name.as_bytes()).is_none()
                && !catalogue.tables.contains_key(&table.id)
                && !catalogue.dropped.contains(&table.id)
                && table.id < catalogue.next_id;
            if !is_new {
                return Err(damaged(format!("table {} is not alone", table.name)));
            }
            catalogue = catalogue.with(table).0;
        }
        Ok(catalogue)
    }
}

#[derive(Clone, PartialEq, Message)]
struct Written {
    #[prost(uint64, tag = "1")]
    version: u64,
    #[prost(uint32, tag = "2")]
    next_id: u32,
    #[prost(bytes = "vec", repeated, tag = "3")]
    tables: Vec<Vec<u8>>,
    #[prost(uint32, repeated, tag = "4")]
    dropped: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::parse_fields;

    fn wanted(name: &str) -> Wanted {
        Wanted {
            name: name.into(),
            backend: "main".into(),
            sql_name: name.into(),
            fields: parse_fields("age:int64=7,name:string", 1).unwrap(),
        }
    }

    fn field(text: &str) -> Field {
        parse_fields(text, 1).unwrap().remove(0)
    }

    #[test]
    fn changes_are_new_values() {
        let empty = Catalogue::default();
        let (one, users) = empty.create(wanted("users")).unwrap();
        assert_eq!((one.version, users.id, users.next_field), (1, 1, 3));
        assert_eq!(empty, Catalogue::default());
        let (two, users) = one.with_field("users", field("x:blob")).unwrap();
        assert_eq!((two.version, users.epoch, users.fields[2].id), (2, 2, 3));
        let (three, _) = two.without_field("users", "age").unwrap();
        assert_eq!(three.named(b"users").unwrap().fields.len(), 2);
        let gone = three.drop("users").unwrap();
        assert_eq!(gone.dropped, [1].into());
        assert!(!two.has_dropped(&users) && !one.has_dropped(&users));
        assert!(three.has_dropped(&users), "a field of it");
        let last = three.named(b"users").unwrap();
        assert!(!three.has_dropped(last) && gone.has_dropped(last));
        assert!(gone.named(b"users").is_none());
        let (again, users) = gone.create(wanted("users")).unwrap();
        assert_eq!((users.id, again.version), (2, 5), "ids are used once");
        assert_eq!(Catalogue::decode(&again.encode()), Ok(again));
        assert_eq!(Catalogue::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn refusals() {
        let (one, _) = Catalogue::default().create(wanted("users")).unwrap();
        let text = |refused: Result<(Catalogue, Arc<Table>), Refusal>| {
            refused.unwrap_err().text().to_owned()
        };
        assert!(text(one.create(wanted("users"))).starts_with("ERR table 'users' exists already"));
        let mut other = wanted("people");
        other.sql_name = "USERS".into();
        assert!(text(one.create(other)).contains("is that of table 'users'"));
        assert!(text(one.create(wanted("1st"))).contains("is not valid"));
        assert!(text(one.with_field("nix", field("a:blob"))).contains("no table 'nix'"));
        assert!(text(one.with_field("users", field("AGE:blob"))).contains("declared twice"));
        assert!(text(one.without_field("users", "nix")).contains("has no field 'nix'"));
        assert!(one.drop("nix").is_err());
    }

    #[test]
    fn closed_and_opened() {
        let (one, _) = Catalogue::default().create(wanted("users")).unwrap();
        assert_eq!(one.open("users"), Ok(None), "it is open");
        let (closed, mine) = one.close("users").unwrap();
        assert!(closed.named(b"users").unwrap().closed);
        assert_eq!(Catalogue::decode(&closed.encode()).as_ref(), Ok(&closed));
        assert!(closed.still(&mine).is_ok());
        let refused = closed.with_field("users", field("x:blob")).unwrap_err();
        assert!(
            refused
                .text()
                .starts_with("TRYAGAIN table 'users' is closed")
        );
        let (without, _) = closed.without_field("users", "age").unwrap();
        assert!(without.open_or_refuse("users").is_ok() && without.still(&mine).is_err());
        // Closed by another, then opened: it is not mine any more.
        let (taken, theirs) = closed.close("users").unwrap();
        assert!(taken.still(&mine).is_err() && taken.still(&theirs).is_ok());
        let opened = taken.open("users").unwrap().unwrap();
        assert!(!opened.named(b"users").unwrap().closed && opened.still(&theirs).is_err());
        let gone = closed.drop("users").unwrap();
        assert!(gone.still(&mine).is_err() && gone.open("users").is_err());
    }

    #[test]
    fn keys_name_rows() {
        let (one, users) = Catalogue::default().create(wanted("users")).unwrap();
        let row = one.row_of(b"users:a:b").unwrap();
        assert_eq!((row.table, &*row.key), (users.id, "a:b"));
        for other in [
            &b"users"[..],
            b"users:",
            b"user:a",
            b"Users:a",
            b":a",
            b"users:\xff",
        ] {
            assert_eq!(one.row_of(other), None);
        }
    }

    #[test]
    fn bad_bytes_are_no_catalogue() {
        let (one, _) = Catalogue::default().create(wanted("users")).unwrap();
        let bytes = one.encode();
        assert!(Catalogue::decode(b"").is_err());
        assert!(Catalogue::decode(&[9, 1]).is_err());
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..5000 {
            let mut bad = bytes.clone();
            let at = rng.usize(1..bad.len());
            bad[at] = rng.u8(..);
            bad.truncate(rng.usize(1..=bad.len()));
            let _ = Catalogue::decode(&bad); // says something, and does not panic
        }
    }
}
