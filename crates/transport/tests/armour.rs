//! Mutual TLS: on, off, of another authority, and one side only.

mod peers;

use std::path::Path;
use std::time::Duration;

use peers::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use transport::{Config, OutgoingSnapshot, SnapshotFile, Tls, Transport};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    Authority {
        issuer: Issuer::new(params, key),
        pem,
    }
}

/// A certificate for `name` by `signer`, on a node that trusts `trusted`.
fn papers(folder: &Path, file: &str, name: &str, signer: &Authority, trusted: &Authority) -> Tls {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &signer.issuer).unwrap();
    let path = |end: &str| folder.join(format!("{file}.{end}"));
    std::fs::write(path("crt"), certificate.pem()).unwrap();
    std::fs::write(path("key"), key.serialize_pem()).unwrap();
    std::fs::write(path("ca"), &trusted.pem).unwrap();
    Tls {
        certificate: path("crt"),
        key: path("key"),
        authority: path("ca"),
        name: None,
    }
}

fn armoured(id: u64, tls: Option<Tls>) -> Node {
    node(Config {
        tls,
        connect_timeout: Duration::from_secs(2),
        ..config(id)
    })
}

#[test]
fn two_nodes_of_one_authority() {
    let folder = TempDir::new().unwrap();
    let ours = authority();
    let tls = |file| papers(folder.path(), file, "127.0.0.1", &ours, &ours);
    let (one, two) = (armoured(1, Some(tls("one"))), armoured(2, Some(tls("two"))));
    one.transport.set_peer(2, &two.address[..]);
    until("up", || one.transport.is_up(2));
    for at in 0..100 {
        assert!(one.transport.send(2, at, vec![1; 100_000]));
    }
    until("all arrive", || two.ears.heard() == 100);
    let answer = one.transport.call(2, ECHO, "x", Duration::from_secs(9));
    assert_eq!(answer.wait().unwrap(), "x");
    // A snapshot goes the same way.
    *two.ears.directory.lock().unwrap() = Some(folder.path().join("in"));
    let path = folder.path().join("file");
    std::fs::write(&path, vec![5; 1_000_000]).unwrap();
    let name = "file".to_owned();
    let transfer = one.transport.send_snapshot(
        2,
        OutgoingSnapshot {
            region: 1,
            id: "s".into(),
            meta: "".into(),
            files: vec![SnapshotFile {
                name,
                path,
                crc32c: None,
            }],
        },
    );
    until("sent", || transfer.result().is_some());
    assert_eq!(transfer.result(), Some(Ok(())));
}

#[test]
fn one_name_for_all_nodes() {
    let folder = TempDir::new().unwrap();
    let ours = authority();
    let tls = |file| Tls {
        name: Some("neokv.internal".into()),
        ..papers(folder.path(), file, "neokv.internal", &ours, &ours)
    };
    let (one, two) = (armoured(1, Some(tls("one"))), armoured(2, Some(tls("two"))));
    one.transport.set_peer(2, &two.address[..]);
    until("up", || one.transport.is_up(2));
    // A certificate for another name is not accepted by the dialler.
    let wrong = papers(folder.path(), "three", "elsewhere", &ours, &ours);
    let three = armoured(3, Some(wrong));
    one.transport.set_peer(3, &three.address[..]);
    until("told", || one.ears.noticed("not valid for name"));
    assert!(!one.transport.is_up(3));
}

#[test]
fn a_certificate_of_another_authority() {
    let folder = TempDir::new().unwrap();
    let (ours, theirs) = (authority(), authority());
    let good = papers(folder.path(), "one", "127.0.0.1", &ours, &ours);
    // It believes us; we do not believe it.
    let bad = papers(folder.path(), "two", "127.0.0.1", &theirs, &ours);
    let (one, two) = (armoured(1, Some(good)), armoured(2, Some(bad)));
    two.transport.set_peer(1, &one.address[..]);
    until("1 says so", || one.ears.noticed("does not pass TLS"));
    until("2 fails", || counters(&two, 1).connect_failures > 0);
    until("2 says why", || {
        two.ears
            .noticed("does not accept the certificate of this node")
    });
    one.transport.set_peer(2, &two.address[..]);
    until("1 does not go there either", || one.ears.noticed("TLS: "));
    assert!(one.ears.ups.lock().unwrap().is_empty());
}

#[test]
fn one_side_only() {
    let folder = TempDir::new().unwrap();
    let ours = authority();
    let tls = papers(folder.path(), "one", "127.0.0.1", &ours, &ours);
    let (one, two) = (armoured(1, Some(tls)), armoured(2, None));
    one.transport.set_peer(2, &two.address[..]);
    two.transport.set_peer(1, &one.address[..]);
    until("2 hears TLS", || two.ears.noticed("speaks TLS"));
    until("1 hears none", || one.ears.noticed("does not pass TLS"));
    until("both fail", || {
        counters(&one, 2).connect_failures > 0 && counters(&two, 1).connect_failures > 0
    });
    assert!(one.ears.ups.lock().unwrap().is_empty());
    assert!(two.ears.ups.lock().unwrap().is_empty());
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let folder = TempDir::new().unwrap();
    let ours = authority();
    let mut tls = papers(folder.path(), "one", "127.0.0.1", &ours, &ours);
    tls.key = folder.path().join("nowhere.key");
    let started = Transport::start(
        Config {
            tls: Some(tls),
            ..config(1)
        },
        std::sync::Arc::new(Ears::default()),
    );
    let error = started.err().unwrap().to_string();
    assert!(error.contains("nowhere.key"), "{error}");
}

#[test]
fn new_certificates_are_used_without_a_restart() {
    let folder = TempDir::new().unwrap();
    let (old, new) = (authority(), authority());
    let tls = |file| papers(folder.path(), file, "127.0.0.1", &old, &old);
    let (one, two) = (armoured(1, Some(tls("one"))), armoured(2, Some(tls("two"))));
    one.transport.set_peer(2, &two.address[..]);
    until("up", || one.transport.is_up(2));
    // Of another authority: whoever has one of the old certificates is a stranger from now on.
    let theirs = papers(folder.path(), "three", "127.0.0.1", &new, &new);
    let three = armoured(3, Some(theirs));
    three.transport.set_peer(1, &one.address[..]);
    until("refused", || counters(&three, 1).connect_failures > 0);
    papers(folder.path(), "one", "127.0.0.1", &new, &new);
    until("let in", || three.transport.is_up(1));
    assert!(one.transport.is_up(2), "connections that stand go on");
}
