//! Copies of rows that handles have lent to a command go when the next one begins: its view borrows the
//! whole keyspace, so nobody holds any of them then.

use crate::Keyspace;
use crate::rows::layout;

impl Keyspace {
    /// Before a command: frees what handles on big collections have lent to the one before.
    #[inline]
    pub(crate) fn reclaim(&mut self) {
        if let Some(durable) = &self.durable
            && durable.shared.is_lent()
        {
            self.reclaim_slow();
        }
    }

    fn reclaim_slow(&mut self) {
        let Some(durable) = &self.durable else {
            return;
        };
        for base in durable.shared.take_lent() {
            let at =
                layout::split_sub_key(&base).and_then(|(row, ..)| layout::parse_metadata_key(row));
            let Some(at) = at else {
                continue;
            };
            let hash = self.hash(at.key);
            let db = self.dbs.iter_mut().find(|db| db.index_id == at.index_id);
            if let Some(db) = db
                && let Some(position) = db.table.find(hash, at.key)
                && let Some(handle) = db.entry_mut(position).and_then(|entry| entry.handle())
            {
                handle.reclaim();
            }
        }
    }
}
