//! The cluster secret: 32 random bytes that every node of a cluster has, and nobody else.
//!
//! A file holds one or more of them, a line of 64 hexadecimal digits each; empty lines and lines that begin with `#`
//! say nothing. The first is used to dial, all are accepted: while a secret is replaced both are in the file. What
//! the file says takes effect without a restart ([`reload`](crate::reload)); a connection whose secret has left the
//! file is closed.
//!
//! Invariant: a secret reaches no log line and no error text; the file can be read by its owner only.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio_rustls::rustls::crypto::ring;

const BYTES: usize = 32;
/// Secrets in one file: one, or two while it is replaced; more are somebody's mistake.
const SECRETS_MAX: usize = 8;
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What all nodes of a cluster know.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; BYTES]);

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}

impl Secret {
    /// A new one, from the system's source of randomness.
    pub fn generate() -> io::Result<Secret> {
        let mut bytes = [0; BYTES];
        let random = ring::default_provider().secure_random;
        match random.fill(&mut bytes) {
            Ok(()) => Ok(Secret(bytes)),
            Err(_) => Err(io::Error::other("the system gives no random bytes")),
        }
    }

    /// 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Secret> {
        let digits = text.as_bytes();
        if digits.len() != 2 * BYTES {
            return None;
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                *byte = *byte << 4 | char::from(*digit).to_digit(16)? as u8;
            }
        }
        Some(Secret(bytes))
    }

    /// As it stands in a file.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

/// The secrets in force. Clones are the same ones.
#[derive(Clone)]
pub struct Secrets {
    inner: Arc<Inner>,
}

struct Inner {
    list: ArcSwap<Vec<Secret>>,
    /// None: they are of this process only, such as those of `neokv ctl`.
    /// Held while it is written.
    file: Mutex<Option<PathBuf>>,
    changed: watch::Sender<u64>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secrets")
    }
}

impl Secrets {
    /// Of this process only.
    pub fn of(list: Vec<Secret>) -> Secrets {
        Secrets::new(list, None)
    }

    /// Those in a file, as it changes.
    pub fn open(file: PathBuf) -> io::Result<Secrets> {
        let list = read_secrets(&file)?;
        Ok(Secrets::new(list, Some(file)))
    }

    fn new(list: Vec<Secret>, file: Option<PathBuf>) -> Secrets {
        Secrets {
            inner: Arc::new(Inner {
                list: ArcSwap::from_pointee(list),
                file: Mutex::new(file),
                changed: watch::Sender::new(0),
            }),
        }
    }

    /// The first is the one to dial with.
    pub fn all(&self) -> Arc<Vec<Secret>> {
        self.inner.list.load_full()
    }

    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.locked().clone()
    }

    /// Writes them to this file, which counts from now on.
    pub fn keep_in(&self, path: PathBuf) -> io::Result<()> {
        let mut file = self.locked();
        write_secrets(&path, &self.all())?;
        *file = Some(path);
        Ok(())
    }

    /// Reads the file again; whether it says something else now.
    pub(crate) fn reload(&self) -> io::Result<bool> {
        let file = self.locked();
        let Some(file) = &*file else {
            return Ok(false);
        };
        let list = read_secrets(file)?;
        Ok(self.take(list))
    }

    fn take(&self, list: Vec<Secret>) -> bool {
        if **self.inner.list.load() == list {
            return false;
        }
        self.inner.list.store(Arc::new(list));
        self.inner.changed.send_modify(|count| *count += 1);
        true
    }

    /// Accepts another one too, from now on.
    pub fn add(&self, secret: &Secret) -> io::Result<()> {
        self.change(|list| {
            if !list.contains(secret) {
                list.push(secret.clone());
            }
        })
    }

    /// Dials with this one, from now on; those before are still accepted.
    pub fn prefer(&self, secret: &Secret) -> io::Result<()> {
        self.change(|list| {
            list.retain(|it| it != secret);
            list.insert(0, secret.clone());
        })
    }

    /// Accepts this one only, from now on.
    pub fn keep_only(&self, secret: &Secret) -> io::Result<()> {
        self.change(|list| *list = vec![secret.clone()])
    }

    /// In the file first: what a restart would undo is not done.
    fn change(&self, change: impl FnOnce(&mut Vec<Secret>)) -> io::Result<()> {
        let file = self.locked();
        let mut list = (*self.all()).clone();
        change(&mut list);
        if list.len() > SECRETS_MAX {
            return Err(invalid(format!("more than {SECRETS_MAX} secrets")));
        }
        if let Some(file) = &*file {
            write_secrets(file, &list)?;
        }
        self.take(list);
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, Option<PathBuf>> {
        let lock = self.inner.file.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when this secret is accepted no more.
    pub(crate) async fn retired(&self, secret: &Secret) {
        let mut changed = self.inner.changed.subscribe();
        while self.inner.list.load().contains(secret) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// The secrets in a file; the error names the file, and says what to do.
pub fn read_secrets(path: &Path) -> io::Result<Vec<Secret>> {
    let shown = path.display();
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot read the cluster secret in {shown}: {error}"),
        )
    };
    let mut text = String::new();
    let file = File::open(path).map_err(named)?;
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(named)?;
    let mut list = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // The line itself is not shown: it may be a secret with a slip in it.
        let Some(secret) = Secret::parse(line) else {
            return Err(invalid(format!(
                "{shown}, line {}: a cluster secret is 64 hexadecimal digits, as `openssl rand -hex 32` prints them",
                at + 1
            )));
        };
        if !list.contains(&secret) {
            list.push(secret);
        }
    }
    match list.len() {
        0 => Err(invalid(format!("{shown} holds no cluster secret"))),
        1..=SECRETS_MAX => Ok(list),
        _ => Err(invalid(format!(
            "{shown} holds more than {SECRETS_MAX} cluster secrets"
        ))),
    }
}

/// Writes a file in place of the one that may be there, as a whole; on disk when this returns.
pub fn write_secrets(path: &Path, list: &[Secret]) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    let mut text = String::from(
        "# The secret of this cluster: whoever has it may do everything between nodes.\n\
         # The first line is used to dial, all are accepted. Read again when it changes.\n",
    );
    for secret in list {
        text.push_str(&secret.to_text());
        text.push('\n');
    }
    let write = || -> io::Result<()> {
        // One that was left may have another mode.
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| {
        let shown = path.display();
        io::Error::new(
            error.kind(),
            format!("cannot write the cluster secret to {shown}: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_of_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster-secret");
        let (one, two) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert_ne!(one, two);
        assert_eq!(Secret::parse(&one.to_text()), Some(one.clone()));
        write_secrets(&path, &[one.clone(), two.clone()]).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(
            read_secrets(&path).unwrap(),
            [one.clone(), two.clone()],
            "in order"
        );
        let secrets = Secrets::open(path.clone()).unwrap();
        assert!(!secrets.reload().unwrap());
        secrets.prefer(&two).unwrap();
        assert_eq!(*secrets.all(), [two.clone(), one.clone()]);
        secrets.keep_only(&two).unwrap();
        assert_eq!(read_secrets(&path).unwrap(), *secrets.all());
        write_secrets(&path, std::slice::from_ref(&one)).unwrap();
        assert!(secrets.reload().unwrap());
        assert_eq!(*secrets.all(), [one]);
    }

    #[test]
    fn a_wrong_file_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster-secret");
        let refused = |text: &str| {
            fs::write(&path, text).unwrap();
            let error = read_secrets(&path).unwrap_err().to_string();
            assert!(error.contains("cluster-secret"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
            error
        };
        assert!(refused("").contains("holds no cluster secret"));
        assert!(refused("# nothing\n\n").contains("holds no cluster secret"));
        assert!(refused("hunter2\n").contains("line 1"));
        let odd = "z".repeat(64);
        assert!(refused(&format!("# head\n{odd}\n")).contains("line 2"));
        let many: String = (0..9).map(|n| format!("{n:064x}\n")).collect();
        assert!(refused(&many).contains("more than 8"));
        fs::remove_file(&path).unwrap();
        assert!(read_secrets(&path).is_err());
    }
}
