//! The cluster secret of this node: where it comes from, and orders to replace it (`neokv ctl rotate-secret`).
//!
//! ```text
//!   --cluster-init, no file given ─► made here ────────────┐
//!   --cluster-secret-file ─► used until the node has joined┴─► DATA/cluster-secret, mode 0600: from then on it counts
//! ```
//!
//! Once the node has joined, the file that was given is not looked at any more: it would bring back a secret that
//! was replaced.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use settings::Settings;
use transport::{Bytes, Reply, Secret, Secrets, Transport, read_secrets, write_secrets};

/// In the data directory.
pub const SECRET_FILE: &str = "cluster-secret";

/// The secrets to start with. None: certificates are in their place, or nothing, on loopback.
pub(super) fn open(
    settings: &Settings,
    listen: SocketAddr,
    has_joined: bool,
) -> Result<Option<Secrets>, String> {
    let cluster = &settings.cluster;
    if cluster.tls.is_some() {
        return Ok(None);
    }
    if !cluster.peer_auth {
        return match listen.ip().is_loopback() {
            true => Ok(None),
            false => Err(format!(
                "--peer-auth no: whoever reaches {listen} could read and change everything. Bind to a loopback \
                 address, or leave it at yes"
            )),
        };
    }
    let text = |error: std::io::Error| error.to_string();
    let kept = kept_at(settings);
    let given = Some(PathBuf::from(&cluster.secret_file)).filter(|it| !it.as_os_str().is_empty());
    let has_kept = kept.exists();
    if has_kept && (has_joined || given.is_none()) {
        return Secrets::open(kept).map(Some).map_err(text);
    }
    match given {
        // It counts when the cluster has let the node in with it.
        Some(given) if !has_joined => return Secrets::open(given).map(Some).map_err(text),
        Some(given) => write_secrets(&kept, &read_secrets(&given).map_err(text)?).map_err(text)?,
        None if cluster.init => {
            let secret = Secret::generate().map_err(text)?;
            write_secrets(&kept, &[secret]).map_err(text)?;
            let file = kept.display();
            tracing::info!(
                "the cluster secret is in {file}: nodes that join, and `neokv ctl`, need a copy of that file"
            );
        }
        None => return Err(missing(&kept, has_joined)),
    }
    Secrets::open(kept).map(Some).map_err(text)
}

fn kept_at(settings: &Settings) -> PathBuf {
    settings.dir.join(SECRET_FILE)
}

fn missing(kept: &Path, has_joined: bool) -> String {
    let kept = kept.display();
    match has_joined {
        true => format!(
            "this node has no cluster secret: copy the file {SECRET_FILE} of another node's data directory to {kept}. \
             If no node has one (the cluster was made by an earlier version), make it with `openssl rand -hex 32` and \
             give all nodes the same"
        ),
        false => format!(
            "--join needs the cluster secret: give --cluster-secret-file FILE, a copy of the file {SECRET_FILE} in the \
             data directory of any node of the cluster"
        ),
    }
}

/// The node is one of the cluster: what let it in is kept.
pub(super) fn keep(settings: &Settings, secrets: Option<&Secrets>) -> Result<(), String> {
    match secrets {
        Some(secrets) => {
            let kept = secrets.keep_in(kept_at(settings));
            kept.map_err(|error| error.to_string())
        }
        None => Ok(()),
    }
}

/// A step of replacing the secret; each may be repeated.
#[derive(Debug, Clone)]
pub enum SecretOrder {
    /// Accept this one, too.
    Add(Secret),
    /// Dial with this one.
    Prefer(Secret),
    /// Accept no other one.
    KeepOnly(Secret),
}

impl SecretOrder {
    pub fn encode(&self) -> Vec<u8> {
        let (step, secret) = match self {
            SecretOrder::Add(secret) => (b'a', secret),
            SecretOrder::Prefer(secret) => (b'p', secret),
            SecretOrder::KeepOnly(secret) => (b'k', secret),
        };
        let mut bytes = vec![step];
        bytes.extend_from_slice(secret.to_text().as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<SecretOrder> {
        let (step, text) = bytes.split_first()?;
        let secret = Secret::parse(std::str::from_utf8(text).ok()?)?;
        match step {
            b'a' => Some(SecretOrder::Add(secret)),
            b'p' => Some(SecretOrder::Prefer(secret)),
            b'k' => Some(SecretOrder::KeepOnly(secret)),
            _ => None,
        }
    }
}

/// Carries out an order, on a thread of its own: it writes to a disk.
pub(super) fn on_call(transport: &Transport, body: Bytes, reply: Reply) {
    let Some(secrets) = transport.secrets().cloned() else {
        return reply.reject("this cluster uses no cluster secret");
    };
    let Some(order) = SecretOrder::decode(&body) else {
        return reply.reject("an order that makes no sense");
    };
    let run = move || {
        let (done, what) = match &order {
            SecretOrder::Add(secret) => (secrets.add(secret), "another secret is accepted, too"),
            SecretOrder::Prefer(secret) => (secrets.prefer(secret), "the new secret is used"),
            SecretOrder::KeepOnly(secret) => (
                secrets.keep_only(secret),
                "only the new secret is accepted; connections under the old one are closed",
            ),
        };
        match done {
            Ok(()) => {
                tracing::info!("the cluster secret is being replaced: {what}");
                reply.done(Bytes::new());
            }
            Err(error) => reply.reject(error.to_string()),
        }
    };
    let thread = std::thread::Builder::new().name("secret".into());
    drop(thread.spawn(run));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_travels() {
        let secret = Secret::generate().unwrap();
        let order = SecretOrder::KeepOnly(secret.clone());
        let arrived = SecretOrder::decode(&order.encode());
        assert!(matches!(arrived, Some(SecretOrder::KeepOnly(it)) if it == secret));
        assert!(SecretOrder::decode(b"").is_none());
        assert!(SecretOrder::decode(b"a1234").is_none());
        let shown = format!("{order:?}");
        assert!(!shown.contains(&secret.to_text()), "{shown}");
    }
}
