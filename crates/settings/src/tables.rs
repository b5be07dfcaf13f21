//! Settings about tables: which SQL databases there are, and what rows may cost.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::Settings;

/// The name of a backend that was given without one.
pub const MAIN: &str = "main";

/// Where the databases are and what they may cost. Fixed when the node starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SqlConfig {
    /// By name.
    pub backends: BTreeMap<String, String>,
    /// Connections per backend.
    pub connections: usize,
    pub statement: Duration,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableSettings {
    pub sql: SqlConfig,
    /// Bytes of cached rows of this node above which cold ones leave.
    pub soft_bytes: usize,
    /// And above which nothing that grows is taken.
    pub hard_bytes: usize,
    pub flush_linger_ms: u64,
}

impl Settings {
    pub(super) fn take_tables(&mut self, machine_bytes: usize) {
        let text = self.text("table-backend");
        let mut backends = parse_backends(&text).unwrap_or_default();
        if text.is_empty() {
            let dir = self.text("dir");
            backends.insert(MAIN.into(), sqlite_url(Path::new(&dir)));
        }
        let soft_bytes = match self.bytes("table-cache-soft-bytes") {
            0 => machine_bytes / 8,
            given => given as usize,
        };
        let hard_bytes = match self.bytes("table-cache-hard-bytes") {
            0 => soft_bytes.saturating_add(soft_bytes / 3),
            given => (given as usize).max(soft_bytes),
        };
        self.tables = TableSettings {
            sql: SqlConfig {
                backends,
                connections: self.int("table-pool-size") as usize,
                statement: Duration::from_millis(self.int("table-statement-timeout-ms") as u64),
            },
            soft_bytes,
            hard_bytes,
            flush_linger_ms: self.int("table-flush-linger-ms") as u64,
        };
    }

    /// Nodes of a cluster must write to one and the same database: it has to be said which.
    pub fn have_no_own_database(&mut self) {
        if self.text("table-backend").is_empty() {
            self.tables.sql.backends.clear();
        }
    }
}

/// `name=url name=url`; a URL alone is `main`. By name.
pub fn parse_backends(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut backends = BTreeMap::new();
    for word in text.split_ascii_whitespace() {
        let (name, url) = match word.split_once('=') {
            // An equals sign among the parameters of the URL is none of ours.
            Some((name, url)) if !name.contains("://") => (name, url),
            _ => (MAIN, word),
        };
        table::name::check("backend", name).map_err(|refusal| {
            let text = refusal.text();
            text.strip_prefix("ERR ").unwrap_or(text).to_owned()
        })?;
        let schemes = ["postgres", "postgresql", "mysql", "mariadb", "sqlite"];
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        if !scheme.is_some_and(|scheme| schemes.contains(&scheme)) {
            return Err(format!(
                "backend {name}: a URL begins with postgres://, mysql:// or sqlite://"
            ));
        }
        if backends.insert(name.to_owned(), url.to_owned()).is_some() {
            return Err(format!("backend {name} is given twice"));
        }
    }
    Ok(backends)
}

/// The database that a node alone has beside its data.
fn sqlite_url(dir: &Path) -> String {
    let mut url = String::from("sqlite://");
    for c in dir.join("tables.db").to_string_lossy().chars() {
        match c {
            '%' => url.push_str("%25"),
            '?' => url.push_str("%3f"),
            '#' => url.push_str("%23"),
            c => url.push(c),
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_by_name() {
        let parsed = parse_backends("postgres://h/db?a=b  games=mysql://u:p@h/g").unwrap();
        let shown: Vec<_> = parsed.iter().map(|(a, b)| format!("{a} {b}")).collect();
        assert_eq!(shown, ["games mysql://u:p@h/g", "main postgres://h/db?a=b"]);
        assert_eq!(parse_backends("").unwrap().len(), 0);
        for bad in [
            "tape://x",
            "main",
            "a-b=sqlite://x",
            "a=sqlite://x a=sqlite://y",
            "=sqlite://x",
        ] {
            assert!(parse_backends(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_node_alone_has_a_database_of_its_own() {
        let settings = Settings::default();
        assert!(settings.tables.sql.backends[MAIN].ends_with("/tables.db"));
        let dir = Path::new("/a?b%c");
        assert_eq!(sqlite_url(dir), "sqlite:///a%3fb%25c/tables.db");
    }
}
