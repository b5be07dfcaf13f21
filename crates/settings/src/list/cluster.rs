//! A node among others: founding, joining, being found, keeping up. Read together in
//! `settings::cluster`; without `cluster-init` and `join` they say nothing.

use super::{BYTES, Setting, at_start, flagged, int, row};
use crate::kind::Kind;

pub(super) const ROWS: &[Setting] = &[
    at_start(row(
        "cluster-init",
        Kind::Bool,
        "no",
        "Found a cluster on an empty data directory: this node is its first. Others come with `join`.",
    )),
    at_start(row(
        "join",
        Kind::Text,
        "",
        "Be a node of a cluster: `host:peer-port` of one or more of its nodes, separated by commas. Asked at every start; once joined, the addresses in the data directory work too.",
    )),
    at_start(row(
        "replace",
        int(0, 1_000_000_000),
        "0",
        "With `join` and an empty data directory: the node at this address whose data is lost for good, and whose place this one takes. The others must have a majority of everything it held. Means nothing once this node has joined.",
    )),
    at_start(row(
        "roles",
        Kind::Choice(&["meta,store", "store,meta", "store", "meta"]),
        "meta,store",
        "What a cluster node does: hold regions (`store`), take part in the service that places them (`meta`), or both.",
    )),
    at_start(row(
        "replicas",
        int(1, 9),
        "3",
        "With `cluster-init`: how many replicas a region has. The first regions are made when so many nodes are there.",
    )),
    at_start(row(
        "regions",
        int(0, 8192),
        "0",
        "With `cluster-init`: how many regions the slots are divided into at first; 0: four per replica.",
    )),
    at_start(row(
        "meta-replicas",
        int(1, 9),
        "3",
        "With `cluster-init`: how many nodes take part in the meta service.",
    )),
    at_start(row(
        "peer-port",
        int(0, 65535),
        "0",
        "TCP port for the other nodes of a cluster; 0: the Redis port (without one: `tls-port`) + 10000.",
    )),
    flagged(
        "redis-advertise-ip",
        at_start(row(
            "cluster-announce-ip",
            Kind::Text,
            "",
            "Address that clients and other nodes are told to reach this node at; empty: the first of `bind`.",
        )),
    ),
    flagged(
        "redis-advertise-port",
        at_start(row(
            "cluster-announce-port",
            int(0, 65535),
            "0",
            "Redis port that clients are told; 0: `redis-port`.",
        )),
    ),
    at_start(row(
        "cluster-announce-tls-port",
        int(0, 65535),
        "0",
        "Port that clients who speak TLS are told; 0: `tls-port`.",
    )),
    at_start(row(
        "labels",
        Kind::Text,
        "",
        "Where this node is: `zone=a,rack=7,host=h3`; replicas of a region are spread over them.",
    )),
    flagged(
        "redis-cluster-enabled",
        at_start(row(
            "cluster-redirect",
            Kind::Bool,
            "yes",
            "On a cluster node: redirect clients to the node that leads a slot, as Redis Cluster does. `no`: forward commands there, so that plain clients work with any node.",
        )),
    ),
    row(
        "enable-follower-read",
        Kind::Bool,
        "no",
        "On a cluster node: after READONLY a session's reads are answered by any replica, linearizable still (it asks the leader how far it must be).",
    ),
    at_start(row(
        "election-timeout",
        int(100, 60_000),
        "1000",
        "Milliseconds without a word of its leader after which a replica asks for votes; up to twice as many.",
    )),
    at_start(row(
        "node-dead-after",
        int(1_000, 86_400_000),
        "30000",
        "Milliseconds without a heartbeat after which a node counts as lost and its replicas are made anew elsewhere.",
    )),
    at_start(row(
        "log-keep-entries",
        int(0, 10_000_000),
        "10000",
        "On a cluster node: entries of a region's log that are kept for replicas that lag, when the log is cut (`log-size`). One that lacks more gets a snapshot.",
    )),
    row(
        "log-keep-bytes",
        BYTES,
        "256mb",
        "On a cluster node: bytes of log that are kept for replicas that lag, in equal parts for all regions of the node (1 MB each at least), when the log is cut; no more than `log-keep-entries` allows.",
    ),
    at_start(row(
        "snapshot-rate",
        BYTES,
        "100mb",
        "Bytes per second that this node sends or receives to bring up replicas; 0: as fast as it goes.",
    )),
    at_start(row(
        "cluster-secret-file",
        Kind::Path,
        "",
        "File with the cluster secret, for a node that joins: a copy of `cluster-secret` in the data directory of any node. Kept in this node's data directory once it has joined, and not read from here any more. With `cluster-init`: empty makes a new secret.",
    )),
    at_start(row(
        "peer-auth",
        Kind::Bool,
        "yes",
        "Whether other nodes and `neokv ctl` have to prove the cluster secret (or, with `peer-tls-cert`, show a certificate). `no` is allowed only while the peer port is on a loopback address.",
    )),
    at_start(row(
        "peer-tls-cert",
        Kind::Text,
        "",
        "Certificate of this node (PEM) for connections between nodes, in place of the cluster secret; with `peer-tls-key` and `peer-tls-ca`, on all nodes or none. The three files are read again when they change.",
    )),
    at_start(row(
        "peer-tls-key",
        Kind::Text,
        "",
        "Key of that certificate (PEM).",
    )),
    at_start(row(
        "peer-tls-ca",
        Kind::Text,
        "",
        "Authority that signed the certificates of all nodes (PEM).",
    )),
];
