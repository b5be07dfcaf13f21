//! Mutual TLS between nodes, through the program's own settings: everything works under it, and who has no certificate
//! of the cluster's authority is told so.

use std::path::Path;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::kill::RESUMED;
use crate::nodes::{Cluster, Plan};
use crate::seed;
use crate::traffic::Traffic;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority(name: &str) -> Authority {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).expect("a certificate").pem();
    Authority {
        issuer: Issuer::new(params, key),
        pem,
    }
}

/// Settings of a node at `host` with a certificate by `signer`, which trusts `trusted`.
fn papers(folder: &Path, host: &str, signer: &Authority, trusted: &Authority) -> [String; 6] {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
    let signed = params
        .signed_by(&key, &signer.issuer)
        .expect("a certificate");
    let write = |end: &str, text: &str| {
        let path = folder.join(format!("{host}.{end}"));
        std::fs::write(&path, text).expect("a file");
        path.to_string_lossy().into_owned()
    };
    [
        "--peer-tls-cert".into(),
        write("crt", &signed.pem()),
        "--peer-tls-key".into(),
        write("key", &key.serialize_pem()),
        "--peer-tls-ca".into(),
        write("ca", &trusted.pem),
    ]
}

fn words(settings: &[String]) -> Vec<&str> {
    settings.iter().map(String::as_str).collect()
}

#[test]
fn a_cluster_under_tls_and_strangers_at_its_door() {
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let mut cluster = Cluster::empty(None, Plan::default());
    let folder = cluster.folder().to_owned();
    for number in 1..=3 {
        let settings = papers(&folder, &cluster.host(number), &ours, &ours);
        cluster.add_down(number);
        cluster.set(number, &words(&settings));
        cluster.restart(number);
    }
    cluster.until_healthy();
    let traffic = Traffic::start(&cluster, "tls", 2, seed());
    let leader = cluster.leader_of("{any}");
    cluster.kill(leader);
    traffic.until_written(RESUMED);
    cluster.restart(leader);
    cluster.until_healthy();

    // With a certificate of somebody else.
    let settings = papers(&folder, &cluster.host(4), &theirs, &ours);
    cluster.add_down(4);
    cluster.set(4, &words(&settings));
    cluster.spawn(4);
    cluster.until_logged(
        1,
        "does not pass TLS: invalid peer certificate: UnknownIssuer",
    );
    cluster.until_logged(4, "TLS: it does not accept the certificate of this node");
    cluster.kill(4);
    // With none.
    cluster.set(4, &[]);
    cluster.spawn(4);
    cluster.until_logged(4, "or of another TLS setting");
    cluster.kill(4);
    // With half of what it takes: not without armour, but not at all.
    let settings = papers(&folder, &cluster.host(4), &ours, &ours);
    cluster.set(4, &words(&settings[..4]));
    cluster.spawn(4);
    cluster.until_logged(
        4,
        "peer-tls-cert, peer-tls-key and peer-tls-ca go together: peer-tls-ca is missing",
    );
    cluster.kill(4);
    // An operator without a certificate.
    let asked = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["ctl", "nodes", "--peer", &cluster.peer_address(1)])
        .args(["--cluster-secret-file", &cluster.secret()])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(!asked.status.success() && said.contains("TLS"), "{said}");

    // None of this did any harm; and with the right papers it is let in.
    traffic.until_written(RESUMED);
    cluster.set(4, &words(&settings));
    cluster.restart(4);
    cluster.until_healthy();
    traffic.finish(&cluster);
}
