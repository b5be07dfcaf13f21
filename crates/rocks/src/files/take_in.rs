//! Files become part of the database as one, of several families or not: after a crash all of them are, or none. Those
//! of a large write (`files/`) and those of a region that comes from another node (`regions/install.rs`).
//!
//! ```text
//!   1  links to the files in the database's folder, files and folder synced     after a crash: RocksDB removes them
//!   2  one group of records in its MANIFEST, synced                             from here on: all are in
//! ```
//!
//! The files stay where they were as well; whoever brought them removes them there.
//!
//! When 2 fails nobody knows whether the records are on disk, but RocksDB removes its links, and could not be opened
//! again without the files if the records are there after all. So the links are put back: should they not be needed,
//! the next open removes them.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr;

use keyspace::rows::Family;
use rust_rocksdb::{AsColumnFamilyRef, AsRawPtr, DB};

use super::{Failure, step};
use crate::db::Db;
use crate::directory::sync_folder;
use crate::steps;

unsafe extern "C" {
    fn neokv_prepare(
        db: *mut c_void,
        families: *const *mut c_void,
        paths: *const *const c_char,
        count: usize,
        prepared: *mut *mut c_void,
        why: *mut *mut c_char,
    ) -> c_int;
    fn neokv_commit(db: *mut c_void, prepared: *mut c_void, why: *mut *mut c_char) -> c_int;
    fn neokv_abandon(prepared: *mut c_void);
}

/// What the functions above return.
const DONE: c_int = 0;
const AGAIN: c_int = 1;

/// Takes in files that do not overlap, those of a family in a row. They are part of the database, or nothing has changed;
/// unless it failed at the last step, behind which nobody may use the database but to read from it.
pub(crate) fn take_in(db: &Db, files: &[(Family, PathBuf)]) -> Result<(), Failure> {
    let prepared = Prepared::new(db, files)?;
    let links = links_inside(db.path(), files).map_err(Failure::of);
    step()?;
    // Abandoned here if the links are not known.
    let links = links?;
    let committed = prepared.commit();
    if let Err(Failure::Failed(_)) = committed {
        put_back(db.path(), &links);
    }
    committed
}

/// Files that are linked and not yet part of the database.
struct Prepared<'db> {
    handle: *mut c_void,
    db: &'db Db,
}

impl Prepared<'_> {
    fn new<'db>(db: &'db Db, files: &[(Family, PathBuf)]) -> Result<Prepared<'db>, Failure> {
        let mut paths = Vec::with_capacity(files.len());
        for (_, path) in files {
            paths.push(CString::new(path.as_os_str().as_bytes()).map_err(Failure::of)?);
        }
        let paths: Vec<*const c_char> = paths.iter().map(|path| path.as_ptr()).collect();
        let families = files.iter().map(|(family, _)| db.family(*family));
        let families: Vec<*mut c_void> = families.map(|it| it.inner().cast()).collect();
        let (mut handle, mut why) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the database and its families live as long as `db`; both lists have as many entries as said, and
        // what they point to lives until the call is over. It writes to the last two, which are ours.
        let outcome = unsafe {
            neokv_prepare(
                raw(db),
                families.as_ptr(),
                paths.as_ptr(),
                files.len(),
                &raw mut handle,
                &raw mut why,
            )
        };
        told(outcome, why)?;
        Ok(Prepared { handle, db })
    }

    fn commit(self) -> Result<(), Failure> {
        let mut why = ptr::null_mut();
        // SAFETY: `handle` is of this database, and is used up here: `self` is forgotten.
        let outcome = unsafe { neokv_commit(raw(self.db), self.handle, &raw mut why) };
        std::mem::forget(self);
        told(outcome, why)
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        // A process that ends takes nothing back.
        if !steps::has_ended() {
            // SAFETY: it was not used up, for then it is forgotten; the database still lives.
            unsafe { neokv_abandon(self.handle) }
        }
    }
}

fn raw(db: &Db) -> *mut c_void {
    let db: &DB = db;
    // SAFETY: who gets the pointer uses it while `db` is borrowed.
    unsafe { db.as_raw_ptr().cast() }
}

fn told(outcome: c_int, why: *mut c_char) -> Result<(), Failure> {
    let text = match why.is_null() {
        true => String::new(),
        // SAFETY: text that ends with a zero, allocated with `malloc` for us.
        false => unsafe {
            let text = CStr::from_ptr(why).to_string_lossy().into_owned();
            libc::free(why.cast());
            text
        },
    };
    match outcome {
        DONE => Ok(()),
        AGAIN => Err(Failure::Busy),
        _ => Err(Failure::Failed(text)),
    }
}

/// Each file, and the link to it in the database's folder.
fn links_inside(folder: &Path, files: &[(Family, PathBuf)]) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let mut numbers = Vec::with_capacity(files.len());
    for (_, path) in files {
        numbers.push((fs::metadata(path)?.ino(), path));
    }
    let mut links = Vec::with_capacity(files.len());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let of = numbers.iter().find(|(number, _)| *number == entry.ino());
        links.extend(of.map(|(_, path)| (path.to_path_buf(), entry.path())));
    }
    if links.len() < files.len() {
        // There are no hard links here: RocksDB has made copies.
        for (_, path) in &numbers {
            if !links.iter().any(|(known, _)| known == *path)
                && let Some(copy) = copy_of(folder, path)?
            {
                links.push((path.to_path_buf(), copy));
            }
        }
    }
    Ok(links)
}

/// A file of rows in the folder with the same bytes.
fn copy_of(folder: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
    let len = fs::metadata(path)?.len();
    for entry in fs::read_dir(folder)? {
        let other = entry?.path();
        // Of others, some may go meanwhile.
        let is_alike = other.extension().is_some_and(|it| it == "sst")
            && fs::metadata(&other).is_ok_and(|it| it.len() == len);
        if is_alike && fs::read(&other).is_ok_and(|it| fs::read(path).is_ok_and(|own| own == it)) {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

fn copy(path: &Path, link: &Path) -> io::Result<()> {
    fs::copy(path, link)?;
    fs::File::open(link)?.sync_all()
}

/// As well as it goes: the disk has just refused something.
fn put_back(folder: &Path, links: &[(PathBuf, PathBuf)]) {
    for (path, link) in links {
        // Where there are no hard links RocksDB had made copies.
        let _ = fs::hard_link(path, link).or_else(|_| copy(path, link));
    }
    let _ = sync_folder(folder);
}
