//! Files of a region snapshot: what is in the folder is what the manifest says, or it is refused.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use keyspace::rows::{Manifest, RegionError};

use super::{failed, refused};
use crate::directory::sync_folder;

const MANIFEST: &str = "MANIFEST";
/// Files are read in pieces of this size.
const PIECE: usize = 256 << 10;

/// The manifest that [`keyspace::rows::RowStore::export`] has left in a folder.
pub fn read_manifest(dir: &Path) -> Result<Manifest, RegionError> {
    let bytes = fs::read(dir.join(MANIFEST))
        .map_err(|error| refused(format!("no manifest in {}: {error}", dir.display())))?;
    Manifest::decode(&bytes)
}

/// Once all files are there and synced.
pub(super) fn write_manifest(dir: &Path, manifest: &Manifest) -> Result<(), RegionError> {
    let write = || -> io::Result<()> {
        let path = dir.join(MANIFEST);
        fs::write(&path, manifest.encode())?;
        File::open(&path)?.sync_all()?;
        sync_folder(dir)
    };
    write().map_err(failed)
}

/// Reads every file; says in one line what is not as it should be.
pub(crate) fn verify(manifest: &Manifest, dir: &Path) -> Result<(), RegionError> {
    for file in &manifest.files {
        let name = &file.name;
        let found = checksum(&dir.join(name));
        let (bytes, crc32c) = found.map_err(|error| refused(format!("file {name}: {error}")))?;
        if bytes != file.bytes {
            let wanted = file.bytes;
            return Err(refused(format!(
                "file {name} has {bytes} bytes instead of {wanted}"
            )));
        }
        if crc32c != file.crc32c {
            return Err(refused(format!("file {name} has a wrong checksum")));
        }
    }
    Ok(())
}

/// Length and CRC-32C of a file.
pub(super) fn checksum(path: &Path) -> io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; PIECE];
    let (mut bytes, mut sum) = (0, 0);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((bytes, sum)),
            len => {
                bytes += len as u64;
                sum = crc32c::crc32c_append(sum, piece.get(..len).unwrap_or_default());
            }
        }
    }
}

/// After this the files are there after a power cut, too, whoever wrote them.
pub(super) fn sync_files(manifest: &Manifest, dir: &Path) -> Result<(), RegionError> {
    let sync = || -> io::Result<()> {
        for file in &manifest.files {
            File::open(dir.join(&file.name))?.sync_all()?;
        }
        sync_folder(dir)
    };
    sync().map_err(failed)
}
