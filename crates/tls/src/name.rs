//! The name in a certificate, for users that are known by theirs.

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The common name (CN) of the certificate's subject. None if there is none, or more than one: which is meant
/// would be a guess.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let mut names = parsed.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?.to_string();
    (names.next().is_none() && !name.is_empty() && !name.contains('\0')).then_some(name)
}
