//! TLS for clients: Redis' names. Read together in `settings::tls`; without `tls-port` they say nothing.

use super::{COUNT, SMALL, Setting, at_start, int, row, secret};
use crate::kind::Kind;

pub(super) const ROWS: &[Setting] = &[
    row(
        "tls-port",
        int(0, 65535),
        "0",
        "TCP port for Redis clients that speak TLS; 0: none. With `port 0` it is the only one.",
    ),
    row(
        "tls-cert-file",
        Kind::Path,
        "",
        "Certificate of this node (PEM), with those between it and the authority behind it. Read again on SIGHUP and when the file changes.",
    ),
    row(
        "tls-key-file",
        Kind::Path,
        "",
        "Key of that certificate (PEM).",
    ),
    secret(row(
        "tls-key-file-pass",
        Kind::Text,
        "",
        "Password of `tls-key-file`, if it is encrypted (PKCS#8).",
    )),
    row(
        "tls-client-cert-file",
        Kind::Path,
        "",
        "Certificate this node shows to other nodes' TLS ports when it forwards commands; empty: `tls-cert-file`.",
    ),
    row(
        "tls-client-key-file",
        Kind::Path,
        "",
        "Key of that certificate (PEM).",
    ),
    secret(row(
        "tls-client-key-file-pass",
        Kind::Text,
        "",
        "Password of `tls-client-key-file`, if it is encrypted.",
    )),
    row(
        "tls-dh-params-file",
        Kind::Empty(
            "there is no Diffie-Hellman over numbers here, only over curves (ECDHE): leave it out",
        ),
        "",
        "Nothing: key exchange is ECDHE only.",
    ),
    row(
        "tls-ca-cert-file",
        Kind::Path,
        "",
        "Authorities whose certificates are trusted (PEM): of clients, and of other nodes.",
    ),
    row(
        "tls-ca-cert-dir",
        Kind::Path,
        "",
        "Folder of such authorities, one or more in each file.",
    ),
    row(
        "tls-auth-clients",
        Kind::Choice(&["no", "yes", "optional"]),
        "yes",
        "Whether a client must show a certificate of a trusted authority. `optional`: one that is shown must be good.",
    ),
    row(
        "tls-protocols",
        Kind::Text,
        "",
        "Versions that are spoken, separated by blanks: TLSv1.2, TLSv1.3; empty: both. Older ones are not there.",
    ),
    row(
        "tls-ciphers",
        Kind::Text,
        "",
        "Ciphers of TLS 1.2 as OpenSSL names them, separated by colons (`ECDHE-RSA-AES128-GCM-SHA256`, `ECDHE+AESGCM`, `DEFAULT:-CHACHA20`); empty: all six that are there.",
    ),
    row(
        "tls-ciphersuites",
        Kind::Text,
        "",
        "Ciphers of TLS 1.3, separated by colons (`TLS_AES_128_GCM_SHA256`); empty: all three.",
    ),
    row(
        "tls-prefer-server-ciphers",
        Kind::Bool,
        "no",
        "Choose a cipher by this server's order, not by the client's.",
    ),
    row(
        "tls-session-caching",
        Kind::Bool,
        "yes",
        "Let clients that come again resume their TLS session, which saves a signature.",
    ),
    row(
        "tls-session-cache-size",
        SMALL,
        "20480",
        "Most TLS sessions that are remembered.",
    ),
    row(
        "tls-session-cache-timeout",
        COUNT,
        "300",
        "Seconds a TLS session is remembered.",
    ),
    row(
        "tls-cluster",
        Kind::Bool,
        "no",
        "On a cluster node that forwards commands (`redis-cluster-enabled no`): go to the TLS ports of other nodes, also where they have a plain one. Connections between nodes for Raft have TLS of their own (`peer-tls-cert`).",
    ),
    at_start(row(
        "http-tls",
        Kind::Choice(&["auto", "yes", "no"]),
        "auto",
        "Whether the HTTP port (gRPC, `/metrics`) speaks TLS, with the certificates of `tls-port`. `auto`: as the Redis ports do; with `tls-port` clients may use TLS, and with `port 0` they must.",
    )),
    row(
        "tls-replication",
        Kind::Off("there is no replication of the Redis kind"),
        "no",
        "There is no replication of the Redis kind.",
    ),
];
