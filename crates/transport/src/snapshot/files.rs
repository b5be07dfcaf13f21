//! The receiver's files: `name.part` while they grow, `name` when they are whole and on disk.
//!
//! Invariants: nothing is written outside the directory; what was appended had a right checksum;
//! a file has its final name only after its size and checksum were right and it was synced.
//! Everything here touches the disk, so it runs on threads made for that.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tokio::sync::OwnedMutexGuard;

use crate::wire::{Chunk, OfferedFile, Prefix};

const FILES_MAX: usize = 100_000;

/// What is wrong with the list of an offer, if anything.
pub fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        check_name(name)?;
        if !seen.insert(name) {
            return Err(format!("the file name {name} twice"));
        }
        if seen.len() > FILES_MAX {
            return Err("too many files".into());
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let right = !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && !name.ends_with(".part")
        && name.bytes().all(good);
    match right {
        true => Ok(()),
        false => Err(format!("a file name that is not allowed: {name:?}")),
    }
}

/// Length and checksum of the first `limit` bytes of a file.
pub fn measure(path: &Path, limit: u64) -> io::Result<Prefix> {
    let mut file = File::open(path)?.take(limit);
    let mut buffer = vec![0; 1 << 20];
    let mut prefix = Prefix::default();
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(prefix);
        }
        let data = buffer.get(..read).unwrap_or_default();
        prefix.crc32c = crc32c::crc32c_append(prefix.crc32c, data);
        prefix.size += read as u64;
    }
}

/// The files of one transfer as they arrive.
pub struct Sink {
    directory: PathBuf,
    parts: Vec<Part>,
    open: Option<(usize, File)>,
    /// Nobody else writes these files as long as this lives, also in disk work left behind.
    _claim: OwnedMutexGuard<()>,
}

struct Part {
    offered: OfferedFile,
    have: Prefix,
    /// Has its final name.
    whole: bool,
}

impl Sink {
    /// Makes the directory and measures what an earlier attempt left.
    pub fn prepare(
        directory: PathBuf,
        offered: Vec<OfferedFile>,
        claim: OwnedMutexGuard<()>,
    ) -> io::Result<Sink> {
        fs::create_dir_all(&directory)?;
        let mut parts = Vec::with_capacity(offered.len());
        for offered in offered {
            let expected = Prefix {
                size: offered.size,
                crc32c: offered.crc32c,
            };
            let mut part = Part {
                have: Prefix::default(),
                whole: false,
                offered,
            };
            let name = directory.join(&part.offered.name);
            if name.symlink_metadata().is_ok() {
                let is = measure(&name, u64::MAX)?;
                if is == expected {
                    (part.have, part.whole) = (is, true);
                } else {
                    fs::remove_file(&name)?;
                }
            }
            if !part.whole {
                let path = part_path(&directory, &part.offered.name);
                part.have = match path.symlink_metadata() {
                    Ok(it) if it.is_file() && it.len() <= expected.size => {
                        measure(&path, u64::MAX)?
                    }
                    Ok(_) => {
                        fs::remove_file(&path)?;
                        Prefix::default()
                    }
                    Err(_) => Prefix::default(),
                };
            }
            parts.push(part);
        }
        Ok(Sink {
            directory,
            parts,
            open: None,
            _claim: claim,
        })
    }

    pub fn have(&self) -> Vec<Prefix> {
        self.parts.iter().map(|part| part.have.clone()).collect()
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Appends a chunk whose checksum was right. An offset of 0 begins the file anew: the sender
    /// does not recognize what we have.
    pub fn append(&mut self, chunk: &Chunk) -> Result<(), String> {
        let at = chunk.file as usize;
        let words = |error: io::Error| format!("cannot write: {error}");
        let Some(part) = self.parts.get_mut(at) else {
            return Err("a chunk of a file that was not offered".into());
        };
        let name = &part.offered.name;
        let fresh = chunk.offset == 0;
        if !fresh && chunk.offset != part.have.size {
            return Err(format!("a chunk of {name} out of order"));
        }
        if chunk.offset.saturating_add(chunk.data.len() as u64) > part.offered.size {
            return Err(format!("more of {name} than was offered"));
        }
        if fresh && part.whole {
            fs::remove_file(self.directory.join(name)).map_err(words)?;
            part.whole = false;
        }
        let path = part_path(&self.directory, name);
        let file = match &mut self.open {
            Some((open, file)) if *open == at => file,
            other => {
                if let Some((_, file)) = other.take() {
                    // Each file as it ends, not all at the end: the disk has time meanwhile.
                    file.sync_data().map_err(words)?;
                }
                let file = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(&path)
                    .map_err(words)?;
                &mut other.insert((at, file)).1
            }
        };
        if fresh {
            file.set_len(0).map_err(words)?;
            part.have = Prefix::default();
        }
        file.seek(SeekFrom::Start(part.have.size)).map_err(words)?;
        file.write_all(&chunk.data).map_err(words)?;
        part.have.size += chunk.data.len() as u64;
        part.have.crc32c = crc32c::crc32c_append(part.have.crc32c, &chunk.data);
        Ok(())
    }

    /// Checks, syncs and names all files. A damaged one is removed, so that it is sent again.
    pub fn finish(&mut self) -> Result<(), String> {
        self.open = None;
        for part in &mut self.parts {
            if part.whole {
                continue;
            }
            let name = &part.offered.name;
            let path = part_path(&self.directory, name);
            if part.have.size != part.offered.size {
                let (have, size) = (part.have.size, part.offered.size);
                return Err(format!("{name} ended at {have} of {size} bytes"));
            }
            if part.have.crc32c != part.offered.crc32c {
                let _ = fs::remove_file(&path);
                return Err(format!("{name} has a wrong checksum"));
            }
            let named = || -> io::Result<()> {
                let file = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(&path)?;
                file.sync_all()?;
                fs::rename(&path, self.directory.join(name))
            };
            named().map_err(|error| format!("cannot finish {name}: {error}"))?;
            part.whole = true;
        }
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| format!("cannot sync the directory: {error}"))
    }
}

fn part_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.part"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_directory() {
        for name in [
            "", ".", "..", "../x", "/etc/x", "a/b", "a\\b", "a\0b", ".hidden", "x.part", "ä",
        ] {
            assert!(check_names([name].into_iter()).is_err(), "{name:?}");
        }
        assert!(check_names(["000012.sst", "rows-1_a"].into_iter()).is_ok());
        assert!(check_names(["a", "a"].into_iter()).is_err());
    }
}
