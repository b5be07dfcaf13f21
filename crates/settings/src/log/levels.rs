//! The grammar of `loglevel`: one of Redis' levels, and others for single modules.
//!
//! ```text
//! notice                              everything from notice on
//! notice,transport=debug              and all that the transport has to say
//! warning,cluster=verbose,sqlx=debug  a module of the server may stand without its crate
//! ```
//!
//! The crates of the server were one once, `server`: it still names all of them, and its modules may be named as they
//! were (`server::cluster`).
//!
//! The level without a module is that of NeoKV's own crates. Libraries write from `warning` on, unless they
//! are named: at `debug` some of them write several lines per request.

use tracing_subscriber::filter::{LevelFilter, Targets};

/// Our crates that may write lines: the pure ones do not.
const OWN: [&str; 4] = ["neokv", "transport", "rocks", "sqldb"];
/// Those of the server.
const SERVER: [&str; 7] = [
    "server", "gateway", "admin", "session", "dump", "runtime", "settings",
];
/// Modules of `server` that are crates now.
const RENAMED: [(&str, &str); 2] = [("family", "admin"), ("http", "gateway")];
const NAMES: [(&str, Level); 5] = [
    ("debug", Level::Debug),
    ("verbose", Level::Verbose),
    ("notice", Level::Notice),
    ("warning", Level::Warning),
    ("nothing", Level::Nothing),
];

/// Redis' levels, the most talkative first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Verbose,
    Notice,
    Warning,
    Nothing,
}

impl Level {
    fn parse(text: &str) -> Option<Level> {
        let found = NAMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.map(|&(_, level)| level)
    }

    fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, level)| *level == self);
        found.map_or("", |(name, _)| name)
    }

    fn filter(self) -> LevelFilter {
        match self {
            Level::Debug => LevelFilter::TRACE,
            Level::Verbose => LevelFilter::DEBUG,
            Level::Notice => LevelFilter::INFO,
            Level::Warning => LevelFilter::WARN,
            Level::Nothing => LevelFilter::OFF,
        }
    }
}

/// What is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    all: Level,
    modules: Vec<(String, Level)>,
}

impl Default for Levels {
    fn default() -> Self {
        Levels {
            all: Level::Notice,
            modules: Vec::new(),
        }
    }
}

impl Levels {
    /// Parses a setting; of a level or module that is given twice the last counts.
    pub fn parse(text: &str) -> Result<Levels, String> {
        let mut levels = Levels::default();
        if text.trim().is_empty() {
            return Err(not_a_level());
        }
        for part in text.split(',').map(str::trim) {
            let Some((module, level)) = part.split_once('=') else {
                levels.all = Level::parse(part).ok_or_else(not_a_level)?;
                continue;
            };
            let (module, level) = (module.trim(), level.trim());
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
            if module.is_empty() || !module.chars().all(is_name) {
                return Err(format!("'{module}' is not the name of a module"));
            }
            let level = Level::parse(level).ok_or_else(not_a_level)?;
            levels.modules.retain(|(known, _)| known != module);
            levels.modules.push((module.into(), level));
        }
        Ok(levels)
    }

    pub fn targets(&self) -> Targets {
        let others = self.all.max(Level::Warning);
        let mut targets = Targets::new().with_default(others.filter());
        for own in OWN.into_iter().chain(SERVER) {
            targets = targets.with_target(own, self.all.filter());
        }
        for (module, level) in &self.modules {
            for name in names_of(module) {
                targets = targets.with_target(name, level.filter());
            }
        }
        targets
    }
}

/// The beginnings of targets that a module stands for.
fn names_of(module: &str) -> Vec<String> {
    let mut names = vec![module.to_owned()];
    if module == "server" {
        names.extend(SERVER.map(str::to_owned));
        return names;
    }
    let path = module.strip_prefix("server::").unwrap_or(module);
    names.extend(SERVER.map(|own| format!("{own}::{path}")));
    for (before, now) in RENAMED {
        let rest = path.strip_prefix(before);
        if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with("::")) {
            names.push(format!("{now}{rest}"));
        }
    }
    if SERVER.contains(&path) {
        names.push(path.to_owned());
    }
    names
}

impl std::fmt::Display for Levels {
    /// As `CONFIG GET` shows it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.all.name())?;
        for (module, level) in &self.modules {
            write!(f, ",{module}={}", level.name())?;
        }
        Ok(())
    }
}

fn not_a_level() -> String {
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    format!(
        "argument(s) must be one of the following: {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level as Rank;

    #[test]
    fn texts() {
        for (text, shown) in [
            ("notice", "notice"),
            ("WARNING", "warning"),
            ("transport=debug", "notice,transport=debug"),
            ("verbose, a=debug ,a=notice", "verbose,a=notice"),
        ] {
            assert_eq!(Levels::parse(text).unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "loud",
            "notice,",
            "notice,a=loud",
            "=debug",
            "a b=debug",
        ] {
            assert!(Levels::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_writes_what() {
        let targets = Levels::parse("notice,cluster=debug,sqlx=verbose")
            .unwrap()
            .targets();
        for (target, rank, is_written) in [
            ("server::durable", Rank::INFO, true),
            ("server::durable", Rank::DEBUG, false),
            ("server::cluster::heartbeats", Rank::TRACE, true),
            ("transport", Rank::INFO, true),
            ("h2::codec", Rank::INFO, false),
            ("h2::codec", Rank::WARN, true),
            ("sqlx::query", Rank::DEBUG, true),
        ] {
            assert_eq!(
                targets.would_enable(target, &rank),
                is_written,
                "{target} {rank}"
            );
        }
        for (text, target) in [
            ("warning,cluster=notice", "runtime::cluster::leadership"),
            ("warning,server::cluster=notice", "runtime::cluster"),
            ("warning,server=notice", "runtime::cluster"),
            ("warning,server::session=notice", "session::connection"),
            ("warning,family=notice", "admin::debug"),
            ("warning,server::http::rows=notice", "gateway::rows"),
        ] {
            let targets = Levels::parse(text).unwrap().targets();
            assert!(targets.would_enable(target, &Rank::INFO), "{text}");
            assert!(!targets.would_enable("neokv", &Rank::INFO), "{text}");
        }
        let none = Levels::parse("nothing").unwrap().targets();
        assert!(!none.would_enable("server", &Rank::ERROR));
        assert!(!none.would_enable("h2", &Rank::ERROR));
    }
}
