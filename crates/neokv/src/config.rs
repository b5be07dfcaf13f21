//! Settings from flags, environment and file: flag before environment before file before default.
//!
//! Whatever is wrong is told in one line that names the key where the user wrote it.

use std::path::{Path, PathBuf};

use server::Settings;
use server::settings::{Engine, Setting, list};
use toml_edit::{DocumentMut, Item, Value};

/// What the command line gave: row of the setting, how the user wrote it, text.
#[derive(Debug, Default)]
pub struct Given {
    pub config: Option<String>,
    pub flags: Vec<(usize, String, String)>,
    /// Asked for as a node of a cluster; one that is alone will not do.
    pub is_of_cluster: bool,
}

/// A wrong configuration: where, and what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    place: String,
    reason: String,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// Where the engine rocksdb keeps its data if nobody says.
const DATA_DIR: &str = "neokv-data";

/// The default as documents show it: what a node has if nobody says.
pub fn default_shown(setting: &Setting) -> &'static str {
    match setting.name {
        "dir" => DATA_DIR,
        _ => setting.default,
    }
}

fn wrong(place: impl Into<String>, reason: impl Into<String>) -> ConfigError {
    ConfigError {
        place: place.into(),
        reason: reason.into(),
    }
}

/// The settings to start with. `env` looks up an environment variable.
pub fn load(given: &Given, env: impl Fn(&str) -> Option<String>) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    let file = given.config.clone().or_else(|| env("NEOKV_CONFIG"));
    if let Some(file) = file {
        let path = PathBuf::from(&file);
        for (row, place, text) in read_file(&path)? {
            set(&mut settings, row, &place, &text)?;
        }
        settings.config_file = Some(std::fs::canonicalize(&path).unwrap_or(path));
    }
    for (row, setting) in list::ALL.iter().enumerate() {
        let name = env_name(setting);
        if let Some(text) = env(&name) {
            set(&mut settings, row, &name, &text)?;
        }
    }
    for (row, place, text) in &given.flags {
        set(&mut settings, *row, place, text)?;
    }
    settings.refresh();
    // A database does not belong among the files of whatever folder it is started in.
    let dir = find("dir").filter(|&row| !settings.is_given(row));
    if let (Some(dir), Engine::Rocksdb) = (dir, settings.engine) {
        set(&mut settings, dir, "--data-dir", DATA_DIR)?;
        settings.refresh();
    }
    Ok(settings)
}

/// The row called `name`: a name, alias or flag, `_` meaning `-`.
pub fn find(name: &str) -> Option<usize> {
    let name = name.replace('_', "-");
    list::ALL
        .iter()
        .position(|setting| setting.is_called(&name) || setting.flag() == name)
}

/// `NEOKV_REDIS_PORT` for `redis-port`.
pub fn env_name(setting: &Setting) -> String {
    format!(
        "NEOKV_{}",
        setting.flag().replace('-', "_").to_ascii_uppercase()
    )
}

fn set(settings: &mut Settings, row: usize, place: &str, text: &str) -> Result<(), ConfigError> {
    let setting = &list::ALL[row];
    if setting.name == "dir" {
        // A data folder that is not there yet is made.
        std::fs::create_dir_all(text)
            .map_err(|error| wrong(place, format!("cannot make the folder '{text}': {error}")))?;
    }
    settings.set(row, text).map_err(|reason| {
        let shown = if setting.secret { "…" } else { text };
        wrong(place, format!("'{shown}': {reason}"))
    })
}

/// Settings of former versions: a file that has them still starts a node.
const REMOVED: &[&str] = &["sched-batch"];

/// The settings in a configuration file: row, place for errors, text.
fn read_file(path: &Path) -> Result<Vec<(usize, String, String)>, ConfigError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong("--config", format!("cannot read '{shown}': {error}")))?;
    let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(1, |before| before.matches('\n').count() + 1);
        wrong(
            format!("{shown} line {line}"),
            error.message().replace('\n', "; "),
        )
    })?;
    let mut found = Vec::new();
    for (key, item) in document.iter() {
        let place = format!("{shown}: {key}");
        if REMOVED.contains(&key) {
            eprintln!("neokv: {place}: there is no such setting any more; the line can be deleted");
            continue;
        }
        let row = find(key).ok_or_else(|| wrong(&place, "no such setting"))?;
        // Users are lines; other lists are words.
        let between = if list::ALL[row].name == "user" {
            "\n"
        } else {
            " "
        };
        let text = as_text(item, between).ok_or_else(|| {
            wrong(
                &place,
                "expected a text, a number, true or false, or a list of them",
            )
        })?;
        found.push((row, place, text));
    }
    Ok(found)
}

/// A TOML value as `CONFIG SET` would take it; `between` joins lists.
fn as_text(item: &Item, between: &str) -> Option<String> {
    fn text(value: &Value, between: &str) -> Option<String> {
        match value {
            Value::String(text) => Some(text.value().clone()),
            Value::Integer(number) => Some(number.value().to_string()),
            Value::Float(number) => Some(number.value().to_string()),
            Value::Boolean(value) => Some(if *value.value() { "yes" } else { "no" }.into()),
            Value::Array(list) => {
                let parts: Option<Vec<String>> =
                    list.iter().map(|part| text(part, between)).collect();
                Some(parts?.join(between))
            }
            Value::Datetime(_) | Value::InlineTable(_) => None,
        }
    }
    text(item.as_value()?, between)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, text: &str) -> Given {
        Given {
            config: None,
            is_of_cluster: false,
            flags: vec![(find(name).unwrap(), format!("--{name}"), text.into())],
        }
    }

    #[test]
    fn flag_before_environment_before_default() {
        let env = |name: &str| (name == "NEOKV_REDIS_PORT").then(|| "7001".to_string());
        assert_eq!(load(&Given::default(), |_| None).unwrap().redis_port, 6379);
        assert_eq!(load(&Given::default(), env).unwrap().redis_port, 7001);
        let settings = load(&given("redis-port", "7002"), env).unwrap();
        assert_eq!(settings.redis_port, 7002);
    }

    #[test]
    fn a_file_may_have_settings_that_are_gone() {
        let path = std::env::temp_dir().join(format!("neokv-removed-{}.toml", std::process::id()));
        std::fs::write(&path, "sched-batch = true\nredis-port = 7003\n").unwrap();
        let given = Given {
            config: Some(path.display().to_string()),
            ..Given::default()
        };
        assert_eq!(load(&given, |_| None).unwrap().redis_port, 7003);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn errors_name_the_key() {
        let error = load(&given("engine", "tape"), |_| None).unwrap_err();
        assert!(error.to_string().starts_with("--engine: 'tape': "));
        let error = load(&given("maxmemory", "much"), |_| None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--maxmemory: 'much': argument must be a memory value"
        );
        let env = |name: &str| (name == "NEOKV_HZ").then(|| "x".to_string());
        let error = load(&Given::default(), env).unwrap_err();
        assert!(error.to_string().starts_with("NEOKV_HZ: 'x': "));
    }
}
