//! What an operator may set, and the log that is written as it says.
//!
//! ```text
//!   list      every setting, one row each; CONFIG GET and CONFIG SET speak of these
//!   kind      how a value is parsed and shown          facts    what CONFIG GET only answers
//!   values    all settings as typed fields             rewrite  CONFIG REWRITE
//!   cluster, tables, tls   settings about clusters, SQL tables and TLS for clients
//!   machine   memory and descriptors the system gives
//!   log       which events become lines, and where these go
//! ```
//!
//! One list of rows ([`list::ALL`]) says what exists; [`facts`] is what is only answered. The values live as one immutable, typed
//! [`Settings`] behind an `Arc`; a change makes a new one and moves a version number. A core keeps
//! its own `Arc` and compares the version once per batch (`Core::refresh_settings`), so reading a
//! setting on the command path is a field access.
//!
//! Invariants: a change of several settings happens as a whole or not at all; what `CONFIG GET`
//! shows, set again, changes nothing.

mod cluster;
mod facts;
pub mod kind;
pub mod list;
pub mod log;
mod machine;
mod rewrite;
pub mod tables;
mod tls;
mod values;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::glob;

pub use cluster::ClusterSettings;
pub use kind::{OutputLimit, OutputLimits, SavePoint, Value};
pub use list::{Change, Setting};
pub use machine::{Descriptors, memory_bytes};
pub use rewrite::RewriteError;
pub use tables::{SqlConfig, TableSettings};
pub use tls::{ClientCertificates, HttpTls, Identity, TlsSettings};
pub use values::{Engine, LogSync, Permit, Rows, SaveAtExit, Settings};

/// The settings of a node, shared by all cores.
pub struct SettingsCell {
    version: AtomicU64,
    current: Mutex<Arc<Settings>>,
}

/// Why a setting cannot have a value: the name as the caller wrote it, and Redis' words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetError {
    Unknown { name: String },
    Invalid { name: String, reason: String },
}

impl std::fmt::Display for SetError {
    /// The line `CONFIG SET` answers, without its code.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SetError::Unknown { name } => write!(
                f,
                "Unknown option or number of arguments for CONFIG SET - '{name}'"
            ),
            SetError::Invalid { name, reason } => write!(
                f,
                "CONFIG SET failed (possibly related to argument '{name}') - {reason}"
            ),
        }
    }
}

impl SettingsCell {
    pub fn new(settings: Settings) -> Self {
        SettingsCell {
            version: AtomicU64::new(1),
            current: Mutex::new(Arc::new(settings)),
        }
    }

    /// Moves with every change.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The values now. Takes a lock: on the command path use `Core::settings`.
    pub fn current(&self) -> Arc<Settings> {
        Arc::clone(&self.lock())
    }

    /// Name and value of every setting one of `patterns` matches, each name once. A pattern
    /// without wildcards names a setting in any case.
    pub fn get(&self, patterns: &[&str]) -> Vec<(String, String)> {
        let settings = self.current();
        let mut found: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, value: String| {
            if !found.iter().any(|(known, _)| known == name) {
                found.push((name.to_string(), value));
            }
        };
        for pattern in patterns {
            if !pattern.contains(['*', '?', '[']) {
                if let Some(row) = list::find(pattern) {
                    add(pattern, settings.shown(row));
                } else if let Some(fact) = facts::find(pattern) {
                    add(pattern, fact.value(&settings));
                }
                continue;
            }
            for (row, setting) in list::ALL.iter().enumerate() {
                for name in setting.names() {
                    if glob::matches_ignoring_case(pattern.as_bytes(), name.as_bytes()) {
                        add(name, settings.shown(row));
                    }
                }
            }
            for fact in facts::matching(pattern) {
                add(fact.name, fact.value(&settings));
            }
        }
        found
    }

    /// Changes all of `pairs`, or none. `local`: the client is on this machine.
    pub fn set(&self, pairs: &[(&str, &str)], local: bool) -> Result<(), SetError> {
        self.set_and(pairs, local, |_| Ok(()))
    }

    /// As [`SettingsCell::set`]; `apply` gets the new values before anybody else, and nothing changes if it fails.
    pub fn set_and(
        &self,
        pairs: &[(&str, &str)],
        local: bool,
        apply: impl FnOnce(&Settings) -> Result<(), SetError>,
    ) -> Result<(), SetError> {
        let mut current = self.lock();
        let mut next = (**current).clone();
        let mut rows = Vec::with_capacity(pairs.len());
        // All names first: an unknown one is reported before any bad value.
        for (at, (name, text)) in pairs.iter().enumerate() {
            let Some(row) = list::find(name) else {
                match facts::find(name) {
                    Some(fact) if fact.value(&next).eq_ignore_ascii_case(text) => continue,
                    Some(_) => {
                        return Err(SetError::Invalid {
                            name: (*name).into(),
                            reason: "can't set immutable config".into(),
                        });
                    }
                    None => {}
                }
                return Err(SetError::Unknown {
                    name: (*name).into(),
                });
            };
            let refuse = |reason: &str| {
                Err(SetError::Invalid {
                    name: (*name).into(),
                    reason: reason.into(),
                })
            };
            match list::ALL[row].change {
                Change::Never => return refuse("can't set immutable config"),
                Change::Protected if !next.enable_protected_configs.allows(local) => {
                    return refuse("can't set protected config");
                }
                Change::Start if *text != next.shown(row) => {
                    return refuse("can only be changed at start");
                }
                _ => {}
            }
            if pairs[..at].iter().any(|(other, _)| other == name) {
                return refuse("duplicate parameter");
            }
            rows.push((row, *text));
        }
        for (row, text) in rows {
            next.set(row, text).map_err(|reason| SetError::Invalid {
                name: list::ALL[row].name.into(),
                reason,
            })?;
        }
        next.refresh();
        let most = next.descriptors.clients;
        if next.maxclients > most {
            return Err(SetError::Invalid {
                name: "maxclients".into(),
                reason: format!(
                    "The operating system is not able to handle the specified number of clients, try with {most}"
                ),
            });
        }
        apply(&next)?;
        if next.log_levels != current.log_levels {
            log::set_levels(&next.log_levels);
        }
        *current = Arc::new(next);
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Changes what no row names (`DEBUG SET-ACTIVE-EXPIRE`); all cores see it with their next
    /// batch, the calling session at once.
    pub fn change<T>(&self, change: impl FnOnce(&mut Settings) -> T) -> T {
        let mut current = self.lock();
        let mut next = (**current).clone();
        let result = change(&mut next);
        *current = Arc::new(next);
        self.version.fetch_add(1, Ordering::Release);
        result
    }

    /// Writes the settings into the configuration file, comments and order kept.
    pub fn rewrite(&self) -> Result<(), RewriteError> {
        let settings = self.current();
        let file = settings
            .config_file
            .as_deref()
            .ok_or(RewriteError::NoFile)?;
        rewrite::rewrite(file, &settings)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Settings>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> SettingsCell {
        SettingsCell::new(Settings::default())
    }

    fn get(settings: &SettingsCell, name: &str) -> String {
        settings.get(&[name])[0].1.clone()
    }

    #[test]
    fn every_default_is_valid_and_survives_being_set_again() {
        let settings = settings();
        for (name, text) in settings.get(&["*"]) {
            let Some(row) = list::find(&name) else {
                settings.set(&[(&name, &text)], true).unwrap();
                continue; // a fact
            };
            let row = &list::ALL[row];
            if matches!(row.change, Change::Always | Change::Start) {
                settings.set(&[(&name, &text)], true).unwrap();
                assert_eq!(get(&settings, &name), text, "{name}");
            }
            assert!(!row.doc.is_empty(), "{name}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for setting in list::ALL {
            for name in setting.names().chain(setting.flag) {
                assert!(seen.insert(name), "{name}");
            }
        }
    }

    #[test]
    fn several_at_once_or_none() {
        let settings = settings();
        settings
            .set(&[("maxmemory", "1gb"), ("hz", "20")], false)
            .unwrap();
        assert_eq!(get(&settings, "maxmemory"), "1073741824");
        let error = settings
            .set(&[("maxmemory", "1"), ("hz", "many")], false)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "CONFIG SET failed (possibly related to argument 'hz') - argument couldn't be parsed into an integer"
        );
        assert_eq!(get(&settings, "maxmemory"), "1073741824");
        let error = settings.set(&[("hz", "x"), ("nope", "1")], false);
        assert_eq!(
            error.unwrap_err().to_string(),
            "Unknown option or number of arguments for CONFIG SET - 'nope'"
        );
    }

    #[test]
    fn refusals() {
        let settings = settings();
        for (name, text, reason) in [
            ("databases", "16", "can't set immutable config"),
            ("cluster-enabled", "yes", "can't set immutable config"),
            ("http-port", "1", "can only be changed at start"),
            ("dir", "/", "can't set protected config"),
            (
                "appendonly",
                "yes",
                "there is no append-only file here; use the engine rocksdb, whose log is always on",
            ),
        ] {
            let error = settings.set(&[(name, text)], true).unwrap_err();
            assert!(error.to_string().ends_with(reason), "{error}");
        }
        let error = settings
            .set(&[("hz", "1"), ("hz", "2")], false)
            .unwrap_err();
        assert!(error.to_string().ends_with("duplicate parameter"));
    }

    #[test]
    fn aliases_and_patterns() {
        let settings = settings();
        settings
            .set(&[("hash-max-ziplist-entries", "7")], false)
            .unwrap();
        assert_eq!(get(&settings, "HASH-max-listpack-entries"), "7");
        assert_eq!(settings.current().tuning.hash_max_packed_entries, 7);
        let names: Vec<String> = settings
            .get(&["hash-max-*-entries", "hash-max-listpack-entries"])
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(
            names,
            ["hash-max-listpack-entries", "hash-max-ziplist-entries"]
        );
    }
}
