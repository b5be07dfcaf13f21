//! Settings about TLS for clients.

use std::path::PathBuf;

use super::Settings;

/// Whether clients show certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    No,
    Optional,
    #[default]
    Required,
}

/// What the HTTP port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpTls {
    #[default]
    Plain,
    /// Whichever the client begins with.
    Both,
    Only,
}

/// A certificate with its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub password: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// 0: none.
    pub port: u16,
    pub server: Identity,
    /// What this node shows when it is the client; that of `server`, if not said.
    pub client: Identity,
    pub authorities_file: Option<PathBuf>,
    pub authorities_folder: Option<PathBuf>,
    pub client_certificates: ClientCertificates,
    /// As they were written; whoever builds the configuration reads them.
    pub protocols: String,
    pub ciphers: String,
    pub ciphersuites: String,
    pub prefer_server_ciphers: bool,
    /// How many sessions are remembered, 0: none; and for how many seconds.
    pub remembered_sessions: usize,
    pub remembered_seconds: u64,
    /// Commands are forwarded to TLS ports.
    pub forwards: bool,
    pub http: HttpTls,
}

impl TlsSettings {
    /// Whether anything of the node speaks TLS to clients.
    pub fn is_on(&self) -> bool {
        self.port != 0 || self.http == HttpTls::Only || self.forwards
    }
}

impl Settings {
    pub(super) fn take_tls(&mut self) {
        let path = |name: &str| Some(self.text(name)).filter(|it| !it.is_empty());
        let path = |name: &str| path(name).map(PathBuf::from);
        let server = Identity {
            certificate: path("tls-cert-file"),
            key: path("tls-key-file"),
            password: self.text("tls-key-file-pass"),
        };
        let client = match path("tls-client-cert-file") {
            None => server.clone(),
            certificate => Identity {
                certificate,
                key: path("tls-client-key-file"),
                password: self.text("tls-client-key-file-pass"),
            },
        };
        let port = self.int("tls-port") as u16;
        let http = match (self.text("http-tls").as_str(), port, self.int("port")) {
            ("yes", ..) | ("auto", 1.., 0) => HttpTls::Only,
            ("auto", 1.., _) => HttpTls::Both,
            _ => HttpTls::Plain,
        };
        self.tls = TlsSettings {
            port,
            server,
            client,
            authorities_file: path("tls-ca-cert-file"),
            authorities_folder: path("tls-ca-cert-dir"),
            client_certificates: match self.text("tls-auth-clients").as_str() {
                "no" => ClientCertificates::No,
                "optional" => ClientCertificates::Optional,
                _ => ClientCertificates::Required,
            },
            protocols: self.text("tls-protocols"),
            ciphers: self.text("tls-ciphers"),
            ciphersuites: self.text("tls-ciphersuites"),
            prefer_server_ciphers: self.flag("tls-prefer-server-ciphers"),
            remembered_sessions: match self.flag("tls-session-caching") {
                true => self.int("tls-session-cache-size") as usize,
                false => 0,
            },
            remembered_seconds: self.int("tls-session-cache-timeout") as u64,
            forwards: self.flag("tls-cluster"),
            http,
        };
    }
}
