//! Reads the dump at start, before any client is served, and on DEBUG RELOAD.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use base::DbIndex;
use keyspace::{Keyspace, Owned, Tuning, Txn, View};
use rdb::Error;
use runtime::cores::Map;
use settings::Settings;

use crate::reader::{Summary, read};

/// Long loads tell how far they are this often.
const PROGRESS: Duration = Duration::from_secs(5);

/// Hands every entry of the dump at `path` to `each`, expired ones included; `None` if there is no
/// such file. After an error some entries were handed out: the server must not start with them.
pub fn load(
    path: &Path,
    tuning: &Tuning,
    each: &mut dyn FnMut(DbIndex, &[u8], Owned),
) -> Result<Option<Summary>, Error> {
    match File::open(path) {
        Ok(file) => read(file, tuning, each).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::Io(error)),
    }
}

/// What a dump brought.
pub struct Restored {
    pub summary: Summary,
    /// Keys put into their regions.
    pub keys: u64,
    /// Keys left out because their time had passed.
    pub expired: u64,
    pub took: Duration,
}

impl std::fmt::Display for Restored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.took.as_secs_f64();
        write!(f, "{} keys in {seconds:.3} s", self.keys)?;
        if self.expired > 0 {
            write!(f, ", {} left out because they have expired", self.expired)?;
        }
        Ok(())
    }
}

/// Puts the entries of a dump into the regions they belong to; `spaces` are all regions, in order.
/// A key that is there already is replaced.
pub fn restore(
    path: &Path,
    map: &Map,
    spaces: &mut [&mut Keyspace],
    tuning: &Tuning,
    now_ms: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<Restored>, Error> {
    let began = Instant::now();
    let (mut keys, mut expired, mut told) = (0u64, 0u64, began);
    let summary = load(path, tuning, &mut |db, key, owned| {
        if owned.expire_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            expired += 1;
            return;
        }
        let Some(space) = spaces.get_mut(map.region_of(key)) else {
            return;
        };
        Txn::new(View::one(space, db, now_ms, 0, tuning)).put(key, owned);
        keys += 1;
        if keys.is_multiple_of(1 << 16) && told.elapsed() > PROGRESS {
            told = Instant::now();
            progress(keys);
        }
    })?;
    Ok(summary.map(|summary| Restored {
        summary,
        keys,
        expired,
        took: began.elapsed(),
    }))
}

/// Keys that have no place here are left out of what was read, and of the next save. The dump that
/// has them is kept if it lies where that goes.
pub fn warn_of_skipped(settings: &Settings, path: &Path, summary: &Summary) {
    let Some(first) = summary.skipped.first() else {
        return;
    };
    let name = path.display();
    let mut text = format!(
        "{name}: {} keys of types this version does not have were left out, the first is '{}'",
        summary.skipped_keys,
        first.key.escape_ascii(),
    );
    let saves_to = settings.dir.join(&settings.dbfilename);
    if std::fs::canonicalize(&saves_to).ok() == std::fs::canonicalize(path).ok() {
        // The next save puts another file in its place: the bytes stay under a second name.
        let mut copy = path.to_path_buf().into_os_string();
        copy.push(".original");
        let kept = match std::fs::hard_link(path, &copy) {
            Ok(()) => "the file is kept as",
            Err(error) if error.kind() == ErrorKind::AlreadyExists => "there is already",
            Err(_) => "copy the file now: it could not be kept as",
        };
        let copy = Path::new(&copy).display();
        text.push_str(&format!(
            "; the next save will not contain them; {kept} {copy}"
        ));
    }
    tracing::warn!("{text}");
}
