//! Certificates made for a test, in a folder.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    /// Its own certificate.
    pub file: PathBuf,
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Papers {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new(folder: &Path, name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let file = folder.join(format!("{name}.crt"));
        std::fs::write(&file, pem).expect("a file");
        Authority {
            issuer: Issuer::new(params, key),
            folder: folder.to_owned(),
            file,
        }
    }

    /// Papers with this common name, in files called so. What was there is replaced, the key first.
    pub fn papers(&self, file: &str, name: &str) -> Papers {
        let key = KeyPair::generate().expect("a key");
        let hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(hosts).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        let papers = Papers {
            certificate: self.folder.join(format!("{file}.crt")),
            key: self.folder.join(format!("{file}.key")),
        };
        std::fs::write(&papers.key, key.serialize_pem()).expect("a file");
        std::fs::write(&papers.certificate, signed.pem()).expect("a file");
        papers
    }
}
