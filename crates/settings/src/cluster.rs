//! Settings about being a node of a cluster.

use std::collections::BTreeMap;

use super::Settings;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Found a cluster.
    pub init: bool,
    /// Peer addresses of nodes to join.
    pub join: Vec<String>,
    /// The node whose place this one takes; 0 for none.
    pub replace: u64,
    pub stores: bool,
    pub metas: bool,
    pub replicas: u32,
    /// 0: chosen by the number of replicas.
    pub regions: u32,
    pub meta_replicas: u32,
    pub peer_port: u16,
    pub advertise_host: String,
    /// 0: there is no plain port.
    pub advertise_port: u16,
    /// 0: there is no port for TLS.
    pub advertise_tls_port: u16,
    pub labels: BTreeMap<String, String>,
    pub redirects: bool,
    pub follower_read: bool,
    pub election_ms: u64,
    pub dead_after_ms: u64,
    pub keep_entries: u64,
    pub keep_bytes: u64,
    pub snapshot_rate_bytes: u64,
    /// Certificate, key, authority.
    pub tls: Option<[String; 3]>,
    /// Empty: none was given.
    pub secret_file: String,
    /// Peers have to prove something.
    pub peer_auth: bool,
}

impl ClusterSettings {
    pub fn is_asked_for(&self) -> bool {
        self.init || !self.join.is_empty()
    }
}

impl Settings {
    pub(super) fn take_cluster(&mut self) {
        let roles = self.text("roles");
        let port = self.int("port") as u16;
        let tls_port = self.tls.port;
        let first_port = if port == 0 { tls_port } else { port };
        let or = |value: i64, other: u16| match value {
            0 => other,
            value => value as u16,
        };
        let bind = self.words("bind");
        let first = bind.iter().find(|it| !it.starts_with('-'));
        let advertise_host = match (self.text("cluster-announce-ip"), first) {
            (given, _) if !given.is_empty() => given,
            (_, Some(bind)) if bind != "*" && bind != "0.0.0.0" => bind.clone(),
            _ => "127.0.0.1".into(),
        };
        let labels = self.text("labels");
        let labels = labels.split(',').filter_map(|label| {
            let (name, value) = label.split_once('=')?;
            Some((name.trim().to_string(), value.trim().to_string()))
        });
        let tls = ["peer-tls-cert", "peer-tls-key", "peer-tls-ca"].map(|name| self.text(name));
        let join = self.text("join");
        let join = join.split(',').map(str::trim).filter(|it| !it.is_empty());
        self.cluster = ClusterSettings {
            init: self.flag("cluster-init"),
            join: join.map(Into::into).collect(),
            replace: self.int("replace") as u64,
            stores: roles.contains("store"),
            metas: roles.contains("meta"),
            replicas: self.int("replicas") as u32,
            regions: self.int("regions") as u32,
            meta_replicas: self.int("meta-replicas") as u32,
            peer_port: or(self.int("peer-port"), first_port.wrapping_add(10_000)),
            advertise_host,
            advertise_port: or(self.int("cluster-announce-port"), port),
            advertise_tls_port: match tls_port {
                0 => 0,
                own => or(self.int("cluster-announce-tls-port"), own),
            },
            labels: labels.collect(),
            redirects: self.flag("cluster-redirect"),
            follower_read: self.flag("enable-follower-read"),
            election_ms: self.int("election-timeout") as u64,
            dead_after_ms: self.int("node-dead-after") as u64,
            keep_entries: self.int("log-keep-entries") as u64,
            keep_bytes: self.bytes("log-keep-bytes"),
            snapshot_rate_bytes: self.bytes("snapshot-rate"),
            secret_file: self.text("cluster-secret-file"),
            peer_auth: self.flag("peer-auth"),
            tls: tls.iter().any(|it| !it.is_empty()).then_some(tls),
        };
    }
}
