//! The RocksDB handle with its column families at hand.
//!
//! The binding finds a family by hashing its name, for every row; here it is an array index.

use std::path::Path;

use keyspace::rows::Family;
use rust_rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, Error, Options};

/// Field order matters: the handles point into `db` and must not be used once it is gone.
pub(crate) struct Db {
    families: [&'static ColumnFamily; Family::ALL.len()],
    db: DB,
}

impl Db {
    pub fn open(
        options: &Options,
        path: &Path,
        families: Vec<ColumnFamilyDescriptor>,
    ) -> Result<Db, Error> {
        let db = DB::open_cf_descriptors(options, path, families)?;
        let find = |name: &str| -> Result<&'static ColumnFamily, Error> {
            let Some(family) = db.cf_handle(name) else {
                // Opened above under these names.
                unreachable!("column family {name}")
            };
            // SAFETY: the handle lives in the map of `db`, which only `create_cf` and `drop_cf`
            // (by `&mut`) change; `Db` owns `db`, never lends it mutably, and hands the handle out
            // for its own life only. Moving `db` does not move the map's entries.
            Ok(unsafe { &*std::ptr::from_ref(family) })
        };
        let [metadata, data, score, expiry, info, feed, tables] = Family::ALL;
        Ok(Db {
            families: [
                find(metadata.name())?,
                find(data.name())?,
                find(score.name())?,
                find(expiry.name())?,
                find(info.name())?,
                find(feed.name())?,
                find(tables.name())?,
            ],
            db,
        })
    }

    #[inline]
    pub fn family(&self, family: Family) -> &ColumnFamily {
        self.families[family as usize]
    }

    pub fn all_families(&self) -> Vec<&ColumnFamily> {
        self.families.to_vec()
    }
}

impl std::ops::Deref for Db {
    type Target = DB;

    fn deref(&self) -> &DB {
        &self.db
    }
}
