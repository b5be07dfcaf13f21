//! Redis clients in other languages: where they are, and what it means if they are not.

use std::path::{Path, PathBuf};

/// Without it a test is skipped, loudly; on CI it fails.
pub fn is_installed(client: &Path) -> bool {
    if !client.exists() {
        assert!(
            std::env::var_os("CI").is_none(),
            "{} is missing and CI is set: `make test` installs it",
            client.display()
        );
        eprintln!(
            "SKIPPED: {} is missing; `make test` installs it",
            client.display()
        );
    }
    client.exists()
}

/// Where `scripts/install` puts the clients.
pub fn cache() -> PathBuf {
    if let Some(cache) = std::env::var_os("NEOKV_CACHE") {
        return cache.into();
    }
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    base.unwrap_or_else(home).join("neokv")
}
