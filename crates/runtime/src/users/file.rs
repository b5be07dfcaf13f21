//! The file of users that the setting `aclfile` names: read at start and by ACL LOAD, written by ACL SAVE.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use acl::Users;
use base::Refusal;

use crate::Shared;
use crate::tables::catalogue_change::off_core;

const NO_FILE: Refusal = Refusal::new(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and \
     then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis \
     configuration.",
);

fn path_of(shared: &Shared) -> PathBuf {
    let settings = shared.settings.current();
    settings.dir.join(&settings.aclfile)
}

pub(super) fn read(shared: &Shared) -> Result<Users, String> {
    let settings = shared.settings.current();
    let text = read_text(&path_of(shared), &settings.aclfile)?;
    let (specs, all_channels) = (&shared.commands, settings.acl_all_channels);
    acl::file::read(&text, &settings.aclfile, specs, all_channels)
}

fn read_text(path: &Path, name: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => "No such file or directory".to_owned(),
            _ => error.to_string(),
        };
        format!("Error loading ACLs, opening file '{name}': {reason}")
    })
}

/// ACL LOAD: the users of the file are those there are.
pub async fn load_file(shared: &Arc<Shared>) -> Result<(), Refusal> {
    if shared.settings.current().aclfile.is_empty() {
        return Err(NO_FILE);
    }
    let on_thread = shared.clone();
    let users = off_core(move || read(&on_thread)).await;
    let users = users.map_err(|why| Refusal::text_of(format!("ERR {why}")))?;
    super::change_users(shared, move |known| Ok(known.replaced_by(users.clone()))).await
}

/// ACL SAVE: the file has the users there are. It is replaced as a whole.
pub async fn save_file(shared: &Arc<Shared>) -> Result<(), Refusal> {
    if shared.settings.current().aclfile.is_empty() {
        return Err(NO_FILE);
    }
    let (path, text) = (path_of(shared), shared.users.load().lines(&shared.commands));
    let written = off_core(move || write(&path, &text).map_err(|error| error.to_string())).await;
    written.map_err(|why| {
        tracing::warn!("the file of users could not be written: {why}");
        Refusal::new(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        )
    })
}

fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let temporary = PathBuf::from(name);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&temporary).and_then(|mut file| {
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
        return written;
    }
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
