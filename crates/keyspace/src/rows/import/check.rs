//! Are the rows what the counts say? Read from the store, all of them, in their order.

use super::Import;
use crate::rows::layout::{self, Body, Metadata};
use crate::rows::{Family, RowError, RowSource, Tier};

type EachRow<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), String> + 'a;

/// Rows between two calls of `progress`.
const STEP: u64 = 1 << 16;

impl Import<'_> {
    /// Reads back what was written: every key once, every collection with as many elements as its
    /// head says. In one line what is not so. `progress` is told how many rows were read.
    pub fn check(&self, rows: &dyn RowSource, progress: &mut dyn FnMut(u64)) -> Result<(), String> {
        let mut read = 0;
        let mut tick = || {
            read += 1;
            if u64::is_multiple_of(read, STEP) {
                progress(read);
            }
        };
        let (from, to) = self.range();
        let (mut found, mut collections) = (Vec::new(), 0u64);
        scan(rows, Family::Metadata, &from, &to, &mut |row, value| {
            tick();
            let Some((home, index_id, _)) = layout::split_prefix(row) else {
                return Err("a row has no prefix".into());
            };
            let Some(head) = Metadata::parse(value) else {
                return Err(format!("the head of {} cannot be read", named(row)));
            };
            if found
                .last()
                .is_none_or(|last: &Counted| last.place != (home, index_id))
            {
                found.push(Counted {
                    place: (home, index_id),
                    ..Counted::default()
                });
            }
            if let Some(counted) = found.last_mut() {
                counted.keys += 1;
                counted.with_deadline += u64::from(head.expire_at_ms.is_some());
            }
            collections += u64::from(matches!(head.body, Body::Collection { .. }));
            Ok(())
        })?;
        self.compare(&found)?;

        let mut run = Run::default();
        scan(rows, Family::Data, &from, &to, &mut |row, _| {
            tick();
            let Some((key, _, _)) = layout::split_sub_key(row) else {
                return Err("a row has no key".into());
            };
            if run.key != key {
                run.check(rows)?;
                run.key.clear();
                run.key.extend_from_slice(key);
                run.elements = 0;
                collections = collections.saturating_sub(1);
            }
            run.elements += 1;
            Ok(())
        })?;
        run.check(rows)?;
        match collections {
            0 => Ok(()),
            _ => Err(format!("{collections} collections have no elements")),
        }
    }

    fn compare(&self, found: &[Counted]) -> Result<(), String> {
        for region in &self.regions {
            for (number, db) in region.state.dbs.iter().enumerate() {
                let place = (region.home, db.index_id);
                let counted = found.iter().find(|it| it.place == place);
                let counted = counted.map_or((0, 0), |it| (it.keys, it.with_deadline));
                if counted.0 < db.keys {
                    return Err(format!(
                        "{} keys were named twice in database {number}",
                        db.keys - counted.0
                    ));
                }
                if counted != (db.keys, db.with_deadline) {
                    return Err(format!(
                        "database {number} has {counted:?} keys instead of {:?}",
                        (db.keys, db.with_deadline)
                    ));
                }
            }
        }
        Ok(())
    }

    /// Around the rows of all regions.
    fn range(&self) -> (Vec<u8>, Vec<u8>) {
        let homes = || self.regions.iter().map(|region| region.home);
        let first = layout::i64_bytes(homes().min().unwrap_or(0) as i64);
        let last = layout::i64_bytes(homes().max().unwrap_or(0) as i64);
        (first.to_vec(), layout::behind(&last))
    }
}

#[derive(Default)]
struct Counted {
    place: (u64, u64),
    keys: u64,
    with_deadline: u64,
}

/// Elements of one collection, which lie side by side.
#[derive(Default)]
struct Run {
    /// The row of its head.
    key: Vec<u8>,
    elements: u64,
}

impl Run {
    fn check(&self, rows: &dyn RowSource) -> Result<(), String> {
        if self.elements == 0 {
            return Ok(());
        }
        let mut size = None;
        let mut found = |value: &[u8]| {
            size = match Metadata::parse(value).map(|head| head.body) {
                Some(Body::Collection { size, .. }) => Some(size),
                _ => None,
            };
        };
        rows.get(Family::Metadata, &self.key, Tier::All, &mut found)
            .map_err(failed)?;
        match size {
            Some(size) if size == self.elements => Ok(()),
            Some(size) if size > self.elements => Err(format!(
                "{} has {} elements that were named twice",
                named(&self.key),
                size - self.elements
            )),
            _ => Err(format!(
                "{} has elements of no collection",
                named(&self.key)
            )),
        }
    }
}

fn scan(
    rows: &dyn RowSource,
    family: Family,
    from: &[u8],
    to: &[u8],
    each: &mut EachRow<'_>,
) -> Result<(), String> {
    let mut result = Ok(());
    rows.scan(family, from, to, false, Tier::All, &mut |key, value| {
        result = each(key, value);
        result.is_ok()
    })
    .map_err(failed)?;
    result
}

/// The key of a metadata row, for people.
fn named(row: &[u8]) -> String {
    let key = layout::parse_metadata_key(row).map(|at| at.key);
    format!("key '{}'", key.unwrap_or_default().escape_ascii())
}

fn failed(error: RowError) -> String {
    match error {
        RowError::Cold => "a row is not in memory".into(),
        RowError::Failed(what) => what,
    }
}
