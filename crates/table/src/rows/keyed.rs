//! The rows of one table: found by a hash, walked in the order of their keys.
//!
//! Nearly every use is of one row whose key is known; only walks (a scan, the evicting hand, what is stored) need the order, which
//! changes only when a row comes or goes. So there are both, and the hash's own order is never seen.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::Row;

#[derive(Debug, Clone, Default)]
pub(super) struct Keyed {
    rows: HashMap<Arc<str>, Row, FixedState>,
    order: BTreeSet<Arc<str>>,
}

impl PartialEq for Keyed {
    fn eq(&self, other: &Keyed) -> bool {
        self.rows == other.rows
    }
}

impl Keyed {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    #[inline]
    pub fn get(&self, key: &str) -> Option<&Row> {
        self.rows.get(key)
    }

    #[inline]
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Row> {
        self.rows.get_mut(key)
    }

    /// What was there before.
    pub fn insert(&mut self, key: &Arc<str>, row: Row) -> Option<Row> {
        if let Some(there) = self.rows.get_mut(key) {
            return Some(std::mem::replace(there, row));
        }
        self.order.insert(key.clone());
        self.rows.insert(key.clone(), row)
    }

    pub fn remove(&mut self, key: &str) -> Option<Row> {
        self.order.remove(key);
        self.rows.remove(key)
    }

    /// In the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Row)> {
        self.range(Bound::Unbounded)
    }

    /// From here on, in the order of their keys.
    pub fn range(&self, from: Bound<Arc<str>>) -> impl Iterator<Item = (&Arc<str>, &Row)> {
        let keys = self.order.range((from, Bound::Unbounded));
        keys.filter_map(|key| Some((key, self.rows.get(key)?)))
    }
}
