//! How the program itself connects: `neokv cli` and its kin, and nodes that forward commands.
//!
//! As redis-cli does it, a server must show a certificate of a trusted authority, and its name is looked at only if
//! one was given (`--sni`): certificates of test clusters seldom name addresses. A certificate that is itself among
//! the trusted ones is good as it is: self-signed ones are used so.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
};

use crate::TlsError;
use crate::files::{self, Chain};

/// The flags of a client, those of redis-cli.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub authorities_file: Option<PathBuf>,
    pub authorities_folder: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// The server may show anything.
    pub insecure: bool,
    /// The name the server's certificate must have.
    pub name: Option<String>,
}

/// Which servers are trusted.
pub enum Trust {
    Anybody,
    Authorities {
        authorities: Vec<CertificateDer<'static>>,
        checks_name: bool,
    },
}

impl Options {
    /// Reads the files.
    pub fn configuration(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let identity = files::identity(&settings::Identity {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            password: String::new(),
        })?;
        let (file, folder) = (&self.authorities_file, &self.authorities_folder);
        let trust = match (self.insecure, file, folder) {
            (true, ..) => Trust::Anybody,
            (false, None, None) => Trust::Authorities {
                authorities: rustls_native_certs::load_native_certs().certs,
                checks_name: self.name.is_some(),
            },
            (false, file, folder) => Trust::Authorities {
                authorities: files::authorities(file.as_deref(), folder.as_deref())?,
                checks_name: self.name.is_some(),
            },
        };
        let provider = Arc::new(ring::default_provider());
        configuration(provider, trust, identity)
    }

    /// What the server is called, for its certificate and for SNI.
    pub fn server_name(&self, host: &str) -> Result<ServerName<'static>, TlsError> {
        let name = self.name.as_deref().unwrap_or(host).to_string();
        ServerName::try_from(name.clone()).map_err(|why| TlsError::new(format!("{name}: {why}")))
    }
}

pub(crate) fn configuration(
    provider: Arc<CryptoProvider>,
    trust: Trust,
    identity: Option<Chain>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let failed = |why: Error| TlsError::new(format!("TLS for clients: {why}"));
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier::new(provider, trust)?));
    let config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(failed)?,
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// None: anybody is trusted.
    chains: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    checks_name: bool,
}

impl Verifier {
    fn new(provider: Arc<CryptoProvider>, trust: Trust) -> Result<Verifier, TlsError> {
        let (trusted, checks_name) = match trust {
            Trust::Anybody => {
                return Ok(Verifier {
                    provider,
                    chains: None,
                    trusted: Vec::new(),
                    checks_name: false,
                });
            }
            Trust::Authorities {
                authorities,
                checks_name,
            } => (authorities, checks_name),
        };
        let roots = Arc::new(files::roots(&trusted));
        let chains = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
        let chains = chains.map_err(|why| TlsError::new(format!("trusted authorities: {why}")))?;
        Ok(Verifier {
            provider,
            chains: Some(chains),
            trusted,
            checks_name,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chains) = &self.chains else {
            return Ok(ServerCertVerified::assertion());
        };
        if !self.checks_name && self.trusted.iter().any(|it| it == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified =
            chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is looked at last: everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
