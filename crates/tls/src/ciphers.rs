//! Versions and ciphers, written as OpenSSL and redis.conf write them.
//!
//! rustls has three ciphers for TLS 1.3 and six for TLS 1.2, all with ECDHE and authenticated encryption. What a list
//! *removes* may be anything: it is not there. What it *adds* must be here, or the operator would believe in a
//! cipher that is not spoken.

use tokio_rustls::rustls::crypto::ring::cipher_suite as suites;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use crate::TlsError;

/// OpenSSL's name, and ours.
type Known = (&'static str, SupportedCipherSuite);

const NEW: &[Known] = &[
    ("TLS_AES_256_GCM_SHA384", suites::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", suites::TLS13_AES_128_GCM_SHA256),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        suites::TLS13_CHACHA20_POLY1305_SHA256,
    ),
];

const OLD: &[Known] = &[
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// `tls-protocols`.
pub fn versions(text: &str) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let mut chosen = Vec::new();
    for word in text.split_ascii_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.2" => chosen.push(&TLS12),
            "tlsv1.3" => chosen.push(&TLS13),
            "tlsv1" | "tlsv1.1" => {
                return Err(TlsError::new(format!(
                    "tls-protocols: {word} is broken and not spoken; there are TLSv1.2 and TLSv1.3"
                )));
            }
            _ => {
                return Err(TlsError::new(format!(
                    "tls-protocols: '{word}' is no version; there are TLSv1.2 and TLSv1.3"
                )));
            }
        }
    }
    match chosen.is_empty() {
        true => Ok(vec![&TLS13, &TLS12]),
        false => Ok(chosen),
    }
}

/// All ciphers that may be used, in the order of preference: those of `tls-ciphersuites`, then of `tls-ciphers`.
pub fn ciphers(new: &str, old: &str) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let mut chosen = chosen(NEW, new, "tls-ciphersuites")?;
    chosen.extend(self::chosen(OLD, old, "tls-ciphers")?);
    Ok(chosen.into_iter().map(|(_, suite)| suite).collect())
}

fn chosen(known: &[Known], text: &str, setting: &str) -> Result<Vec<Known>, TlsError> {
    let words = text.split([':', ',', ' ']).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let mut list: Vec<Known> = Vec::new();
    if words.is_empty() {
        list.extend(known);
    }
    for word in words {
        if let Some(removed) = word.strip_prefix(['!', '-']) {
            list.retain(|(name, _)| !is_meant(removed, name));
        } else if let Some(last) = word.strip_prefix('+') {
            let (kept, moved) = list.iter().partition(|(name, _)| !is_meant(last, name));
            list = kept;
            list.extend::<Vec<Known>>(moved);
        } else if !word.starts_with('@') {
            let before = list.len();
            let added = known.iter().filter(|(name, _)| is_meant(word, name));
            for &cipher in added {
                if !list.iter().any(|(name, _)| *name == cipher.0) {
                    list.push(cipher);
                }
            }
            let is_there = list.iter().any(|(name, _)| is_meant(word, name));
            if list.len() == before && !is_there {
                let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                return Err(TlsError::new(format!(
                    "{setting}: no cipher is called '{word}' here; there are {}",
                    names.join(", ")
                )));
            }
        }
    }
    Ok(list)
}

/// Whether a word of a list means a cipher: its name, a group, or several groups joined by `+`.
fn is_meant(word: &str, name: &str) -> bool {
    word.split('+').all(|part| match part {
        "DEFAULT" | "ALL" | "HIGH" | "COMPLEMENTOFDEFAULT" => part != "COMPLEMENTOFDEFAULT",
        "ECDHE" | "kECDHE" | "EECDH" | "kEECDH" | "AEAD" | "TLSv1.2" => true,
        "AESGCM" => name.contains("AES") && name.contains("GCM"),
        "AES" => name.contains("AES"),
        "AES128" | "AES256" | "CHACHA20" | "SHA256" | "SHA384" => name.contains(part),
        "RSA" | "aRSA" => name.contains("-RSA-"),
        "ECDSA" | "aECDSA" => name.contains("-ECDSA-"),
        other => other.eq_ignore_ascii_case(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old(text: &str) -> Vec<&'static str> {
        let chosen = chosen(OLD, text, "tls-ciphers").unwrap();
        chosen.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn lists_of_openssl() {
        assert_eq!(old("").len(), 6);
        assert_eq!(old("DEFAULT:!aNULL:-AES128-SHA256").len(), 6);
        assert_eq!(
            old("ECDHE+AESGCM+aRSA:!AES128"),
            ["ECDHE-RSA-AES256-GCM-SHA384"]
        );
        assert_eq!(
            old("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"),
            ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"]
        );
        assert_eq!(
            old("RSA:+AES256").last(),
            Some(&"ECDHE-RSA-AES256-GCM-SHA384")
        );
        let error = chosen(OLD, "AES128-SHA256", "tls-ciphers").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("tls-ciphers: no cipher is called 'AES128-SHA256'")
        );
    }

    #[test]
    fn versions_that_are_spoken() {
        assert_eq!(versions("").unwrap().len(), 2);
        assert_eq!(versions("tlsv1.2").unwrap().len(), 1);
        for wrong in ["TLSv1.1 TLSv1.2", "SSLv3"] {
            assert!(versions(wrong).is_err(), "{wrong}");
        }
    }
}
