//! What a playground remembers: `playground.toml` in its folder.
//!
//! Written anew after every change, under the lock of the folder, by writing a new file in place of
//! the old: whoever reads it sees the one or the other.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use server::cluster::SECRET_FILE;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};

use transport::{Secret, write_secrets};

use super::process::Process;

const HTTP_PORT_ABOVE: u16 = 1379;
const NAME: &str = "playground.toml";
const LOCK: &str = "lock";
const HEAD: &str = "# Made by `neokv cluster up`, which also changes it.\n\n";

/// A playground, with the lock on its folder if it is to be changed.
pub struct Book {
    pub folder: PathBuf,
    pub replicas: u32,
    /// 0: as many as the server likes.
    pub regions: u32,
    pub shards: u32,
    pub flags: Vec<String>,
    pub nodes: Vec<Node>,
    _lock: Option<File>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// From 1. The number meta gives it is the same, unless its data was removed in between.
    pub number: u32,
    pub redis_port: u16,
    pub peer_port: u16,
    /// It has been a node of the cluster.
    pub has_joined: bool,
    /// The last process started for it; it may have ended.
    pub process: Option<Process>,
}

impl Node {
    pub fn peer(&self) -> String {
        format!("127.0.0.1:{}", self.peer_port)
    }

    /// Of node 1 the one a server has by default, if its Redis port is.
    pub fn http_port(&self) -> u16 {
        self.redis_port.saturating_add(HTTP_PORT_ABOVE)
    }

    pub fn redis(&self) -> String {
        format!("127.0.0.1:{}", self.redis_port)
    }
}

impl Book {
    /// To be changed: nobody else can meanwhile. None if there is no playground yet.
    pub fn open(folder: &Path) -> Result<Option<Book>, String> {
        if !folder.join(NAME).exists() {
            return Ok(None);
        }
        let folder = absolute(folder)?;
        let lock = lock(&folder)?;
        let mut book = Book::read(&folder)?;
        book._lock = Some(lock);
        Ok(Some(book))
    }

    /// Only looked at.
    pub fn read(folder: &Path) -> Result<Book, String> {
        let path = folder.join(NAME);
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => no_playground(folder),
            _ => format!("cannot read {}: {error}", path.display()),
        })?;
        let document: DocumentMut = text
            .parse()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let folder = absolute(folder)?;
        parse(&document, folder)
            .ok_or_else(|| format!("{}: this version cannot read it", path.display()))
    }

    /// A new one, in a folder that is empty or not there. Nothing is written yet but the lock.
    pub fn found(folder: &Path) -> Result<Book, String> {
        let shown = folder.display();
        fs::create_dir_all(folder).map_err(|error| format!("cannot make {shown}: {error}"))?;
        let folder = absolute(folder)?;
        let lock = lock(&folder)?;
        for name in names(&folder)? {
            // Logs may be left from a start that failed.
            if name != LOCK && !(name.starts_with("node-") && name.ends_with(".log")) {
                return Err(format!(
                    "{shown} is not empty, and no playground: it has '{name}'. Give another --dir"
                ));
            }
        }
        Ok(Book {
            folder,
            replicas: 0,
            regions: 0,
            shards: 1,
            flags: Vec::new(),
            nodes: Vec::new(),
            _lock: Some(lock),
        })
    }

    pub fn save(&self) -> Result<(), String> {
        let path = self.folder.join(NAME);
        let fresh = self.folder.join("playground.new");
        fs::write(&fresh, format!("{HEAD}{}", self.document()))
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Removes everything that was made here, and the folder if nothing else is in it.
    pub fn wipe(self) -> Result<(), String> {
        self.forget()?;
        for node in &self.nodes {
            let log = self.log(node.number);
            remove(&log, fs::remove_file(&log))?;
        }
        let lock = self.folder.join(LOCK);
        remove(&lock, fs::remove_file(&lock))?;
        // Somebody may have put something there: then it stays.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    /// Removes the data and the book; logs stay, to be read.
    pub fn forget(&self) -> Result<(), String> {
        for node in &self.nodes {
            let data = self.data(node.number);
            remove(&data, fs::remove_dir_all(&data))?;
        }
        let secret = self.secret();
        remove(&secret, fs::remove_file(&secret))?;
        let path = self.folder.join(NAME);
        remove(&path, fs::remove_file(&path))
    }

    /// The cluster secret, for nodes that are new and for `neokv ctl`.
    pub fn secret(&self) -> PathBuf {
        self.folder.join(SECRET_FILE)
    }

    /// Makes it, if it is not there.
    pub fn make_secret(&self) -> Result<(), String> {
        if self.secret().exists() {
            return Ok(());
        }
        let made = Secret::generate().and_then(|it| write_secrets(&self.secret(), &[it]));
        made.map_err(|error| error.to_string())
    }

    /// Where it may be: the nodes' own count once they have joined, and `neokv ctl rotate-secret` changes those.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let nodes = self.nodes.iter();
        let of_nodes = nodes.map(|node| self.data(node.number).join(SECRET_FILE));
        of_nodes.chain([self.secret()]).collect()
    }

    pub fn data(&self, number: u32) -> PathBuf {
        self.folder.join(format!("node-{number}"))
    }

    pub fn log(&self, number: u32) -> PathBuf {
        self.folder.join(format!("node-{number}.log"))
    }

    pub fn node(&self, number: u32) -> Result<&Node, String> {
        let node = self.nodes.iter().find(|node| node.number == number);
        node.ok_or_else(|| {
            let last = self.nodes.len();
            format!("there is no node {number} here: they are 1 to {last}")
        })
    }

    pub fn node_mut(&mut self, number: u32) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.number == number)
    }

    /// The process of a node, if it runs.
    pub fn running<'a>(&self, node: &'a Node) -> Option<&'a Process> {
        let process = node.process.as_ref()?;
        process
            .is_running(&self.data(node.number))
            .then_some(process)
    }

    pub fn is_founded(&self) -> bool {
        self.nodes.iter().any(|node| node.has_joined)
    }

    /// As it is written after `--dir` to mean this one.
    pub fn dir_flag(&self) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        match self.folder.strip_prefix(&here) {
            Ok(inside) if inside == Path::new("neokv-cluster") => String::new(),
            Ok(inside) => format!(" --dir {}", inside.display()),
            Err(_) => format!(" --dir {}", self.folder.display()),
        }
    }

    fn document(&self) -> DocumentMut {
        let mut document = DocumentMut::new();
        document["replicas"] = value(i64::from(self.replicas));
        document["regions"] = value(i64::from(self.regions));
        document["shards"] = value(i64::from(self.shards));
        document["flags"] = value(self.flags.iter().collect::<Array>());
        let mut nodes = ArrayOfTables::new();
        for node in &self.nodes {
            let mut table = Table::new();
            table["number"] = value(i64::from(node.number));
            table["redis-port"] = value(i64::from(node.redis_port));
            table["peer-port"] = value(i64::from(node.peer_port));
            table["has-joined"] = value(node.has_joined);
            if let Some(process) = &node.process {
                table["pid"] = value(i64::from(process.pid));
                table["started"] = value(process.started as i64);
                table["boot"] = value(&process.boot);
            }
            nodes.push(table);
        }
        document["node"] = Item::ArrayOfTables(nodes);
        document
    }
}

fn parse(document: &DocumentMut, folder: PathBuf) -> Option<Book> {
    let number = |table: &Table, name: &str| table.get(name)?.as_integer();
    let head = document.as_table();
    let small = |name: &str| u32::try_from(number(head, name)?).ok();
    let flags = document.get("flags")?.as_array()?.iter();
    let flags: Option<Vec<String>> = flags.map(|it| Some(it.as_str()?.to_owned())).collect();
    let mut nodes = Vec::new();
    for table in document.get("node")?.as_array_of_tables()? {
        let port = |name: &str| u16::try_from(number(table, name)?).ok();
        let process = number(table, "pid").and_then(|pid| {
            Some(Process {
                pid: u32::try_from(pid).ok()?,
                started: u64::try_from(number(table, "started")?).ok()?,
                boot: table.get("boot")?.as_str()?.to_owned(),
            })
        });
        nodes.push(Node {
            number: u32::try_from(number(table, "number")?).ok()?,
            redis_port: port("redis-port")?,
            peer_port: port("peer-port")?,
            has_joined: table.get("has-joined")?.as_bool()?,
            process,
        });
    }
    Some(Book {
        folder,
        replicas: small("replicas")?,
        regions: small("regions")?,
        shards: small("shards")?,
        flags: flags?,
        nodes,
        _lock: None,
    })
}

/// What to say if there is none.
pub fn no_playground(folder: &Path) -> String {
    format!(
        "there is no playground in {}: `neokv cluster up` makes one, --dir says where",
        folder.display()
    )
}

fn absolute(folder: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn lock(folder: &Path) -> Result<File, String> {
    let path = folder.join(LOCK);
    let wrong = |error: std::io::Error| format!("cannot lock {}: {error}", path.display());
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(wrong)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(format!(
            "another `neokv cluster` command is at work in {}; wait until it is done",
            folder.display()
        )),
        Err(TryLockError::Error(error)) => Err(wrong(error)),
    }
}

fn names(folder: &Path) -> Result<Vec<String>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let name = entry.map_err(wrong)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    Ok(names)
}

/// What was not there is gone as well.
fn remove(path: &Path, result: std::io::Result<()>) -> Result<(), String> {
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let book = Book {
            folder: "/f".into(),
            replicas: 3,
            regions: 12,
            shards: 1,
            flags: vec!["--labels".into(), "zone=\"a\"".into()],
            nodes: vec![
                Node {
                    number: 1,
                    redis_port: 7000,
                    peer_port: 17000,
                    has_joined: true,
                    process: Some(Process {
                        pid: 4711,
                        started: 99,
                        boot: "b-1".into(),
                    }),
                },
                Node {
                    number: 2,
                    redis_port: 7001,
                    peer_port: 17001,
                    has_joined: false,
                    process: None,
                },
            ],
            _lock: None,
        };
        let text = book.document().to_string();
        let read = parse(&text.parse().unwrap(), "/f".into()).unwrap();
        assert_eq!(read.nodes, book.nodes);
        assert_eq!(read.flags, book.flags);
        assert_eq!((read.replicas, read.regions, read.shards), (3, 12, 1));
        let cut = text.replace("redis-port", "port");
        assert!(parse(&cut.parse().unwrap(), "/f".into()).is_none());
    }
}
