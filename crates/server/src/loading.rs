//! Reads the dump at start, before any client is served.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use base::DbIndex;
use keyspace::rdb::{self, Error, Summary};
use keyspace::{Owned, Tuning};

/// Hands every entry of the dump at `path` to `each`, expired ones included; `None` if there is no
/// such file. After an error some entries were handed out: the server must not start with them.
pub fn load(
    path: &Path,
    tuning: &Tuning,
    each: &mut dyn FnMut(DbIndex, &[u8], Owned),
) -> Result<Option<Summary>, Error> {
    match File::open(path) {
        Ok(file) => rdb::read(file, tuning, each).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::Io(error)),
    }
}
