//! The end of a log entry: each key it changed gets its metadata row, and its expiry row if the
//! deadline is another.

use super::{Before, Durable, Mark, VOID};
use crate::memory::db::Db;
use crate::memory::entry::EntryRef;
use crate::rows::layout;
use crate::rows::{Changes, Family};

/// Asks for the memory of marked keys: most are not near any more.
pub(super) fn look_ahead(durable: &Durable, dbs: &[Db], marks: &[Mark]) {
    let Some(first) = marks.first() else {
        return;
    };
    // Nearly always all of one database; if not, nothing is lost.
    if let Some(db) = dbs[..VOID].iter().find(|db| db.index_id == first.index_id) {
        let key = |mark: &Mark| durable.marked.get(mark.start..mark.start + mark.len);
        db.table.prefetch_all(marks.iter().filter_map(key));
    }
}

/// Writes the metadata and expiry rows of a marked key as it is now.
pub(super) fn settle(durable: &mut Durable, dbs: &[Db], mark: &Mark, out: &mut Changes) {
    // A database flushed since is not found: its rows do not matter.
    let Some(db) = dbs[..VOID].iter().find(|db| db.index_id == mark.index_id) else {
        return;
    };
    let Durable {
        home,
        key: row,
        value,
        marked,
        ..
    } = durable;
    let Some(key) = marked.get(mark.start..mark.start + mark.len) else {
        return;
    };
    let entry = db.table.get(db.table.hash(key), key);
    let (written, former_ms) = match (entry, &mark.before) {
        // An earlier mark of the same key has seen to it.
        (Some(entry), _) if !entry.is_marked() => return,
        (None, Before::Nothing) => return,
        (_, Before::Nothing) => (entry, None),
        (_, Before::Rows { deadline_ms }) => (entry, *deadline_ms),
    };
    row.clear();
    layout::push_metadata_key(row, *home, mark.index_id, key);
    match written {
        None => out.delete(Family::Metadata, row),
        Some(entry) => {
            entry.set_marked(false);
            value.clear();
            layout::push_metadata_head(value, entry.kind(), entry.deadline_ms());
            entry.value().push_body(value);
            out.put(Family::Metadata, row, value);
        }
    }
    let deadline_ms = written.and_then(EntryRef::deadline_ms);
    if deadline_ms == former_ms {
        return;
    }
    let expiry_row = |row: &mut Vec<u8>, deadline_ms| {
        row.clear();
        layout::push_expiry_key(row, *home, mark.index_id, deadline_ms, key);
    };
    if let Some(former_ms) = former_ms {
        expiry_row(row, former_ms);
        out.delete(Family::Expiry, row);
    }
    if let Some(deadline_ms) = deadline_ms {
        expiry_row(row, deadline_ms);
        out.put_new(Family::Expiry, row, b"");
    }
}
