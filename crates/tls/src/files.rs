//! Certificates, keys and authorities, read from PEM files.

use std::path::{Path, PathBuf};

use pkcs8::{EncryptedPrivateKeyInfo, SecretDocument};
use settings::{Identity, TlsSettings};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::TlsError;

/// No certificate or key is longer; a device or a fifo would never end.
const MOST_BYTES: u64 = 1 << 20;
/// Files of a folder of authorities that are looked at.
const MOST_FILES: usize = 4096;

const ENCRYPTED: (&str, &str) = (
    "-----BEGIN ENCRYPTED PRIVATE KEY-----",
    "-----END ENCRYPTED PRIVATE KEY-----",
);

pub type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let about = std::fs::metadata(path).map_err(|why| TlsError::of(path, why))?;
    if !about.is_file() || about.len() > MOST_BYTES {
        return Err(TlsError::of(path, "is no file of at most 1 MB"));
    }
    std::fs::read(path).map_err(|why| TlsError::of(path, why))
}

/// A certificate, those behind it, and its key.
pub fn identity(given: &Identity) -> Result<Option<Chain>, TlsError> {
    let Some(certificate) = &given.certificate else {
        return Ok(None);
    };
    // As with OpenSSL, one file may hold both.
    let key = given.key.as_ref().unwrap_or(certificate);
    Ok(Some((
        certificates(certificate)?,
        private_key(key, &given.password)?,
    )))
}

pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.map_err(|why| TlsError::of(path, why))?;
    match found.is_empty() {
        true => Err(TlsError::of(path, "holds no certificate (PEM)")),
        false => Ok(found),
    }
}

pub fn private_key(path: &Path, password: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(TlsError::of(
            path,
            "is encrypted in a form of long ago; convert it with `openssl pkcs8 -topk8`",
        ));
    }
    let Some(begin) = text.find(ENCRYPTED.0) else {
        return PrivateKeyDer::from_pem_slice(&bytes)
            .map_err(|why| TlsError::of(path, format!("holds no private key (PEM): {why}")));
    };
    let block = text.get(begin..).unwrap_or_default();
    let end = block.find(ENCRYPTED.1).map(|at| at + ENCRYPTED.1.len());
    let block = end.and_then(|end| block.get(..end)).unwrap_or_default();
    if password.is_empty() {
        return Err(TlsError::of(
            path,
            "is encrypted; give its password by tls-key-file-pass",
        ));
    }
    let wrong = |why| {
        TlsError::of(
            path,
            format!(
                "the password does not open it, or it is encrypted otherwise than PBES2 with AES: {why}"
            ),
        )
    };
    let (_, document) = SecretDocument::from_pem(block).map_err(|why| TlsError::of(path, why))?;
    let encrypted = EncryptedPrivateKeyInfo::try_from(document.as_bytes()).map_err(wrong)?;
    let plain = encrypted.decrypt(password).map_err(wrong)?;
    Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(
        plain.as_bytes().to_vec(),
    )))
}

/// The authorities that are trusted, of the file and of the folder.
pub fn authorities(
    file: Option<&Path>,
    folder: Option<&Path>,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut found = match file {
        Some(file) => certificates(file)?,
        None => Vec::new(),
    };
    for path in folder_files(folder)? {
        // Among them may be lists of what was revoked, or a README.
        found.extend(certificates(&path).unwrap_or_default());
    }
    if let (Some(folder), true) = (folder, found.is_empty()) {
        return Err(TlsError::of(folder, "holds no certificate (PEM)"));
    }
    Ok(found)
}

pub fn roots(authorities: &[CertificateDer<'static>]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(authorities.iter().cloned());
    if unusable > 0 {
        tracing::warn!(
            unusable,
            "authorities of TLS that cannot be used are left out"
        );
    }
    roots
}

fn folder_files(folder: Option<&Path>) -> Result<Vec<PathBuf>, TlsError> {
    let Some(folder) = folder else {
        return Ok(Vec::new());
    };
    let entries = std::fs::read_dir(folder).map_err(|why| TlsError::of(folder, why))?;
    let mut paths: Vec<PathBuf> = entries
        .take(MOST_FILES)
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    Ok(paths)
}

/// What tells that a file has been replaced or written.
pub type Stamp = (PathBuf, Option<(u64, i64, i64, u64)>);

/// Of all files the settings name.
pub fn stamps(settings: &TlsSettings) -> Vec<Stamp> {
    let named = [
        &settings.server.certificate,
        &settings.server.key,
        &settings.client.certificate,
        &settings.client.key,
        &settings.authorities_file,
    ];
    let mut paths: Vec<PathBuf> = named.into_iter().flatten().cloned().collect();
    paths.extend(folder_files(settings.authorities_folder.as_deref()).unwrap_or_default());
    paths
        .into_iter()
        .map(|path| {
            use std::os::unix::fs::MetadataExt;
            let about = std::fs::metadata(&path).ok();
            let about = about.map(|it| (it.ino(), it.mtime(), it.mtime_nsec(), it.len()));
            (path, about)
        })
        .collect()
}
