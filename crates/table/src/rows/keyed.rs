//! The rows of one table: found by a hash, walked in the order of their keys.
//!
//! Nearly every use is of one row whose key is known; only walks (a scan, the evicting hand, what is stored) need the order, which
//! changes only when a row comes or goes. So there are both, and the hash's own order is never seen.
//!
//! A short key is held beside its row: finding one of many rows is as dear as the memory that is touched.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::Row;

#[derive(Debug, Clone, Default)]
pub(super) struct Keyed {
    rows: HashMap<Key, Row, FixedState>,
    order: BTreeSet<Arc<str>>,
}

const SHORT: usize = 22;

/// The bytes of a key.
#[derive(Debug, Clone)]
enum Key {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Arc<str>),
}

impl Key {
    fn new(key: &Arc<str>) -> Key {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..key.len()) {
            Some(short) => {
                short.copy_from_slice(key.as_bytes());
                let len = key.len() as u8;
                Key::Short { len, bytes }
            }
            None => Key::Long(key.clone()),
        }
    }
}

impl Borrow<[u8]> for Key {
    #[inline]
    fn borrow(&self) -> &[u8] {
        match self {
            Key::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Key::Long(key) => key.as_bytes(),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        Borrow::<[u8]>::borrow(self) == Borrow::<[u8]>::borrow(other)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrow::<[u8]>::borrow(self).hash(state);
    }
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
        self.rows.get(key.as_bytes())
    }

    #[inline]
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Row> {
        self.rows.get_mut(key.as_bytes())
    }

    /// What was there before.
    pub fn insert(&mut self, key: &Arc<str>, row: Row) -> Option<Row> {
        if let Some(there) = self.get_mut(key) {
            return Some(std::mem::replace(there, row));
        }
        self.order.insert(key.clone());
        self.rows.insert(Key::new(key), row)
    }

    pub fn remove(&mut self, key: &str) -> Option<Row> {
        self.order.remove(key);
        self.rows.remove(key.as_bytes())
    }

    /// In the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Row)> {
        self.range(Bound::Unbounded)
    }

    /// From here on, in the order of their keys.
    pub fn range(&self, from: Bound<Arc<str>>) -> impl Iterator<Item = (&Arc<str>, &Row)> {
        let keys = self.order.range((from, Bound::Unbounded));
        keys.filter_map(|key| Some((key, self.get(key)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::rows::State;

    #[test]
    fn keys_of_all_lengths_are_found_and_walked_in_order() {
        let mut all = Keyed::default();
        let keys: Vec<Arc<str>> = (1..=255).map(|len| "k".repeat(len).into()).collect();
        for (nth, key) in keys.iter().enumerate().rev() {
            let row = Row::clean(State::Present, Image::deleted(nth as i64));
            assert!(all.insert(key, row).is_none());
        }
        let walked: Vec<&Arc<str>> = all.iter().map(|(key, _)| key).collect();
        assert_eq!(walked, keys.iter().collect::<Vec<_>>());
        for (nth, key) in keys.iter().enumerate() {
            let row = all.get(key).unwrap();
            assert_eq!(row.image.version, -(nth as i64));
        }
        assert!(all.get("").is_none() && all.get("k\0").is_none());
        assert!(keys.iter().all(|key| all.remove(key).is_some()));
        assert_eq!((all.len(), all.iter().count()), (0, 0));
    }
}
