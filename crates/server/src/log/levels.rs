//! The grammar of `loglevel`: one of Redis' levels, and others for single modules.
//!
//! ```text
//! notice                              everything from notice on
//! notice,transport=debug              and all that the transport has to say
//! warning,cluster=verbose,sqlx=debug  a module of the server may stand without `server::`
//! ```
//!
//! The level without a module is that of NeoKV's own crates. Libraries write from `warning` on, unless they
//! are named: at `debug` some of them write several lines per request.

use tracing_subscriber::filter::{LevelFilter, Targets};

/// Our crates that may write lines: the pure ones do not.
const OWN: [&str; 5] = ["neokv", "server", "transport", "rocks", "sqldb"];
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
        for own in OWN {
            targets = targets.with_target(own, self.all.filter());
        }
        for (module, level) in &self.modules {
            targets = targets
                .with_target(module.clone(), level.filter())
                .with_target(format!("server::{module}"), level.filter());
        }
        targets
    }
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
        let none = Levels::parse("nothing").unwrap().targets();
        assert!(!none.would_enable("server", &Rank::ERROR));
        assert!(!none.would_enable("h2", &Rank::ERROR));
    }
}
