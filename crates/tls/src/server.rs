//! The configuration of the ports, made of settings and the files they name.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use settings::{ClientCertificates, TlsSettings};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::{
    NoServerSessionStorage, ServerSessionMemoryCache, StoresServerSessions, WebPkiClientVerifier,
};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};

use crate::{TlsError, ciphers, client, files};

/// What a port for TLS needs, ready to use.
pub struct Loaded {
    pub redis: Arc<ServerConfig>,
    /// The same, and clients may say by ALPN which HTTP they speak.
    pub http: Arc<ServerConfig>,
    /// For connections to other nodes; none, if no authority is known by which they could be told from others.
    pub upstream: Option<Arc<ClientConfig>>,
}

/// Reads everything. The error is one line for the operator.
pub fn load(settings: &TlsSettings) -> Result<Loaded, TlsError> {
    let mut provider = ring::default_provider();
    provider.cipher_suites = ciphers::ciphers(&settings.ciphersuites, &settings.ciphers)?;
    let provider = Arc::new(provider);
    let versions = ciphers::versions(&settings.protocols)?;
    let Some((chain, key)) = files::identity(&settings.server)? else {
        return Err(TlsError::new(
            "tls-cert-file is missing: a port for TLS needs a certificate (tls-cert-file) and its key (tls-key-file)",
        ));
    };
    let authorities = files::authorities(
        settings.authorities_file.as_deref(),
        settings.authorities_folder.as_deref(),
    )?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|why| TlsError::new(format!("tls-ciphers, tls-protocols: {why}")))?;
    let builder = match settings.client_certificates {
        ClientCertificates::No => builder.with_no_client_auth(),
        _ if authorities.is_empty() => {
            return Err(TlsError::new(
                "tls-auth-clients asks for certificates of clients, but no authority is trusted: give tls-ca-cert-file or tls-ca-cert-dir, or `tls-auth-clients no`",
            ));
        }
        wanted => {
            let roots = Arc::new(files::roots(&authorities));
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
            let verifier = match wanted {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier
                .build()
                .map_err(|why| TlsError::new(format!("tls-ca-cert-file: {why}")))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut server = builder
        .with_single_cert(chain, key)
        .map_err(|why| TlsError::new(format!("tls-cert-file and tls-key-file: {why}")))?;
    server.ignore_client_order = settings.prefer_server_ciphers;
    match settings.remembered_sessions {
        0 => {
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
        }
        most => {
            server.session_storage = Arc::new(Remembered {
                sessions: ServerSessionMemoryCache::new(most),
                seconds: settings.remembered_seconds,
            });
            server.send_tls13_tickets = 1;
        }
    }
    let mut http = server.clone();
    http.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let upstream = match authorities.is_empty() {
        true => None,
        false => Some(upstream(settings, provider, authorities)?),
    };
    Ok(Loaded {
        redis: Arc::new(server),
        http: Arc::new(http),
        upstream,
    })
}

fn upstream(
    settings: &TlsSettings,
    provider: Arc<CryptoProvider>,
    authorities: Vec<tokio_rustls::rustls::pki_types::CertificateDer<'static>>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let identity = files::identity(&settings.client)?;
    let trust = client::Trust::Authorities {
        authorities,
        checks_name: false,
    };
    client::configuration(provider, trust, identity)
}

/// Sessions that may be resumed, each for so many seconds.
#[derive(Debug)]
struct Remembered {
    sessions: Arc<ServerSessionMemoryCache>,
    seconds: u64,
}

const TIME_BYTES: usize = 8;

impl Remembered {
    fn fresh(&self, value: Vec<u8>) -> Option<Vec<u8>> {
        let (time, session) = value
            .split_last_chunk::<TIME_BYTES>()
            .map(|(a, b)| (b, a))?;
        let age = now_seconds().saturating_sub(u64::from_le_bytes(*time));
        (age <= self.seconds).then(|| session.to_vec())
    }
}

fn now_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| it.as_secs())
}

impl StoresServerSessions for Remembered {
    fn put(&self, key: Vec<u8>, mut value: Vec<u8>) -> bool {
        value.extend_from_slice(&now_seconds().to_le_bytes());
        self.sessions.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.fresh(self.sessions.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.fresh(self.sessions.take(key)?)
    }

    fn can_cache(&self) -> bool {
        true
    }
}
