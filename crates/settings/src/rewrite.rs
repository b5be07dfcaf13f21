//! `CONFIG REWRITE`: the values as they are now, into the TOML file we were started with.
//!
//! Keys that are there get their new value in place, comments and order kept; settings that were
//! changed since start and are not there are added at the end. The new file replaces the old one
//! by rename, so a crash leaves one or the other.

use std::io::Write;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item};

use super::{Settings, list};

#[derive(Debug)]
pub enum RewriteError {
    NoFile,
    Io(PathBuf, std::io::Error),
    /// The file is no longer TOML.
    Syntax(PathBuf),
}

impl std::fmt::Display for RewriteError {
    /// As `CONFIG REWRITE` answers, without its code.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RewriteError::NoFile => f.write_str("The server is running without a config file"),
            RewriteError::Io(path, error) => {
                write!(f, "Rewriting config file: {}: {error}", path.display())
            }
            RewriteError::Syntax(path) => {
                write!(f, "Rewriting config file: {} is not TOML", path.display())
            }
        }
    }
}

pub fn rewrite(file: &Path, values: &Settings) -> Result<(), RewriteError> {
    let io = |error| RewriteError::Io(file.to_path_buf(), error);
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(io(error)),
    };
    let text = rewritten(&text, values).ok_or_else(|| RewriteError::Syntax(file.to_path_buf()))?;
    let mut name = file.as_os_str().to_owned();
    name.push(".rewrite");
    let beside = PathBuf::from(name);
    let write = || -> std::io::Result<()> {
        let mut out = std::fs::File::create(&beside)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&beside, file)
    };
    write().map_err(io)
}

/// The text of the file with today's values; `None` if it is not TOML.
fn rewritten(text: &str, values: &Settings) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    for (row, setting) in list::ALL.iter().enumerate() {
        let shown = values.shown(row);
        let present: Vec<String> = document
            .iter()
            .map(|(key, _)| key.to_string())
            .filter(|key| {
                let key = key.replace('_', "-");
                setting.is_called(&key) || setting.flag == Some(key.as_str())
            })
            .collect();
        if present.is_empty() {
            if values.is_given(row) {
                document.insert(setting.flag(), Item::Value(shape(&shown, None)));
            }
            continue;
        }
        for key in present {
            let Some(old) = document.get_mut(&key).and_then(Item::as_value_mut) else {
                continue;
            };
            let mut new = shape(&shown, Some(old));
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
    }
    Some(document.to_string())
}

/// A value in the TOML type the file used for it, or the plainest that holds it.
fn shape(shown: &str, old: Option<&toml_edit::Value>) -> toml_edit::Value {
    let wants_text = old.is_some_and(toml_edit::Value::is_str);
    if let (false, Ok(number)) = (wants_text, shown.parse::<i64>()) {
        return number.into();
    }
    match (wants_text, shown) {
        (false, "yes") => true.into(),
        (false, "no") => false.into(),
        _ => shown.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_stay_and_changes_are_added() {
        let mut values = Settings::default();
        for (name, text) in [("maxmemory", "200"), ("hz", "20"), ("rdbcompression", "no")] {
            values.set(list::find(name).unwrap(), text).unwrap();
        }
        let before =
            "# mine\nmaxmemory = \"100mb\" # enough\n\nrdbcompression = true\nredis_port = 7000\n";
        let after = rewritten(before, &values).unwrap();
        assert_eq!(
            after,
            "# mine\nmaxmemory = \"200\" # enough\n\nrdbcompression = false\nredis_port = 6379\nhz = 20\n"
        );
        assert_eq!(rewritten(&after, &values).unwrap(), after);
        assert!(rewritten("this is not toml", &values).is_none());
    }
}
