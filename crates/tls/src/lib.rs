//! TLS for clients (rustls): what the ports of a node show and ask for, and how the program's own clients connect.
//!
//! ```text
//!   server    the configuration of the ports, from settings        files    certificates, keys, authorities
//!   ciphers   versions and ciphers by OpenSSL's names              reload   the configuration in use, replaced
//!   client    the configuration of who connects
//! ```
//!
//! A configuration is immutable and shared; a new one is for connections that come later, those that are there go on
//! with theirs. *Invariant*: what cannot be used never replaces what can; the reason is told in one line that names
//! the file or the setting.

mod ciphers;
pub mod client;
mod files;
mod reload;
mod server;

pub use reload::{POLL, Tls};
pub use server::Loaded;
pub use tokio_rustls::client::TlsStream as ClientStream;
pub use tokio_rustls::server::TlsStream;
pub use tokio_rustls::{TlsAcceptor, TlsConnector, rustls};

/// Why there is no configuration: one line, with what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError(String);

impl TlsError {
    fn new(text: impl Into<String>) -> TlsError {
        TlsError(text.into())
    }

    /// About a file.
    fn of(path: &std::path::Path, what: impl std::fmt::Display) -> TlsError {
        TlsError(format!("{}: {what}", path.display()))
    }
}

impl std::fmt::Display for TlsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
