//! A node of a cluster whose log has lost what was synced becomes a new node: its data is set aside, and it joins again.
//!
//! Its replicas have forgotten entries they acknowledged, or votes they gave. None of them may vote as who it was. As a
//! new node it votes for nothing until others have made replicas for it, with new numbers and from a snapshot.
//!
//! ```text
//!   REJOIN     where the old data goes, which node it was, whom to ask   (synced)
//!              log.synced, log, rows, snapshots, FORMAT    moved to lost-log-<n>/, FORMAT last
//!              a new directory is made; the node joins
//!   REJOIN     removed when the cluster has let it in
//! ```
//!
//! A start finishes what another one began: as long as the old FORMAT is not in its new place, things are being moved.

use std::fs;
use std::path::{Path, PathBuf};

use crate::directory::sync_folder;
use crate::{DataDir, OpenError};

const REJOIN: &str = "REJOIN";
/// How a node whose data was set aside joins again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejoin {
    /// The number of the node it was, which it takes the place of.
    pub node: u64,
    /// Whom to ask.
    pub addresses: Vec<String>,
}

/// In the order in which they are moved.
const MOVED: [&str; 5] = ["log.synced", "log", "rows", "snapshots", "FORMAT"];

impl DataDir {
    /// Moves all data away, for a node that will join again so. Rows and log must be closed.
    pub fn set_aside(&self, rejoin: &Rejoin) -> Result<PathBuf, OpenError> {
        let folder = self.unused_folder();
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let mut text = format!("{name}\n{}\n", rejoin.node);
        for address in &rejoin.addresses {
            text.push_str(address);
            text.push('\n');
        }
        self.write_file(REJOIN, text.as_bytes())?;
        self.finish_aside()?;
        Ok(folder)
    }

    /// How to join, if this directory is to become that of a new node; `None` if it is not.
    pub fn rejoins(&self) -> Result<Option<Rejoin>, OpenError> {
        Ok(self.rejoin_note()?.map(|(_, rejoin)| rejoin))
    }

    /// It has joined.
    pub fn has_rejoined(&self) -> Result<(), OpenError> {
        let path = self.path().join(REJOIN);
        if !path.exists() {
            return Ok(());
        }
        let removed = fs::remove_file(&path).and_then(|()| sync_folder(self.path()));
        removed.map_err(|error| OpenError::failed(&path, error))
    }

    pub(crate) fn finish_aside(&self) -> Result<(), OpenError> {
        let Some((folder, _)) = self.rejoin_note()? else {
            return Ok(());
        };
        if folder.join("FORMAT").exists() {
            return Ok(());
        }
        let failed = |error| OpenError::failed(&folder, error);
        fs::create_dir_all(&folder).map_err(failed)?;
        for name in MOVED {
            let from = self.path().join(name);
            if name == "FORMAT" {
                sync_folder(&folder).map_err(failed)?;
            }
            if from.exists() {
                fs::rename(from, folder.join(name)).map_err(failed)?;
            }
        }
        sync_folder(&folder).map_err(failed)?;
        sync_folder(self.path()).map_err(failed)
    }

    fn rejoin_note(&self) -> Result<Option<(PathBuf, Rejoin)>, OpenError> {
        let path = self.path().join(REJOIN);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::failed(&path, error)),
        };
        let mut lines = text.lines().map(str::to_owned);
        let name = lines.next().unwrap_or_default();
        // A name, not a path to somewhere else.
        if !name.starts_with("lost-log") || Path::new(&name).components().count() != 1 {
            return Err(OpenError::damaged(&path, "it does not name a folder"));
        }
        let Some(Ok(node)) = lines.next().map(|line| line.parse()) else {
            return Err(OpenError::damaged(&path, "it does not name a node"));
        };
        let addresses = lines.collect();
        Ok(Some((self.path().join(name), Rejoin { node, addresses })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_set_aside_whole_and_the_node_joins_until_it_is_let_in() {
        let temp = tempfile::tempdir().unwrap();
        let data = DataDir::open(temp.path()).unwrap();
        assert_eq!(data.rejoins().unwrap(), None);
        fs::write(data.rows().join("a row"), "old").unwrap();
        let rejoin = Rejoin {
            node: 3,
            addresses: vec!["a:1".into(), "b:2".into()],
        };
        let folder = data.set_aside(&rejoin).unwrap();
        assert!(data.is_new());
        drop(data);
        let data = DataDir::open(temp.path()).unwrap();
        assert_eq!(data.rejoins().unwrap().as_ref(), Some(&rejoin));
        assert!(!data.rows().join("a row").exists());
        assert!(folder.join("rows/a row").exists());
        fs::write(data.rows().join("a row"), "new").unwrap();
        drop(data);
        // Another start before it was let in moves nothing.
        let data = DataDir::open(temp.path()).unwrap();
        assert!(data.rows().join("a row").exists());
        data.has_rejoined().unwrap();
        assert_eq!(data.rejoins().unwrap(), None);
        // One that ended in the middle of it is finished.
        let folder = data.set_aside(&rejoin).unwrap();
        fs::rename(folder.join("FORMAT"), temp.path().join("FORMAT")).unwrap();
        fs::rename(folder.join("rows"), temp.path().join("rows")).unwrap();
        drop(data);
        let data = DataDir::open(temp.path()).unwrap();
        assert!(!data.rows().join("a row").exists());
        assert!(folder.join("rows/a row").exists());
    }
}
