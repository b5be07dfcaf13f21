//! Keys that sessions watch until EXEC.

use std::sync::Arc;

use base::DbIndex;
use keyspace::View;

use super::{Held, WatchFlag};

/// A watched key.
#[derive(Clone)]
pub struct Watch {
    pub db: DbIndex,
    pub key: Box<[u8]>,
    /// Whether it was there: a key that only expired since has changed, too.
    pub existed: bool,
    pub flag: Arc<WatchFlag>,
}

impl Held {
    /// Whether one of these keys has changed, whose regions are held and which are in memory.
    pub fn has_changed(&mut self, watched: &[Watch]) -> bool {
        watched.iter().any(|watch| {
            let gone = |view: View<'_>| view.kind(&watch.key).is_none();
            watch.flag.is_set() || watch.existed && self.with_view(watch.db, gone)
        })
    }
}
