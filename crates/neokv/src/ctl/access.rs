//! What nodes ask `neokv ctl` for: the cluster secret, or a certificate.

use std::path::{Path, PathBuf};

use server::cluster::SECRET_FILE;
use transport::{Secret, read_secrets};

/// Folders that may have it if nobody says where it is: the default data directory, the default playground, and the
/// data directory of an installed node.
const USUAL: [&str; 3] = ["neokv-data", "neokv-cluster", "/var/lib/neokv"];

/// Nothing: the nodes ask for nothing (`--peer-auth no`).
#[derive(Default)]
pub struct Access {
    /// Certificate, key, authority.
    pub tls: Option<[String; 3]>,
    pub secrets: Option<Vec<Secret>>,
}

impl Access {
    pub fn by_tls(tls: [String; 3]) -> Access {
        Access {
            tls: Some(tls),
            secrets: None,
        }
    }

    /// By the secrets of all these files that are there: a node takes one of them, or none.
    pub fn by_secrets(files: &[PathBuf]) -> Result<Access, String> {
        let mut found: Vec<Secret> = Vec::new();
        for file in present(files)? {
            let list = read_secrets(file).map_err(|error| error.to_string())?;
            let new = |it: &Secret| !found.contains(it);
            let list: Vec<Secret> = list.into_iter().filter(new).collect();
            found.extend(list);
        }
        Ok(Access {
            tls: None,
            secrets: Some(found),
        })
    }
}

pub fn usual_files() -> Vec<PathBuf> {
    let files = USUAL.map(|folder| Path::new(folder).join(SECRET_FILE));
    files.into()
}

/// Those of the files that are there; at least one.
pub fn present(files: &[PathBuf]) -> Result<Vec<&PathBuf>, String> {
    // One that may not be looked at is there: reading it says why it cannot be used.
    let is_there = |file: &&PathBuf| !matches!(file.try_exists(), Ok(false));
    let there: Vec<&PathBuf> = files.iter().filter(is_there).collect();
    if there.is_empty() {
        let looked: Vec<String> = files.iter().map(|it| it.display().to_string()).collect();
        return Err(format!(
            "no cluster secret: give --cluster-secret-file FILE (or NEOKV_CLUSTER_SECRET_FILE), the file {SECRET_FILE} in \
             the data directory of any node; looked for {}",
            looked.join(", ")
        ));
    }
    Ok(there)
}
