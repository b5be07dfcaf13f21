//! Mutual TLS: both sides show a certificate of the one authority the cluster trusts, and nothing
//! older than TLS 1.2 is spoken. New connections use the files as they are now ([`reload`](crate::reload)).

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::config::Tls;
use crate::stream::Stream;

pub struct Armour {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    name: Option<ServerName<'static>>,
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{}: {what}", path.display()),
    )
}

impl Armour {
    pub fn load(tls: &Tls) -> io::Result<Armour> {
        let certificates = read_certificates(&tls.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|why| wrong(&tls.key, why))?;
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(&tls.authority)? {
            roots
                .add(certificate)
                .map_err(|why| wrong(&tls.authority, why))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|why| wrong(&tls.authority, why))?;
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|why| wrong(&tls.certificate, why))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates.clone(), key.clone_key())
            .map_err(|why| wrong(&tls.certificate, why))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| wrong(&tls.certificate, why))?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates, key)
            .map_err(|why| wrong(&tls.certificate, why))?;
        let name = match &tls.name {
            Some(name) => Some(
                ServerName::try_from(name.clone())
                    .map_err(|why| wrong(Path::new(name.as_str()), why))?,
            ),
            None => None,
        };
        Ok(Armour {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            name,
        })
    }

    pub async fn accept(&self, socket: TcpStream) -> io::Result<Stream> {
        let stream = self.acceptor.accept(socket).await?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }

    pub async fn connect(&self, socket: TcpStream, address: &str) -> io::Result<Stream> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => host_of(address)?,
        };
        let stream = self.connector.connect(name, socket).await?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }
}

fn read_certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(|all| all.collect::<Result<Vec<_>, _>>())
        .map_err(|why| wrong(path, why))?;
    if certificates.is_empty() {
        return Err(wrong(path, "holds no certificate"));
    }
    Ok(certificates)
}

fn host_of(address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(ServerName::IpAddress(ip.into()));
    }
    ServerName::try_from(host.to_owned())
        .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, format!("{host}: {why}")))
}
